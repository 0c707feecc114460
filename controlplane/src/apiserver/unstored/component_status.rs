//! `componentstatuses`: what `kubectl get cs` shows. Scheduler and controllers live in this process, the store is behind it, so whoever
//! reads the answer knows that they run. Nothing is stored.

use crate::apiserver::negotiate::{Output, Shape, not_acceptable};
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::status::ApiError;
use crate::apiserver::{ApiServer, Body, reply};
use crate::resource::deprecated;
use http::{HeaderMap, Response};
use serde_json::{Value, json};
use std::sync::Arc;

const RESOURCE: &str = "componentstatuses";
/// Upstream's names and messages.
const COMPONENTS: [(&str, &str); 3] = [("controller-manager", "ok"), ("etcd-0", "ok"), ("scheduler", "ok")];

fn component((name, message): (&str, &str)) -> Value {
    json!({
        "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": "True", "message": message}],
    })
}

/// Answers `get` and `list`.
pub(super) fn answer(
    server: &ApiServer,
    info: &RequestInfo,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let output = Output::negotiate(headers, query)?;
    let registry = server.registry();
    let kind = registry.by_resource("", "v1", RESOURCE);
    let kind = kind.ok_or_else(|| ApiError::not_found("", RESOURCE, &info.name))?;
    let wanted = COMPONENTS
        .into_iter()
        .filter(|(name, _)| info.name.is_empty() || *name == info.name);
    let mut found: Vec<Value> = wanted.map(component).collect();
    if found.is_empty() {
        return Err(ApiError::not_found("", RESOURCE, &info.name));
    }
    let value = match output.shape {
        Shape::Whole if info.name.is_empty() => {
            json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": found})
        }
        Shape::Whole => found.remove(0),
        Shape::Table(version) => {
            let objects: Vec<Arc<Value>> = found.into_iter().map(Arc::new).collect();
            reply::table_of(
                kind,
                &objects,
                version,
                query.text("includeObject"),
                server.now(),
                json!({}),
            )?
        }
        Shape::Partial(_) | Shape::PartialList(_) => return Err(not_acceptable()),
    };
    let mut response = reply::finish(200, reply::encode(&value, output)?, output.encoding, headers);
    let warning = deprecated::kind(kind).map(str::to_owned);
    reply::add_warnings(response.headers_mut(), warning.as_slice());
    Ok(response)
}
