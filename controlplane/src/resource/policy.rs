//! Autoscalers and disruption budgets. Pure.

use serde_json::{Value, json};

use super::autoscaler;
use super::field::{at, default_text, default_to, int, list, list_mut, non_negative};
use super::selector;
use super::template::{int_or_percent, percent};
use super::{PrepareContext, Strategy, reset_status};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The HorizontalPodAutoscaler kind's strategy (autoscaling/v2).
pub(super) struct Autoscaler;

/// The PodDisruptionBudget kind's strategy.
pub(super) struct Budget;

impl Strategy for Autoscaler {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "minReplicas", 1);
        if list(spec, &["metrics"]).is_empty() {
            let metric = json!([{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80}}}]);
            if let Some(map) = spec.as_object_mut() {
                map.insert("metrics".to_owned(), metric);
            }
        }
        let Some(behavior) = spec.get_mut("behavior") else {
            return;
        };
        for (key, window, policies) in [
            (
                "scaleUp",
                Some(0),
                json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]),
            ),
            (
                "scaleDown",
                None,
                json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
            ),
        ] {
            default_to(behavior, key, json!({}));
            if let Some(rules) = behavior.get_mut(key) {
                if let Some(window) = window {
                    default_to(rules, "stabilizationWindowSeconds", window);
                }
                default_text(rules, "selectPolicy", "Max");
                default_to(rules, "policies", policies);
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let number = |key: &str| int(object, &["spec", key]).unwrap_or(0);
        let (min, max) = (number("minReplicas"), number("maxReplicas"));
        if min < 1 {
            errors.push(FieldError::invalid(
                "spec.minReplicas",
                min,
                "must be greater than or equal to 1",
            ));
        }
        if max < 1 {
            errors.push(FieldError::invalid("spec.maxReplicas", max, "must be greater than 0"));
        }
        if max < min {
            errors.push(FieldError::invalid(
                "spec.maxReplicas",
                max,
                "must be greater than or equal to `minReplicas`",
            ));
        }
        let spec = at(object, &["spec"]);
        let target = at(spec, &["scaleTargetRef"]);
        autoscaler::reference(&mut errors, target, "spec.scaleTargetRef");
        autoscaler::metrics(&mut errors, spec);
        autoscaler::behavior(&mut errors, spec);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource != "status" {
            return FieldErrors::of_update(new, old, |object| self.validate(object));
        }
        let mut errors = FieldErrors::default();
        for key in ["currentReplicas", "desiredReplicas"] {
            non_negative(&mut errors, at(new, &["status"]), "status", key);
        }
        errors
    }
}

impl Strategy for Budget {
    fn default(&self, object: &mut Value) {
        for rule in list_mut(object, &["status", "conditions"]).into_iter().flatten() {
            default_text(rule, "status", "Unknown");
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        if !at(spec, &["minAvailable"]).is_null() && !at(spec, &["maxUnavailable"]).is_null() {
            errors.push(FieldError::invalid(
                "spec",
                spec.clone(),
                "minAvailable and maxUnavailable cannot be both set",
            ));
        }
        for key in ["minAvailable", "maxUnavailable"] {
            let value = at(spec, &[key]);
            if !value.is_null()
                && let Err(problem) = int_or_percent(value)
            {
                errors.push(FieldError::invalid(format!("spec.{key}"), value.clone(), problem));
            }
            if percent(value) > 100 {
                let why = "must not be greater than 100%";
                errors.push(FieldError::invalid(format!("spec.{key}"), value.clone(), why));
            }
        }
        let policy = at(spec, &["unhealthyPodEvictionPolicy"]);
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        if let Some(policy) = policy.as_str()
            && !policies.contains(&policy)
        {
            let field = "spec.unhealthyPodEvictionPolicy";
            errors.push(FieldError::not_supported(field, policy, &policies));
        }
        selector::validate(&mut errors, at(spec, &["selector"]), "spec.selector");
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource != "status" {
            return FieldErrors::of_update(new, old, |object| self.validate(object));
        }
        let mut errors = FieldErrors::default();
        for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            non_negative(&mut errors, at(new, &["status"]), "status", key);
        }
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }
}
