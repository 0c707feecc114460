//! How many answers one source gets a second: a bucket of tokens for each of the sources seen lately. Bounded. Pure: the time is
//! given.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// How many sources are told apart.
const SOURCES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f32,
    at: Instant,
}

/// The buckets.
#[derive(Debug)]
pub struct Limit {
    per_second: f32,
    buckets: HashMap<IpAddr, Bucket>,
}

impl Limit {
    /// So many answers a second, and as many at once; 0 bounds nothing.
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second as f32,
            buckets: HashMap::new(),
        }
    }

    /// Whether this source gets an answer now.
    pub fn allows(&mut self, source: IpAddr, now: Instant) -> bool {
        if self.per_second == 0.0 {
            return true;
        }
        if self.buckets.len() >= SOURCES_MAX && !self.buckets.contains_key(&source) {
            self.forget(now);
        }
        let most = self.per_second;
        let bucket = self.buckets.entry(source).or_insert(Bucket { tokens: most, at: now });
        let since = now.saturating_duration_since(bucket.at).as_secs_f32();
        bucket.tokens = (bucket.tokens + since * most).min(most);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    /// Forgets who has a full bucket again, and everybody where that makes no room: then spoofed sources come faster than they
    /// could be told apart.
    fn forget(&mut self, now: Instant) {
        self.buckets
            .retain(|_, bucket| now.saturating_duration_since(bucket.at).as_secs() < 1);
        if self.buckets.len() >= SOURCES_MAX {
            self.buckets.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn a_source_gets_its_share_and_no_more() {
        let (mut limit, start) = (Limit::new(10), Instant::now());
        let mut allowed = |number, at| (0..100).filter(|_| limit.allows(source(number), at)).count();
        assert_eq!(allowed(1, start), 10);
        assert_eq!(allowed(2, start), 10, "another source has its own");
        assert_eq!(allowed(1, start + Duration::from_millis(500)), 5);
        assert_eq!(allowed(1, start + Duration::from_secs(60)), 10, "nothing is saved up");
        let mut free = Limit::new(0);
        assert!((0..100).all(|_| free.allows(source(1), start)));
    }

    #[test]
    fn spoofed_sources_take_no_memory() {
        let (mut limit, start) = (Limit::new(1), Instant::now());
        for number in 0..20_000 {
            limit.allows(source(number), start);
            assert!(limit.buckets.len() <= SOURCES_MAX);
        }
    }
}
