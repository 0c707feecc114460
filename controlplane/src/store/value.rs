//! The bytes of a stored object: JSON that says itself what kind it is of, laid out so that replies share nearly all of it. Pure.
//!
//! Owns that form, the same in memory, on disk and wherever else a store keeps it: `kind` and `apiVersion` of the form the object is
//! stored in stand first, then `metadata`, and in it managedFields; resourceVersion and selfLink are left out (control-plane
//! contract §10). Never knows which kind belongs where.

use crate::json_text;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// How stored bytes begin, up to the kind.
const KIND: &[u8] = b"{\"kind\":\"";
/// Between kind and apiVersion.
const API_VERSION: &[u8] = b"\",\"apiVersion\":\"";
/// Between apiVersion and the first member of the metadata.
const METADATA: &[u8] = b"\",\"metadata\":{";
/// Who owns which field, in the metadata.
pub(super) const OWNERS: &str = "managedFields";
/// What stands first in the metadata of an object that has it: so that it is found, and left aside, without being read.
const OWNED_HEAD: &[u8] = b"\"managedFields\":";

/// What an object says it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TypeMeta<'a> {
    /// Such as `apps/v1`.
    #[serde(rename = "apiVersion", borrow, default)]
    pub api_version: Cow<'a, str>,
    /// Such as `Deployment`.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
}

impl<'a> TypeMeta<'a> {
    /// Of these names.
    pub fn new(api_version: &'a str, kind: &'a str) -> Self {
        Self {
            api_version: Cow::Borrowed(api_version),
            kind: Cow::Borrowed(kind),
        }
    }

    /// What stored bytes say; `None` if they are no JSON object. What they leave out is empty.
    pub fn of(raw: &'a [u8]) -> Option<Self> {
        match Layout::of(raw) {
            Some(layout) => Some(Self::new(layout.api_version, layout.kind)),
            None if raw.trim_ascii_start().starts_with(b"{") => serde_json::from_slice(raw).ok(),
            None => None,
        }
    }

    /// The same, with names of its own.
    pub fn into_owned(self) -> TypeMeta<'static> {
        TypeMeta {
            api_version: Cow::Owned(self.api_version.into_owned()),
            kind: Cow::Owned(self.kind.into_owned()),
        }
    }

    /// The group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }
}

impl fmt::Display for TypeMeta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.api_version, &*self.kind) {
            ("", "") => f.write_str("an object without kind and apiVersion"),
            (version, kind) => write!(f, "{version} {kind}"),
        }
    }
}

/// Where the parts of stored bytes are.
pub(super) struct Layout<'a> {
    api_version: &'a str,
    kind: &'a str,
    /// What follows the brace that opens the metadata.
    pub(super) members: &'a [u8],
}

impl<'a> Layout<'a> {
    /// The parts of canonical bytes; `None` for others.
    pub(super) fn of(raw: &'a [u8]) -> Option<Self> {
        let (kind, rest) = name(raw.strip_prefix(KIND)?)?;
        let (api_version, rest) = name(rest.strip_prefix(API_VERSION)?)?;
        let members = rest.strip_prefix(METADATA)?;
        Some(Self {
            api_version,
            kind,
            members,
        })
    }

    /// What follows managedFields, and these; `None` if there are none.
    pub(super) fn split_owners(&self) -> Option<(&'a [u8], &'a [u8])> {
        let rest = self.members.strip_prefix(OWNED_HEAD)?;
        let end = json_text::end(rest, 0)?;
        Some((&rest[end..], &rest[..end]))
    }
}

/// The text up to the next quote, and the rest with it; `None` where something is escaped.
fn name(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    let (name, rest) = text.split_at(end);
    Some((std::str::from_utf8(name).ok()?, rest))
}

/// The bytes to store for `object`, which is `of` that kind whatever it says: see the module.
pub fn canonical(of: &TypeMeta<'_>, object: &Value) -> Vec<u8> {
    canonical_owned(of, object, owners(object).as_deref())
}

/// An object's managedFields as text.
pub(super) fn owners(object: &Value) -> Option<String> {
    let owners = object.get("metadata").and_then(|metadata| metadata.get(OWNERS));
    owners.map(Value::to_string)
}

/// As [`canonical`], with these managedFields (JSON text) whatever the object says.
pub fn canonical_owned(of: &TypeMeta<'_>, object: &Value, owners: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024 + owners.map_or(0, str::len));
    // Names of kinds and versions need no escaping.
    for part in [
        KIND,
        of.kind.as_bytes(),
        API_VERSION,
        of.api_version.as_bytes(),
        METADATA,
    ] {
        out.extend_from_slice(part);
    }
    members(&mut out, object, owners);
    // Kept for as long as the object is, and for minutes beyond: without the room that growing leaves, a third as much again.
    out.shrink_to_fit();
    out
}

/// What follows the brace that opens the metadata.
pub(super) fn members(out: &mut Vec<u8>, object: &Value, owners: Option<&str>) {
    let mut first = owners.is_none();
    if let Some(owners) = owners {
        out.extend_from_slice(OWNED_HEAD);
        out.extend_from_slice(owners.as_bytes());
    }
    let metadata = object.get("metadata").and_then(Value::as_object);
    for (key, value) in metadata.into_iter().flatten() {
        if !matches!(key.as_str(), "resourceVersion" | "selfLink" | OWNERS) {
            member(out, &mut first, key, value);
        }
    }
    out.push(b'}');
    first = false;
    for (key, value) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "metadata" | "kind" | "apiVersion") {
            member(out, &mut first, key, value);
        }
    }
    out.push(b'}');
}

fn member(out: &mut Vec<u8>, first: &mut bool, key: &str, value: &Value) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, key).expect("writing to memory cannot fail");
    out.push(b':');
    serde_json::to_writer(&mut *out, value).expect("writing to memory cannot fail");
}

/// The bytes of an object whose text says neither kind nor apiVersion (data of format 1), saying them; `None` if it is no object's text.
pub(super) fn described(of: &TypeMeta<'_>, text: &[u8]) -> Option<Vec<u8>> {
    let rest = text.strip_prefix(b"{")?;
    let head = [KIND, of.kind.as_bytes(), API_VERSION, of.api_version.as_bytes(), b"\""].concat();
    let comma: &[u8] = if rest.first() == Some(&b'}') { b"" } else { b"," };
    Some([&head, comma, rest].concat())
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
