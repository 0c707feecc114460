//! StatefulSets. Pure.

use serde_json::{Value, json};

use super::field::{at, copy, default_text, default_to, list_mut, one_of, text};
use super::pod_spec::defaults;
use super::template::{non_negatives, validate_selected};
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
