//! The one field that an object and its Scale share: who owns it in the one owns it in the other. Pure.

use serde_json::Value;

use super::entry::{Entries, Entry, Manager};
use super::field_set::FieldSet;
use super::update::{put, take};

/// Where the replicas are, in the object and in its Scale alike.
const REPLICAS: &[&str] = &["spec", "replicas"];
/// What a Scale's fields' names refer to.
const SCALE_VERSION: &str = "autoscaling/v1";

fn owns_replicas(entry: &Entry) -> bool {
    entry.fields.has(&["f:spec", "f:replicas"])
}

fn same(one: &Manager, other: &Manager) -> bool {
    (&one.name, one.operation, &one.subresource) == (&other.name, other.operation, &other.subresource)
}

/// Gives a Scale the entries of its object's managers of the replicas.
pub fn to_scale(object: &Value, scale: &mut Value) {
    let entries = Entries::stored(object["metadata"]["managedFields"].clone());
    let owners = entries.0.into_iter().filter(owns_replicas).map(|mut entry| {
        SCALE_VERSION.clone_into(&mut entry.manager.api_version);
        entry.fields = FieldSet::of(REPLICAS);
        entry
    });
    put(scale, Entries(owners.collect()).into_value());
}

/// Gives an object the managers of the replicas that its Scale has after a write.
pub fn to_object(scale: &Value, object: &mut Value, api_version: &str) {
    let replicas = FieldSet::of(REPLICAS);
    let mut owners = Entries::stored(scale["metadata"]["managedFields"].clone());
    let mut entries = take(object).map(Entries::stored).unwrap_or_default();
    for entry in entries.0.iter_mut().filter(|entry| owns_replicas(entry)) {
        match owners.0.iter().position(|owner| same(&owner.manager, &entry.manager)) {
            Some(at) => {
                owners.0.remove(at);
            }
            None => entry.fields.subtract(&replicas),
        }
    }
    for mut owner in owners.0.into_iter().filter(owns_replicas) {
        api_version.clone_into(&mut owner.manager.api_version);
        owner.fields = replicas.clone();
        // As upstream, which gives such entries no time.
        owner.time = None;
        entries.0.push(owner);
    }
    put(object, entries.into_value());
}
