//! What judging a tree is given: where it is, how much work is left, and whether anybody reads what is wrong. Pure.
//!
//! Owns the bound on work: schemas and objects are both as their senders make them, and the time is the product of the two.

use std::fmt;

use crate::resource::field_error::{FieldError, FieldErrors};

/// Steps of work for one object: a value looked at by a schema is one, and so is a byte of text tried at a state of a pattern.
/// About a second's worth; the largest object takes a fiftieth of it unless its schema is out of the ordinary.
pub(in crate::resource) const WORK_MAX: u64 = 1 << 26;
/// Steps that a thread which serves everybody has for one object: some milliseconds' worth. What takes more is done elsewhere.
pub(in crate::resource) const BRIEF_WORK_MAX: u64 = 1 << 18;
/// Bytes of a key that are shown.
const KEY_BYTES: usize = 1 << 10;

/// Where a value is: a list of steps that live where the walk is, made a text only when somebody is told.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    above: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a str),
    /// Of a map, as rules of expressions name it.
    MapKey(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    pub(super) const ROOT: Path<'static> = Path {
        above: None,
        step: Step::Root,
    };

    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self {
            above: Some(self),
            step: Step::Key(key),
        }
    }

    pub(super) fn map_key(&'a self, key: &'a str) -> Self {
        Self {
            above: Some(self),
            step: Step::MapKey(key),
        }
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Self {
            above: Some(self),
            step: Step::Index(index),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.above.is_none()
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::MapKey(key) => {
                f.write_str("[")?;
                write_key(key, f)?;
                f.write_str("]")
            }
            Step::Key(key) => {
                if self.above.is_some_and(|above| !above.is_root()) {
                    f.write_str(".")?;
                }
                write_key(key, f)
            }
        }
    }
}

/// A key, or the beginning of it.
fn write_key(key: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shown = key.get(..key.floor_char_boundary(KEY_BYTES)).unwrap_or(key);
    f.write_str(shown)?;
    f.write_str(if shown.len() < key.len() { "\u{2026}" } else { "" })
}

/// Who judges: says what is wrong, or, where only a yes or no is asked, stops at the first thing that is.
pub(super) struct Judge<'e> {
    told: Option<&'e mut FieldErrors>,
    has_failed: bool,
    work_left: &'e mut u64,
}

impl<'e> Judge<'e> {
    /// One that tells of errors, with so much work to do.
    pub(super) fn telling(errors: &'e mut FieldErrors, work_left: &'e mut u64) -> Self {
        Self {
            told: Some(errors),
            has_failed: false,
            work_left,
        }
    }

    /// Whether nothing is found wrong by `judged`, of which nobody reads what it is. Work is this one's.
    pub(super) fn agrees(&mut self, judged: impl FnOnce(&mut Judge<'_>)) -> bool {
        let mut quiet = Judge {
            told: None,
            has_failed: false,
            work_left: &mut *self.work_left,
        };
        judged(&mut quiet);
        !quiet.has_failed
    }

    /// Something is wrong; `error` is made only where it is kept.
    pub(super) fn fail(&mut self, error: impl FnOnce() -> FieldError) {
        self.has_failed = true;
        if let Some(errors) = self.told.as_deref_mut() {
            errors.push(error());
        }
    }

    /// Whether nothing more need be looked at.
    pub(super) fn is_done(&self) -> bool {
        let is_told = match &self.told {
            Some(errors) => errors.is_full(),
            None => self.has_failed,
        };
        is_told || self.is_exhausted()
    }

    /// Whether there was more work than there may be: then nothing is known of the value.
    pub(super) fn is_exhausted(&self) -> bool {
        *self.work_left == 0
    }

    /// Whether so much work may be done. If not, no more is.
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        *self.work_left = self.work_left.saturating_sub(steps);
        !self.is_exhausted()
    }
}
