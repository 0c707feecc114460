//! This node's kernel: the one owner of the table `skiff_policy`. It decides nothing; it blocks, so it is used off the tasks
//! that must not wait.

mod bridge;
mod encode;

use std::time::Duration;

use netlink::cidr::Cidr;
use netlink::netns::{self, Netns};
use netlink::nft::{self, Connection, Family, feature};
use netlink::{Protocol, Socket, sysctl};

use crate::change::Change;
use bridge::Hidden;
pub use encode::TABLE;

/// The kernel refused, or cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network namespace cannot be entered.
    #[error("enter the network namespace")]
    Namespace(#[from] netns::Error),
    /// nf_tables.
    #[error("change the table {TABLE}")]
    Rules(#[from] nft::Error),
    /// A mistake of ours ended the work.
    #[error("working with the kernel ended in a panic")]
    Panicked,
    /// Links and addresses.
    #[error("look at the node's bridges")]
    Links(#[from] netlink::Error),
}

/// See the module.
pub struct Kernel {
    netns: Option<Netns>,
    rules: Connection,
    links: Socket,
    /// This node's pods' ranges, whose unknown addresses are held back.
    ranges: Vec<Cidr>,
    /// The rule set's generation at the last look.
    looked_at: Option<u32>,
    hidden: Option<Hidden>,
}

impl Kernel {
    /// Connects, in the given namespace or the process's own.
    ///
    /// # Errors
    /// The namespace or nf_tables is not there.
    pub fn open(namespace: Option<&str>, ranges: Vec<Cidr>) -> Result<Self, Error> {
        let netns = namespace.map(Netns::open).transpose()?;
        let connect = || -> Result<_, Error> { Ok((Connection::open()?, Socket::open(Protocol::Route)?)) };
        let (rules, links) = match &netns {
            Some(netns) => netns.run(connect)??,
            None => connect()?,
        };
        Ok(Self {
            netns,
            rules,
            links,
            ranges,
            looked_at: None,
            hidden: None,
        })
    }

    /// Puts everything there, in place of whatever table of ours there was, at once.
    ///
    /// # Errors
    /// The kernel refused; what was there stays.
    pub fn replace(&mut self, whole: &Change) -> Result<(), Error> {
        let batch = encode::replace(whole, &self.ranges);
        if let Err(error) = self.rules.commit_bulk(&batch) {
            let families = [Family::Ipv4, Family::Ipv6];
            return Err(self.rules.explain(error, &families, feature::JUDGING).into());
        }
        self.hidden = None;
        self.look_at_bridges()
    }

    /// Changes what differs, at once.
    ///
    /// # Errors
    /// The kernel refused: it holds something else than we thought, and is to be told everything.
    pub fn apply(&mut self, change: &Change) -> Result<(), Error> {
        Ok(self.rules.commit_bulk(&encode::apply(change))?)
    }

    /// How long the kernel itself took for the last change, without what it took to say it.
    pub fn last_took(&self) -> Duration {
        self.rules.last_took()
    }

    /// Whether the table is still there, with the chains it always has whole. Costs one question while nobody changes rules.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_intact(&mut self) -> Result<bool, Error> {
        let generation = self.rules.current_generation()?;
        if self.looked_at == Some(generation) {
            return Ok(true);
        }
        let mut chains = encode::counts(&self.ranges).to_vec();
        if let Some(hidden) = self.hidden.as_ref().filter(|hidden| !hidden.is_empty()) {
            chains.extend(bridge::counts(hidden));
        }
        for (chain, count) in chains {
            if self.rules.rules(chain)?.len() != count {
                return Ok(false);
            }
        }
        self.looked_at = Some(generation);
        Ok(true)
    }

    /// Whether there is a table of ours, whole or not.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_there(&mut self) -> Result<bool, Error> {
        Ok(self.rules.fingerprint(Family::Inet, TABLE)?.is_some())
    }

    /// Sees to it that packets between pods of one bridge are judged.
    ///
    /// # Errors
    /// The kernel does not tell, or refused.
    pub fn look_at_bridges(&mut self) -> Result<(), Error> {
        let (links, ranges) = (&mut self.links, &self.ranges);
        // Switches are those of the thread's namespace.
        let found = match &self.netns {
            Some(netns) => netns.run(|| bridge::hidden(links, ranges))??,
            None => bridge::hidden(links, ranges)?,
        };
        if self.hidden.as_ref() == Some(&found) {
            return Ok(());
        }
        match self.rules.commit_bulk(&bridge::replace(&found)) {
            // A kernel without tables of bridges has nothing to remove.
            Err(_) if found.is_empty() => {}
            outcome => outcome?,
        }
        self.hidden = Some(found);
        Ok(())
    }

    /// Whether connections of SCTP are followed with their ports.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn follows_sctp(&self) -> Result<bool, Error> {
        let look = || sysctl::get("netfilter/nf_conntrack_sctp_timeout_established").is_some();
        Ok(match &self.netns {
            Some(netns) => netns.run(look)?,
            None => look(),
        })
    }

    /// Takes everything of ours away; nothing there is fine.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn remove(&mut self) -> Result<(), Error> {
        self.looked_at = None;
        self.hidden = None;
        self.rules.remove_table(&[Family::Inet], TABLE)?;
        match self.rules.remove_table(&[Family::Bridge], TABLE) {
            // A kernel without tables of bridges.
            Err(nft::Error::Commit(error)) if error.errno().is_some() => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}
