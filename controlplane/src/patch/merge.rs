//! RFC 7396. Pure.

use serde_json::{Map, Value};

/// Merges `patch` into `tree`: objects member by member, null removes, all else replaces.
pub fn merge_patch_tree(tree: &mut Value, patch: &Value) {
    let Some(members) = patch.as_object() else {
        *tree = patch.clone();
        return;
    };
    if !tree.is_object() {
        *tree = Value::Object(Map::new());
    }
    let Some(map) = tree.as_object_mut() else { return };
    for (key, value) in members {
        if value.is_null() {
            map.remove(key);
        } else {
            merge_patch_tree(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
