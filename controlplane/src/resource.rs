//! The table of kinds: what each built-in API kind is called, which verbs and subresources it has, where it is stored, and
//! what is particular about it ([`Strategy`]). Pure.
//!
//! Verbs, patches, selectors, tables, discovery and OpenAPI are written once over [`Kind`]; a kind that differs has one file
//! below. Nothing here does I/O, knows the store, or asks what time it is: what varies is passed in.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use jiff::Timestamp;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

use crate::resource::field_error::FieldErrors;

mod build;
pub(crate) mod certificate;
mod config_data;
mod daemon_set;
mod deployment;
pub(crate) mod deprecated;
mod event;
mod job;
mod kinds;
mod limit_range;
mod namespace;
mod networking;
mod node;
pub(crate) mod pod;
mod pod_spec;
mod policy;
mod priority_class;
mod rbac;
mod replica_set;
mod stateful_set;
mod storage;
mod template;
mod webhook;
pub(crate) mod without_effect;

pub mod field;
pub mod field_error;
pub mod metadata;
pub mod name;
pub mod selector;
pub mod service;

pub(crate) use build::{body_definition, body_schema};
pub use name::NameRule;

/// The eight verbs of an ordinary stored kind.
pub const STANDARD_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// One served kind: a resource of one group and version.
pub struct Kind {
    /// API group, empty for core.
    pub group: &'static str,
    /// Served version, such as `v1`.
    pub version: &'static str,
    /// Kind, such as `Pod`.
    pub kind: &'static str,
    /// Kind of the list, such as `PodList`; empty for kinds that are only created (reviews).
    pub list_kind: &'static str,
    /// Plural resource name, such as `pods`.
    pub plural: &'static str,
    /// Singular resource name, such as `pod`.
    pub singular: &'static str,
    /// Short names, such as `po`.
    pub short_names: &'static [&'static str],
    /// Categories, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Verbs in discovery order.
    pub verbs: &'static [&'static str],
    /// Subresources, sorted by name.
    pub subresources: &'static [Subresource],
    /// First path element(s) of the storage key (control-plane contract §10); empty for kinds that are never stored.
    pub storage_prefix: &'static str,
    /// Whether PUT of a missing object creates it (contract §2.3).
    pub create_on_update: bool,
    /// Whether PUT without resourceVersion is allowed (contract §2.3).
    pub unconditional_update: bool,
    /// Whether DELETE answers with the deleted object instead of a Status (contract §2.4).
    pub returns_object_on_delete: bool,
    /// Whether the default deletion propagation orphans dependents (contract §2.4).
    pub default_propagation_orphan: bool,
    /// OpenAPI definition name, such as `io.k8s.api.core.v1.Pod`; key of the schema table.
    pub definition: fn() -> String,
    /// Adds the kind's schema and all it refers to.
    pub(crate) add_schema: fn(&mut SchemaGenerator) -> Schema,
    /// What is particular about the kind.
    pub strategy: &'static dyn Strategy,
}

/// A part of an object with a path and a kind of its own, such as `pods/log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Name, such as `status`.
    pub name: &'static str,
    /// Verbs in discovery order.
    pub verbs: &'static [&'static str],
    /// Group of the body's kind, empty for core.
    pub group: &'static str,
    /// Version of the body's kind.
    pub version: &'static str,
    /// The body's kind, such as `Scale`.
    pub kind: &'static str,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kind({} {})", self.api_version(), self.kind)
    }
}

impl Kind {
    /// `v1`, or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether the kind has the verb on its main endpoint.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The named subresource.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Whether objects of the kind are stored (reviews and bindings are not).
    pub fn is_stored(&self) -> bool {
        !self.storage_prefix.is_empty()
    }

    /// Everything wrong with a new object: its metadata, then the kind's own rules.
    pub fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = metadata::validate(object, self.namespaced, self.strategy.name_rule());
        errors.append(self.strategy.validate(object));
        errors
    }

    /// Everything wrong with changing `old` into `new` through the main endpoint (`subresource` empty) or a subresource.
    pub fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        let mut errors = metadata::validate_update(new, old, self.namespaced);
        errors.append(self.strategy.validate_update(new, old, subresource));
        errors
    }
}

/// What a strategy may know when an object is created.
#[derive(Clone, Copy, Debug)]
pub struct PrepareContext<'a> {
    /// The uid the object was given.
    pub uid: &'a str,
    /// The moment of creation.
    pub now: Timestamp,
}

/// What is particular about a kind. Every function is pure; the provided ones are right for a kind with `spec` and `status`
/// and no rules of its own.
pub trait Strategy: Sync + Send {
    /// Fills defaults in (contract §4), idempotent; runs after decoding of every request body and stored object.
    fn default(&self, object: &mut Value) {
        let _ = object;
    }

    /// Makes a new object ready to be validated and stored: clears what clients may not set.
    fn prepare_create(&self, object: &mut Value, ctx: &PrepareContext<'_>) {
        let _ = ctx;
        clear_status(object);
    }

    /// Restores what this endpoint may not change: status on the main endpoint, all but status on `status`.
    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        isolate(new, old, subresource);
    }

    /// Fills in times of a change that its sender left open; runs after [`Strategy::prepare_update`].
    fn stamp(&self, new: &mut Value, old: &Value, now: Timestamp) {
        let _ = (new, old, now);
    }

    /// The kind's own rules for a new object; metadata is checked elsewhere ([`Kind::validate`]).
    fn validate(&self, object: &Value) -> FieldErrors {
        let _ = object;
        FieldErrors::default()
    }

    /// The kind's own rules for a change; includes what [`Strategy::validate`] says about the new object unless the endpoint
    /// cannot change it.
    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        let _ = old;
        if subresource.is_empty() {
            self.validate(new)
        } else {
            FieldErrors::default()
        }
    }

    /// Values of [`Strategy::field_labels`] for one object.
    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let _ = object;
        BTreeMap::new()
    }

    /// Field selectors beyond `metadata.name` and (for namespaced kinds) `metadata.namespace` (contract §2.8).
    fn field_labels(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the kind carries `metadata.generation` (contract §4).
    fn has_generation(&self) -> bool {
        false
    }

    /// Whether an update through the main endpoint raises the generation.
    fn bumps_generation(&self, new: &Value, old: &Value) -> bool {
        self.has_generation() && new.get("spec") != old.get("spec")
    }

    /// The rule names obey.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Warnings for the client about a valid object.
    fn warnings(&self, object: &Value) -> Vec<String> {
        let _ = object;
        Vec::new()
    }
}

/// Removes `status`.
pub(crate) fn clear_status(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
}

/// Empties `status`.
pub(crate) fn reset_status(object: &mut Value) {
    field::set(object, &["status"], serde_json::json!({}));
}

/// Keeps the main endpoint from changing `status`, and `status` from changing anything but status and metadata.
pub(crate) fn isolate(new: &mut Value, old: &Value, subresource: &str) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else {
        return;
    };
    let restore = |key: &str| {
        !matches!(key, "apiVersion" | "kind" | "metadata") && ((key == "status") != (subresource == "status"))
    };
    if subresource.is_empty() || subresource == "status" {
        if subresource.is_empty() {
            new.remove("status");
            if let Some(status) = old.get("status") {
                new.insert("status".to_owned(), status.clone());
            }
            return;
        }
        new.retain(|key, _| !restore(key));
        for (key, value) in old {
            if restore(key) {
                new.insert(key.clone(), value.clone());
            }
        }
    }
}

/// All kinds, indexed.
pub struct Registry {
    kinds: &'static [Kind],
    by_resource: HashMap<(&'static str, &'static str, &'static str), usize>,
    by_gvk: HashMap<(&'static str, &'static str, &'static str), usize>,
}

impl Registry {
    /// Every kind in discovery order: groups by descending priority, core first; versions by descending priority; plurals
    /// in alphabetical order.
    pub fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }

    /// The kind behind a group, version and plural.
    pub fn by_resource(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        self.by_resource.get(&(group, version, plural)).map(|&i| &self.kinds[i])
    }

    /// The kind of a group, version and kind name.
    pub fn by_gvk(&self, group: &str, version: &str, kind: &str) -> Option<&'static Kind> {
        self.by_gvk.get(&(group, version, kind)).map(|&i| &self.kinds[i])
    }
}

/// The table of built-in kinds.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let index = |key: fn(&'static Kind) -> (&'static str, &'static str, &'static str)| {
            kinds::KINDS
                .iter()
                .enumerate()
                .map(|(i, kind)| (key(kind), i))
                .collect()
        };
        Registry {
            kinds: kinds::KINDS,
            by_resource: index(|kind| (kind.group, kind.version, kind.plural)),
            by_gvk: index(|kind| (kind.group, kind.version, kind.kind)),
        }
    })
}

/// A kind without anything of its own: `spec`, perhaps `status`, subdomain names.
pub(crate) struct Plain;

impl Strategy for Plain {}

/// As [`Plain`], with `metadata.generation`.
pub(crate) struct Generational;

impl Strategy for Generational {
    fn has_generation(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod workload_tests;

#[cfg(test)]
mod shape_tests;
