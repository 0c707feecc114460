//! Sets of completion indexes, written as upstream writes them: `0,2-4`. Pure.

use std::fmt;

/// A set of indexes as ascending ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Reads a list; what is no index, or none below `completions`, is left out.
    pub fn parse(text: &str, completions: u32) -> Self {
        let Some(last_valid) = completions.checked_sub(1) else {
            return Self::default();
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && first <= last_valid).then_some((first, last.min(last_valid)))
        };
        Self::of(text.split(',').filter_map(range).collect())
    }

    fn of(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// These and others.
    #[must_use]
    pub fn with(&self, others: impl IntoIterator<Item = u32>) -> Self {
        let others = others.into_iter().map(|index| (index, index));
        Self::of(self.0.iter().copied().chain(others).collect())
    }

    /// Those that are in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// How many are in both.
    pub fn common(&self, other: &Self) -> u32 {
        let (mut mine, mut theirs) = (self.0.as_slice(), other.0.as_slice());
        let mut count = 0;
        while let (Some((a, rest)), Some((b, others))) = (mine.split_first(), theirs.split_first()) {
            let (low, high) = (a.0.max(b.0), a.1.min(b.1));
            if low <= high {
                count += high - low + 1;
            }
            if a.1 < b.1 {
                mine = rest;
            } else {
                theirs = others;
            }
        }
        count
    }

    /// How many there are.
    pub fn total(&self) -> u32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether it is among them.
    pub fn has(&self, index: u32) -> bool {
        let place = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(place).is_some_and(|(first, _)| *first <= index)
    }

    /// The first `count` indexes below `completions` that are not among them.
    pub fn missing(&self, count: usize, completions: u32) -> Vec<u32> {
        let mut found = Vec::with_capacity(count.min(1024));
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            let gap = (next..first.min(completions)).take(count - found.len());
            found.extend(gap);
            next = last.saturating_add(1);
            if found.len() == count {
                break;
            }
        }
        found
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn texts() {
        for (text, completions, expected) in [
            ("", 5, ""),
            ("0,2-4", 10, "0,2-4"),
            ("0,1", 10, "0,1"),
            ("0,1,2", 10, "0-2"),
            ("2-4,0", 10, "0,2-4"),
            ("0-9", 3, "0-2"),
            ("7", 3, ""),
            ("x,1,-,3-", 10, "1"),
            ("4-2,1", 10, "1"),
            ("0-4294967295", 4_294_967_295, "0-4294967294"),
            ("1", 0, ""),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), expected, "{text}");
        }
    }

    fn sets() -> impl Strategy<Value = BTreeSet<u32>> {
        prop::collection::btree_set(0..30_u32, 0..20)
    }

    proptest! {
        #[test]
        fn as_a_set_of_numbers(a in sets(), b in sets(), count in 0..10_usize) {
            let (x, y) = (Indexes::default().with(a.iter().copied()), Indexes::default().with(b.iter().copied()));
            prop_assert_eq!(Indexes::parse(&x.to_string(), 30), x.clone());
            prop_assert_eq!(x.total() as usize, a.len());
            prop_assert_eq!(x.common(&y) as usize, a.intersection(&b).count());
            prop_assert_eq!(x.union(&y), Indexes::default().with(a.union(&b).copied()));
            prop_assert!((0..30).all(|i| x.has(i) == a.contains(&i)));
            let missing: Vec<u32> = (0..30).filter(|i| !a.contains(i)).take(count).collect();
            prop_assert_eq!(x.missing(count, 30), missing);
        }
    }
}
