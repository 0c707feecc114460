//! Shares: how much of something one asker may hold at a time, so that others get theirs. Never waits.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Held<K> = Arc<Mutex<HashMap<K, usize>>>;

/// Counts what each asker holds. Knows only askers that hold something.
#[derive(Clone, Debug)]
pub(super) struct Shares<K> {
    most: usize,
    held: Held<K>,
}

/// One of the places an asker holds, until it is dropped.
#[derive(Debug)]
pub(super) struct Share<K: Eq + Hash> {
    of: K,
    held: Held<K>,
}

fn locked<K>(held: &Held<K>) -> MutexGuard<'_, HashMap<K, usize>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Eq + Hash + Clone> Shares<K> {
    /// At most so many for each.
    pub(super) fn new(most: usize) -> Self {
        let held = Arc::default();
        Self { most, held }
    }

    /// A place, unless the asker has all of its own.
    pub(super) fn take(&self, of: K) -> Option<Share<K>> {
        let mut held = locked(&self.held);
        let count = held.get(&of).copied().unwrap_or_default();
        if count >= self.most {
            return None;
        }
        held.insert(of.clone(), count + 1);
        let held = self.held.clone();
        Some(Share { of, held })
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = locked(&self.held);
        if let Some(count) = held.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_takes_no_more_than_its_own_and_leaves_nothing_behind() {
        let shares = Shares::new(2);
        let (first, second) = (shares.take("a"), shares.take("a"));
        assert!(first.is_some() && second.is_some());
        assert!(shares.take("a").is_none());
        assert!(shares.take("b").is_some());
        drop(first);
        assert!(shares.take("a").is_some());
        drop(second);
        assert!(locked(&shares.held).is_empty());
    }
}
