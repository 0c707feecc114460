//! The one field that an object and its Scale share: who owns it in the one owns it in the other. Pure.

use super::entry::{Entries, Entry, Manager};
use super::field_set::FieldSet;

/// Where the replicas are in a Scale, and in objects of built-in kinds.
const REPLICAS: &[&str] = &["spec", "replicas"];
/// What a Scale's fields' names refer to.
const SCALE_VERSION: &str = "autoscaling/v1";

fn same(one: &Manager, other: &Manager) -> bool {
    (&one.name, one.operation, &one.subresource) == (&other.name, other.operation, &other.subresource)
}

/// The managedFields of a Scale, by those of its object: the managers of the replicas, which are at `path` there.
pub fn to_scale(owners: Option<&str>, path: &[&str]) -> Option<String> {
    let (own, replicas) = (FieldSet::of(path), FieldSet::of(REPLICAS));
    let mut entries = Entries::stored(owners?);
    entries.0.retain(|entry| entry.fields.meets(&own));
    for entry in &mut entries.0 {
        SCALE_VERSION.clone_into(&mut entry.manager.api_version);
        entry.fields = replicas.clone().into();
    }
    entries.into_text()
}

/// The managedFields of an object, whose replicas are at `path`, after a write of its Scale.
pub fn to_object(scale: Option<&str>, owners: Option<&str>, api_version: &str, path: &[&str]) -> Option<String> {
    let (own, replicas) = (FieldSet::of(path), FieldSet::of(REPLICAS));
    let mut left = scale.map(Entries::stored).unwrap_or_default();
    let mut entries = owners.map(Entries::stored).unwrap_or_default();
    for entry in entries.0.iter_mut().filter(|entry| entry.fields.meets(&own)) {
        match left.0.iter().position(|owner| same(&owner.manager, &entry.manager)) {
            Some(at) => {
                left.0.remove(at);
            }
            None => entry.fields.lose(&own),
        }
    }
    let new = left.0.into_iter().filter(|owner| owner.fields.meets(&replicas));
    entries.0.extend(new.map(|owner| Entry {
        manager: Manager {
            api_version: api_version.to_owned(),
            ..owner.manager
        },
        // As upstream, which gives such entries no time.
        time: None,
        fields: own.clone().into(),
    }));
    entries.into_text()
}
