//! What the targets share.

use std::sync::Arc;

use controlplane::resource::{Kind, Registry};
use serde_json::Value;

/// The built-in kind an object says it is of.
pub fn kind_of(object: &Value) -> Option<&'static Arc<Kind>> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let api_version = text("apiVersion")?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Registry::built_in().by_gvk(group, version, text("kind")?)
}
