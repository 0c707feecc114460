//! What tests ask of an object's `managedFields`. Pure.

use serde_json::Value;

/// A manager's entry; null if it has none.
pub(crate) fn entry(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let found = entries.into_iter().flatten().find(|entry| entry["manager"] == manager);
    found.cloned().unwrap_or_default()
}

/// All managers, in their order.
pub(crate) fn managers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array();
    let names = entries.into_iter().flatten().map(|entry| entry["manager"].as_str());
    names.flatten().collect()
}
