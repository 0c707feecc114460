//! What `hack/fuzz` reaches of this crate beside its public parts (feature `test-util`). Decides nothing itself.

use std::sync::Arc;

use serde_json::Value;

use crate::resource::{Kind, custom};
use crate::schema::protobuf;

/// The kinds of a definition, as if it were established under the names it asks for.
pub fn kinds(definition: &mut Value) -> Vec<Arc<Kind>> {
    let names = definition["spec"]["names"].clone();
    definition["status"] = serde_json::json!({ "acceptedNames": names });
    custom::kinds(definition)
}

/// An object in its protobuf envelope; `None` if its kind has no such form.
pub fn protobuf(object: &Value) -> Option<Vec<u8>> {
    protobuf::of_object(object)
}
