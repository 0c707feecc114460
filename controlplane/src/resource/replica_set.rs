//! ReplicaSets and ReplicationControllers. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::field::{at, default_to, entries, immutable, int, non_negative, object_mut, text};
use super::pod_spec::{defaults, validate};
use super::template::{non_negatives, validate_selected};
use super::{PrepareContext, Strategy, reset_status};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The ReplicaSet kind's strategy.
pub(super) struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn default(&self, object: &mut Value) {
        defaults::template_at(object, &["spec", "template"]);
        if let Some(spec) = object.get_mut("spec") {
            default_to(spec, "replicas", 1);
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        non_negatives(&mut errors, object, &["replicas", "minReadySeconds"]);
        validate_selected(&mut errors, object, "ReplicaSet");
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return validate_status(new);
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["spec", "selector"]);
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn validate_status(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let status = at(object, &["status"]);
    let keys = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
    ];
    for key in keys {
        non_negative(&mut errors, status, "status", key);
    }
    let count = |key: &str| int(status, &[key]).unwrap_or(0);
    for key in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if count(key) > count("replicas") {
            errors.push(FieldError::invalid(
                format!("status.{key}"),
                count(key),
                "cannot be greater than status.replicas",
            ));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        errors.push(FieldError::invalid(
            "status.availableReplicas",
            count("availableReplicas"),
            "cannot be greater than readyReplicas",
        ));
    }
    errors
}

/// The ReplicationController kind's strategy: its selector is a plain map, by default the template's labels.
pub(super) struct ReplicationController;

impl Strategy for ReplicationController {
    fn default(&self, object: &mut Value) {
        defaults::template_at(object, &["spec", "template"]);
        let labels = at(object, &["spec", "template", "metadata", "labels"]).clone();
        if let Some(spec) = object.get_mut("spec") {
            default_to(spec, "replicas", 1);
            if !labels.is_null() {
                default_to(spec, "selector", labels.clone());
            }
        }
        if labels.is_object()
            && let Some(meta) = object_mut(object, &["metadata"])
        {
            meta.entry("labels").or_insert(labels);
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        non_negatives(&mut errors, object, &["replicas", "minReadySeconds"]);
        let selector = at(object, &["spec", "selector"]);
        if entries(selector, &[]).next().is_none() {
            errors.push(FieldError::required("spec.selector", ""));
        }
        let template = at(object, &["spec", "template"]);
        if template.is_null() {
            errors.push(FieldError::required("spec.template", ""));
            return errors;
        }
        let labels = at(template, &["metadata", "labels"]);
        if entries(selector, &[]).any(|(key, value)| labels.get(key) != Some(value)) {
            errors.push(FieldError::invalid(
                "spec.template.metadata.labels",
                labels.clone(),
                "`selector` does not match template `labels`",
            ));
        }
        errors.append(validate::template(template, "spec.template"));
        let policy = text(template, &["spec", "restartPolicy"]);
        if policy != "Always" {
            errors.push(FieldError::not_supported(
                "spec.template.spec.restartPolicy",
                policy,
                &["Always"],
            ));
        }
        if !at(template, &["spec", "activeDeadlineSeconds"]).is_null() {
            errors.push(FieldError::forbidden(
                "spec.template.spec.activeDeadlineSeconds",
                "activeDeadlineSeconds in ReplicationController is not Supported",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            validate_status(new)
        } else {
            FieldErrors::of_update(new, old, |object| self.validate(object))
        }
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let replicas = int(object, &["status", "replicas"]).unwrap_or(0);
        BTreeMap::from([("status.replicas", replicas.to_string())])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// The PodTemplate kind's strategy.
pub(super) struct PodTemplate;

impl Strategy for PodTemplate {
    fn default(&self, object: &mut Value) {
        defaults::template_at(object, &["template"]);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let template = object.get("template").cloned().unwrap_or_else(|| json!({}));
        validate::template(&template, "template")
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        FieldErrors::of_update(new, old, |object| self.validate(object))
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn bumps_generation(&self, new: &Value, old: &Value) -> bool {
        new.get("template") != old.get("template")
    }
}
