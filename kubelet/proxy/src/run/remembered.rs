//! Whether there is room for more clients of Services with session affinity. All Services share it, and whoever comes from many addresses
//! takes it: then new clients of every Service are served without affinity. Pure: who counts is given.

use crate::rules::AFFINITY_MAX;

/// At which of the looks clients are counted: every five minutes, because each of them is listed for it.
const EVERY: u32 = 30;
/// Nearly full, in percent, and no longer so.
const FULL: usize = 90;
const NOT_FULL: usize = 80;

/// What the last counts came to.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    looks: u32,
    /// Of IPv6 and of IPv4.
    is_full: [bool; 2],
}

impl Remembered {
    /// Counts, when it is time to, and says which families are nearly full now and were not before, and how many clients those remember.
    /// `count` counts those of IPv4, or of IPv6, where they are known.
    pub(super) fn fills(&mut self, mut count: impl FnMut(bool) -> Option<usize>) -> Vec<(bool, usize)> {
        self.looks = (self.looks + 1) % EVERY;
        if self.looks != 0 {
            return Vec::new();
        }
        let mut filled = Vec::new();
        for v4 in [true, false] {
            let Some(count) = count(v4) else { continue };
            let was = &mut self.is_full[usize::from(v4)];
            let percent = if *was { NOT_FULL } else { FULL };
            let is = count * 100 >= AFFINITY_MAX as usize * percent;
            if is && !*was {
                filled.push((v4, count));
            }
            *was = is;
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_full_is_told_once_until_there_is_room_again() {
        let most = AFFINITY_MAX as usize;
        let mut remembered = Remembered::default();
        let mut counted = 0;
        for (v4, v6, expected) in [
            (0, Some(0), vec![]),
            (most * 89 / 100, Some(0), vec![]),
            (most * 91 / 100, None, vec![(true, most * 91 / 100)]),
            (most, Some(most), vec![(false, most)]),
            (most * 85 / 100, Some(most), vec![]),
            (most, Some(0), vec![]),
            (0, Some(most), vec![(false, most)]),
            (most, Some(most), vec![(true, most)]),
        ] {
            let mut told = Vec::new();
            for _ in 0..EVERY {
                told.extend(remembered.fills(|of_v4| {
                    counted += 1;
                    if of_v4 { Some(v4) } else { v6 }
                }));
            }
            assert_eq!(told, expected, "{v4} {v6:?}");
        }
        assert_eq!(counted, 16, "not at every look");
    }
}
