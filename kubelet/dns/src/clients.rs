//! Who counts as one where what one may have is bounded. Pods of a node may share one /64, and who may write packets of its own can say any
//! address: so neither addresses nor ranges tell clients apart, but whom the node knows does. Each address it knows counts by itself,
//! all others together as one, so that whoever invents addresses shares what strangers have, and takes nothing of a pod's. Pure: the
//! time is given, and who knows is asked.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The addresses of this node and of its pods, as far as they are known. Asked on the thread that answers: it must not wait.
pub type KnownSources = Arc<dyn Fn() -> HashSet<IpAddr> + Send + Sync>;

/// How old what is known may be for whom it has. A pod's address may be nobody's a while later.
const AGE_MAX: Duration = Duration::from_secs(5);
/// How old for whom it has not: a pod asks as soon as it runs, and strangers' questions must not each cost a list.
const AGE_MAX_OF_STRANGERS: Duration = Duration::from_millis(100);
/// What all strangers count as.
pub const STRANGERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Whom the node knows.
pub struct Clients {
    /// Our own addresses: what runs on the node asks from the address it asks.
    own: Vec<IpAddr>,
    ask: Option<KnownSources>,
    known: HashSet<IpAddr>,
    read: Option<Instant>,
}

impl Clients {
    /// The clients of a responder at these addresses. Where nobody knows the node's pods every address counts by itself.
    pub fn new(own: Vec<IpAddr>, ask: Option<KnownSources>) -> Self {
        Self {
            own,
            ask,
            known: HashSet::new(),
            read: None,
        }
    }

    /// As whom a source counts: itself, or [`STRANGERS`].
    pub fn of(&mut self, source: IpAddr, now: Instant) -> IpAddr {
        let Some(ask) = &self.ask else { return source };
        let mut is_known = self.knows(&source);
        let age_max = if is_known { AGE_MAX } else { AGE_MAX_OF_STRANGERS };
        let age = self.read.map(|read| now.saturating_duration_since(read));
        if age.is_none_or(|age| age >= age_max) {
            (self.known, self.read) = (ask(), Some(now));
            is_known = self.knows(&source);
        }
        if is_known { source } else { STRANGERS }
    }

    fn knows(&self, source: &IpAddr) -> bool {
        self.known.contains(source) || self.own.contains(source)
    }
}

#[cfg(test)]
mod tests;
