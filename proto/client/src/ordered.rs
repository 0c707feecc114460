//! Ordered maps, sets and slices with little code.
//!
//! The standard library sorts what is collected into a `BTreeMap` or `BTreeSet`, and its sort is four kilobytes for every type
//! it meets: in a binary that has to be small, half a megabyte. Here maps and sets are filled one by one, and slices are put
//! in order by one sort of their indices. The results are the same. For the few elements a node has; not for a cluster's.

use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// What can be filled one by one.
pub trait Ordered<T>: Sized {
    /// Everything `items` yields; of equal keys the last value stays, as with `collect`.
    fn of_items(items: impl Iterator<Item = T>) -> Self;
}

impl<K: Ord, V> Ordered<(K, V)> for BTreeMap<K, V> {
    fn of_items(items: impl Iterator<Item = (K, V)>) -> Self {
        let mut map = Self::new();
        for (key, value) in items {
            map.insert(key, value);
        }
        map
    }
}

impl<T: Ord> Ordered<T> for BTreeSet<T> {
    fn of_items(items: impl Iterator<Item = T>) -> Self {
        let mut set = Self::new();
        for item in items {
            set.insert(item);
        }
        set
    }
}

impl Ordered<(String, Value)> for Map<String, Value> {
    fn of_items(items: impl Iterator<Item = (String, Value)>) -> Self {
        let mut map = Self::new();
        for (key, value) in items {
            map.insert(key, value);
        }
        map
    }
}

impl<T, E, B: Ordered<T>> Ordered<Result<T, E>> for Result<B, E> {
    fn of_items(items: impl Iterator<Item = Result<T, E>>) -> Self {
        let mut failed = None;
        let sound = items.map_while(|item| item.map_err(|error| failed = Some(error)).ok());
        let all = B::of_items(sound);
        failed.map_or(Ok(all), Err)
    }
}

impl<T, B: Ordered<T>> Ordered<Option<T>> for Option<B> {
    fn of_items(items: impl Iterator<Item = Option<T>>) -> Self {
        let all: Result<B, ()> = Ordered::of_items(items.map(|item| item.ok_or(())));
        all.ok()
    }
}

/// `collect` for ordered maps and sets; see the module.
pub trait CollectOrdered: Iterator + Sized {
    /// Everything this iterator yields.
    fn collect_ordered<B: Ordered<Self::Item>>(self) -> B {
        B::of_items(self)
    }
}

impl<I: Iterator> CollectOrdered for I {}

/// The stable sorts of slices; see the module.
pub trait Arrange<T> {
    /// As `sort_by`.
    fn arrange_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// As `sort_by_key`.
    fn arrange_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.arrange_by(|a, b| key(a).cmp(&key(b)));
    }

    /// As `sort`.
    fn arrange(&mut self)
    where
        T: Ord,
    {
        self.arrange_by(T::cmp);
    }
}

impl<T> Arrange<T> for [T] {
    fn arrange_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut from = order(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        for start in 0..from.len() {
            let mut place = start;
            // Round by round: what belongs here comes here, until the one that stood at the start has its place.
            loop {
                let source = std::mem::replace(&mut from[place], place);
                if source == start {
                    break;
                }
                self.swap(place, source);
                place = source;
            }
        }
    }
}

/// The indices below `len` in the order of what they stand for.
fn order(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..len).collect();
    indices.sort_by(|a, b| compare(*a, *b));
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few hundred numbers, many of them alike.
    fn numbers(len: u32) -> Vec<(u32, u32)> {
        let next = |n: u32| n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let shuffled = std::iter::successors(Some(7), |n| Some(next(*n)));
        shuffled.map(|n| (n >> 16) % 37).zip(0..len).collect()
    }

    #[test]
    fn arranges_as_the_stable_sort_does() {
        for len in [0, 1, 2, 3, 19, 20, 21, 300] {
            let mut sorted = numbers(len);
            let mut arranged = sorted.clone();
            sorted.sort_by_key(|(n, _)| *n);
            arranged.arrange_by_key(|(n, _)| *n);
            assert_eq!(arranged, sorted, "{len} by key");
            arranged.arrange_by(|a, b| b.cmp(a));
            sorted.sort_by(|a, b| b.cmp(a));
            assert_eq!(arranged, sorted, "{len} downwards");
            arranged.arrange();
            sorted.sort();
            assert_eq!(arranged, sorted, "{len}");
        }
    }

    #[test]
    fn collects_as_the_standard_library_does() {
        let pairs = numbers(300);
        let map: BTreeMap<u32, u32> = pairs.iter().copied().collect_ordered();
        assert_eq!(map, pairs.iter().copied().collect());
        let set: BTreeSet<u32> = pairs.iter().map(|(n, _)| *n).collect_ordered();
        assert_eq!(set, pairs.iter().map(|(n, _)| *n).collect());
    }

    #[test]
    fn ends_at_the_first_failure() {
        let mut asked = 0;
        let items = [Ok(3), Ok(1), Err("two"), Err("three"), Ok(2)];
        let counted = items.iter().copied().inspect(|_| asked += 1);
        let failed: Result<BTreeSet<i32>, &str> = counted.collect_ordered();
        assert_eq!((failed, asked), (Err("two"), 3));
        let all: Result<BTreeSet<i32>, &str> = items.iter().copied().filter(Result::is_ok).collect_ordered();
        assert_eq!(all, Ok(BTreeSet::from([1, 2, 3])));
        let none: Option<BTreeSet<i32>> = [Some(1), None].into_iter().collect_ordered();
        assert_eq!(none, None);
        let some: Option<BTreeSet<i32>> = [Some(1), Some(2)].into_iter().collect_ordered();
        assert_eq!(some, Some(BTreeSet::from([1, 2])));
    }
}
