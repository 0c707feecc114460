//! Which kind a path is about, whether the path knows the method, and what is said where nothing is served. Pure.

use super::request::RequestInfo;
use super::status::ApiError;
use super::{Body, reply};
use crate::resource::{Kind, KindStrategy, Registry};
use http::Response;
use std::sync::Arc;

/// The kind behind a resource path, if the path fits its scope and names a subresource it has.
pub(super) fn kind_of<'r>(info: &RequestInfo, registry: &'r Registry) -> Option<&'r Arc<Kind>> {
    let kind = registry.by_resource(&info.group, &info.version, &info.resource)?;
    let part_exists = info.subresource.is_empty() || kind.subresource(&info.subresource).is_some();
    // Below an object's part there is something of a backend's, or nothing.
    let goes_on = !info.rest.is_empty() && info.subresource != "proxy";
    (fits_scope(info, kind) && part_exists && !goes_on).then_some(kind)
}

fn fits_scope(info: &RequestInfo, kind: &Kind) -> bool {
    let is_collection = info.name.is_empty() || matches!(info.verb.as_str(), "list" | "watch");
    match kind.namespaced {
        true => !info.namespace.is_empty() || is_collection,
        false => info.namespace.is_empty() || kind.plural == "namespaces",
    }
}

/// Whether the verb is one of a collection or of a single object as the path is. Who creates under a name is authorized for that
/// name, whatever the object says.
pub(super) fn has_route(info: &RequestInfo) -> bool {
    match info.verb.as_str() {
        "create" => info.name.is_empty() || !info.subresource.is_empty(),
        "update" | "patch" => !info.name.is_empty(),
        _ => true,
    }
}

/// The answer where no kind is served: a Status under the versions of built-in kinds, as clients expect to read one there.
pub(super) fn nothing_there(info: &RequestInfo, registry: &Registry) -> Result<Response<Body>, ApiError> {
    let defined = registry.by_resource(&info.group, &info.version, &info.resource);
    if let Some(kind) = defined.filter(|kind| kind.structural.is_some() && fits_scope(info, kind)) {
        return Err(ApiError::not_found(&kind.group, &kind.plural, &info.name));
    }
    let version = registry.version(&info.group, &info.version);
    let is_built_in = |kind: &Arc<Kind>| matches!(kind.strategy, KindStrategy::BuiltIn(_));
    if version.is_some_and(|version| version.kinds.iter().any(is_built_in)) {
        return Err(ApiError::no_route());
    }
    Ok(reply::not_found_page())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;

    #[test]
    fn only_what_a_backend_serves_goes_on_below_a_part() {
        let is_served = |path: &str| {
            let info = RequestInfo::parse(&http::Method::GET, path, &Query::default());
            kind_of(&info, Registry::built_in()).is_some()
        };
        for (path, expected) in [
            ("/api/v1/nodes/n/proxy/metrics/cadvisor", true),
            ("/api/v1/namespaces/a/services/s:80/proxy/x", true),
            ("/api/v1/namespaces/a/pods/p/status", true),
            ("/api/v1/namespaces/a/pods/p/status/x", false),
            ("/api/v1/namespaces/a/pods/p/exec/x/y", false),
        ] {
            assert_eq!(is_served(path), expected, "{path}");
        }
    }
}
