//! How much one patch may cost to apply. Pure.
//!
//! Lists are searched and shifted member by member, so a small patch of a long list can keep a thread busy for minutes. What
//! such steps cost is added up over the whole patch, and a patch that costs too much is refused like one that is too large.

use super::PatchError;
use std::cell::Cell;

/// Most members of lists compared, shifted or walked for one patch: some 50 ms' worth. A list of 700 members can be merged
/// member by member.
const STEPS_MAX: usize = 1_000_000;

/// The steps one patch has left.
pub(super) struct StepBudget {
    left: Cell<usize>,
}

impl StepBudget {
    pub(super) fn new() -> Self {
        Self {
            left: Cell::new(STEPS_MAX),
        }
    }

    /// Pays for `steps` that are about to be taken.
    pub(super) fn spend(&self, steps: usize) -> Result<(), PatchError> {
        let left = self.left.get().checked_sub(steps);
        self.left.set(left.unwrap_or(0));
        match left {
            Some(_) => Ok(()),
            None => Err(PatchError::new(
                413,
                format!("the patch takes more than {STEPS_MAX} comparisons of list members"),
            )),
        }
    }
}
