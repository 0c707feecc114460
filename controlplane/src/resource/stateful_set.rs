//! StatefulSets. Pure.

use serde_json::{Value, json};

use super::field::{at, copy, default_text, default_to, invalid_each, list_mut, non_negative, one_of, text};
use super::name::dns1123_label;
use super::pod_spec::defaults;
use super::template::{int_or_percent, is_zero, non_negatives, percent, validate_selected};
use super::{PrepareContext, Strategy, reset_status};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The StatefulSet kind's strategy.
pub(super) struct StatefulSet;

/// Fields of the spec an update may change.
const MAY_CHANGE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// What only rolling updates have, and that it is right.
fn rolling_update(errors: &mut FieldErrors, strategy: &Value) {
    let rolling = at(strategy, &["rollingUpdate"]);
    let path = "spec.updateStrategy.rollingUpdate";
    if text(strategy, &["type"]) == "OnDelete" && !rolling.is_null() {
        let why = "only allowed for updateStrategy 'RollingUpdate'";
        errors.push(FieldError::invalid_value(path, rolling, why));
        return;
    }
    non_negative(errors, rolling, path, "partition");
    let unavailable = at(rolling, &["maxUnavailable"]);
    if unavailable.is_null() {
        return;
    }
    let field = format!("{path}.maxUnavailable");
    if let Err(problem) = int_or_percent(unavailable) {
        errors.push(FieldError::invalid_value(field.as_str(), unavailable, problem));
    }
    if is_zero(unavailable) {
        errors.push(FieldError::invalid_value(field.as_str(), unavailable, "cannot be 0"));
    }
    if percent(unavailable) > 100 {
        let why = "must not be greater than 100%";
        errors.push(FieldError::invalid_value(field, unavailable, why));
    }
}

impl Strategy for StatefulSet {
    fn default(&self, object: &mut Value) {
        defaults::template_at(object, &["spec", "template"]);
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "replicas", 1);
        default_to(spec, "revisionHistoryLimit", 10);
        default_text(spec, "podManagementPolicy", "OrderedReady");
        default_to(spec, "updateStrategy", json!({}));
        if let Some(strategy) = spec.get_mut("updateStrategy") {
            default_text(strategy, "type", "RollingUpdate");
            if text(strategy, &["type"]) == "RollingUpdate" {
                default_to(strategy, "rollingUpdate", json!({}));
                if let Some(rolling) = strategy.get_mut("rollingUpdate") {
                    default_to(rolling, "partition", 0);
                }
            }
        }
        default_to(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
        if let Some(policy) = spec.get_mut("persistentVolumeClaimRetentionPolicy") {
            default_text(policy, "whenDeleted", "Retain");
            default_text(policy, "whenScaled", "Retain");
        }
        for claim in list_mut(spec, &["volumeClaimTemplates"]).into_iter().flatten() {
            if let Some(spec) = claim.get_mut("spec") {
                default_text(spec, "volumeMode", "Filesystem");
            }
            default_to(claim, "status", json!({"phase": "Pending"}));
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        non_negatives(
            &mut errors,
            object,
            &["replicas", "minReadySeconds", "revisionHistoryLimit"],
        );
        let value = |path: &[&str]| text(object, path).to_owned();
        let spec = at(object, &["spec"]);
        non_negative(&mut errors, at(spec, &["ordinals"]), "spec.ordinals", "start");
        rolling_update(&mut errors, at(spec, &["updateStrategy"]));
        let service = text(spec, &["serviceName"]);
        if !service.is_empty() {
            let problems = dns1123_label(service);
            invalid_each(&mut errors, "spec.serviceName", &json!(service), problems);
        }
        one_of(
            &mut errors,
            "spec.podManagementPolicy",
            &value(&["spec", "podManagementPolicy"]),
            &["OrderedReady", "Parallel"],
        );
        one_of(
            &mut errors,
            "spec.updateStrategy.type",
            &value(&["spec", "updateStrategy", "type"]),
            &["RollingUpdate", "OnDelete"],
        );
        for key in ["whenDeleted", "whenScaled"] {
            one_of(
                &mut errors,
                &format!("spec.persistentVolumeClaimRetentionPolicy.{key}"),
                &value(&["spec", "persistentVolumeClaimRetentionPolicy", key]),
                &["Retain", "Delete"],
            );
        }
        validate_selected(&mut errors, object, "StatefulSet");
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return FieldErrors::default();
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        let mut neutral = new.clone();
        for key in MAY_CHANGE {
            copy(&mut neutral, old, &["spec", key]);
        }
        if at(&neutral, &["spec"]) != at(old, &["spec"]) {
            errors.push(FieldError::forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            ));
        }
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}
