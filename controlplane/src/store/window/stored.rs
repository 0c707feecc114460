//! One object as of one revision: its stored bytes, shared by every reply, and what selectors ask of it.
//!
//! A tree takes ten times the bytes, and a revision stays in the history for minutes. So a tree is kept only for parts of the
//! process that read the same object again and again, and only until the object is written over.
//!
//! Stored bytes ([`value`]) carry no resourceVersion, and say the kind of the form they are stored in; this module splices what a
//! reply says into it without copying the rest.

use super::encoded::Encoded;
use super::{Selectable, difference};
use crate::store::value::{self, Layout, OWNERS, TypeMeta};
use crate::store::{Record, Revision};
use bytes::Bytes;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How the text of an object begins whose kind is left aside.
const BARE_HEAD: &[u8] = b"{\"metadata\":{";
/// Bytes that are kept of an object as a later schema has it, beyond twice what is stored; what is longer is made for each reader.
const REMADE_BYTES: usize = 4 << 10;
/// Forms as which selectors ask of an object at once, at most: one for each version it is read in.
const FORMS_MAX: usize = 2;
/// What an object that has been written over may keep for selectors beside what was counted then.
const ASKED_BYTES: usize = 1 << 10;
/// Bytes that are kept as what they are beside others: fewer are not worth it, and more take too long.
const DIFFERENT: std::ops::RangeInclusive<usize> = 256..=16 << 10;
/// Of so many revisions of an object in a row, one stands for itself: no more are gone through to read one.
const IN_A_ROW: u8 = 8;

/// An object of one revision.
#[derive(Debug)]
pub struct Stored {
    /// Full key.
    pub key: Arc<str>,
    /// Revision of the last write.
    pub revision: Revision,
    /// Revision of the creation.
    pub created: Revision,
    /// How many bytes are stored.
    size: usize,
    raw: Mutex<Raw>,
    /// What has been made of them; of most objects nobody asks for anything else.
    made: OnceLock<Box<Made>>,
    /// Its number among the revisions of the object, by [`IN_A_ROW`].
    number: u8,
    /// Whether it has been written over: trees and forms are kept no more.
    is_past: AtomicBool,
}

/// What is kept that is made of the bytes. It is made outside the locks: who only wants to let go of it never waits for that.
#[derive(Debug)]
struct Made {
    value: Mutex<Option<Arc<OnceLock<Arc<Value>>>>>,
    asked: Mutex<Asked>,
    /// The bytes as a form has them.
    remade: Mutex<Option<Remade>>,
    encoded: Mutex<Vec<Arc<Encoded>>>,
}

/// What others may panic with in hand is as good as before.
fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stored bytes.
#[derive(Debug)]
enum Raw {
    /// As they are.
    Whole(Bytes),
    /// As what they are beside those of the revision that took their place.
    Beside(Arc<Stored>, Box<[u8]>),
    /// As what they are beside those of a sample.
    Like(Arc<Bytes>, Box<[u8]>),
}

/// A form, and the bytes it has; `None` for the stored ones.
type Remade = (u64, Arc<OnceLock<Option<Bytes>>>);

/// A form, and what selectors ask of the object as it has it.
type Asking = (u64, Arc<OnceLock<Arc<Selectable>>>);

/// What selectors ask of an object, as forms have it: that which was asked last first.
#[derive(Debug)]
struct Asked {
    forms: [Option<Asking>; FORMS_MAX],
    /// What they may take together.
    most: usize,
}

impl Asked {
    fn form(&mut self, form: u64) -> Arc<OnceLock<Arc<Selectable>>> {
        let found = self.forms.iter().flatten().find(|(known, _)| *known == form);
        if let Some((_, found)) = found {
            return Arc::clone(found);
        }
        let slot = Arc::default();
        self.forms.rotate_right(1);
        self.forms[0] = Some((form, Arc::clone(&slot)));
        slot
    }

    fn bytes(&self) -> usize {
        let made = self.forms.iter().flatten().filter_map(|(_, slot)| slot.get());
        made.map(|selectable| selectable.bytes()).sum()
    }

    /// Lets go of what is too much.
    fn settle(&mut self) {
        for last in (0..FORMS_MAX).rev() {
            if self.bytes() <= self.most {
                return;
            }
            self.forms[last] = None;
        }
    }
}

/// A key at a revision is one object, whatever its bytes: this makes differences between snapshots cheap.
impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.revision == other.revision && self.key == other.key
    }
}

impl From<Record> for Stored {
    fn from(record: Record) -> Self {
        Self::new(record.key, record.modified, record.created, record.value)
    }
}

impl Stored {
    /// An object from its stored bytes.
    pub fn new(key: Arc<str>, revision: Revision, created: Revision, raw: Bytes) -> Self {
        Self {
            key,
            revision,
            created,
            size: raw.len(),
            raw: Mutex::new(Raw::Whole(raw)),
            made: OnceLock::new(),
            number: 0,
            is_past: AtomicBool::new(false),
        }
    }

    /// The object after a write over `old`.
    pub(super) fn over(mut self, old: Option<&Self>) -> Self {
        self.number = old.map_or(0, |old| (old.number + 1) % IN_A_ROW);
        self
    }

    /// `metadata.name`, as the key has it.
    pub fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// `metadata.namespace`, as the key has it; of an object in no namespace it is something else.
    pub fn namespace(&self) -> &str {
        let mut parts = self.key.rsplit('/');
        parts.nth(1).unwrap_or_default()
    }

    /// Asked with the lock of what may be kept in hand: what was kept before it was written over is let go of with that lock, too.
    fn is_past(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_past.load(Ordering::Relaxed)
    }

    fn made(&self) -> &Made {
        self.made.get_or_init(|| {
            Box::new(Made {
                value: Mutex::default(),
                asked: Mutex::new(Asked {
                    forms: [const { None }; FORMS_MAX],
                    most: usize::MAX,
                }),
                remade: Mutex::default(),
                encoded: Mutex::default(),
            })
        })
    }

    fn remade(&self) -> MutexGuard<'_, Option<Remade>> {
        lock(&self.made().remade)
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        lock(&self.made().asked)
    }

    /// The object as a tree, with `metadata.resourceVersion` and without kind, apiVersion and managedFields (nobody who only reads
    /// asks for them, and they take as much as all else); parsed at the first call and kept until the object is written over.
    /// For callers who come back; see [`Stored::tree`].
    pub fn value(&self) -> Arc<Value> {
        let slot = {
            let mut kept = lock(&self.made().value);
            match &*kept {
                Some(slot) => Arc::clone(slot),
                None => {
                    let slot = Arc::default();
                    if !self.is_past() {
                        *kept = Some(Arc::clone(&slot));
                    }
                    slot
                }
            }
        };
        Arc::clone(slot.get_or_init(|| Arc::new(self.parse())))
    }

    /// As [`Stored::value`], for a caller who changes it or needs it once: nothing is kept.
    pub fn tree(&self) -> Value {
        let kept = self.made.get().and_then(|made| {
            let kept = lock(&made.value);
            kept.as_ref().and_then(|slot| slot.get().map(Arc::clone))
        });
        kept.map_or_else(|| self.parse(), |value| Value::clone(&value))
    }

    /// As [`Stored::tree`], with managedFields.
    pub fn owned_tree(&self) -> Value {
        let mut value = self.tree();
        let list = self.owners().and_then(|list| serde_json::from_str(&list).ok());
        if let (Some(list), Some(metadata)) = (list, value.get_mut("metadata").and_then(Value::as_object_mut)) {
            metadata.insert(OWNERS.to_owned(), list);
        }
        value
    }

    /// `metadata.managedFields` as text.
    pub fn owners(&self) -> Option<String> {
        let raw = self.raw();
        let (_, list) = Layout::of(&raw)?.split_owners()?;
        String::from_utf8(list.to_vec()).ok()
    }

    /// What the stored bytes say the object is; `None` if they are no object's.
    pub fn type_meta(&self) -> Option<TypeMeta<'static>> {
        TypeMeta::of(&self.raw()).map(TypeMeta::into_owned)
    }

    /// The object has been written over, or deleted: lets go of the tree and of forms, and keeps none any more; of its bytes it keeps what
    /// those of the new revision are not. Gives what is kept for selectors, in bytes; it grows by little.
    pub(super) fn written_over(&self, by: Option<&Arc<Self>>) -> usize {
        self.is_past.store(true, Ordering::Relaxed);
        // Either it is seen here that something may be kept, or there that nothing may be.
        fence(Ordering::SeqCst);
        if let Some(by) = by {
            self.keep_beside(by);
        }
        let Some(made) = self.made.get() else { return 0 };
        lock(&made.value).take();
        lock(&made.remade).take();
        self.forget_encoded();
        let mut asked = lock(&made.asked);
        let bytes = asked.bytes();
        asked.most = bytes.max(ASKED_BYTES);
        bytes
    }

    fn keep_beside(&self, by: &Arc<Self>) {
        if self.number == IN_A_ROW - 1 || !self.may_be_like() || !by.may_be_like() {
            return;
        }
        let kept = self.kept_size();
        if let Some(beside) = difference::between(&by.raw(), &self.raw(), (self.size / 2).min(kept.saturating_sub(1))) {
            *self.stored() = Raw::Beside(Arc::clone(by), beside);
        }
    }

    /// Keeps of the bytes what they are beside those of a sample.
    pub(super) fn keep_like(&self, sample: &Arc<Bytes>, beside: Box<[u8]>) {
        *self.stored() = Raw::Like(Arc::clone(sample), beside);
    }

    /// Whether it is worth the time to compare the bytes with others.
    pub(super) fn may_be_like(&self) -> bool {
        DIFFERENT.contains(&self.size)
    }

    /// Whether all of the stored bytes are kept.
    pub(super) fn is_whole(&self) -> bool {
        matches!(&*self.stored(), Raw::Whole(_))
    }

    /// What is kept of the stored bytes, in bytes.
    pub(super) fn kept_size(&self) -> usize {
        match &*self.stored() {
            Raw::Whole(_) => self.size,
            Raw::Beside(_, beside) | Raw::Like(_, beside) => beside.len(),
        }
    }

    fn stored(&self) -> MutexGuard<'_, Raw> {
        lock(&self.raw)
    }

    /// What [`super::EncodedForms`] keeps here.
    pub(super) fn encoded(&self) -> MutexGuard<'_, Vec<Arc<Encoded>>> {
        lock(&self.made().encoded)
    }

    /// The same, if there may be any.
    pub(super) fn kept_encoded(&self) -> Option<MutexGuard<'_, Vec<Arc<Encoded>>>> {
        self.made.get().map(|made| lock(&made.encoded))
    }

    pub(super) fn forget_encoded(&self) {
        if let Some(mut encoded) = self.kept_encoded() {
            encoded.clear();
        }
    }

    fn parse(&self) -> Value {
        let raw = self.raw();
        let without = Layout::of(&raw).map(|layout| {
            let rest = layout.split_owners().map_or(layout.members, |(rest, _)| rest);
            let rest = rest.strip_prefix(b",").unwrap_or(rest);
            [BARE_HEAD, rest].concat()
        });
        let bytes = without.as_deref().unwrap_or(&raw);
        let mut value: Value = serde_json::from_slice(bytes).unwrap_or_else(|error| {
            tracing::error!(key = %self.key, %error, "stored bytes are not JSON; the object is shown empty");
            Value::Object(Map::new())
        });
        if let (None, Some(object)) = (&without, value.as_object_mut()) {
            object.remove("kind");
            object.remove("apiVersion");
        }
        set_revision(&mut value, self.revision);
        value
    }

    /// What selectors can ask of it, as `read` finds it; kept for the forms that asked last: 0 is what is built in, and a
    /// version of a kind that came in with fields of its own has a form of its own.
    pub fn selectable(&self, form: u64, read: impl FnOnce(&Self) -> Selectable) -> Arc<Selectable> {
        let slot = self.asked().form(form);
        let mut is_new = false;
        let found = slot.get_or_init(|| {
            is_new = true;
            Arc::new(read(self))
        });
        if is_new {
            let mut asked = self.asked();
            // Nothing was kept yet when it was written over.
            if self.is_past() && asked.most == usize::MAX {
                asked.most = ASKED_BYTES;
            }
            asked.settle();
        }
        Arc::clone(found)
    }

    /// What selectors can ask of it has been read already.
    pub(super) fn selectable_is(&self, form: u64, selectable: &Arc<Selectable>) {
        // Nobody else has the object yet.
        let _ = self.asked().form(form).set(Arc::clone(selectable));
    }

    /// The bytes as a form has them: `remake` gives those that differ from the stored ones, and is asked once for a form while the
    /// object is the present one.
    fn bytes(&self, form: u64, remake: impl FnOnce(&Self) -> Option<Bytes>) -> Bytes {
        let slot = {
            let mut remade = self.remade();
            match &*remade {
                Some((known, slot)) if *known == form => Arc::clone(slot),
                _ => {
                    let slot = Arc::default();
                    if !self.is_past() {
                        *remade = Some((form, Arc::clone(&slot)));
                    }
                    slot
                }
            }
        };
        let bytes = slot.get_or_init(|| remake(self));
        let is_long = |bytes: &Bytes| bytes.len() > 2 * self.size + REMADE_BYTES;
        if bytes.as_ref().is_some_and(is_long) {
            let mut remade = self.remade();
            if remade.as_ref().is_some_and(|(_, kept)| Arc::ptr_eq(kept, &slot)) {
                remade.take();
            }
        }
        bytes.as_ref().map_or_else(|| self.raw(), Bytes::clone)
    }

    /// Stored bytes, as written. Those of what has been written over are put together for each caller: for their number, see
    /// [`Stored::size`].
    pub fn raw(&self) -> Bytes {
        // Locks are taken towards the newest revision alone, and few of them: see `IN_A_ROW`.
        let together = match &*self.stored() {
            Raw::Whole(bytes) => return bytes.clone(),
            Raw::Beside(by, beside) => difference::apply(&by.raw(), beside, self.size),
            Raw::Like(sample, beside) => difference::apply(sample, beside, self.size),
        };
        together.map_or_else(
            || {
                tracing::error!(key = %self.key, "what is kept of a revision is damaged; the object is shown empty");
                Bytes::from_static(b"{}")
            },
            Bytes::from,
        )
    }

    /// How many the stored bytes are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The object as JSON in two parts, head and shared rest, at `revision` (a deletion's event shows the deletion's), with
    /// kind and apiVersion if `type_meta` (apiVersion, kind) is given.
    pub fn json(&self, type_meta: Option<(&str, &str)>, revision: Revision) -> (Bytes, Bytes) {
        self.spliced(&self.raw(), type_meta, revision)
    }

    /// As [`Stored::json`], of the bytes as a form has them: `remake` gives those that differ from the stored ones, which all who
    /// read the form share.
    pub fn json_in_form(
        &self,
        form: u64,
        remake: impl FnOnce(&Self) -> Option<Bytes>,
        type_meta: Option<(&str, &str)>,
        revision: Revision,
    ) -> (Bytes, Bytes) {
        self.spliced(&self.bytes(form, remake), type_meta, revision)
    }

    fn spliced(&self, raw: &Bytes, type_meta: Option<(&str, &str)>, revision: Revision) -> (Bytes, Bytes) {
        let mut head = String::with_capacity(96);
        head.push('{');
        if let Some((api_version, kind)) = type_meta {
            // Names of kinds and versions need no escaping.
            head.push_str(&format!("\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\","));
        }
        head.push_str(&format!("\"metadata\":{{\"resourceVersion\":\"{revision}\""));
        let members = Layout::of(raw).map(|layout| layout.members);
        let members = match members.filter(|members| members.first() == Some(&b'"')) {
            Some(members) => raw.slice_ref(members),
            None => {
                let mut members = Vec::with_capacity(raw.len());
                let tree = self.owned_tree();
                value::members(&mut members, &tree, value::owners(&tree).as_deref());
                Bytes::from(members)
            }
        };
        if members.first() == Some(&b'"') {
            head.push(',');
        }
        (Bytes::from(head), members)
    }
}

fn set_revision(value: &mut Value, revision: Revision) {
    let Some(object) = value.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    }
}

#[cfg(test)]
mod tests;
