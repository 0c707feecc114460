//! OpenAPI v3: the index and one document per group and version, as kubectl reads them to validate, explain and patch
//! (control-plane contract §1); and v2, the same in one document for older clients. Pure.
//!
//! Documents are made once for the kinds of one moment, from their published schemas, and kept compressed ([`kept`]). What a document says about a kind is what this server does for it:
//! paths, verbs, parameters and patch types come from the same kinds the verbs work on.

use std::collections::BTreeMap;
use std::sync::Arc;

use kept::Kept;
pub use kept::OpenApi;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::resource::{Kind, Registry, Version};
use crate::schema::{AddSchema, Definitions, definitions};

mod components;
pub mod kept;
mod message;
mod message_v3;
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
        document: Arc<Kept>,
        /// Whether the URL names exactly this document.
        immutable: bool,
    },
    /// The hash in the URL is not the document's: 301 to this path.
    Moved(String),
    /// There is no such document.
    NotFound,
}

impl OpenApi {
    /// Answers a request for `/openapi/v2`, or for a path below `/openapi/v3`, given the query's `hash` (empty for none). Takes
    /// long once ([`OpenApi::is_made`]).
    pub fn answer(&self, path: &str, hash: &str) -> Answer {
        if path.trim_end_matches('/') == "/openapi/v2" {
            return Answer::Document {
                document: self.v2(),
                immutable: false,
            };
        }
        let key = path.strip_prefix("/openapi/v3").unwrap_or(path).trim_matches('/');
        if key.is_empty() {
            return Answer::Document {
                document: self.index(),
                immutable: false,
            };
        }
        match self.of_key(key) {
            None => Answer::NotFound,
            Some(document) if !hash.is_empty() && hash != document.hash => {
                Answer::Moved(relative_url(key, &document.hash))
            }
            Some(document) => Answer::Document {
                immutable: hash == document.hash,
                document,
            },
        }
    }
}

/// `/openapi/v3`: the documents there are, each with a URL that changes with its content.
fn v3_index(documents: impl Iterator<Item = (String, Arc<Kept>)>) -> Document {
    let paths: BTreeMap<String, Value> = documents
        .map(|(key, document)| {
            let url = relative_url(&key, &document.hash);
            (key, json!({"serverRelativeURL": url}))
        })
        .collect();
    Document::new(json!({ "paths": paths }).to_string().into_bytes())
}

fn relative_url(key: &str, hash: &str) -> String {
    format!("/openapi/v3/{key}?hash={hash}")
}

/// The document of a group's version.
fn v3_group(registry: &Registry, version: &Version) -> Document {
    Document::new(v3_value(registry, version).to_string().into_bytes())
}

/// As [`v3_group`], as protobuf, with the hash of the JSON: the index names one for both.
fn v3_message(registry: &Registry, version: &Version, hash: &str) -> Document {
    Document {
        bytes: message_v3::document(&v3_value(registry, version)),
        hash: hash.to_owned(),
    }
}

/// `/openapi/v2`: everything in one document, in JSON.
fn v2(registry: &Registry) -> Document {
    Document::new(v2::document(registry).to_string().into_bytes())
}

/// As [`v2`], as protobuf.
fn v2_message(registry: &Registry) -> Document {
    Document::new(message::document(&v2::document(registry)))
}

/// The published types of these kinds, of the bodies of their subresources, and of deletes.
fn published(registry: &Registry, kinds: &[Arc<Kind>]) -> Map<String, Value> {
    let mut built_in: Vec<AddSchema> = Vec::new();
    let mut all = Map::new();
    let mut add = |published: &Definitions| match published {
        Definitions::BuiltIn(add) => built_in.push(*add),
        Definitions::Own(own) => all.extend(serde_json::from_str::<Map<String, Value>>(own).unwrap_or_default()),
    };
    for kind in kinds {
        add(&kind.published);
        for sub in &kind.subresources {
            if let Some(body) = registry.body(&sub.group, &sub.version, &sub.kind) {
                add(&body.published);
            }
        }
    }
    // Schemas of definitions refer to ObjectMeta, too.
    for kind in ["DeleteOptions", "ObjectMeta", "Status"] {
        if let Some(body) = registry.body("", "v1", kind) {
            add(&body.published);
        }
    }
    all.extend(definitions(built_in));
    all
}

fn v3_value(registry: &Registry, version: &Version) -> Value {
    let kinds = &version.kinds;
    let mut paths = Map::new();
    for kind in kinds {
        paths::add(&mut paths, kind, registry);
    }
    let schemas = components::schemas(published(registry, kinds), kinds, registry.types().get());
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
            }},
        },
    })
}

/// The key of the document of a group's version: `api/v1` or `apis/apps/v1`.
fn group_key(group: &str, version: &str) -> String {
    match group {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
