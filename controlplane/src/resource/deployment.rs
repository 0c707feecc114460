//! Deployments. Pure.

use serde_json::{Value, json};

use super::field::{at, default_text, default_to, immutable, int, object_mut, one_of, text};
use super::pod_spec::defaults;
use super::template::{int_or_percent, is_zero, non_negatives, percent, validate_selected};
use super::{PrepareContext, Strategy, isolate, reset_status};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The Deployment kind's strategy.
pub(super) struct Deployment;

impl Strategy for Deployment {
    fn default(&self, object: &mut Value) {
        defaults::template_at(object, &["spec", "template"]);
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "replicas", 1);
        default_to(spec, "revisionHistoryLimit", 10);
        default_to(spec, "progressDeadlineSeconds", 600);
        default_to(spec, "strategy", json!({}));
        if let Some(strategy) = spec.get_mut("strategy") {
            default_text(strategy, "type", "RollingUpdate");
            if text(strategy, &["type"]) == "RollingUpdate" {
                default_to(strategy, "rollingUpdate", json!({}));
                if let Some(rolling) = strategy.get_mut("rollingUpdate") {
                    default_to(rolling, "maxUnavailable", "25%");
                    default_to(rolling, "maxSurge", "25%");
                }
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        isolate(new, old, subresource);
        if subresource == "status" {
            let labels = at(old, &["metadata", "labels"]).clone();
            if let Some(meta) = object_mut(new, &["metadata"]) {
                meta.remove("labels");
                if !labels.is_null() {
                    meta.insert("labels".to_owned(), labels);
                }
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        non_negatives(
            &mut errors,
            object,
            &[
                "replicas",
                "minReadySeconds",
                "revisionHistoryLimit",
                "progressDeadlineSeconds",
            ],
        );
        validate_selected(&mut errors, object, "ReplicaSet");
        strategy(&mut errors, at(object, &["spec", "strategy"]));
        let ready = int(object, &["spec", "minReadySeconds"]).unwrap_or(0);
        if let Some(deadline) = int(object, &["spec", "progressDeadlineSeconds"])
            && deadline <= ready
        {
            errors.push(FieldError::invalid(
                "spec.progressDeadlineSeconds",
                deadline,
                "must be greater than minReadySeconds",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return validate_status(new, old);
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["spec", "selector"]);
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn bumps_generation(&self, new: &Value, old: &Value) -> bool {
        let annotations = &["metadata", "annotations"];
        new.get("spec") != old.get("spec") || at(new, annotations) != at(old, annotations)
    }
}

fn strategy(errors: &mut FieldErrors, strategy: &Value) {
    let kind = text(strategy, &["type"]);
    let rolling = at(strategy, &["rollingUpdate"]);
    one_of(errors, "spec.strategy.type", kind, &["Recreate", "RollingUpdate"]);
    if kind == "Recreate" && !rolling.is_null() {
        errors.push(FieldError::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        ));
    }
    if kind == "RollingUpdate" {
        if rolling.is_null() {
            errors.push(FieldError::required(
                "spec.strategy.rollingUpdate",
                "this should be defaulted and never be nil",
            ));
        } else {
            rolling_update(errors, rolling, "spec.strategy.rollingUpdate");
        }
    }
}

fn rolling_update(errors: &mut FieldErrors, rolling: &Value, path: &str) {
    let (unavailable, surge) = (at(rolling, &["maxUnavailable"]), at(rolling, &["maxSurge"]));
    for (key, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
        if let Err(problem) = int_or_percent(value) {
            errors.push(FieldError::invalid(format!("{path}.{key}"), value.clone(), problem));
        }
    }
    if is_zero(unavailable) && is_zero(surge) {
        errors.push(FieldError::invalid(
            format!("{path}.maxUnavailable"),
            unavailable.clone(),
            "may not be 0 when `maxSurge` is 0",
        ));
    }
    if percent(unavailable) > 100 {
        errors.push(FieldError::invalid(
            format!("{path}.maxUnavailable"),
            unavailable.clone(),
            "must not be greater than 100%",
        ));
    }
}

fn validate_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let status = at(new, &["status"]);
    for key in [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "collisionCount",
    ] {
        super::field::non_negative(&mut errors, status, "status", key);
    }
    let replicas = int(status, &["replicas"]).unwrap_or(0);
    for key in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        let count = int(status, &[key]).unwrap_or(0);
        if count > replicas {
            errors.push(FieldError::invalid(
                format!("status.{key}"),
                count,
                "cannot be greater than status.replicas",
            ));
        }
    }
    let collisions = |object: &Value| int(object, &["status", "collisionCount"]).unwrap_or(0);
    if collisions(new) < collisions(old) {
        errors.push(FieldError::invalid(
            "status.collisionCount",
            collisions(new),
            "cannot be decremented",
        ));
    }
    errors
}
