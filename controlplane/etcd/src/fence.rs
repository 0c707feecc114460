//! Whether this server still knows what is under the prefix: the note (`form`) that all of its writes depend on.
//!
//! A server that was there before a move would tell other revisions than those that came after it, and one that does not know the form
//! others write by now would write over what it cannot read. Owns what was noted when that was last judged, and that all is over once
//! it cannot go on. Never asks etcd itself.

use crate::form::Note;
use crate::keys::Keys;
use crate::over::Over;
use proto::etcd::KeyValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use store::StoreError;
use store::form::{PRESENT, judge};

/// What a note means for a server that was there before it.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// All is as it was.
    Same,
    /// What is there can be read; what is to be written now is not known.
    Newer(String),
    /// What is there is not what was there.
    Other(String),
}

/// A note as it was found: its bytes, and etcd's revision of its last write.
pub(crate) type Found<'f> = Option<(&'f [u8], i64)>;

/// A note as etcd has it.
pub(crate) fn found(kv: Option<&KeyValue>) -> Found<'_> {
    kv.map(|kv| (&kv.value[..], kv.mod_revision))
}

/// See the module.
pub(crate) struct Fence {
    keys: Keys,
    /// The prefix as it was given, for people.
    prefix: String,
    /// Etcd's revision of the last write of the note that has been judged; 0: there is none.
    noted: AtomicI64,
    over: Arc<Over>,
}

impl Fence {
    /// Of keys that were read together with a note of this revision of etcd's.
    pub(crate) fn new(keys: Keys, prefix: &str, noted: i64, over: Arc<Over>) -> Self {
        Self {
            keys,
            prefix: prefix.to_owned(),
            noted: AtomicI64::new(noted),
            over,
        }
    }

    /// What the note's last write has to be for a write of ours.
    pub(crate) fn noted(&self) -> i64 {
        self.noted.load(Ordering::SeqCst)
    }

    /// Takes a note that was found by a write that did not come about.
    ///
    /// # Errors
    /// `ReadOnly`: nothing is written by this server any more.
    pub(crate) fn take(&self, found: Found<'_>) -> Result<(), StoreError> {
        match self.meaning(found) {
            Meaning::Same => {
                let modified = found.map_or(0, |(_, modified)| modified);
                self.noted.store(modified, Ordering::SeqCst);
                Ok(())
            }
            Meaning::Newer(why) => Err(StoreError::ReadOnly(why)),
            Meaning::Other(why) => {
                self.over.end(&why);
                Err(StoreError::ReadOnly(why))
            }
        }
    }

    /// Looks at a note that was read.
    ///
    /// # Errors
    /// As [`Fence::check`]: what was read with it is not what it was.
    pub(crate) fn look(&self, found: Found<'_>) -> Result<(), StoreError> {
        if let Meaning::Other(why) = self.meaning(found) {
            self.over.end(&why);
        }
        self.check()
    }

    /// # Errors
    /// `Unusable`: nothing is answered any more.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.over.check()
    }

    fn meaning(&self, found: Found<'_>) -> Meaning {
        let prefix = &self.prefix;
        let note = match found.map_or(Ok(Note::default()), |(bytes, _)| Note::parse(bytes)) {
            Ok(note) => note,
            Err(why) => return Meaning::Other(format!("the objects under {prefix} {why}")),
        };
        if !self.keys.are_of(note.shift, note.origin) {
            return Meaning::Other(format!(
                "the objects under {prefix} are others since a move of them: this control plane was there before, and has to be started again"
            ));
        }
        match judge(note.form, PRESENT) {
            Ok(()) => Meaning::Same,
            Err(new) if new.form.minimum_reader > new.known => {
                Meaning::Other(format!("the objects under {prefix} {new}"))
            }
            Err(new) => Meaning::Newer(format!("the objects under {prefix} {new}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::form::Form;

    fn noted(written: u64, minimum_reader: u64, (shift, origin): (u64, u64), modified: i64) -> Option<(Vec<u8>, i64)> {
        let note = Note {
            form: Form {
                written,
                minimum_reader,
            },
            shift,
            origin,
        };
        Some((note.bytes(), modified))
    }

    fn seen(note: &Option<(Vec<u8>, i64)>) -> Found<'_> {
        note.as_ref().map(|(bytes, modified)| (&bytes[..], *modified))
    }

    fn fence() -> Fence {
        Fence::new(
            Keys::under("/registry").noted(100, 7),
            "/registry",
            3,
            Arc::new(Over::new()),
        )
    }

    #[tokio::test]
    async fn a_server_goes_on_with_what_it_knows_and_with_nothing_else() {
        let own = (100, 7);
        let (ours, next) = (PRESENT, PRESENT + 1);
        let fence = fence();
        fence.look(seen(&noted(ours, ours, own, 9))).unwrap();
        assert_eq!(fence.noted(), 3, "what is read is taken by who writes");
        fence.take(seen(&noted(ours, 1, own, 9))).unwrap();
        assert_eq!(fence.noted(), 9);
        // A newer server writes what it alone knows, and this one can still read.
        let newer = noted(next, ours, own, 12);
        let refused = fence.take(seen(&newer)).unwrap_err();
        let StoreError::ReadOnly(why) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.contains(&format!("are written in format {next}")), "{why}");
        fence.look(seen(&newer)).unwrap();
        assert_eq!(fence.noted(), 9, "and every further write finds the same");
        fence.check().unwrap();
        // And one that this one cannot.
        assert!(fence.look(seen(&noted(next, next, own, 13))).is_err());
        let over = fence.over.reason().await;
        assert!(over.contains(&format!("know format {next}")), "{over}");
        assert!(fence.look(seen(&noted(ours, ours, own, 14))).is_err(), "for good");
    }

    #[test]
    fn what_another_move_brought_is_not_what_was_there() {
        for other in [
            noted(PRESENT, PRESENT, (101, 7), 9),
            noted(PRESENT, PRESENT, (100, 8), 9),
            None,
            Some((b"nonsense".to_vec(), 9)),
        ] {
            let fence = fence();
            assert!(
                matches!(fence.take(seen(&other)), Err(StoreError::ReadOnly(_))),
                "{other:?}"
            );
            assert!(fence.check().is_err() && fence.noted() == 3, "{other:?}");
        }
        let never_moved = Fence::new(Keys::under("/registry"), "/registry", 3, Arc::new(Over::new()));
        never_moved.take(None).unwrap();
        assert_eq!(never_moved.noted(), 0, "somebody has removed what says nothing");
    }
}
