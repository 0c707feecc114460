//! Who is answered when more is asked than can be answered. Without overload everybody is, however much one asks: a single busy pod may
//! have the whole responder. Overload is what the kernel says it is: questions that found no room and were dropped, whoever's. Then
//! what one source may have in a while shrinks, from what the busiest had, until nothing is dropped any more; it grows again as long as
//! nothing is. So the busiest are cut first and those who ask little never are, and a question that is not answered costs a quarter of
//! one that is. Bounded. Pure: the time is given.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// How long what one has had is counted: what the queue has room for meanwhile must not be spent on one source's share.
const WHILE: Duration = Duration::from_millis(5);
/// What every source may have in it, whatever the others do: 2,000 a second.
const LEAST: u32 = 10;
/// How many sources are told apart; those beyond (a node has no such number of pods) count as one.
const SOURCES_MAX: usize = 4096;

/// What everybody has had of late.
#[derive(Debug)]
pub struct Fair {
    began: Instant,
    /// What one source may have in a while.
    share: u32,
    /// Whether the kernel dropped questions in it.
    overflowed: bool,
    had: HashMap<IpAddr, u32>,
}

impl Fair {
    /// Nobody had anything, and nothing bounds them.
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            share: u32::MAX,
            overflowed: false,
            had: HashMap::new(),
        }
    }

    /// Hears that the kernel dropped questions.
    pub fn overflow(&mut self) {
        self.overflowed = true;
    }

    /// Whether this source gets an answer now; then it counts.
    pub fn allows(&mut self, source: IpAddr, now: Instant) -> bool {
        if now.saturating_duration_since(self.began) >= WHILE {
            self.begin(now);
        }
        let is_known = self.had.len() < SOURCES_MAX || self.had.contains_key(&source);
        let source = if is_known { source } else { Ipv4Addr::UNSPECIFIED.into() };
        let had = self.had.entry(source).or_default();
        let is_allowed = *had < self.share;
        *had += u32::from(is_allowed);
        is_allowed
    }

    fn begin(&mut self, now: Instant) {
        let most = self.had.values().copied().max().unwrap_or(0);
        self.share = match std::mem::take(&mut self.overflowed) {
            true => (self.share.min(most) / 4 * 3).max(LEAST),
            // It takes a second to double: what overflows is seldom tried again.
            false => self.share.saturating_add(self.share / 256 + 1),
        };
        self.began = now;
        self.had.clear();
    }
}

#[cfg(test)]
mod tests;
