//! Which form stored values have, and who may read them: what a store says of itself, and what a binary makes of it. Pure.
//!
//! Forms are counted. In form 1 values said neither kind nor apiVersion. A store names the form that is written to it, and the oldest
//! form that a binary must know to use it at all: a binary that knows a newer form goes on writing the store's until everything that
//! uses the store knows the newer one, so that servers of two versions may share it.

use std::fmt;

/// The form this binary writes, and the newest it knows.
pub const PRESENT: u64 = 2;

/// What a store says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The form that is written.
    pub written: u64,
    /// What a binary has to know to read what is there.
    pub minimum_reader: u64,
}

/// What a store that says nothing has: upstream's values and ours say what they are.
impl Default for Form {
    fn default() -> Self {
        Self {
            written: PRESENT,
            minimum_reader: PRESENT,
        }
    }
}

/// The store is not for a binary that knows the forms up to `known`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TooNew {
    /// What the store says.
    pub form: Form,
    /// The newest form the binary knows.
    pub known: u64,
}

impl fmt::Display for TooNew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, known) = (self.form, self.known);
        match form.minimum_reader > known {
            true => write!(
                f,
                "have to be read by binaries that know format {}, newer than the {known} this binary knows: use a newer binary",
                form.minimum_reader
            ),
            false => write!(
                f,
                "are written in format {}, which is not the {known} this binary writes: use a newer binary",
                form.written
            ),
        }
    }
}

/// Whether a binary that writes form `known` and reads all older ones may use a store: it reads all that is there, and writes nothing that others
/// who use it may not know.
///
/// # Errors
/// [`TooNew`].
pub fn judge(form: Form, known: u64) -> Result<(), TooNew> {
    match form.minimum_reader <= known && form.written <= known {
        true => Ok(()),
        false => Err(TooNew { form, known }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_used_by_who_reads_and_writes_its_form() {
        let judged = |written, minimum_reader| {
            judge(
                Form {
                    written,
                    minimum_reader,
                },
                3,
            )
        };
        assert_eq!(judged(3, 3), Ok(()));
        assert_eq!(judged(2, 2), Ok(()), "older data");
        assert_eq!(judged(3, 1), Ok(()));
        let refused = judged(4, 4).unwrap_err().to_string();
        assert!(
            refused.contains("format 4, newer than the 3 this binary knows"),
            "{refused}"
        );
        let refused = judged(4, 3).unwrap_err().to_string();
        assert!(refused.starts_with("are written in format 4"), "{refused}");
        assert_eq!(judge(Form::default(), PRESENT), Ok(()));
    }
}
