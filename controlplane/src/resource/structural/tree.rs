//! Pruning and defaulting of trees. Pure.

use serde_json::{Map, Value};

use super::Structural;

/// Most unknown fields noted, as of built-in kinds.
const UNKNOWN_MAX: usize = 100;

/// What every object has that a schema need not name.
fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

fn below(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

impl Structural {
    /// Removes what the schema does not know from an object, noting the paths of fields; its apiVersion, kind and metadata stay.
    pub(crate) fn prune_object(&self, object: &mut Value, unknown: &mut Vec<String>) {
        if let Some(map) = object.as_object_mut() {
            self.prune_map(map, "", true, unknown);
        }
    }

    pub(super) fn prune(&self, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
        match value {
            Value::Object(map) => self.prune_map(map, path, self.embedded, unknown),
            Value::Array(members) => {
                for (i, member) in members.iter_mut().enumerate() {
                    if let Some(items) = &self.items {
                        items.prune(member, &format!("{path}[{i}]"), unknown);
                    }
                }
            }
            _ => {}
        }
    }

    fn prune_map(&self, map: &mut Map<String, Value>, path: &str, has_meta: bool, unknown: &mut Vec<String>) {
        map.retain(|key, value| {
            if has_meta && is_meta(key) {
                return true;
            }
            if let Some(property) = self.properties.get(key.as_str()) {
                property.prune(value, &below(path, key), unknown);
                return true;
            }
            if let Some(values) = &self.values {
                values.prune(value, &below(path, key), unknown);
                return true;
            }
            let is_kept = self.preserves || self.any_values;
            if !is_kept && unknown.len() < UNKNOWN_MAX {
                unknown.push(below(path, key));
            }
            is_kept
        });
    }

    /// Fills in defaults: of fields that are missing, or null and may not be. Other such nulls go.
    pub(crate) fn fill_in(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, property) in &self.properties {
                    if !property.nullable && map.get(&**name).is_some_and(Value::is_null) {
                        map.remove(&**name);
                    }
                    if let Some(default) = &property.default
                        && !map.contains_key(&**name)
                    {
                        map.insert(name.to_string(), (**default).clone());
                    }
                    if let Some(value) = map.get_mut(&**name) {
                        property.fill_in(value);
                    }
                }
                if let Some(values) = &self.values {
                    for value in map.values_mut() {
                        values.fill_in(value);
                    }
                }
            }
            Value::Array(members) => {
                if let Some(items) = &self.items {
                    members.iter_mut().for_each(|member| items.fill_in(member));
                }
            }
            _ => {}
        }
    }
}
