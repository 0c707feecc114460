//! The givers of what is held here, with what is noted of them.

use super::align::{Giver, Wanted};
use super::asking::Asking;
use super::hint::{Hint, Wishes};
use super::tally::{Event, Tally};
use super::{cpu, memory};
use crate::admission::decide::Rejection;
use crate::reason::admission;

/// CPUs.
pub(super) struct Cpus<'a> {
    pub(super) draft: cpu::Draft<'a>,
    /// `full-pcpus-only`.
    pub(super) whole_cores: bool,
    pub(super) tally: &'a Tally,
}

impl Giver for Cpus<'_> {
    fn wishes(&self, wanted: Wanted<'_>) -> Vec<Wishes> {
        vec![match wanted {
            Wanted::Pod(asked) => self.draft.pod_hints(asked),
            Wanted::Container(asking) => self.draft.hints(asking),
        }]
    }

    fn give(&mut self, asking: &Asking, near: Hint) -> Result<(), Rejection> {
        if asking.cpus == 0 {
            return Ok(());
        }
        let given = self.draft.give(asking, near.numas);
        self.tally.note(Event::Cpus {
            given: given.is_ok(),
            whole_cores: self.whole_cores,
        });
        if given == Ok(true) {
            self.tally.note(Event::OneCache);
        }
        given.map(drop).map_err(|refusal| match refusal.is_alignment() {
            true => Rejection {
                reason: admission::SMT_ALIGNMENT_ERROR.to_owned(),
                message: refusal.to_string(),
            },
            false => unexpected(refusal),
        })
    }
}

/// Memory and huge pages.
pub(super) struct Memory<'a> {
    pub(super) draft: memory::draft::Draft,
    pub(super) tally: &'a Tally,
}

impl Giver for Memory<'_> {
    fn wishes(&self, wanted: Wanted<'_>) -> Vec<Wishes> {
        match wanted {
            Wanted::Pod(asked) => self.draft.pod_hints(asked),
            Wanted::Container(asking) => self.draft.hints(asking),
        }
    }

    fn give(&mut self, asking: &Asking, near: Hint) -> Result<(), Rejection> {
        if asking.memory.is_empty() {
            return Ok(());
        }
        let given = self.draft.give(asking, near);
        self.tally.note(Event::Memory { given: given.is_ok() });
        given.map_err(unexpected)
    }
}

/// What a giver refuses for another reason than where things are.
pub(super) fn unexpected(why: impl std::fmt::Display) -> Rejection {
    Rejection {
        reason: admission::UNEXPECTED_ADMISSION_ERROR.to_owned(),
        message: format!("Allocate failed due to {why}, which is unexpected"),
    }
}
