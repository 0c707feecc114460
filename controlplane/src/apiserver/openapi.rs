//! OpenAPI v3: the index and one document per group and version, as kubectl reads them to validate, explain and patch
//! (control-plane contract §1); and v2, the same in one document for older clients. Pure.
//!
//! Documents are made once, from the published schemas and the table of kinds, and kept compressed ([`kept`]). What a document says about a kind is what this server does for it:
//! paths, verbs, parameters and patch types come from the same table the verbs work on.

use std::collections::BTreeMap;

use kept::{Kept, kept_v2, kept_v3};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::resource::{Kind, registry};
use crate::schema::definitions;

mod components;
pub mod kept;
mod paths;
mod v2;

/// A document and the hash of its bytes (upper-case hex of SHA-512), which is also its ETag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// JSON.
    pub bytes: Vec<u8>,
    /// Changes with the bytes.
    pub hash: String,
}

impl Document {
    fn new(bytes: Vec<u8>) -> Self {
        let hash = hex::encode_upper(Sha512::digest(&bytes));
        Self { bytes, hash }
    }
}

/// What `/openapi/v3/<key>?hash=<hash>` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The document; `immutable` says the hash in the URL is the document's, so clients may keep it for a year.
    Document {
        /// The document.
        document: &'static Kept,
        /// Whether the URL names exactly this document.
        immutable: bool,
    },
    /// The hash in the URL is not the document's: 301 to this path.
    Moved(String),
    /// There is no such document.
    NotFound,
}

/// Answers a request for `/openapi/v2`, or for a path below `/openapi/v3`, given the query's `hash` (empty for none). Takes long
/// once ([`kept::is_made`]).
pub fn answer(path: &str, hash: &str) -> Answer {
    if path.trim_end_matches('/') == "/openapi/v2" {
        return Answer::Document {
            document: kept_v2(),
            immutable: false,
        };
    }
    let key = path.strip_prefix("/openapi/v3").unwrap_or(path).trim_matches('/');
    if key.is_empty() {
        return Answer::Document {
            document: &kept_v3().index,
            immutable: false,
        };
    }
    match kept_v3().groups.get(key) {
        None => Answer::NotFound,
        Some(document) if !hash.is_empty() && hash != document.hash => Answer::Moved(relative_url(key, &document.hash)),
        Some(document) => Answer::Document {
            immutable: hash == document.hash,
            document,
        },
    }
}

/// `/openapi/v3`: the documents there are, each with a URL that changes with its content.
fn v3_index<'a>(hashes: impl Iterator<Item = (&'a str, &'a str)>) -> Document {
    let paths: BTreeMap<&str, Value> = hashes
        .map(|(key, hash)| (key, json!({"serverRelativeURL": relative_url(key, hash)})))
        .collect();
    Document::new(json!({ "paths": paths }).to_string().into_bytes())
}

fn relative_url(key: &str, hash: &str) -> String {
    format!("/openapi/v3/{key}?hash={hash}")
}

/// The document of a group and version, by key: `api/v1` or `apis/apps/v1`.
fn v3_group(key: &str) -> Option<Document> {
    let document = v3_value(key)?;
    serde_json::to_vec(&document).ok().map(Document::new)
}

/// `/openapi/v2`: everything in one document, in JSON.
fn v2() -> Document {
    Document::new(v2::document().to_string().into_bytes())
}

fn v3_value(key: &str) -> Option<Value> {
    let kinds: Vec<&Kind> = registry()
        .kinds()
        .iter()
        .filter(|kind| group_key(kind) == key)
        .collect();
    if kinds.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    for kind in &kinds {
        paths::add(&mut paths, kind);
    }
    let schemas = components::schemas(definitions(kinds.iter().copied()), &kinds);
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
            }},
        },
    }))
}

/// Keys of all documents, in discovery order.
fn group_keys() -> Vec<String> {
    let mut keys: Vec<String> = registry().kinds().iter().map(group_key).collect();
    keys.dedup();
    keys
}

fn group_key(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

#[cfg(test)]
mod tests;
