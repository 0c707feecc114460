//! The protobuf forms of objects that are kept: made when the first reader asks, once for a revision, and shared by all.
//!
//! Owns how much is kept in all, and nothing else: a form stands in its object, goes with it, and goes at once when the object is
//! written over. When there is too much, what was made first goes first; whoever asks again makes it anew.

use super::Stored;
use crate::store::Revision;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What all kept forms together may take, in bytes: those of some 10,000 pods.
pub const ENCODED_BYTES: usize = 32 << 20;
/// What a form costs beside its bytes, roughly.
const EACH_BYTES: usize = 256;

/// A form of an object: of which version's kind, with which resourceVersion.
#[derive(Debug)]
pub(super) struct Encoded {
    api_version: Cow<'static, str>,
    revision: Revision,
    bytes: Bytes,
}

/// See the module.
pub struct EncodedForms {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// What `made` adds up to; forms that have gone with their objects count until their turn comes.
    bytes: usize,
    /// In the order of making.
    made: VecDeque<(Weak<Stored>, usize)>,
}

impl EncodedForms {
    /// Room for so many bytes.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            kept: Mutex::default(),
        }
    }

    /// Whether so many bytes at once leave room for others'.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= self.most / 2
    }

    /// The form of the object as one of `api_version` at `revision`: the one that is kept, or what `make` makes, which is kept.
    pub fn of(
        &self,
        stored: &Arc<Stored>,
        (api_version, revision): (&Cow<'static, str>, Revision),
        make: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let mut slot = stored.encoded();
        if let Some(found) = slot.as_ref()
            && found.revision == revision
            && found.api_version == *api_version
        {
            return found.bytes.clone();
        }
        let bytes = make();
        *slot = Some(Encoded {
            api_version: api_version.clone(),
            revision,
            bytes: bytes.clone(),
        });
        // The slots of others are emptied below: one lock at a time.
        drop(slot);
        for outlived in self.note(stored, bytes.len() + EACH_BYTES) {
            outlived.forget_encoded();
        }
        bytes
    }

    /// As [`EncodedForms::of`], but nothing new is kept.
    pub fn peek(
        &self,
        stored: &Stored,
        (api_version, revision): (&str, Revision),
        make: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let found = match stored.encoded().as_ref() {
            Some(found) if found.revision == revision && found.api_version == api_version => Some(found.bytes.clone()),
            _ => None,
        };
        found.unwrap_or_else(make)
    }

    /// Counts a form that has been made; the objects whose forms have to go for it.
    fn note(&self, stored: &Arc<Stored>, bytes: usize) -> Vec<Arc<Stored>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += bytes;
        kept.made.push_back((Arc::downgrade(stored), bytes));
        let mut outlived = Vec::new();
        while kept.bytes > self.most
            && let Some((first, bytes)) = kept.made.pop_front()
        {
            kept.bytes -= bytes;
            outlived.extend(first.upgrade());
        }
        outlived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: Cow<'static, str> = Cow::Borrowed("v1");

    fn stored(number: u64) -> Arc<Stored> {
        Arc::new(Stored::new(
            Arc::from(format!("/registry/pods/a/{number}")),
            number,
            number,
            Bytes::from("{}"),
        ))
    }

    fn is_kept(forms: &EncodedForms, stored: &Stored, revision: Revision) -> bool {
        forms.peek(stored, ("v1", revision), Bytes::new) == "form"
    }

    #[test]
    fn a_form_is_made_once_for_a_version_and_a_revision() {
        let forms = EncodedForms::new(ENCODED_BYTES);
        let object = stored(7);
        let form = |text: &'static str| move || Bytes::from(text);
        assert_eq!(forms.of(&object, (&V1, 7), form("a")), "a");
        assert_eq!(forms.of(&object, (&V1, 7), form("b")), "a");
        assert_eq!(forms.of(&object, (&Cow::Borrowed("v2"), 7), form("c")), "c");
        assert_eq!(
            forms.of(&object, (&V1, 9), form("d")),
            "d",
            "a deletion shows its own revision"
        );
        object.forget_encoded();
        assert_eq!(forms.of(&object, (&V1, 9), form("e")), "e");
    }

    #[test]
    fn what_was_made_first_goes_first() {
        let forms = EncodedForms::new(3 * (EACH_BYTES + 4));
        let objects: Vec<Arc<Stored>> = (0..5).map(stored).collect();
        for object in &objects {
            forms.of(object, (&V1, 1), || Bytes::from("form"));
        }
        let kept: Vec<bool> = objects.iter().map(|object| is_kept(&forms, object, 1)).collect();
        assert_eq!(kept, [false, false, true, true, true]);
        forms.of(&objects[0], (&V1, 1), || Bytes::from(vec![0; 4 * EACH_BYTES]));
        assert!(
            objects.iter().all(|object| !is_kept(&forms, object, 1)),
            "one larger than all room is not kept"
        );
        assert_eq!(forms.kept.lock().unwrap().bytes, 0);
    }
}
