//! Aggregated discovery: everything about a set of groups in one document (control-plane contract §1).

use super::super::{Body, body};
use super::{groups, json_as, kinds_of, versions};
use crate::resource::Kind;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use std::sync::OnceLock;

const CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

struct Document {
    bytes: Bytes,
    etag: String,
}

/// The document of the core group, or of all others. The table of kinds does not change, so each is made once.
fn document(core: bool) -> &'static Document {
    static CORE: OnceLock<Document> = OnceLock::new();
    static NAMED: OnceLock<Document> = OnceLock::new();
    let cell = if core { &CORE } else { &NAMED };
    cell.get_or_init(|| {
        let items: Vec<Value> = groups()
            .into_iter()
            .filter(|name| name.is_empty() == core)
            .map(group)
            .collect();
        let list = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        });
        let bytes = Bytes::from(list.to_string());
        let etag = format!("\"{}\"", hex::encode_upper(Sha512::digest(&bytes)));
        Document { bytes, etag }
    })
}

pub(super) fn serve(core: bool, headers: &HeaderMap) -> Response<Body> {
    let document = document(core);
    let known = headers
        .get(IF_NONE_MATCH)
        .is_some_and(|value| value.as_bytes() == document.etag.as_bytes());
    let mut response = if known {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        json_as(document.bytes.clone(), CONTENT_TYPE, headers)
    };
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&document.etag) {
        headers.insert(ETAG, etag);
    }
    headers.append(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

fn group(name: &'static str) -> Value {
    let mut item = json!({"metadata": {"creationTimestamp": null}});
    if !name.is_empty() {
        item["metadata"]["name"] = json!(name);
    }
    let versions = versions(name).into_iter().map(|version| {
        let resources: Vec<Value> = kinds_of(name, version).map(resource).collect();
        json!({"version": version, "freshness": "Current", "resources": resources})
    });
    item["versions"] = versions.collect();
    item
}

fn resource(kind: &'static Kind) -> Value {
    let response = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": kind.plural, "responseKind": response(kind.group, kind.version, kind.kind),
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
                "subresource": part.name, "responseKind": response(part.group, part.version, part.kind),
                "verbs": part.verbs,
            })
        });
        entry["subresources"] = parts.collect();
    }
    entry
}
