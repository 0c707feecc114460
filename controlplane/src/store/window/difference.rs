//! Bytes as what they have in common with other bytes, and what not (pure): what an object was before a write is nearly what it is after it.
//!
//! Owns that form, which is kept in memory alone. A difference is a sequence of steps: a number of bytes of its own and these bytes, then a
//! number of bytes of the other, and where they stand there, counted from the end of those before.

/// A common part is found where it contains a whole block of the base that begins at a multiple of the stride, which is no less than this.
const BLOCK: usize = 16;
/// Blocks of the base that are known at most: where it has more, they are looked for in larger strides.
const BLOCKS: usize = 8 << 10;
/// No block.
const NONE: u32 = u32::MAX;

fn block(bytes: &[u8], at: usize) -> Option<[u8; BLOCK]> {
    bytes.get(at..at + BLOCK)?.try_into().ok()
}

/// Where blocks of the base stand: the first of those that have one place. Finding them takes as long as most differences do.
pub(super) struct Blocks {
    places: Vec<u32>,
}

impl Blocks {
    pub(super) fn of(base: &[u8]) -> Self {
        let stride = (base.len() / BLOCKS).max(BLOCK);
        let mut blocks = Self {
            places: vec![NONE; (base.len() / stride + 1).next_power_of_two() * 2],
        };
        // Backwards: the first of equal ones stays.
        for at in (0..base.len() / stride).rev().map(|number| number * stride) {
            if let (Some(found), Ok(place)) = (block(base, at), u32::try_from(at)) {
                let slot = blocks.slot(found);
                blocks.places[slot] = place;
            }
        }
        blocks
    }

    fn slot(&self, block: [u8; BLOCK]) -> usize {
        let mixed = u128::from_le_bytes(block).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (mixed >> 96) as usize & (self.places.len() - 1)
    }

    fn find(&self, block: [u8; BLOCK]) -> Option<usize> {
        let place = self.places[self.slot(block)];
        (place != NONE).then_some(place as usize)
    }
}

fn common(one: &[u8], other: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(mine), Some(theirs)) = (block(one, at), block(other, at)) {
        let differs = u128::from_le_bytes(mine) ^ u128::from_le_bytes(theirs);
        if differs != 0 {
            return at + (differs.trailing_zeros() / 8) as usize;
        }
        at += BLOCK;
    }
    let rest = one[at..].iter().zip(&other[at..]);
    at + rest.take_while(|(one, other)| one == other).count()
}

fn common_end(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .rev()
        .zip(other.iter().rev())
        .take_while(|(one, other)| one == other)
        .count()
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// What `bytes` are beside `base`, in no more than `most` bytes; `None` if it takes more.
pub(super) fn between(base: &[u8], bytes: &[u8], most: usize) -> Option<Box<[u8]>> {
    beside(base, &Blocks::of(base), bytes, most)
}

/// As [`between`], of a base whose blocks are known.
pub(super) fn beside(base: &[u8], blocks: &Blocks, bytes: &[u8], most: usize) -> Option<Box<[u8]>> {
    let mut out = Vec::with_capacity(most.min(bytes.len() / 4) + BLOCK);
    // What has been told of; where the last common part ended in the base; what is looked at.
    let (mut told, mut last, mut at) = (0, 0, 0);
    while let Some(next) = block(bytes, at) {
        // As far on in the base as here, where one thing took the place of another; or wherever such a block stands.
        let here = last + (at - told);
        let places = [Some(here), blocks.find(next).filter(|place| *place != here)];
        let equal = places
            .into_iter()
            .flatten()
            .filter(|place| block(base, *place) == Some(next));
        let longest = equal.map(|place| (common(&bytes[at..], &base[place..]), place)).max();
        let Some((equal, found)) = longest else {
            at += 1;
            if out.len() + (at - told) > most {
                return None;
            }
            continue;
        };
        let before = common_end(&bytes[told..at], &base[..found]);
        let (start, from) = (at - before, found - before);
        let length = before + equal;
        put(&mut out, (start - told) as u64);
        out.extend_from_slice(&bytes[told..start]);
        put(&mut out, length as u64);
        let step = from as i64 - last as i64;
        put(&mut out, ((step << 1) ^ (step >> 63)) as u64);
        (told, last) = (start + length, from + length);
        at = told;
    }
    put(&mut out, (bytes.len() - told) as u64);
    out.extend_from_slice(&bytes[told..]);
    (out.len() <= most).then(|| out.into_boxed_slice())
}

/// The bytes of which `difference` is beside `base`; `None` if it is no such difference.
pub(super) fn apply(base: &[u8], mut difference: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(length);
    let mut last = 0_usize;
    let number = |difference: &mut &[u8]| usize::try_from(take(difference)?).ok();
    loop {
        let own = number(&mut difference)?;
        let (bytes, rest) = difference.split_at_checked(own)?;
        out.extend_from_slice(bytes);
        difference = rest;
        if difference.is_empty() {
            return (out.len() == length).then_some(out);
        }
        let shared = number(&mut difference)?;
        let step = take(&mut difference)?;
        let step = (step >> 1) as i64 ^ -((step & 1) as i64);
        let from = last.checked_add_signed(isize::try_from(step).ok()?)?;
        last = from.checked_add(shared)?;
        let bytes = base.get(from..last)?;
        if out.len() + bytes.len() > length {
            return None;
        }
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn there_and_back(base: &[u8], bytes: &[u8]) -> usize {
        let difference = between(base, bytes, usize::MAX).expect("no bound");
        assert_eq!(apply(base, &difference, bytes.len()).as_deref(), Some(bytes));
        difference.len()
    }

    #[test]
    fn what_is_common_takes_next_to_nothing_wherever_it_stands() {
        let text: String = (0..500).map(|number| format!("\"f:field{number}\":{{}},")).collect();
        let moved = format!("{{\"new\":1,{}{}\"x\":\"y\"}}", &text[4000..], &text[..4000]);
        for (bytes, most) in [
            (text.clone(), 8),
            (moved, 60),
            (text.replace("field250\"", "other\""), 40),
        ] {
            let taken = there_and_back(text.as_bytes(), bytes.as_bytes());
            assert!(taken <= most, "{taken}");
        }
        let large = text.repeat(100);
        let changed = large.replacen("field499", "fieldABC", 1);
        assert!(there_and_back(large.as_bytes(), changed.as_bytes()) < 2000);
    }

    #[test]
    fn what_takes_more_than_it_may_is_none_and_what_is_no_difference_gives_nothing() {
        let (base, bytes) = ([b'a'; 100], [b'b'; 100]);
        assert_eq!(between(&base, &bytes, 50), None);
        assert_eq!(between(&base, &bytes, 100), None, "its length takes one");
        assert!(between(&base, &bytes, 101).is_some());
        for (difference, length) in [
            (&[][..], 0),
            (&[5, 1], 5),
            (&[0, 4, 0], 4),
            (&[0, 101, 0, 0], 101),
            (&[0, 4, 1, 0], 4),
            (&[0, 4, 0, 0], 5),
            (&[0, 4, 0, 0], 3),
            (&[0x80; 11], 1),
        ] {
            assert_eq!(apply(&base, difference, length), None, "{difference:?}");
        }
    }

    proptest! {
        /// Of few letters, so that there is much that is common.
        #[test]
        fn whatever_the_bytes_are_they_come_back(
            base in proptest::collection::vec(0_u8..2, 0..300),
            bytes in proptest::collection::vec(0_u8..2, 0..300),
            at in 0_usize..300,
            most in 0_usize..100,
        ) {
            there_and_back(&base, &bytes);
            let at = at.min(base.len());
            let spliced = [&base[at..], &bytes, &base[..at]].concat();
            there_and_back(&base, &spliced);
            if let Some(difference) = between(&base, &spliced, most) {
                prop_assert!(difference.len() <= most);
            }
        }

        #[test]
        fn no_difference_is_believed(difference in proptest::collection::vec(any::<u8>(), 0..40), length in 0_usize..100) {
            if let Some(bytes) = apply(b"0123456789012345678901234567890123456789", &difference, length) {
                prop_assert_eq!(bytes.len(), length);
            }
        }
    }
}
