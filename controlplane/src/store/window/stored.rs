//! One object as of one revision: its stored bytes, shared by every reply, and what selectors ask of it.
//!
//! A tree takes ten times the bytes, and a revision stays in the history for minutes. So a tree is kept only for parts of the
//! process that read the same object again and again, and only until the object is written over.
//!
//! Stored bytes ([`value`]) carry no resourceVersion, and say the kind of the form they are stored in; this module splices what a
//! reply says into it without copying the rest.

use super::Selectable;
use super::encoded::Encoded;
use crate::store::value::{self, Layout, OWNERS, TypeMeta};
use crate::store::{Record, Revision};
use bytes::Bytes;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How the text of an object begins whose kind is left aside.
const BARE_HEAD: &[u8] = b"{\"metadata\":{";
/// Bytes that are kept of an object as a later schema has it, beyond twice what is stored; what is longer is made for each reader.
const REMADE_BYTES: usize = 4 << 10;
/// Forms as which selectors ask of an object at once, at most: one for each version it is read in.
const FORMS_MAX: usize = 2;
/// What an object that has been written over may keep for selectors beside what was counted then.
const ASKED_BYTES: usize = 1 << 10;

/// An object of one revision.
#[derive(Debug)]
pub struct Stored {
    /// Full key.
    pub key: Arc<str>,
    /// Revision of the last write.
    pub revision: Revision,
    /// Revision of the creation.
    pub created: Revision,
    raw: Bytes,
    // What is made of the bytes is made outside the locks: who only wants to let go of it never waits for that.
    value: Mutex<Option<Arc<OnceLock<Arc<Value>>>>>,
    asked: Mutex<Asked>,
    /// The bytes as a form has them.
    remade: Mutex<Option<Remade>>,
    encoded: Mutex<Vec<Arc<Encoded>>>,
    /// Whether it has been written over: trees and forms are kept no more.
    is_past: AtomicBool,
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
            raw,
            value: Mutex::default(),
            asked: Mutex::new(Asked {
                forms: [const { None }; FORMS_MAX],
                most: usize::MAX,
            }),
            remade: Mutex::default(),
            encoded: Mutex::default(),
            is_past: AtomicBool::new(false),
        }
    }

    /// `metadata.name`, as the key has it.
    pub fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// Asked with the lock of what may be kept in hand: what was kept before it was written over is let go of with that lock, too.
    fn is_past(&self) -> bool {
        self.is_past.load(Ordering::Relaxed)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Arc<OnceLock<Arc<Value>>>>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remade(&self) -> MutexGuard<'_, Option<Remade>> {
        self.remade.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object as a tree, with `metadata.resourceVersion` and without kind, apiVersion and managedFields (nobody who only reads
    /// asks for them, and they take as much as all else); parsed at the first call and kept until the object is written over.
    /// For callers who come back; see [`Stored::tree`].
    pub fn value(&self) -> Arc<Value> {
        let slot = {
            let mut kept = self.kept();
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
        let kept = self.kept().as_ref().and_then(|slot| slot.get().map(Arc::clone));
        kept.map_or_else(|| self.parse(), |value| Value::clone(&value))
    }

    /// As [`Stored::tree`], with managedFields.
    pub fn owned_tree(&self) -> Value {
        let mut value = self.tree();
        let list = self.owners().and_then(|list| serde_json::from_str(list).ok());
        if let (Some(list), Some(metadata)) = (list, value.get_mut("metadata").and_then(Value::as_object_mut)) {
            metadata.insert(OWNERS.to_owned(), list);
        }
        value
    }

    /// `metadata.managedFields` as text.
    pub fn owners(&self) -> Option<&str> {
        let (_, list) = Layout::of(&self.raw)?.split_owners()?;
        std::str::from_utf8(list).ok()
    }

    /// What the stored bytes say the object is; `None` if they are no object's.
    pub fn type_meta(&self) -> Option<TypeMeta<'_>> {
        TypeMeta::of(&self.raw)
    }

    /// The object has been written over: lets go of the tree and of forms, and keeps none any more. Gives what is kept for selectors, in
    /// bytes; it grows by little.
    pub(super) fn written_over(&self) -> usize {
        self.is_past.store(true, Ordering::Relaxed);
        self.kept().take();
        self.remade().take();
        self.forget_encoded();
        let mut asked = self.asked();
        let bytes = asked.bytes();
        asked.most = bytes.max(ASKED_BYTES);
        bytes
    }

    /// What [`super::EncodedForms`] keeps here.
    pub(super) fn encoded(&self) -> MutexGuard<'_, Vec<Arc<Encoded>>> {
        self.encoded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget_encoded(&self) {
        self.encoded().clear();
    }

    fn parse(&self) -> Value {
        let without = Layout::of(&self.raw).map(|layout| {
            let rest = layout.split_owners().map_or(layout.members, |(rest, _)| rest);
            let rest = rest.strip_prefix(b",").unwrap_or(rest);
            [BARE_HEAD, rest].concat()
        });
        let bytes = without.as_deref().unwrap_or(&self.raw);
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
            self.asked().settle();
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
        let is_long = |bytes: &Bytes| bytes.len() > 2 * self.raw.len() + REMADE_BYTES;
        if bytes.as_ref().is_some_and(is_long) {
            let mut remade = self.remade();
            if remade.as_ref().is_some_and(|(_, kept)| Arc::ptr_eq(kept, &slot)) {
                remade.take();
            }
        }
        bytes.as_ref().map_or_else(|| self.raw.clone(), Bytes::clone)
    }

    /// Stored bytes, as written.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The object as JSON in two parts, head and shared rest, at `revision` (a deletion's event shows the deletion's), with
    /// kind and apiVersion if `type_meta` (apiVersion, kind) is given.
    pub fn json(&self, type_meta: Option<(&str, &str)>, revision: Revision) -> (Bytes, Bytes) {
        self.spliced(&self.raw, type_meta, revision)
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
mod tests {
    use super::*;
    use crate::store::value::{canonical, canonical_owned};
    use serde_json::json;

    fn stored(raw: Vec<u8>) -> Stored {
        Stored::new(Arc::from("/registry/pods/a/b"), 7, 3, Bytes::from(raw))
    }

    fn joined(parts: (Bytes, Bytes)) -> Value {
        serde_json::from_slice(&[parts.0, parts.1].concat()).unwrap()
    }

    #[test]
    fn replies_splice_what_the_stored_bytes_leave_out() {
        let object = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"a": "\"{"},
            "metadata": {"name": "b", "resourceVersion": "1", "labels": {"x": "y"}}});
        let raw = canonical(&TypeMeta::new("v1", "Pod"), &object);
        assert_eq!(
            String::from_utf8(raw.clone()).unwrap(),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"x":"y"},"name":"b"},"spec":{"a":"\"{"}}"#
        );
        let stored = stored(raw);
        let expected = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"a": "\"{"},
            "metadata": {"name": "b", "resourceVersion": "9", "labels": {"x": "y"}}});
        assert_eq!(joined(stored.json(Some(("v1", "Pod")), 9)), expected);
        assert_eq!(stored.value()["metadata"]["resourceVersion"], "7");
        assert!(stored.json(None, 9).1.len() > 20, "the rest is the stored bytes' own");
        stored.written_over();
        assert_eq!(stored.tree(), *stored.value(), "a tree that was forgotten is made anew");
        assert!(stored.kept().is_none(), "and not kept");
    }

    #[test]
    fn what_is_written_over_keeps_no_forms_and_for_selectors_what_was_counted() {
        let many: std::collections::BTreeMap<String, &str> = (0..1000).map(|n| (format!("{n}"), "")).collect();
        let read = |labels: Value| move |_: &Stored| Selectable::of(&json!({"metadata": {"labels": labels}}), []);
        let (few, many) = (json!({"a": "b"}), json!(many));
        let object = || stored(canonical(&TypeMeta::new("v1", "Pod"), &json!({})));
        let kept = |stored: &Stored| stored.asked().forms.iter().flatten().count();
        let unasked = object();
        assert_eq!(unasked.written_over(), 0);
        unasked.selectable(0, read(few.clone()));
        assert_eq!(kept(&unasked), 1);
        unasked.selectable(1, read(many.clone()));
        assert!(kept(&unasked) <= 1 && unasked.asked().bytes() <= ASKED_BYTES);
        unasked.bytes(1, |_| Some(Bytes::from_static(b"{}")));
        assert!(unasked.remade().is_none());

        let asked = object();
        asked.selectable(1, read(many.clone()));
        asked.selectable(2, read(few));
        assert_eq!(kept(&asked), 2, "two versions do not drive each other out");
        asked.bytes(1, |_| Some(Bytes::from_static(b"{}")));
        assert_eq!(asked.written_over(), asked.asked().bytes());
        assert!(asked.remade().is_none() && kept(&asked) == 2 && asked.asked().bytes() > 4_000);
    }

    #[test]
    fn who_writes_over_an_object_waits_for_no_reader_of_it() {
        let read = Arc::new(stored(canonical(&TypeMeta::new("v1", "Pod"), &json!({}))));
        let (begun, begins) = std::sync::mpsc::channel();
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        let reader = {
            let read = Arc::clone(&read);
            std::thread::spawn(move || {
                read.bytes(1, |_| {
                    begun.send(()).unwrap();
                    goes_on.recv().unwrap();
                    Some(Bytes::from_static(b"{}"))
                })
            })
        };
        begins.recv().unwrap();
        read.written_over();
        go_on.send(()).unwrap();
        assert_eq!(reader.join().unwrap().len(), 2);
        assert!(read.remade().is_none());
    }

    #[test]
    fn owners_are_stored_first_and_left_aside() {
        let list = r#"[{"fieldsV1":{"f:a":{"k:{\"n\":\"}]\"}":{}}},"manager":"m"}]"#;
        let mut object = json!({"metadata": {"name": "b", "annotations": {"x": "y"}}, "spec": 1});
        object["metadata"]["managedFields"] = serde_json::from_str(list).unwrap();
        let raw = canonical(&TypeMeta::new("a/v1", "B"), &object);
        let expected = format!(
            r#"{{"kind":"B","apiVersion":"a/v1","metadata":{{"managedFields":{list},"annotations":{{"x":"y"}},"name":"b"}},"spec":1}}"#
        );
        assert_eq!(String::from_utf8(raw.clone()).unwrap(), expected);
        let owned = stored(raw);
        assert_eq!(owned.owners(), Some(list));
        assert!(owned.tree()["metadata"].get("managedFields").is_none());
        object["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(owned.owned_tree(), object);
        assert_eq!(joined(owned.json(None, 7)), object);
        let only = stored(canonical_owned(&TypeMeta::new("a/v1", "B"), &json!({}), Some("[]")));
        assert_eq!(
            (only.owners(), only.tree()),
            (Some("[]"), json!({"metadata": {"resourceVersion": "7"}}))
        );
    }

    #[test]
    fn bytes_of_another_layout_are_spliced_all_the_same() {
        for raw in [
            r#"{"spec":1,"metadata":{"name":"b"}}"#,
            r#"{"metadata":{}}"#,
            r#"{"x":1}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[],"name":"b"}}"#,
        ] {
            let stored = stored(raw.as_bytes().to_vec());
            let value = joined(stored.json(None, 9));
            assert_eq!(value["metadata"]["resourceVersion"], "9", "{raw}");
            assert!(
                value.get("kind").is_none() && stored.tree().get("kind").is_none(),
                "{raw}"
            );
        }
    }
}
