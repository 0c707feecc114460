//! Kinds: what each is called, which verbs and subresources it has, where it is stored, how its fields are typed and its rows
//! printed, and what is particular about it ([`Strategy`]). Pure.
//!
//! Verbs, patches, selectors, tables, discovery and OpenAPI are written once over [`Kind`]; a built-in kind that differs has one
//! file below. Which kinds there are is a value, [`Registry`]: whoever answers a request holds one and asks nothing else.
//! Nothing here does I/O, knows the store, or asks what time it is: what varies is passed in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::columns::KindPrinter;
use crate::resource::custom::Defined;
use crate::resource::field_error::FieldErrors;
use crate::resource::structural::Structural;
use crate::schema::{Definitions, Schema, SchemaTable, TypeId};

mod address;
mod admission_policy;
mod autoscaler;
mod build;
pub(crate) mod certificate;
mod check;
pub(crate) mod columns;
mod config_data;
mod controller_revision;
mod conversion;
mod csi;
pub(crate) mod custom;
mod daemon_set;
pub(crate) mod definition;
mod deployment;
pub(crate) mod deprecated;
mod device;
mod endpoint_slice;
mod event;
mod flow;
pub mod flow_defaults;
mod ingress;
mod job;
mod json_path;
mod kinds;
mod lease;
mod limit_range;
mod namespace;
mod network_policy;
mod networking;
mod node;
pub(crate) mod pod;
mod pod_spec;
mod policy;
mod priority_class;
mod rbac;
mod registry;
mod replica_set;
mod resource_name;
mod resource_quota;
mod resource_slice;
mod runtime_class;
mod service_cidr;
mod stateful_set;
mod storage;
mod storage_class;
pub(crate) mod stored;
pub(crate) mod structural;
mod template;
pub(crate) mod usage;
mod webhook;
pub(crate) mod without_effect;

pub mod field;
pub mod field_error;
pub mod metadata;
pub mod name;
pub mod selector;
pub mod service;

pub use conversion::{Conversion, Converter};
pub use name::NameRule;
#[cfg(test)]
pub(crate) use registry::tests::defined;
pub use registry::{BodyType, Group, Registry, Version};

/// A name: of the program's own, or one that came in.
pub type Name = Cow<'static, str>;

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
    pub group: Name,
    /// Served version, such as `v1`.
    pub version: Name,
    /// `v1`, or `group/version`.
    pub api_version: Name,
    /// Kind, such as `Pod`.
    pub kind: Name,
    /// Kind of the list, such as `PodList`; empty for kinds that are only created (reviews).
    pub list_kind: Name,
    /// Plural resource name, such as `pods`.
    pub plural: Name,
    /// Singular resource name, such as `pod`.
    pub singular: Name,
    /// Short names, such as `po`.
    pub short_names: Box<[Name]>,
    /// Categories, such as `all`.
    pub categories: Box<[Name]>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Verbs in discovery order.
    pub verbs: &'static [&'static str],
    /// Subresources, sorted by name.
    pub subresources: Box<[Subresource]>,
    /// First path element(s) of the storage key (control-plane contract §10); empty for kinds that are never stored.
    pub storage_prefix: Name,
    /// Whether PUT of a missing object creates it (contract §2.3).
    pub create_on_update: bool,
    /// Whether PUT without resourceVersion is allowed (contract §2.3).
    pub unconditional_update: bool,
    /// Whether DELETE answers with the deleted object instead of a Status (contract §2.4).
    pub returns_object_on_delete: bool,
    /// Whether the default deletion propagation orphans dependents (contract §2.4).
    pub default_propagation_orphan: bool,
    /// OpenAPI definition name, such as `io.k8s.api.core.v1.Pod`; key of `types`.
    pub definition: Name,
    /// The table its types stand in; made when it is first needed.
    pub types: Arc<SchemaTable>,
    /// Its types as they are published.
    pub published: Definitions,
    /// Columns and cells of its Tables.
    pub(crate) printer: KindPrinter,
    /// What is particular about the kind; where its objects are stored in another form, about that form.
    pub strategy: KindStrategy,
    /// What its definition says of its fields; `None` for built-in kinds, whose types stand in `types`.
    pub(crate) structural: Option<Arc<Structural>>,
    /// What its definition says beside; of built-in kinds nothing.
    pub(crate) defined: Defined,
    /// The warning every reply carries, where its version is deprecated by its definition.
    pub(crate) deprecation: Option<Box<str>>,
    /// Set where its objects are stored in the form of another kind.
    pub conversion: Option<Conversion>,
}

/// A part of an object with a path and a kind of its own, such as `pods/log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Name, such as `status`.
    pub name: &'static str,
    /// Verbs in discovery order.
    pub verbs: &'static [&'static str],
    /// Group of the body's kind, empty for core.
    pub group: Name,
    /// Version of the body's kind.
    pub version: Name,
    /// The body's kind, such as `Scale`.
    pub kind: Name,
}

/// A kind's strategy: one of the program's own, or one made for a definition.
#[derive(Clone)]
pub enum KindStrategy {
    /// Of a built-in kind.
    BuiltIn(&'static dyn Strategy),
    /// Of a kind that came in.
    Defined(Arc<dyn Strategy>),
}

impl Deref for KindStrategy {
    type Target = dyn Strategy;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::BuiltIn(strategy) => *strategy,
            Self::Defined(strategy) => &**strategy,
        }
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kind({} {})", self.api_version, self.kind)
    }
}

impl Kind {
    /// Whether the kind has the verb on its main endpoint.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The named subresource.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Whether objects of the kind are stored (reviews and bindings are not).
    pub fn is_stored(&self) -> bool {
        !self.storage_prefix.is_empty()
    }

    /// The table of the kind's types, and its own type there.
    pub fn schema(&self) -> (&Schema, Option<TypeId>) {
        let schema = self.types.get();
        (schema, schema.type_of(&self.definition))
    }

    /// Whether its definition ends: nothing new is made, and discovery names no verb that changes an object. What is there may be changed
    /// all the same, or its finalizers would never come off.
    pub fn is_ending(&self) -> bool {
        self.structural.is_some() && !self.has_verb("create")
    }

    /// Everything wrong with a new object, in the form that is stored: its metadata, then the kind's own rules.
    pub fn validate(&self, object: &Value) -> FieldErrors {
        self.with_own(object, self.strategy.validate(object))
    }

    /// Everything wrong with changing `old` into `new` through the main endpoint (`subresource` empty) or a subresource.
    pub fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        self.with_own_of_update(
            new,
            old,
            subresource,
            self.strategy.validate_update(new, old, subresource),
        )
    }

    /// As [`Kind::validate`] without `old`, or else as [`Kind::validate_update`], in the time of a thread that serves everybody.
    /// `None` where that is not enough.
    pub fn validate_briefly(&self, new: &Value, old: Option<&Value>, subresource: &str) -> Option<FieldErrors> {
        let own = self.strategy.validate_briefly(new, old, subresource)?;
        Some(match old {
            None => self.with_own(new, own),
            Some(old) => self.with_own_of_update(new, old, subresource, own),
        })
    }

    /// What is wrong with a new object beside what its kind's own rules say, and that.
    fn with_own(&self, object: &Value, own: FieldErrors) -> FieldErrors {
        let mut errors = metadata::validate(object, self.namespaced, self.strategy.name_rule());
        errors.append(own);
        if let Some(conversion) = &self.conversion {
            errors.append(conversion.converter.validate(object, &Value::Null));
        }
        errors
    }

    /// Likewise of a change.
    fn with_own_of_update(&self, new: &Value, old: &Value, subresource: &str, own: FieldErrors) -> FieldErrors {
        let mut errors = metadata::validate_update(new, old, self.namespaced);
        errors.append(own);
        if let Some(conversion) = self.conversion.as_ref().filter(|_| subresource.is_empty()) {
            errors.append(conversion.converter.validate(new, old));
        }
        errors
    }
}

/// `version`, or `group/version`.
pub fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
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
        if subresource == "status" && self.status_keeps_metadata() {
            keep_metadata(new, old);
        }
    }

    /// Whether `status` leaves the metadata as it was, too: labels, finalizers and owners are for those who may change the object
    /// (upstream's `ResetObjectMetaForStatus`). Of other kinds, a status may come with labels and the like.
    fn status_keeps_metadata(&self) -> bool {
        false
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

    /// As [`Strategy::validate`] without `old`, or else as [`Strategy::validate_update`]; `None` where that takes longer than a thread
    /// has that serves everybody.
    fn validate_briefly(&self, new: &Value, old: Option<&Value>, subresource: &str) -> Option<FieldErrors> {
        Some(match old {
            None => self.validate(new),
            Some(old) => self.validate_update(new, old, subresource),
        })
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

/// Gives a change the metadata that was there; managedFields are no part of either.
pub(crate) fn keep_metadata(new: &mut Value, old: &Value) {
    field::copy(new, old, &["metadata"]);
}

/// A kind without anything of its own: `spec`, perhaps `status`, subdomain names.
pub(crate) struct Plain;

impl Strategy for Plain {}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod validation_tests;

#[cfg(test)]
mod workload_tests;

#[cfg(test)]
mod rule_tests;

#[cfg(test)]
mod shape_tests;
