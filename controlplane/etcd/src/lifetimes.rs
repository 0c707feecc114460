//! What goes by itself, some time after its last write: values under some prefixes are written with a lease of etcd's.
//!
//! Owns the leases that are written with. One serves many values: it lasts a little longer than they are to, and is used for as long as
//! what is written now has its whole time, or until as many hang on it as etcd should let go of at once. The bounds are upstream's, whose
//! API servers see to the same keys.

use crate::leases::grant;
use crate::rpc::Rpc;
use std::sync::Arc;
use std::time::Duration;
use store::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// By which part of their time values may live longer so that one lease serves several, and at most how long.
const LONGER: (u32, Duration) = (20, Duration::from_secs(60));
/// Values that hang on one lease.
const VALUES_MAX: u32 = 1000;

/// How long values live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// What their keys begin with, as the store is asked for them.
    pub prefix: &'static str,
    /// How long they are there after their last write, at least.
    pub after: Duration,
}

/// A lease, as far as it has been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    id: i64,
    /// Not later than etcd made it.
    since: Instant,
    values: u32,
}

/// Of one lifetime.
struct Kept {
    lifetime: Lifetime,
    /// Held while another is asked for: who comes meanwhile wants the same.
    used: Mutex<Option<Used>>,
}

/// Told of each lease that nothing more is written with: how many values were.
pub type OnLeaseOver = Box<dyn Fn(u32) + Send + Sync>;

/// See the module.
pub(crate) struct Lifetimes {
    kept: Vec<Kept>,
    on_over: OnLeaseOver,
}

impl Lifetimes {
    pub(crate) fn of(lifetimes: &[Lifetime], on_over: OnLeaseOver) -> Self {
        let kept = lifetimes.iter().map(|lifetime| Kept {
            lifetime: *lifetime,
            used: Mutex::new(None),
        });
        Self {
            kept: kept.collect(),
            on_over,
        }
    }

    fn kept(&self, key: &str) -> Option<&Kept> {
        self.kept.iter().find(|kept| key.starts_with(kept.lifetime.prefix))
    }

    /// The lease a key's value is to be written with now; 0 if it stays.
    ///
    /// # Errors
    /// etcd gives none.
    pub(crate) async fn lease(&self, rpc: &Arc<Rpc>, key: &str) -> Result<i64, StoreError> {
        let Some(kept) = self.kept(key) else { return Ok(0) };
        let after = kept.lifetime.after;
        let mut used = kept.used.lock().await;
        let now = Instant::now();
        if let Some(again) = used.and_then(|used| once_more(used, now, after)) {
            *used = Some(again);
            return Ok(again.id);
        }
        let id = grant(rpc, after + longer(after)).await?;
        let before = used.replace(Used {
            id,
            since: now,
            values: 1,
        });
        if let Some(before) = before {
            (self.on_over)(before.values);
        }
        Ok(id)
    }

    /// etcd knows nothing of a lease (any more): the next value is written with another.
    pub(crate) async fn is_gone(&self, key: &str, id: i64) {
        if let Some(kept) = self.kept(key) {
            let mut used = kept.used.lock().await;
            if let Some(gone) = used.take_if(|used| used.id == id) {
                (self.on_over)(gone.values);
            }
        }
    }
}

/// How much longer than its values a lease lasts, in whole seconds as etcd counts.
fn longer(after: Duration) -> Duration {
    Duration::from_secs((after / LONGER.0).min(LONGER.1).as_secs())
}

/// The lease with a further value, if that has its whole time with it.
fn once_more(used: Used, now: Instant, after: Duration) -> Option<Used> {
    let is_good = now.duration_since(used.since) <= longer(after) && used.values < VALUES_MAX;
    is_good.then(|| Used {
        values: used.values + 1,
        ..used
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_serves_as_long_as_what_is_written_has_its_whole_time() {
        let (since, hour) = (Instant::now(), Duration::from_secs(3600));
        let used = |values| Used { id: 7, since, values };
        let at = |seconds| since + Duration::from_secs(seconds);
        assert_eq!(once_more(used(1), at(60), hour), Some(used(2)));
        assert_eq!(once_more(used(1), at(61), hour), None, "it would go after 59 minutes");
        assert_eq!(once_more(used(999), at(1), hour), Some(used(1000)));
        assert_eq!(once_more(used(1000), at(1), hour), None, "too many go at once");
        // Twenty minutes are made a minute longer, less in proportion, and what is short not at all.
        for (after, expected) in [(3600, 60), (1200, 60), (600, 30), (15, 0)] {
            let (after, expected) = (Duration::from_secs(after), Duration::from_secs(expected));
            assert_eq!(longer(after), expected, "{after:?}");
        }
        assert_eq!(once_more(used(1), at(1), Duration::from_secs(15)), None);
    }
}
