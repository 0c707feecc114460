//! DaemonSets. Pure.

use serde_json::{Value, json};

use super::field::{at, default_text, default_to, immutable, one_of, set, text};
use super::pod_spec::defaults;
use super::template::{int_or_percent, is_zero, non_negatives, validate_selected};
use super::{PrepareContext, Strategy, reset_status};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The DaemonSet kind's strategy.
pub(super) struct DaemonSet;

/// Annotation that carries the deprecated template generation in apps/v1.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

impl Strategy for DaemonSet {
    fn default(&self, object: &mut Value) {
        defaults::template_at(object, &["spec", "template"]);
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "revisionHistoryLimit", 10);
        default_to(spec, "updateStrategy", json!({}));
        if let Some(strategy) = spec.get_mut("updateStrategy") {
            default_text(strategy, "type", "RollingUpdate");
            if text(strategy, &["type"]) == "RollingUpdate" {
                default_to(strategy, "rollingUpdate", json!({}));
                if let Some(rolling) = strategy.get_mut("rollingUpdate") {
                    default_to(rolling, "maxUnavailable", 1);
                    default_to(rolling, "maxSurge", 0);
                }
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
        set(object, &["metadata", "annotations", TEMPLATE_GENERATION], "1");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        super::isolate(new, old, subresource);
        let annotation = &["metadata", "annotations", TEMPLATE_GENERATION];
        let before: i64 = text(old, annotation).parse().unwrap_or(1);
        let template = &["spec", "template"];
        let changed = subresource.is_empty() && at(new, template) != at(old, template);
        let after = before + i64::from(changed);
        set(new, annotation, after.to_string());
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        non_negatives(&mut errors, object, &["minReadySeconds", "revisionHistoryLimit"]);
        validate_selected(&mut errors, object, "DaemonSet");
        let strategy = at(object, &["spec", "updateStrategy"]);
        let kind = text(strategy, &["type"]);
        one_of(
            &mut errors,
            "spec.updateStrategy.type",
            kind,
            &["RollingUpdate", "OnDelete"],
        );
        if kind == "RollingUpdate" {
            let rolling = at(strategy, &["rollingUpdate"]);
            let path = "spec.updateStrategy.rollingUpdate";
            let (unavailable, surge) = (at(rolling, &["maxUnavailable"]), at(rolling, &["maxSurge"]));
            for (key, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                if let Err(problem) = int_or_percent(value) {
                    errors.push(FieldError::invalid(format!("{path}.{key}"), value.clone(), problem));
                }
            }
            match (is_zero(unavailable), is_zero(surge)) {
                (true, true) => errors.push(FieldError::required(
                    format!("{path}.maxUnavailable"),
                    "cannot be 0 when maxSurge is 0",
                )),
                (false, false) => errors.push(FieldError::invalid(
                    format!("{path}.maxSurge"),
                    surge.clone(),
                    "may not be set when maxUnavailable is non-zero",
                )),
                _ => {}
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return FieldErrors::default();
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["spec", "selector"]);
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}
