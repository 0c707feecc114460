//! Pruning and defaulting of trees. Pure.
//!
//! Owns how much defaults may add to an object: they nest, so that a short schema could make any number of values.

use serde_json::{Map, Value};

use super::Structural;
use super::judge::Path;
use crate::tree::{self, SIZE_MAX_BYTES};

/// Most unknown fields noted, as of built-in kinds.
const UNKNOWN_MAX: usize = 100;
/// Values that defaults may add to an object.
const NODES_MAX: usize = 1 << 18;

/// What every object has that a schema need not name.
pub(super) fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

/// The defaults of a schema make more of an object than an object may be.
#[derive(Debug, thiserror::Error)]
#[error("defaults add more than {NODES_MAX} values or {SIZE_MAX_BYTES} bytes to the object")]
pub(crate) struct DefaultsTooLarge;

/// What defaults may still add.
pub(super) struct Room {
    nodes: usize,
    bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            nodes: NODES_MAX,
            bytes: SIZE_MAX_BYTES,
        }
    }
}

impl Room {
    fn take(&mut self, name: &str, default: &Value) -> Result<(), DefaultsTooLarge> {
        let bytes = name.len() + tree::size(default, usize::MAX);
        let (Some(nodes), Some(bytes)) = (self.nodes.checked_sub(nodes(default)), self.bytes.checked_sub(bytes)) else {
            // No smaller one fits afterwards: where it ends does not depend on the order of fields.
            *self = Self { nodes: 0, bytes: 0 };
            return Err(DefaultsTooLarge);
        };
        *self = Self { nodes, bytes };
        Ok(())
    }
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(members) => members.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0,
    }
}

impl Structural {
    /// Removes what the schema does not know from an object, noting the paths of fields; its apiVersion, kind and metadata stay.
    pub(crate) fn prune_object(&self, object: &mut Value, unknown: &mut Vec<String>) {
        if let Some(map) = object.as_object_mut() {
            self.prune_map(map, &Path::ROOT, true, unknown);
        }
    }

    pub(super) fn prune(&self, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
        match value {
            Value::Object(map) => self.prune_map(map, path, self.embedded, unknown),
            Value::Array(members) => {
                if let Some(items) = &self.items {
                    for (i, member) in members.iter_mut().enumerate() {
                        items.prune(member, &path.index(i), unknown);
                    }
                }
            }
            _ => {}
        }
    }

    fn prune_map(&self, map: &mut Map<String, Value>, path: &Path<'_>, has_meta: bool, unknown: &mut Vec<String>) {
        map.retain(|key, value| {
            if has_meta && is_meta(key) {
                return true;
            }
            if let Some(known) = self.properties.get(key.as_str()).or(self.values.as_deref()) {
                known.prune(value, &path.key(key), unknown);
                return true;
            }
            let is_kept = self.preserves || self.any_values;
            if !is_kept && unknown.len() < UNKNOWN_MAX {
                unknown.push(path.key(key).to_string());
            }
            is_kept
        });
    }

    /// Fills in the defaults of an object, as [`Self::try_fill_in`]; those for which there is no room are left out.
    pub(crate) fn fill_in(&self, object: &mut Value) {
        // What is stored had room for them; a later schema may not take more memory from those who read.
        let _ = self.try_fill_in(object);
    }

    /// Fills in the defaults of an object: of fields that are missing, or null and may not be. Other such nulls go. Its
    /// apiVersion, kind and metadata are the API's own.
    ///
    /// # Errors
    /// The defaults are too large; the object has some of them.
    pub(crate) fn try_fill_in(&self, object: &mut Value) -> Result<(), DefaultsTooLarge> {
        match object.as_object_mut() {
            Some(map) => self.fill_map(map, true, &mut Room::default()),
            None => Ok(()),
        }
    }

    pub(super) fn fill(&self, value: &mut Value, room: &mut Room) -> Result<(), DefaultsTooLarge> {
        match (value, &self.items) {
            (Value::Object(map), _) => self.fill_map(map, false, room),
            (Value::Array(members), Some(items)) => members.iter_mut().try_for_each(|member| items.fill(member, room)),
            _ => Ok(()),
        }
    }

    fn fill_map(&self, map: &mut Map<String, Value>, is_root: bool, room: &mut Room) -> Result<(), DefaultsTooLarge> {
        map.retain(|name, value| {
            let property = self.properties.get(name.as_str());
            !value.is_null() || (is_root && is_meta(name)) || property.is_none_or(|property| property.nullable)
        });
        // Only those that have a default are asked for: an object of many maps would else take time for every property in each.
        for name in self.defaulted.iter().filter(|name| !(is_root && is_meta(name))) {
            let default = self
                .properties
                .get(name)
                .and_then(|property| property.default.as_deref());
            if let Some(default) = default
                && !map.contains_key(&**name)
            {
                room.take(name, default)?;
                map.insert(name.to_string(), default.clone());
            }
        }
        for (name, value) in map.iter_mut().filter(|(name, _)| !(is_root && is_meta(name))) {
            if let Some(schema) = self.properties.get(name.as_str()).or(self.values.as_deref()) {
                schema.fill(value, room)?;
            }
        }
        Ok(())
    }
}
