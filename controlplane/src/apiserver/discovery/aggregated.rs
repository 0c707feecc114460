//! Aggregated discovery: everything about a set of groups in one document (control-plane contract §1).

use super::super::negotiate::Encoding;
use super::super::{Body, body};
use super::finished_as;
use crate::resource::{Group, Kind, Registry};
use crate::schema::protobuf;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use std::sync::OnceLock;

const CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const MESSAGE_TYPE: &str = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

struct Document {
    bytes: Bytes,
    message: Bytes,
    /// Of the JSON, for both.
    etag: String,
}

impl Document {
    fn new(core: bool, registry: &Registry) -> Self {
        let wanted = registry.groups().iter().filter(|group| group.name.is_empty() == core);
        let items: Vec<Value> = wanted.map(|one| group(one)).collect();
        let list = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        });
        let bytes = Bytes::from(list.to_string());
        let etag = format!("\"{}\"", hex::encode_upper(Sha512::digest(&bytes)));
        let message = protobuf::of_object(&list).unwrap_or_default().into();
        Self { bytes, message, etag }
    }
}

/// The documents of the kinds of one moment, each made when it is first asked for: of the core group, and of all others.
#[derive(Default)]
pub(in crate::apiserver) struct Aggregated {
    core: OnceLock<Document>,
    named: OnceLock<Document>,
}

impl Aggregated {
    /// Answers `/api` or `/apis`; `registry` is the one these documents are of.
    pub(super) fn serve(
        &self,
        core: bool,
        registry: &Registry,
        encoding: Encoding,
        headers: &HeaderMap,
    ) -> Response<Body> {
        let document = if core { &self.core } else { &self.named };
        respond(
            document.get_or_init(|| Document::new(core, registry)),
            encoding,
            headers,
        )
    }
}

fn respond(document: &Document, encoding: Encoding, headers: &HeaderMap) -> Response<Body> {
    let known = headers
        .get(IF_NONE_MATCH)
        .is_some_and(|value| value.as_bytes() == document.etag.as_bytes());
    let mut response = if known {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        match encoding {
            Encoding::Protobuf => finished_as(document.message.clone(), MESSAGE_TYPE, headers),
            _ => finished_as(document.bytes.clone(), CONTENT_TYPE, headers),
        }
    };
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&document.etag) {
        headers.insert(ETAG, etag);
    }
    headers.append(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

fn group(group: &Group) -> Value {
    let mut item = json!({"metadata": {"creationTimestamp": null}});
    if !group.name.is_empty() {
        item["metadata"]["name"] = json!(group.name);
    }
    let versions = group.versions.iter().map(|version| {
        let resources: Vec<Value> = version.kinds.iter().map(|kind| resource(kind)).collect();
        json!({"version": version.name, "freshness": "Current", "resources": resources})
    });
    item["versions"] = versions.collect();
    item
}

fn resource(kind: &Kind) -> Value {
    let response = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": kind.plural, "responseKind": response(&kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    if !kind.subresources.is_empty() {
        let parts = kind.subresources.iter().map(|part| {
            json!({
                "subresource": part.name, "responseKind": response(&part.group, &part.version, &part.kind),
                "verbs": part.verbs,
            })
        });
        entry["subresources"] = parts.collect();
    }
    entry
}
