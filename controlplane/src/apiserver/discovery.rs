//! What is served, told to clients: groups, versions, resources, plain and aggregated; and the OpenAPI documents' paths
//! (control-plane contract §1). Made from the kinds of one moment; never knows an object.

mod aggregated;
mod documents;

pub(super) use aggregated::Aggregated;
pub(super) use documents::expire;

use super::negotiate::{Encoding, Output};
use super::request::{Query, RequestInfo};
use super::served::Served;
use super::status::ApiError;
use super::{Body, reply};
use crate::resource::{Group, Kind, Registry, Version, api_version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The well-known answer for clients that look for a server near them; `kubectl` ignores it.
const SERVER_ADDRESS: &str = "0.0.0.0/0";

/// Whether the answer takes long to make: the OpenAPI documents, the first time.
pub(super) fn takes_long(info: &RequestInfo, headers: &http::HeaderMap, served: &Served) -> bool {
    let is_openapi = !info.is_resource && info.path.starts_with("/openapi/");
    let is_message = || documents::wants_message(&info.path, headers);
    is_openapi && !served.openapi().is_made(&info.path, is_message())
}

/// Answers `/api...` and `/apis...` as far as they are not resources.
pub(super) fn serve(info: &RequestInfo, parts: &Parts, served: &Served) -> Result<Option<Response<Body>>, ApiError> {
    if info.is_resource || !matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(None);
    }
    let elements: Vec<&str> = info.path.trim_matches('/').split('/').collect();
    let registry = served.registry();
    if let (["api" | "apis"], Some(encoding)) = (elements.as_slice(), Output::aggregated_discovery(&parts.headers)) {
        let is_core = elements == ["api"];
        let answer = served.aggregated().serve(is_core, registry, encoding, &parts.headers);
        return Ok(Some(answer));
    }
    let document = match elements.as_slice() {
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": SERVER_ADDRESS, "serverAddress": ""}],
        }),
        ["apis"] => json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": named(registry).map(group).collect::<Vec<Value>>(),
        }),
        ["openapi", "v2"] | ["openapi", "v3", ..] => {
            return documents::serve(&info.path, parts, served.openapi()).map(Some);
        }
        elements => match of_group(elements, registry) {
            Some(document) => document,
            None => return Ok(None),
        },
    };
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    let output = Output::negotiate(&parts.headers, &query)?;
    let bytes = reply::encode(&document, output)?;
    Ok(Some(reply::finish(200, bytes, output.encoding, &parts.headers)))
}

/// The document of one group, or of one version of it.
fn of_group(elements: &[&str], registry: &Registry) -> Option<Value> {
    match elements {
        ["apis", name] => {
            let mut document = group(registry.group(name).filter(|_| !name.is_empty())?);
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            Some(document)
        }
        ["api", version] => Some(resources("", registry.version("", version)?)),
        ["apis", name, version] => Some(resources(name, registry.version(name, version)?)),
        _ => None,
    }
}

/// All groups but core.
fn named(registry: &Registry) -> impl Iterator<Item = &Group> {
    registry
        .groups()
        .iter()
        .map(|group| &**group)
        .filter(|group| !group.name.is_empty())
}

fn group(group: &Group) -> Value {
    let name = &group.name;
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{}", version.name), "version": version.name}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// The APIResourceList of a group and version.
fn resources(group: &str, version: &Version) -> Value {
    let mut entries = Vec::new();
    for kind in &version.kinds {
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
        for part in &kind.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, part.name), "singularName": "", "namespaced": kind.namespaced,
                "kind": part.kind, "verbs": part.verbs,
            });
            if (&part.group, &part.version) != (&kind.group, &kind.version) {
                entry["group"] = json!(part.group);
                entry["version"] = json!(part.version);
            }
            entries.push(entry);
        }
    }
    let group_version = api_version(group, &version.name);
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": entries});
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    list
}

/// The first eight bytes of the SHA-256 of the storage kind, in base64.
fn storage_version_hash(kind: &Arc<Kind>) -> String {
    let storage = kind.storage();
    let digest = Sha256::digest(format!("{}/{}/{}", storage.group, storage.version, storage.kind));
    STANDARD.encode(digest.get(..8).unwrap_or_default())
}

/// A reply of finished bytes with another content type.
fn finished_as(bytes: Bytes, content_type: &'static str, parts: &http::HeaderMap) -> Response<Body> {
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
        serve(&info, &parts, &served()).unwrap()
    }

    fn served() -> Served {
        Served::of_documents(Registry::built_in())
    }

    #[test]
    fn core_resources_have_upstreams_form() {
        let list = resources("", Registry::built_in().version("", "v1").unwrap());
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

    /// What each document of discovery is as protobuf, read back.
    #[tokio::test]
    async fn documents_read_back_from_protobuf_as_their_json() {
        use crate::apiserver::negotiate::PROTOBUF;
        use http_body_util::BodyExt;
        let aggregated = |media: &str| format!("{media};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        let pairs = [
            ("application/json".to_owned(), PROTOBUF.to_owned()),
            (aggregated("application/json"), aggregated(PROTOBUF)),
        ];
        for path in ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"] {
            for (json, message) in &pairs {
                let bytes = async |accept: &str| {
                    let response = get(path, accept).unwrap();
                    response.into_body().collect().await.unwrap().to_bytes()
                };
                if path.len() > "/apis".len() && json.contains("as=") {
                    continue;
                }
                let mut expected: Value = serde_json::from_slice(&bytes(json).await).unwrap();
                let read = crate::schema::parse(&bytes(message).await, crate::schema::Media::Protobuf).unwrap();
                // Empty lists, texts and nothings are not written.
                expected["apiVersion"] = read["apiVersion"].clone();
                assert_eq!(without_nothing(read), without_nothing(expected), "{path} {json}");
            }
        }
    }

    fn without_nothing(value: Value) -> Value {
        match value {
            Value::Object(members) => {
                let members = members.into_iter().map(|(name, value)| (name, without_nothing(value)));
                let is_nothing =
                    |value: &Value| [json!(null), json!(""), json!({}), json!([]), json!(false)].contains(value);
                Value::Object(members.filter(|(_, value)| !is_nothing(value)).collect())
            }
            Value::Array(all) => all.into_iter().map(without_nothing).collect(),
            other => other,
        }
    }

    #[test]
    fn groups_come_by_priority_and_unknown_ones_are_left_to_others() {
        let groups = Registry::built_in().groups();
        let names: Vec<&str> = groups.iter().map(|group| &*group.name).collect();
        assert_eq!(names.first(), Some(&""));
        assert_eq!(names.get(1), Some(&"apps"));
        assert!(get("/apis/example.com", "*/*").is_none());
        assert!(get("/apis/apps/v2", "*/*").is_none());
        assert!(get("/apis/apps/v1", "*/*").is_some());
        assert_eq!(
            group(Registry::built_in().group("apps").unwrap())["preferredVersion"]["groupVersion"],
            "apps/v1"
        );
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
        let message = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let response = get("/apis", message).unwrap();
        assert_eq!(
            (&response.headers()["content-type"], &response.headers()["etag"]),
            (&http::HeaderValue::from_static(message), &etag)
        );
        let request = http::Request::get("/apis")
            .header("accept", accept)
            .header("if-none-match", etag);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let info = RequestInfo::parse(&parts.method, "/apis", &Query::default());
        assert_eq!(serve(&info, &parts, &served()).unwrap().unwrap().status(), 304);
    }
}
