//! Large batches and cheap looks at what is there: for who keeps a table of its own in step with a memory of it.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::batch::{self, Batch, start};
use super::connection::{Connection, Error};
use super::set::{NFT_MSG_GETSETELEM, Timed, elements_of, read_timed};
use super::wire::*;
use crate::codec::{self, attribute, read_be64, read_text};
use crate::socket::acknowledged;
use crate::wire::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR};

const NFTA_TABLE_HANDLE: u16 = 4;
const NFTA_CHAIN_USE: u16 = 6;

/// What tells two states of a table apart without listing it: its handle, which no other table ever has, and how many rules
/// and references its chains have in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// The table's handle.
    pub handle: u64,
    /// Number of chains.
    pub chains: usize,
    /// Rules and references of all chains.
    pub uses: u64,
}

/// A chain by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its table's family.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
}

/// `NF_INET_FORWARD`.
const HOOK_FORWARD: u32 = 2;
/// `NF_DROP`.
const DROP: u32 = 0;

/// A base chain that forwarded packets pass and that drops what it has no rule for.
fn dropping_forward_chain(family: Family, body: &[u8]) -> Option<Found> {
    let number = |value: &[u8]| Some(u32::from_be_bytes(value.try_into().ok()?));
    let attributes = body.get(4..)?;
    // A dump in one family is of that one, but for kernels that answer with more.
    let hook = attribute(attributes, NFTA_CHAIN_HOOK)?;
    let is_forward = attribute(hook, NFTA_HOOK_HOOKNUM).and_then(number) == Some(HOOK_FORWARD);
    let drops = attribute(attributes, NFTA_CHAIN_POLICY).and_then(number) == Some(DROP);
    (is_forward && drops && body.first() == Some(&(family as u8))).then_some(Found {
        family,
        table: attribute(attributes, NFTA_CHAIN_TABLE).map(read_text)?,
        name: attribute(attributes, NFTA_CHAIN_NAME).map(read_text)?,
    })
}

impl Connection {
    /// The chains of IP families that forwarded packets pass and whose policy is to drop them.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn dropping_forward_chains(&mut self) -> Result<Vec<Found>, Error> {
        let mut found = Vec::new();
        for family in [Family::Ipv4, Family::Ipv6, Family::Inet] {
            let listed = self
                .socket
                .dump(&start(NFT_MSG_GETCHAIN, 0, family))
                .map_err(Error::List)?;
            found.extend(
                listed
                    .iter()
                    .filter_map(|reply| dropping_forward_chain(family, &reply.body)),
            );
        }
        Ok(found)
    }

    /// Applies a batch of any size, whole or not at all. When the error is not the kernel's refusal, it is not known whether
    /// it was applied.
    ///
    /// # Errors
    /// The kernel refused a change, or its answer did not come.
    pub fn commit_bulk(&mut self, batch: &Batch) -> Result<(), Error> {
        for _ in 0..super::connection::MAX_ATTEMPTS {
            match self.commit_bulk_once(batch) {
                Err(error) if error.errno() == Some(Errno::ERESTART) => {}
                other => return other.map_err(Error::Commit),
            }
        }
        Err(Error::Contended)
    }

    /// Only the last change asks for an acknowledgement: refusals are told anyway, and thousands of acknowledgements would
    /// overrun the socket.
    fn commit_bulk_once(&mut self, batch: &Batch) -> Result<(), crate::Error> {
        let count = batch.messages().len();
        if count == 0 {
            return Ok(());
        }
        let first = self.socket.reserve(count + 2);
        let number = |offset: usize| first.wrapping_add(offset as u32);
        let mut bytes = batch::frame(NFNL_MSG_BATCH_BEGIN, None).encode(first, NLM_F_REQUEST);
        for (offset, message) in batch.messages().iter().enumerate() {
            let flags = if offset + 1 == count { NLM_F_ACK } else { 0 };
            message.encode_into(&mut bytes, number(offset + 1), NLM_F_REQUEST | flags);
        }
        batch::frame(NFNL_MSG_BATCH_END, None).encode_into(&mut bytes, number(count + 1), NLM_F_REQUEST);
        self.socket.make_room(bytes.len())?;
        let begun = Instant::now();
        let outcome = self.exchange(&bytes, first, count);
        self.took = begun.elapsed();
        outcome
    }

    /// How long the kernel took for the last batch of [`Self::commit_bulk`], from the first byte it was given to its answer: what nobody
    /// who sends that batch can do without.
    pub fn last_took(&self) -> Duration {
        self.took
    }

    /// Sends what was made of a batch of so many changes, numbered from `first` on, and waits for its answer.
    fn exchange(&mut self, bytes: &[u8], first: u32, count: usize) -> Result<(), crate::Error> {
        self.socket.send(bytes)?;
        loop {
            let size = self.socket.receive()?;
            for message in codec::messages(self.socket.received(size)) {
                let offset = message.sequence.wrapping_sub(first) as usize;
                if offset > count + 1 || message.kind != NLMSG_ERROR {
                    continue;
                }
                // Answers come in order, so the first refusal comes before the last change's answer.
                acknowledged(message.body)?;
                if offset == count {
                    return Ok(());
                }
            }
        }
    }

    /// The generation of the rule set: one more after every change by anybody.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn current_generation(&mut self) -> Result<u32, Error> {
        self.generation().map_err(Error::List)
    }

    /// What a table looks like; `None` when there is none.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn fingerprint(&mut self, family: Family, table: &str) -> Result<Option<Fingerprint>, Error> {
        let asked = start(NFT_MSG_GETTABLE, 0, family).attr_str(NFTA_TABLE_NAME, table);
        let replies = match self.socket.request(asked) {
            Ok(replies) => replies,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(Error::List(error)),
        };
        let handle = |body: &[u8]| attribute(body.get(4..)?, NFTA_TABLE_HANDLE).and_then(read_be64);
        let mut found = Fingerprint {
            handle: replies.iter().find_map(|reply| handle(&reply.body)).unwrap_or(0),
            ..Fingerprint::default()
        };
        let listed = start(NFT_MSG_GETCHAIN, 0, family);
        for reply in self.socket.dump(&listed).map_err(Error::List)? {
            let body = reply.body.get(4..).unwrap_or_default();
            if attribute(body, NFTA_CHAIN_TABLE).map(read_text).as_deref() == Some(table) {
                let uses = attribute(body, NFTA_CHAIN_USE).and_then(|value| value.try_into().ok());
                found.chains += 1;
                found.uses += uses.map_or(0, u32::from_be_bytes) as u64;
            }
        }
        Ok(Some(found))
    }

    /// What `take` makes of the elements of a dynamic map, one after another, so that a large one is never in memory as a list; nothing when
    /// the table or map is not there.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn gather_timed<T: Default>(
        &mut self,
        (family, table, set): (Family, &str, &str),
        mut take: impl FnMut(&mut T, Timed),
    ) -> Result<T, Error> {
        let asked = elements_of(NFT_MSG_GETSETELEM, 0, family, table, set);
        let gathered = self.socket.gather(&asked, |gathered, _, body| {
            read_timed(body).into_iter().for_each(|timed| take(gathered, timed));
        });
        match gathered {
            Err(error) if error.is_missing() => Ok(T::default()),
            gathered => gathered.map_err(Error::List),
        }
    }

    /// Deletes a table if it is there, in every family named.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn remove_table(&mut self, families: &[Family], table: &str) -> Result<(), Error> {
        for family in families {
            let mut batch = Batch::new();
            batch.delete_table(*family, table);
            match self.commit_bulk(&batch) {
                Err(Error::Commit(error)) if error.is_missing() => {}
                other => other?,
            }
        }
        Ok(())
    }
}
