//! Sets of logical CPUs by their numbers, in the kernel's list form (`0-3,8`). Pure.

use std::fmt;

/// CPUs have numbers below this: more than any kernel is built for, and a bound on what a written list can cost.
pub const CPUS_MAX: u32 = 1 << 16;

/// A set of CPU numbers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CpuSet {
    /// Bit N of word W is CPU `64 * W + N`; the last word is never empty, so that equal sets are equal values.
    words: Vec<u64>,
}

/// Why a text is no list of CPUs; worded as upstream's parser has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// A part is no number.
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    Number(String),
    /// A range ends before it begins.
    #[error("invalid range {text:?} ({from} > {to})")]
    Range {
        /// The range as written.
        text: String,
        /// Its first CPU.
        from: u32,
        /// Its last.
        to: u32,
    },
    /// No machine has such a CPU.
    #[error("CPU {0} is out of range: CPUs have numbers below {CPUS_MAX}")]
    TooLarge(u32),
}

impl CpuSet {
    /// Reads a list such as `0-3,8`; nothing is the empty set.
    ///
    /// # Errors
    /// It is no such list.
    pub fn parse(text: &str) -> Result<Self, CpuListError> {
        let mut set = Self::default();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let number = |text: &str| {
                let number: u32 = text.parse().map_err(|_| CpuListError::Number(text.to_owned()))?;
                (number < CPUS_MAX)
                    .then_some(number)
                    .ok_or(CpuListError::TooLarge(number))
            };
            let (from, to) = match part.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                None => (number(part)?, number(part)?),
            };
            if from > to {
                let text = part.to_owned();
                return Err(CpuListError::Range { text, from, to });
            }
            set.extend(from..=to);
        }
        Ok(set)
    }

    /// Whether this CPU is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        let (word, bit) = place(cpu);
        self.words.get(word).is_some_and(|of| of & bit != 0)
    }

    /// Puts a CPU in; numbers beyond [`CPUS_MAX`] are none.
    pub fn insert(&mut self, cpu: u32) {
        if cpu >= CPUS_MAX {
            return;
        }
        let (word, bit) = place(cpu);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Those of both together.
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = match self.words.len() >= other.words.len() {
            true => (self, other),
            false => (other, self),
        };
        let mut words = long.words.clone();
        for (word, more) in words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        Self { words }
    }

    /// Puts all of another in.
    pub fn absorb(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Those that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self::of_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b))
    }

    /// Those that are not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().chain(std::iter::repeat(&0));
        Self::of_words(self.words.iter().zip(others).map(|(a, b)| a & !b))
    }

    /// How many are in both.
    pub fn shared(&self, other: &Self) -> usize {
        let both = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        both.map(|word| word.count_ones() as usize).sum()
    }

    /// Whether some CPU is in all three.
    pub fn meets(&self, second: &Self, third: &Self) -> bool {
        let mut all = self.words.iter().zip(&second.words).zip(&third.words);
        all.any(|((a, b), c)| a & b & c != 0)
    }

    /// Whether all of it is in the other.
    pub fn is_within(&self, other: &Self) -> bool {
        self.shared(other) == self.len()
    }

    /// Its CPUs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().zip(0_u32..).flat_map(|(word, index)| {
            let bits = (0..u64::BITS).filter(move |bit| word & (1 << bit) != 0);
            bits.map(move |bit| index * u64::BITS + bit)
        })
    }

    fn of_words(words: impl Iterator<Item = u64>) -> Self {
        let mut words: Vec<u64> = words.collect();
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

fn place(cpu: u32) -> (usize, u64) {
    ((cpu / u64::BITS) as usize, 1 << (cpu % u64::BITS))
}

impl Extend<u32> for CpuSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, cpus: T) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut set = Self::default();
        set.extend(cpus);
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (index, (first, last)) in ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_has_them() {
        for (text, written) in [
            ("", ""),
            ("0", "0"),
            ("3,0-1", "0-1,3"),
            ("0,1,2,64-66,65", "0-2,64-66"),
        ] {
            assert_eq!(CpuSet::parse(text).expect("a list").to_string(), written, "{text}");
        }
        for (text, why) in [
            ("1.3", "strconv.Atoi: parsing \"1.3\": invalid syntax"),
            ("0,", "strconv.Atoi: parsing \"\": invalid syntax"),
            ("3-1", "invalid range \"3-1\" (3 > 1)"),
            (
                "0-4000000000",
                "CPU 4000000000 is out of range: CPUs have numbers below 65536",
            ),
        ] {
            assert_eq!(CpuSet::parse(text).expect_err("no list").to_string(), why, "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(a in proptest::collection::btree_set(0_u32..300, 0..40), b in proptest::collection::btree_set(0_u32..300, 0..40)) {
            let set = |of: &BTreeSet<u32>| of.iter().copied().collect::<CpuSet>();
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.union(&y), set(&a.union(&b).copied().collect()));
            let mut all = x.clone();
            all.absorb(&y);
            prop_assert_eq!(all, x.union(&y));
            prop_assert_eq!(x.intersection(&y), set(&a.intersection(&b).copied().collect()));
            prop_assert_eq!(x.difference(&y), set(&a.difference(&b).copied().collect()));
            prop_assert_eq!(x.shared(&y), a.intersection(&b).count());
            prop_assert_eq!(x.is_within(&y), a.is_subset(&b));
            prop_assert_eq!(x.meets(&y, &x), a.intersection(&b).next().is_some());
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(CpuSet::parse(&x.to_string()).expect("a list"), x);
        }
    }
}
