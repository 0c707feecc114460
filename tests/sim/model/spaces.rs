//! Namespaces: one that is gone has left nothing, and nothing is made in it.

use super::{World, name};
use serde_json::Value;

const SPACES: &str = "/registry/namespaces/";

fn space(object: &Value) -> Option<&str> {
    object["metadata"]["namespace"]
        .as_str()
        .filter(|space| !space.is_empty())
}

/// Judges a namespace that went, and an object that came.
pub fn judge(world: &World<'_>, key: &str, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    match (before, after) {
        (Some(gone), None) if key.starts_with(SPACES) => {
            let left = world
                .objects
                .iter()
                .filter(|(_, object)| space(object) == Some(name(gone)));
            left.map(|(key, _)| format!("{key} is left of namespace {}, which is gone", name(gone)))
                .collect()
        }
        (None, Some(made)) => {
            let space = space(made).filter(|space| world.get(&format!("{SPACES}{space}")).is_none());
            space
                .map(|space| format!("{key} was made in namespace {space}, which is not there"))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}
