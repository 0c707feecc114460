//! The protobuf forms of objects that are kept: made when the first reader asks, once for a revision, and shared by all.
//!
//! Owns how much is kept in all, and nothing else: a form stands in its object, goes with it, and goes at once when the object is
//! written over. When there is too much, what was made first goes first; whoever asks again makes it anew.

use super::Stored;
use crate::store::Revision;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// What all kept forms together may take, in bytes: those of some 10,000 pods.
pub const ENCODED_BYTES: usize = 32 << 20;
/// What a form costs beside its bytes, roughly.
const EACH_BYTES: usize = 256;

/// A form of an object: of which version's kind, with which resourceVersion.
#[derive(Debug)]
pub(super) struct Encoded {
    api_version: Cow<'static, str>,
    revision: Revision,
    /// Made outside the object's lock: who only wants to let go of it never waits for that.
    bytes: OnceLock<Bytes>,
}

/// Forms that an object has at once, at most: one for each version it is read in.
const FORMS_MAX: usize = 2;

impl Encoded {
    fn is(&self, api_version: &str, revision: Revision) -> bool {
        self.revision == revision && self.api_version == api_version
    }
}

/// See the module.
pub struct EncodedForms {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// What `made` adds up to; forms that have gone count until somebody looks.
    bytes: usize,
    /// In the order of making.
    made: VecDeque<Made>,
    /// Bytes made since somebody looked for those that have gone.
    unlooked: usize,
}

struct Made {
    stored: Weak<Stored>,
    form: Weak<Encoded>,
    bytes: usize,
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
        let form = {
            let mut slot = stored.encoded();
            let found = slot.iter().find(|form| form.is(api_version, revision));
            found.map(Arc::clone).unwrap_or_else(|| {
                let form = Arc::new(Encoded {
                    api_version: api_version.clone(),
                    revision,
                    bytes: OnceLock::new(),
                });
                slot.retain(|other| other.api_version != form.api_version);
                slot.truncate(FORMS_MAX - 1);
                slot.insert(0, Arc::clone(&form));
                form
            })
        };
        let mut is_new = false;
        let bytes = form.bytes.get_or_init(|| {
            is_new = true;
            make()
        });
        let bytes = bytes.clone();
        if is_new {
            for (outlived, form) in self.note(stored, &form, bytes.len() + EACH_BYTES) {
                outlived.encoded().retain(|other| !Arc::ptr_eq(other, &form));
            }
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
        let found = stored.kept_encoded().and_then(|slot| {
            let found = slot.iter().find(|form| form.is(api_version, revision));
            found.and_then(|form| form.bytes.get().cloned())
        });
        found.unwrap_or_else(make)
    }

    /// Counts a form that has been made; the forms that have to go for it, with their objects.
    fn note(&self, stored: &Arc<Stored>, form: &Arc<Encoded>, bytes: usize) -> Vec<(Arc<Stored>, Arc<Encoded>)> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += bytes;
        kept.made.push_back(Made {
            stored: Arc::downgrade(stored),
            form: Arc::downgrade(form),
            bytes,
        });
        kept.unlooked += bytes;
        // Not each time: there may be many thousands.
        if kept.bytes > self.most && kept.unlooked > self.most / 8 {
            kept.forget_gone();
        }
        let mut outlived = Vec::new();
        while kept.bytes > self.most
            && let Some(first) = kept.made.pop_front()
        {
            kept.bytes -= first.bytes;
            outlived.extend(first.stored.upgrade().zip(first.form.upgrade()));
        }
        outlived
    }
}

impl Kept {
    /// Takes out what has gone with its object, or was replaced there.
    fn forget_gone(&mut self) {
        self.made.retain(|one| one.form.strong_count() > 0);
        self.bytes = self.made.iter().map(|one| one.bytes).sum();
        self.unlooked = 0;
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
    fn an_object_has_the_forms_of_both_its_versions_and_who_makes_one_holds_nobody_up() {
        let forms = EncodedForms::new(ENCODED_BYTES);
        let object = stored(7);
        let made = |version: &'static str, revision| {
            let mut is_made = false;
            forms.of(&object, (&Cow::Borrowed(version), revision), || {
                is_made = true;
                // As the feed does when the object is written over meanwhile.
                assert!(object.encoded().len() <= FORMS_MAX);
                Bytes::from("form")
            });
            is_made
        };
        assert_eq!([made("v1", 7), made("v2", 7)], [true, true]);
        assert_eq!([made("v1", 7), made("v2", 7)], [false, false]);
        assert!(made("v1", 9), "a deletion's own revision takes the place");
        assert_eq!([made("v2", 7), made("v1", 7)], [false, true]);
    }

    #[test]
    fn what_has_been_replaced_costs_no_other_its_place() {
        let forms = EncodedForms::new(8 * (EACH_BYTES + 4));
        let (quiet, busy) = (stored(1), stored(2));
        forms.of(&quiet, (&V1, 1), || Bytes::from("form"));
        for revision in 0..100 {
            forms.of(&busy, (&V1, revision), || Bytes::from("form"));
        }
        assert!(is_kept(&forms, &quiet, 1) && is_kept(&forms, &busy, 99));
        assert!(forms.kept.lock().unwrap().made.len() <= 8);
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
