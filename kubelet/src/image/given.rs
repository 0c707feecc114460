//! Which images pods were given a moment ago: until their containers are created nothing else shows that they are used. And which were
//! pulled since somebody last asked: one that went and came back is told from one that stayed by nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long one counts: longer than it takes from an image to its container, which may wait for others to start.
const COUNTS: Duration = Duration::from_secs(120);
/// Pulled images that are remembered until somebody asks; a node has no more in five minutes.
const PULLED_MAX: usize = 1_000;

/// Images by id. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Given(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    given: BTreeMap<String, Instant>,
    pulled: BTreeMap<String, Instant>,
}

impl Given {
    /// Notes that a pod was given the image now.
    pub(super) fn note(&self, id: &str) {
        let now = Instant::now();
        let given = &mut self.noted().given;
        given.retain(|_, at| now - *at < COUNTS);
        given.insert(id.to_owned(), now);
    }

    /// Those that count.
    pub(super) fn lately(&self) -> Vec<String> {
        let now = Instant::now();
        let given = &mut self.noted().given;
        given.retain(|_, at| now - *at < COUNTS);
        given.keys().cloned().collect()
    }

    /// Notes that the image was pulled now, which the runtime calls so.
    pub(super) fn pulled(&self, id: &str) {
        let pulled = &mut self.noted().pulled;
        if pulled.len() < PULLED_MAX || pulled.contains_key(id) {
            pulled.insert(id.to_owned(), Instant::now());
        }
    }

    /// Those that were pulled since this was last asked, each with when.
    pub(super) fn take_pulled(&self) -> BTreeMap<String, Instant> {
        std::mem::take(&mut self.noted().pulled)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    #[tokio::test(start_paused = true)]
    async fn what_was_pulled_is_told_once_with_its_time_and_is_bounded() {
        let (given, begun) = (Given::default(), Instant::now());
        given.pulled("a");
        tokio::time::advance(Duration::from_secs(400)).await;
        let expected = [("a".to_owned(), begun)];
        assert_eq!(given.take_pulled().into_iter().collect::<Vec<_>>(), expected);
        assert!(given.take_pulled().is_empty());
        (0..=PULLED_MAX).for_each(|number| given.pulled(&number.to_string()));
        tokio::time::advance(Duration::from_secs(1)).await;
        given.pulled("0");
        let pulled = given.take_pulled();
        assert_eq!((pulled.len(), pulled["0"]), (PULLED_MAX, Instant::now()));
    }
}
