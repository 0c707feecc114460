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
    (fits_scope(info, kind) && part_exists).then_some(kind)
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
