//! What is served, told to clients: groups, versions, resources, plain and aggregated; and the OpenAPI documents' paths
//! (control-plane contract §1). Built from the table of kinds; never knows an object.

mod aggregated;
mod documents;

use super::negotiate::{Encoding, Output};
use super::openapi;
use super::request::{Query, RequestInfo};
use super::status::ApiError;
use super::{Body, reply};
use crate::resource::{Kind, registry};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The well-known answer for clients that look for a server near them; `kubectl` ignores it.
const SERVER_ADDRESS: &str = "0.0.0.0/0";

/// Whether the answer takes long to make: the OpenAPI documents, the first time.
pub(super) fn takes_long(info: &RequestInfo) -> bool {
    !info.is_resource && info.path.starts_with("/openapi/") && !openapi::kept::is_made(&info.path)
}

/// Answers `/api...` and `/apis...` as far as they are not resources.
pub(super) fn serve(info: &RequestInfo, parts: &Parts) -> Result<Option<Response<Body>>, ApiError> {
    if info.is_resource || !matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(None);
    }
    let elements: Vec<&str> = info.path.trim_matches('/').split('/').collect();
    let aggregated = Output::wants_aggregated_discovery(&parts.headers);
    let document = match elements.as_slice() {
        ["api" | "apis"] if aggregated => return Ok(Some(aggregated::serve(elements == ["api"], &parts.headers))),
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": SERVER_ADDRESS, "serverAddress": ""}],
        }),
        ["apis"] => json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": groups().into_iter().filter(|name| !name.is_empty()).map(group).collect::<Vec<Value>>(),
        }),
        ["apis", name] if groups().contains(name) => {
            let mut document = group(name);
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            document
        }
        ["openapi", "v2"] | ["openapi", "v3", ..] => return documents::serve(&info.path, parts).map(Some),
        ["api", version] if versions("").contains(version) => resources("", version),
        ["apis", name, version] if versions(name).contains(version) => resources(name, version),
        _ => return Ok(None),
    };
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    let output = Output::negotiate(&parts.headers, &query)?;
    let bytes = reply::encode(&document, output);
    Ok(Some(reply::finish(200, bytes, output.encoding, &parts.headers)))
}

/// The group names in discovery order, core (empty) first.
fn groups() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for kind in registry().kinds() {
        if !names.contains(&kind.group) {
            names.push(kind.group);
        }
    }
    names
}

/// A group's versions, preferred first.
fn versions(group: &str) -> Vec<&'static str> {
    let mut found: Vec<&str> = Vec::new();
    for kind in registry().kinds().iter().filter(|kind| kind.group == group) {
        if !found.contains(&kind.version) {
            found.push(kind.version);
        }
    }
    found
}

fn kinds_of(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    let kinds = registry().kinds().iter();
    kinds.filter(move |kind| kind.group == group && kind.version == version)
}

fn group(name: &str) -> Value {
    let versions: Vec<Value> = versions(name)
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// The APIResourceList of a group and version.
fn resources(group: &str, version: &str) -> Value {
    let mut entries = Vec::new();
    for kind in kinds_of(group, version) {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": kind.verbs,
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        if kind.is_stored() {
            entry["storageVersionHash"] = json!(storage_version_hash(kind));
        }
        entries.push(entry);
        for part in kind.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, part.name), "singularName": "", "namespaced": kind.namespaced,
                "kind": part.kind, "verbs": part.verbs,
            });
            if (part.group, part.version) != (group, version) {
                entry["group"] = json!(part.group);
                entry["version"] = json!(part.version);
            }
            entries.push(entry);
        }
    }
    let is_core = group.is_empty();
    let group_version = if is_core {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": entries});
    if !is_core {
        list["apiVersion"] = json!("v1");
    }
    list
}

/// The first eight bytes of the SHA-256 of the storage kind, in base64.
fn storage_version_hash(kind: &Kind) -> String {
    let digest = Sha256::digest(format!("{}/{}/{}", kind.group, kind.version, kind.kind));
    STANDARD.encode(digest.get(..8).unwrap_or_default())
}

/// A JSON reply of finished bytes with another content type.
fn json_as(bytes: Bytes, content_type: &'static str, parts: &http::HeaderMap) -> Response<Body> {
    let mut response = reply::finish(200, bytes, Encoding::Json, parts);
    let value = http::HeaderValue::from_static(content_type);
    response.headers_mut().insert(http::header::CONTENT_TYPE, value);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, accept: &str) -> Option<Response<Body>> {
        let request = http::Request::get(path).header("accept", accept).body(()).unwrap();
        let (parts, ()) = request.into_parts();
        let info = RequestInfo::parse(&parts.method, path, &Query::default());
        serve(&info, &parts).unwrap()
    }

    #[test]
    fn core_resources_have_upstreams_form() {
        let list = resources("", "v1");
        assert!(list.get("apiVersion").is_none(), "core omits it");
        let entries = list["resources"].as_array().unwrap();
        let find = |name: &str| entries.iter().find(|entry| entry["name"] == name).unwrap();
        assert_eq!(find("pods")["shortNames"], json!(["po"]));
        assert_eq!(
            find("pods")["storageVersionHash"],
            "xPOwRZ+Yhw8=",
            "the hash every cluster shows for v1/Pod"
        );
        assert_eq!(find("pods/eviction")["group"], "policy");
        assert_eq!(find("pods/status")["singularName"], "");
        assert!(find("pods/status").get("group").is_none());
        assert!(
            !find("namespaces")["verbs"]
                .as_array()
                .unwrap()
                .contains(&json!("deletecollection"))
        );
    }

    #[test]
    fn groups_come_by_priority_and_unknown_ones_are_left_to_others() {
        let names = groups();
        assert_eq!(names.first(), Some(&""));
        assert_eq!(names.get(1), Some(&"apps"));
        assert!(get("/apis/example.com", "*/*").is_none());
        assert!(get("/apis/apps/v2", "*/*").is_none());
        assert!(get("/apis/apps/v1", "*/*").is_some());
        assert_eq!(group("apps")["preferredVersion"]["groupVersion"], "apps/v1");
    }

    #[test]
    fn aggregated_discovery_echoes_its_type_and_answers_304() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let response = get("/apis", accept).unwrap();
        assert_eq!(
            response.headers()["content-type"],
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        let etag = response.headers()["etag"].clone();
        let request = http::Request::get("/apis")
            .header("accept", accept)
            .header("if-none-match", etag);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let info = RequestInfo::parse(&parts.method, "/apis", &Query::default());
        assert_eq!(serve(&info, &parts).unwrap().unwrap().status(), 304);
    }
}
