//! Objects of a resource that others are like: of those only what they are beside one of these is kept ([`difference`]).
//!
//! Owns which objects are samples, and nothing of what is made of them: a sample's bytes stay for as long as anything is told by them. One
//! controller's objects differ in names, UIDs and times, and those of one kind are made by a few.
//!
//! [`difference`]: super::difference

use super::Stored;
use super::difference::{self, Blocks};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// As many objects are tried for each write.
const SAMPLES: usize = 4;
/// After so many objects in a row that are like none, only one of so many is tried.
const UNLIKE: u32 = 16;

/// An object is like a sample that is longer by this part of it at most: what is kept of a few bytes would hold many.
const LONGER_BY: usize = 2;
/// It is close to one if no more than this part of it has to be kept: what makes such objects makes more of them.
const CLOSE: usize = 3;
/// Of objects that have something in common with a sample, and no more, one of so many becomes one once there are enough.
const LOOSE: u32 = 64;
/// It is kept beside one that it is not close to if this part of it need not be kept, at least: what spares less spares nothing, as there are
/// only so many sizes of what is allocated.
const SPARED: usize = 8;

/// A sample, and where its blocks stand: nobody but who compares others with it needs that.
struct Sample {
    bytes: Arc<Bytes>,
    blocks: Blocks,
}

/// The samples of one resource, that of the last likeness first.
#[derive(Default)]
pub(super) struct Samples {
    samples: VecDeque<Sample>,
    /// Objects in a row that were like none.
    unlike: u32,
    /// Objects that had something in common with a sample, and no more.
    loose: u32,
}

impl Samples {
    /// Has a new object keep its bytes as what they are beside a sample, if it is like one; if not, it becomes one.
    pub(super) fn keep(&mut self, new: &Stored) {
        if !new.may_be_like() {
            return;
        }
        if self.unlike >= UNLIKE && !self.unlike.is_multiple_of(UNLIKE) {
            self.unlike = self.unlike.wrapping_add(1).max(UNLIKE);
            return;
        }
        if let Some(at) = self
            .samples
            .iter()
            .position(|sample| sample.keeps(new, new.size() / CLOSE))
        {
            self.unlike = 0;
            if let Some(sample) = self.samples.remove(at) {
                self.samples.push_front(sample);
            }
            return;
        }
        let spared = new.size() - new.size() / SPARED;
        if self.samples.iter().any(|sample| sample.keeps(new, spared)) {
            self.unlike = 0;
            self.loose = self.loose.wrapping_add(1);
            // Others may be close to it. If each were a sample, each would be held by the next one.
            if self.samples.len() == SAMPLES && !self.loose.is_multiple_of(LOOSE) {
                return;
            }
        } else {
            self.unlike = self.unlike.wrapping_add(1);
        }
        self.samples.truncate(SAMPLES - 1);
        let bytes = Arc::new(new.raw());
        let blocks = Blocks::of(&bytes);
        self.samples.push_front(Sample { bytes, blocks });
    }
}

impl Sample {
    /// Has the object keep its bytes as what they are beside this, if that takes no more than `most` bytes.
    fn keeps(&self, new: &Stored, most: usize) -> bool {
        if self.bytes.len() > new.size() + new.size() / LONGER_BY {
            return false;
        }
        // Together with the sample, which only this object may hold any more, no more than twice what it is.
        let most = most.min(2 * new.size() - self.bytes.len());
        let beside = difference::beside(&self.bytes, &self.blocks, &new.raw(), most);
        beside.is_some_and(|beside| {
            new.keep_like(&self.bytes, beside);
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str) -> Stored {
        Stored::new(Arc::from("/registry/pods/a/b"), 7, 3, Bytes::from(text.to_owned()))
    }

    /// What a controller of that name makes.
    fn made(by: &str, number: usize) -> Stored {
        let field = |number: u32| format!("\"f:{by}{:x}\":{{}},", (number + 1).wrapping_mul(0x9e37_79b9));
        let fields: String = (0..40).map(field).collect();
        stored(&format!(
            "{{\"name\":\"{by}-{number}\",{fields}\"uid\":\"{number:x}\"}}"
        ))
    }

    /// Text that no other seed's is like.
    fn letters(seed: u64, count: u64) -> String {
        let letter = |at: u64| {
            let mixed = (seed * 100_000 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 58;
            char::from(b'0' + mixed as u8)
        };
        (0..count).map(letter).collect()
    }

    #[test]
    fn what_is_like_others_takes_what_it_differs_in_and_reads_as_written() {
        let mut samples = Samples::default();
        for by in ["kubelet", "scheduler", "replicaset"] {
            samples.keep(&made(by, 0));
        }
        for number in 1..100 {
            for by in ["kubelet", "scheduler", "replicaset"] {
                let one = made(by, number);
                samples.keep(&one);
                assert!(one.kept_size() < 40, "{} of {}", one.kept_size(), one.size());
                assert_eq!(one.raw(), made(by, number).raw());
            }
        }
        assert_eq!(samples.samples.len(), 3);
    }

    #[test]
    fn what_is_like_nothing_stays_whole_and_is_seldom_tried() {
        let mut samples = Samples::default();
        for number in 0..200_u64 {
            let letters = (0..1000_u64).map(|at| {
                let mixed = (number * 1000 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 58;
                char::from(b'0' + mixed as u8)
            });
            let one = stored(&letters.collect::<String>());
            samples.keep(&one);
            assert_eq!(one.kept_size(), one.size());
        }
        assert!(samples.samples.len() <= SAMPLES);
        let mut tries = 0;
        for _ in 0..100 {
            let first = |samples: &Samples| samples.samples.front().map(|sample| Arc::as_ptr(&sample.bytes));
            let before = first(&samples);
            let unlike = stored(&format!("{:?}", [samples.unlike; 200]));
            samples.keep(&unlike);
            tries += u32::from(first(&samples) != before);
        }
        assert!((1..=100 / UNLIKE + 1).contains(&tries), "{tries}");
    }

    /// Names, times and owners of fields are everybody's, data are not.
    #[test]
    fn what_has_a_part_in_common_keeps_the_rest_if_that_spares_something() {
        let kept = |sample: &str, text: &str| {
            let mut samples = Samples::default();
            samples.keep(&stored(sample));
            let one = stored(text);
            samples.keep(&one);
            assert_eq!(one.raw(), text);
            one.kept_size()
        };
        let of = |common: &str, seed: u64, own: u64| common.to_owned() + &letters(seed, own);
        let (long, short) = (letters(1, 400), letters(1, 100));
        let rest = kept(&of(&long, 2, 1000), &of(&long, 3, 1000));
        assert!((1000..1020).contains(&rest), "{rest}");
        assert_eq!(kept(&of(&short, 2, 1000), &of(&short, 3, 1000)), 1100);
        // The sample may be there for this alone.
        assert_eq!(kept(&of(&long, 2, 1600), &of(&long, 3, 1000)), 1400);
        assert!(
            kept(&of(&long, 2, 1600), &of(&long, 3, 200)) == 600,
            "it is far too long"
        );
    }

    /// Of a few, each is found by what is close to it, whatever else they have in common with the others; of very many, most are no samples.
    #[test]
    fn what_has_something_in_common_becomes_a_sample_while_there_is_room_and_seldom_then() {
        let common = letters(1, 400);
        let of = |seed: u64, number: usize| stored(&format!("{common}{}{number:04}", letters(seed, 1000)));
        let mut samples = Samples::default();
        (2..5).for_each(|seed| samples.keep(&of(seed, 0)));
        for number in 1..50 {
            for seed in 2..5 {
                let one = of(seed, number);
                samples.keep(&one);
                assert!(one.kept_size() < 40, "{} of {seed}", one.kept_size());
            }
        }
        let mut changes = 0;
        for seed in 10..650 {
            let front = samples.samples.front().map(|sample| Arc::as_ptr(&sample.bytes));
            let one = of(seed, 0);
            samples.keep(&one);
            assert!(one.kept_size() < 1050, "{}", one.kept_size());
            changes += u32::from(samples.samples.front().map(|sample| Arc::as_ptr(&sample.bytes)) != front);
        }
        assert!((10..=12).contains(&changes), "{changes}");
    }

    /// Whoever stores many small parts of large objects would have all of these held for good, and none counted.
    #[test]
    fn what_is_small_holds_nothing_that_is_large() {
        let mut samples = Samples::default();
        for seed in 0..UNLIKE as u64 - 1 {
            let large = letters(seed, 15_000);
            samples.keep(&stored(&large));
            let small = stored(&large[..300]);
            samples.keep(&small);
            assert_eq!(small.kept_size(), small.size());
        }
        let mut samples = Samples::default();
        let large = letters(1, 900);
        samples.keep(&stored(&large));
        let part = stored(&large[..600]);
        samples.keep(&part);
        assert!(part.kept_size() < 20, "what is nearly as large is like it");
    }

    /// The sample goes on being one when the object it was taken of is written over.
    #[test]
    fn a_sample_that_is_written_over_is_read_by_those_that_are_like_it() {
        let mut samples = Samples::default();
        let sample = Arc::new(made("kubelet", 0));
        samples.keep(&sample);
        let like = Arc::new(made("kubelet", 1).over(None));
        samples.keep(&like);
        let next = Arc::new(made("kubelet", 2).over(Some(&sample)));
        samples.keep(&next);
        sample.written_over(Some(&next));
        for (number, one) in [&sample, &like, &next].into_iter().enumerate() {
            assert!(one.kept_size() < 40);
            assert_eq!(one.raw(), made("kubelet", number).raw());
        }
    }
}
