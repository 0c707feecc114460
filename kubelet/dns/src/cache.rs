//! What resolvers answered, for as long as it holds and room allows. Bounded by entries and by bytes: who is asked again gets a
//! second chance, and whoever was not is written over (the clock algorithm). Pure: the time is given.

use crate::wire::{Reply, rcode};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time an answer is kept; CoreDNS's.
const POSITIVE_MAX: Duration = Duration::from_secs(3600);
/// Longest time is kept that there is none; CoreDNS's.
const NEGATIVE_MAX: Duration = Duration::from_secs(1800);
/// How long is kept that nobody could answer (RFC 9520 §3.2: a second at least).
const FAILURE: Duration = Duration::from_secs(1);
/// What an entry costs beside its key and its records, in bytes, about.
const ENTRY_BYTES: usize = 200;

/// What the cache may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Entries.
    pub entries: usize,
    /// Bytes.
    pub bytes: usize,
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// There is data.
    Success,
    /// There is none.
    Denial,
}

/// What came of a look.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The answer.
    pub reply: Arc<Reply>,
    /// Its age, in whole seconds.
    pub age: u32,
    /// What it says.
    pub sort: Sort,
}

#[derive(Debug)]
struct Entry {
    key: Arc<[u8]>,
    reply: Arc<Reply>,
    stored: Instant,
    until: Instant,
    bytes: usize,
    asked_again: bool,
}

impl Entry {
    fn sort(&self) -> Sort {
        sort_of(&self.reply)
    }
}

/// The cache.
#[derive(Debug)]
pub struct Cache {
    bound: Bound,
    bytes: usize,
    places: HashMap<Arc<[u8]>, usize>,
    entries: Vec<Entry>,
    hand: usize,
    evicted: u64,
}

impl Cache {
    /// An empty cache.
    pub fn new(bound: Bound) -> Self {
        Self {
            bound,
            bytes: 0,
            places: HashMap::new(),
            entries: Vec::new(),
            hand: 0,
            evicted: 0,
        }
    }

    /// What is known of a question, while it holds.
    pub fn get(&mut self, key: &[u8], now: Instant) -> Option<Hit> {
        let at = *self.places.get(key)?;
        let entry = self.entries.get_mut(at)?;
        if entry.until <= now {
            self.remove(at);
            return None;
        }
        entry.asked_again = true;
        Some(Hit {
            reply: entry.reply.clone(),
            age: now.duration_since(entry.stored).as_secs() as u32,
            sort: entry.sort(),
        })
    }

    /// Keeps an answer, if it may be kept.
    pub fn put(&mut self, key: &[u8], reply: &Arc<Reply>, now: Instant) {
        if let Some(at) = self.places.get(key) {
            self.remove(*at);
        }
        let (bytes, holds) = (key.len() + reply.records.len() + ENTRY_BYTES, holds(reply));
        // One answer does not drive all others out.
        if holds.is_zero() || self.bound.entries == 0 || bytes > self.bound.bytes / 8 {
            return;
        }
        while self.entries.len() >= self.bound.entries || self.bytes + bytes > self.bound.bytes {
            self.evict(now);
        }
        let key: Arc<[u8]> = key.into();
        self.places.insert(key.clone(), self.entries.len());
        self.bytes += bytes;
        self.entries.push(Entry {
            key,
            reply: reply.clone(),
            stored: now,
            until: now + holds,
            bytes,
            asked_again: false,
        });
    }

    /// How many entries of a sort there are.
    pub fn len(&self, sort: Sort) -> usize {
        self.entries.iter().filter(|entry| entry.sort() == sort).count()
    }

    /// How many bytes it holds, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many entries went for others, before their time.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn evict(&mut self, now: Instant) {
        loop {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            let Some(entry) = self.entries.get_mut(self.hand) else {
                return;
            };
            let is_over = entry.until <= now;
            if is_over || !entry.asked_again {
                self.evicted += u64::from(!is_over);
                self.remove(self.hand);
                return;
            }
            entry.asked_again = false;
            self.hand += 1;
        }
    }

    fn remove(&mut self, at: usize) {
        let entry = self.entries.swap_remove(at);
        self.bytes -= entry.bytes;
        self.places.remove(&entry.key);
        if let Some(moved) = self.entries.get(at) {
            self.places.insert(moved.key.clone(), at);
        }
    }
}

fn sort_of(reply: &Reply) -> Sort {
    match reply.rcode == rcode::NO_ERROR && reply.counts[0] > 0 {
        true => Sort::Success,
        false => Sort::Denial,
    }
}

/// How long an answer may be kept.
fn holds(reply: &Reply) -> Duration {
    let seconds = Duration::from_secs(u64::from(reply.seconds()));
    match (reply.rcode, sort_of(reply)) {
        (rcode::NO_ERROR, Sort::Success) => seconds.min(POSITIVE_MAX),
        (rcode::NO_ERROR | rcode::NX_DOMAIN, _) => seconds.min(NEGATIVE_MAX),
        (rcode::SERV_FAIL, _) => FAILURE,
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
