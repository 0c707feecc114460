//! Namespaces: born Active with the `kubernetes` finalizer and the label that carries their name. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::field::{at, copy, list, set, text};
use super::metadata::finalizer_name;
use super::{NameRule, PrepareContext, Strategy, isolate};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The Namespace kind's strategy.
pub(super) struct Namespace;

/// Finalizer the namespace controller removes when the content is gone.
const FINALIZER: &str = "kubernetes";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Strategy for Namespace {
    fn default(&self, object: &mut Value) {
        let name = text(object, &["metadata", "name"]).to_owned();
        if !name.is_empty() {
            set(object, &["metadata", "labels", NAME_LABEL], name);
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        set(object, &["status"], json!({"phase": "Active"}));
        let mut finalizers = list(object, &["spec", "finalizers"]).to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(json!(FINALIZER));
        }
        set(object, &["spec", "finalizers"], finalizers);
        self.default(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        match subresource {
            "" => {
                isolate(new, old, "");
                copy(new, old, &["spec", "finalizers"]);
            }
            "finalize" => copy(new, old, &["status"]),
            _ => isolate(new, old, subresource),
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        for finalizer in list(object, &["spec", "finalizers"]) {
            finalizer_name(&mut errors, "spec.finalizers", finalizer);
        }
        errors
    }

    fn validate_update(&self, new: &Value, _old: &Value, subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::default();
        if subresource == "finalize" {
            for (i, finalizer) in list(new, &["spec", "finalizers"]).iter().enumerate() {
                finalizer_name(&mut errors, &format!("spec.finalizers[{i}]"), finalizer);
            }
        }
        if subresource == "status" {
            let deleting = !at(new, &["metadata", "deletionTimestamp"]).is_null();
            let phase = text(new, &["status", "phase"]);
            if !deleting && phase != "Active" {
                errors.push(FieldError::invalid(
                    "status.Phase",
                    phase,
                    "may only be 'Active' if `deletionTimestamp` is empty",
                ));
            } else if deleting && phase != "Terminating" {
                errors.push(FieldError::invalid(
                    "status.Phase",
                    phase,
                    "may only be 'Terminating' if `deletionTimestamp` is not empty",
                ));
            }
        }
        errors
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("status.phase", text(object, &["status", "phase"]).to_owned())])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["status.phase"]
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }
}
