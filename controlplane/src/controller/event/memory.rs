//! What recorders remember: the newest so many of what was told, each under a digest. Pure.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Entries that are remembered (client-go's `maxLruCacheEntries`).
pub(crate) const ENTRIES: usize = 4096;

/// A short name for what two things are the same by; different things have different ones for all that matters.
pub(crate) fn digest(parts: impl Hash) -> u128 {
    let half = |which: u8| {
        let mut hasher = DefaultHasher::new();
        (which, &parts).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(0) << 64) | half(1)
}

/// What tells the names of events apart: the time, and in its last millisecond what the event is. Sources that tell of one object at the same
/// moment do not get into each other's way.
pub(crate) fn stamp(now: Timestamp, event: impl Hash) -> u64 {
    const LAST: u64 = (1 << 20) - 1;
    let nanoseconds = u64::try_from(now.as_nanosecond()).unwrap_or_default();
    let low = u64::try_from(digest(event) & u128::from(LAST)).unwrap_or_default();
    (nanoseconds & !LAST) | low
}

/// Values by digest. Beyond [`ENTRIES`] the one that was touched longest ago is forgotten.
pub(crate) struct Memory<V> {
    entries: BTreeMap<u128, (V, u64)>,
    /// By the turn of the last touch.
    turns: BTreeMap<u64, u128>,
    turn: u64,
}

impl<V> Default for Memory<V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            turns: BTreeMap::new(),
            turn: 0,
        }
    }
}

impl<V> Memory<V> {
    /// The value under that digest, which is made if there is none, and the one that is forgotten for its sake.
    pub(crate) fn touch(&mut self, digest: u128, make: impl FnOnce() -> V) -> (&mut V, Option<V>) {
        self.turn += 1;
        let turn = self.turn;
        let mut forgotten = None;
        match self.entries.get(&digest) {
            Some((_, last)) => drop(self.turns.remove(last)),
            None if self.entries.len() >= ENTRIES => {
                let oldest = self.turns.pop_first();
                let gone = oldest.and_then(|(_, oldest)| self.entries.remove(&oldest));
                forgotten = gone.map(|(value, _)| value);
            }
            None => {}
        }
        self.turns.insert(turn, digest);
        let entry = self.entries.entry(digest).or_insert_with(|| (make(), turn));
        entry.1 = turn;
        (&mut entry.0, forgotten)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = (u128, &V)> {
        self.entries.iter().map(|(digest, (value, _))| (*digest, value))
    }

    /// Forgets all values that `keeps` does not want, and gives them back.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&V) -> bool) -> Vec<(u128, V)> {
        let gone: Vec<_> = self.entries.extract_if(.., |_, (value, _)| !keeps(value)).collect();
        gone.into_iter()
            .map(|(digest, (value, turn))| {
                self.turns.remove(&turn);
                (digest, value)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_touched_longest_ago_is_forgotten_first() {
        let mut memory = Memory::default();
        for entry in 0..ENTRIES {
            assert_eq!(memory.touch(entry as u128, || entry).1, None);
        }
        assert_eq!(memory.touch(0, || 7), (&mut 0, None), "still known");
        assert_eq!(memory.touch(9999, || 8), (&mut 8, Some(1)));
        assert_eq!(memory.touch(1, || 9), (&mut 9, Some(2)));
        assert_eq!((memory.len(), memory.turns.len()), (ENTRIES, ENTRIES));
        let mut gone = memory.retain(|value| *value == 0);
        assert_eq!((gone.len(), memory.len(), memory.turns.len()), (ENTRIES - 1, 1, 1));
        gone.truncate(1);
        assert_eq!(gone, [(1, 9)]);
    }

    #[test]
    fn digests_tell_parts_apart() {
        let all = [
            digest(("a", "b")),
            digest(("ab", "")),
            digest(("", "ab")),
            digest(("b", "a")),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other != one));
        }
        assert_eq!(digest(("a", "b")), all[0]);
    }
}
