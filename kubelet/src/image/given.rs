//! Which images pods were given a moment ago: until their containers are created nothing else shows that they are used.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long one counts: longer than it takes from an image to its container, which may wait for others to start.
const COUNTS: Duration = Duration::from_secs(120);

/// Images by id. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Given(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Given {
    /// Notes that a pod was given the image now.
    pub(super) fn note(&self, id: &str) {
        let now = Instant::now();
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|_, at| now - *at < COUNTS);
        given.insert(id.to_owned(), now);
    }

    /// Those that count.
    pub(super) fn lately(&self) -> Vec<String> {
        let now = Instant::now();
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|_, at| now - *at < COUNTS);
        given.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_given_counts_for_two_minutes() {
        let given = Given::default();
        given.note("a");
        tokio::time::advance(Duration::from_secs(119)).await;
        given.note("b");
        assert_eq!(given.lately(), ["a", "b"]);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(given.lately(), ["b"]);
        given.note("a");
        assert_eq!(given.lately(), ["a", "b"]);
    }
}
