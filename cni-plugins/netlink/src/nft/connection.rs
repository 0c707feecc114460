//! The connection to nf_tables: sends batches, lists rules, deletes those that match.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::errno::Errno;

use super::batch::{self, Batch, Chain};
use super::expression::{Compared, compared, jump_targets};
use super::wire::*;
use crate::codec::{self, Message, attribute, read_be64, read_text};
use crate::socket::{Reply, acknowledged};
use crate::wire::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR};
use crate::{Protocol, Socket};

/// How often work is repeated because the rule set changed meanwhile.
pub(super) const MAX_ATTEMPTS: usize = 10;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error("could not open the nftables connection")]
    Open(#[source] crate::Error),
    /// The batch was not applied, wholly.
    #[error("could not apply nftables changes")]
    Commit(#[source] crate::Error),
    /// Rules, chains or the generation could not be read.
    #[error("could not list nftables rules")]
    List(#[source] crate::Error),
    /// The kernel has no such thing; what, by name, and the refusal that led to it.
    #[error("this kernel's nf_tables lacks: {0}")]
    Lacks(String, #[source] crate::Error),
    /// Others kept changing the rule set.
    #[error("nftables rules kept changing, gave up after {MAX_ATTEMPTS} attempts")]
    Contended,
}

/// A rule as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name of its chain.
    pub chain: String,
    /// What deletes it.
    pub handle: u64,
    /// Its comment, or empty.
    pub comment: String,
    /// Its invisible mark.
    pub mark: Option<u8>,
    /// Its invisible label, or empty.
    pub label: String,
    /// What it compares of a packet, see [`super::expression::compared`].
    pub compared: Vec<Compared>,
    /// Chains it jumps or goes to.
    pub targets: Vec<String>,
}

impl Rule {
    fn read(body: &[u8]) -> Option<Self> {
        let attributes = body.get(4..)?;
        let data = attribute(attributes, NFTA_RULE_USERDATA).unwrap_or_default();
        let expressions = attribute(attributes, NFTA_RULE_EXPRESSIONS).unwrap_or_default();
        Some(Self {
            chain: read_text(attribute(attributes, NFTA_RULE_CHAIN)?),
            handle: read_be64(attribute(attributes, NFTA_RULE_HANDLE)?)?,
            comment: batch::read_comment(data).unwrap_or_default(),
            mark: batch::read_mark(data),
            label: batch::read_label(data).unwrap_or_default(),
            compared: compared(expressions),
            targets: jump_targets(expressions),
        })
    }
}

/// A connection to the rule set of one network namespace.
#[derive(Debug)]
pub struct Connection {
    pub(super) socket: Socket,
    /// How long the kernel took for the last batch of any size.
    pub(super) took: Duration,
}

impl Connection {
    /// Connects to the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        Socket::open(Protocol::Netfilter)
            .map(|socket| Self {
                socket,
                took: Duration::ZERO,
            })
            .map_err(Error::Open)
    }

    /// Closes the connection without waiting for the kernel to free deleted rules.
    pub fn close_later(self) {
        self.socket.close_later();
    }

    /// Applies a batch, whole or not at all. Returns the handles of the rules it added, in order.
    pub fn commit(&mut self, batch: &Batch) -> Result<Vec<u64>, Error> {
        for _ in 0..MAX_ATTEMPTS {
            match self.commit_once(batch, None) {
                Err(error) if error.errno() == Some(Errno::ERESTART) => {}
                other => return other.map_err(Error::Commit),
            }
        }
        Err(Error::Contended)
    }

    fn commit_once(&mut self, batch: &Batch, generation: Option<u32>) -> Result<Vec<u64>, crate::Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let count = batch.messages().len();
        let first = self.socket.reserve(count + 2);
        let last = first.wrapping_add(count as u32 + 1);
        let mut bytes = batch::frame(NFNL_MSG_BATCH_BEGIN, generation).encode(first, NLM_F_REQUEST);
        for (offset, message) in batch.messages().iter().enumerate() {
            bytes.extend(message.encode(first.wrapping_add(offset as u32 + 1), NLM_F_REQUEST | NLM_F_ACK));
        }
        bytes.extend(batch::frame(NFNL_MSG_BATCH_END, None).encode(last, NLM_F_REQUEST));
        self.socket.send(&bytes)?;
        let mut handles = BTreeMap::new();
        let mut refusal = None;
        let mut answered = 0;
        while answered < count {
            let size = self.socket.receive()?;
            for message in codec::messages(self.socket.received(size)) {
                let offset = message.sequence.wrapping_sub(first) as usize;
                if offset > count + 1 {
                    continue;
                }
                if message.kind != NLMSG_ERROR {
                    handles.extend(Rule::read(message.body).map(|rule| (offset, rule.handle)));
                    continue;
                }
                let outcome = acknowledged(message.body);
                if offset == 0 || offset > count {
                    // About the batch as a whole: nothing else will follow.
                    outcome?;
                    continue;
                }
                answered += 1;
                if let (Err(error), None) = (outcome, &refusal) {
                    refusal = Some(error);
                }
            }
        }
        match refusal {
            Some(error) => Err(error),
            None => Ok(handles.into_values().collect()),
        }
    }

    /// The generation of the rule set, which grows with every change.
    pub(super) fn generation(&mut self) -> Result<u32, crate::Error> {
        let message = Message::new((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETGEN, 0, &[0, 0, 0, 0]);
        let replies = self.socket.request(message)?;
        let read = |reply: &Reply| {
            let value = attribute(reply.body.get(4..)?, NFTA_GEN_ID)?;
            Some(u32::from_be_bytes(value.try_into().ok()?))
        };
        Ok(replies.iter().find_map(read).unwrap_or(0))
    }

    /// The rules of a chain; an absent table or chain has none.
    pub fn rules(&mut self, chain: Chain<'_>) -> Result<Vec<Rule>, Error> {
        self.rules_once(chain).map_err(Error::List)
    }

    fn rules_once(&mut self, chain: Chain<'_>) -> Result<Vec<Rule>, crate::Error> {
        match self.socket.dump(&batch::named_rule(NFT_MSG_GETRULE, 0, chain)) {
            Ok(replies) => Ok(replies.iter().filter_map(|reply| Rule::read(&reply.body)).collect()),
            Err(error) if error.is_missing() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// One rule by its handle, if it is there.
    pub fn rule(&mut self, chain: Chain<'_>, handle: u64) -> Result<Option<Rule>, Error> {
        let message = batch::named_rule(NFT_MSG_GETRULE, 0, chain).attr(NFTA_RULE_HANDLE, &handle.to_be_bytes());
        match self.socket.request(message) {
            Ok(replies) => Ok(replies.iter().find_map(|reply| Rule::read(&reply.body))),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(Error::List(error)),
        }
    }

    /// Whether a chain exists.
    pub fn has_chain(&mut self, chain: Chain<'_>) -> Result<bool, Error> {
        match self.socket.request(batch::named_chain(NFT_MSG_GETCHAIN, 0, chain)) {
            Ok(_) => Ok(true),
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(Error::List(error)),
        }
    }

    /// Lists the rules of some chains and applies what `plan` makes of them, again from the start if anybody changed the
    /// rule set in between.
    pub fn revise_all(&mut self, chains: &[Chain<'_>], plan: impl Fn(&[Vec<Rule>]) -> Batch) -> Result<(), Error> {
        for _ in 0..MAX_ATTEMPTS {
            let generation = self.generation().map_err(Error::List)?;
            let mut rules = Vec::with_capacity(chains.len());
            for chain in chains {
                rules.push(self.rules_once(*chain).map_err(Error::List)?);
            }
            match self.commit_once(&plan(&rules), Some(generation)) {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.errno(), Some(Errno::ERESTART | Errno::ENOENT)) => {}
                Err(error) => return Err(Error::Commit(error)),
            }
        }
        Err(Error::Contended)
    }

    /// [`Self::revise_all`] of one chain.
    pub fn revise(&mut self, chain: Chain<'_>, plan: impl Fn(&[Rule]) -> Batch) -> Result<(), Error> {
        self.revise_all(&[chain], |lists| {
            lists.first().map(|rules| plan(rules)).unwrap_or_default()
        })
    }

    /// Deletes the rules of a chain that match. A handle names one rule for ever, so it does not matter what else changes
    /// meanwhile; if one of the rules is gone, the list is read again.
    pub fn delete_rules(&mut self, chain: Chain<'_>, matches: impl Fn(&Rule) -> bool) -> Result<(), Error> {
        for _ in 0..MAX_ATTEMPTS {
            let mut batch = Batch::new();
            self.rules(chain)?
                .iter()
                .filter(|rule| matches(rule))
                .for_each(|rule| batch.delete_rule(chain, rule.handle));
            match self.commit(&batch) {
                Err(Error::Commit(error)) if error.is_missing() => {}
                outcome => return outcome.map(drop),
            }
        }
        Err(Error::Contended)
    }
}
