//! One object as of one revision: its stored bytes, shared by every reply, and what selectors ask of it.
//!
//! A tree takes ten times the bytes, and a revision stays in the history for minutes. So a tree is kept only for parts of the
//! process that read the same object again and again, and only until the object is written over.
//!
//! Stored bytes ([`value`]) carry no resourceVersion, and say the kind of the form they are stored in; this module splices what a
//! reply says into it without copying the rest.

use super::encoded::Encoded;
use crate::store::value::{self, Layout, OWNERS, TypeMeta};
use crate::store::{Record, Revision};
use bytes::Bytes;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How the text of an object begins whose kind is left aside.
const BARE_HEAD: &[u8] = b"{\"metadata\":{";
/// Bytes that are kept of an object as a later schema has it, beyond twice what is stored; what is longer is made for each reader.
const REMADE_BYTES: usize = 4 << 10;

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
    value: Mutex<Option<Arc<Value>>>,
    /// What selectors ask of it as a form has it.
    selectable: Mutex<Option<(u64, Arc<Selectable>)>>,
    /// The bytes as a form has them; `None` for the stored ones.
    remade: Mutex<Option<(u64, Option<Bytes>)>>,
    encoded: Mutex<Vec<Arc<Encoded>>>,
}

/// What selectors can ask of an object. Small, because every watched revision has one.
#[derive(Debug)]
pub struct Selectable {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Selectable fields that are not empty.
    fields: Box<[(Cow<'static, str>, Box<str>)]>,
}

impl Selectable {
    /// Of an object with these fields.
    pub fn of(value: &Value, fields: impl IntoIterator<Item = (Cow<'static, str>, String)>) -> Self {
        let labels = value["metadata"]["labels"].as_object();
        let pairs = labels.into_iter().flatten();
        let fields = fields.into_iter().filter(|(_, text)| !text.is_empty());
        Self {
            labels: pairs
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            fields: fields.map(|(name, text)| (name, text.into_boxed_str())).collect(),
        }
    }

    /// A field's text; empty when it is not set.
    pub fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, text)| text)
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
            selectable: Mutex::default(),
            remade: Mutex::default(),
            encoded: Mutex::default(),
        }
    }

    /// `metadata.name`, as the key has it.
    pub fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(&*self.key, |(_, name)| name)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Arc<Value>>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object as a tree, with `metadata.resourceVersion` and without kind, apiVersion and managedFields (nobody who only reads
    /// asks for them, and they take as much as all else); parsed at the first call and kept until the object is written over.
    /// For callers who come back; see [`Stored::tree`].
    pub fn value(&self) -> Arc<Value> {
        Arc::clone(self.kept().get_or_insert_with(|| Arc::new(self.parse())))
    }

    /// As [`Stored::value`], for a caller who changes it or needs it once: nothing is kept.
    pub fn tree(&self) -> Value {
        let kept = self.kept().as_ref().map(Arc::clone);
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

    /// Lets go of the tree and of the form: the object has been written over.
    pub(super) fn forget_forms(&self) {
        self.kept().take();
        self.remade.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.forget_encoded();
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

    /// What selectors can ask of it, as `read` finds it; kept for the form that asked last: 0 is what is built in, and a
    /// version of a kind that came in with fields of its own has a form of its own.
    pub fn selectable(&self, form: u64, read: impl FnOnce(&Self) -> Selectable) -> Arc<Selectable> {
        let mut kept = self.selectable.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, selectable)) = &*kept
            && *known == form
        {
            return Arc::clone(selectable);
        }
        let selectable = Arc::new(read(self));
        *kept = Some((form, Arc::clone(&selectable)));
        selectable
    }

    /// The bytes as a form has them: `remake` gives those that differ from the stored ones, and is asked once for a form.
    fn bytes(&self, form: u64, remake: impl FnOnce(&Self) -> Option<Bytes>) -> Bytes {
        let kept = |known: &Option<Bytes>| known.as_ref().map_or_else(|| self.raw.clone(), Bytes::clone);
        let mut remade = self.remade.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, bytes)) = &*remade
            && *known == form
        {
            return kept(bytes);
        }
        let bytes = remake(self);
        let fits = |bytes: &Bytes| bytes.len() <= 2 * self.raw.len() + REMADE_BYTES;
        if bytes.as_ref().is_none_or(fits) {
            *remade = Some((form, bytes.clone()));
        }
        kept(&bytes)
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
        stored.forget_forms();
        assert_eq!(stored.tree(), *stored.value(), "a tree that was forgotten is made anew");
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
