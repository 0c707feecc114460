//! When the kernel is given less because it refuses again and again, and when as much as ever again. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// From so many refusals in a row on, the kernel is given less with each.
const REFUSALS: u32 = 3;
/// How long it is given less, from its last refusal on.
const LOOSEN_PERIOD: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Default)]
pub(crate) struct Strain {
    /// In a row.
    refused: u32,
    loosen_at: Option<Instant>,
}

impl Strain {
    /// The kernel refused; returns whether it is to be given less.
    pub(crate) fn refuse(&mut self, now: Instant) -> bool {
        self.refused += 1;
        let is_to_tighten = self.refused >= REFUSALS;
        if is_to_tighten {
            self.loosen_at = Some(now + LOOSEN_PERIOD);
        }
        is_to_tighten
    }

    /// The kernel took what it was given; returns whether it is to be given as much as ever again.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.refused = 0;
        self.loosen_at.take_if(|at| *at <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_less_after_refusals_in_a_row_and_for_a_while() {
        let (mut strain, begin) = (Strain::default(), Instant::now());
        let later = begin + LOOSEN_PERIOD;
        assert!(!strain.refuse(begin) && !strain.refuse(begin));
        assert!(!strain.take(begin), "nothing was taken from it");
        assert!(!strain.refuse(begin) && !strain.refuse(begin) && strain.refuse(begin));
        let second = begin + Duration::from_secs(1);
        assert!(strain.refuse(second), "it is half of half then");
        assert!(!strain.take(second) && !strain.take(later));
        assert!(strain.take(second + LOOSEN_PERIOD));
        assert!(!strain.take(second + LOOSEN_PERIOD), "once");
    }
}
