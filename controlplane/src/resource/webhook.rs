//! Admission configuration, and the flow-control kinds whose defaults are as plain. Pure.

use serde_json::{Value, json};

use super::Strategy;
use super::field::{at, default_text, default_to, int, list_mut, set, text};

/// Strategy of both webhook configurations.
pub(super) struct Webhooks {
    /// Whether they mutate.
    pub(super) mutating: bool,
}

impl Strategy for Webhooks {
    fn default(&self, object: &mut Value) {
        for hook in list_mut(object, &["webhooks"]).into_iter().flatten() {
            default_text(hook, "failurePolicy", "Fail");
            default_text(hook, "matchPolicy", "Equivalent");
            default_to(hook, "namespaceSelector", json!({}));
            default_to(hook, "objectSelector", json!({}));
            default_to(hook, "timeoutSeconds", 10);
            if self.mutating {
                default_text(hook, "reinvocationPolicy", "Never");
            }
            for rule in list_mut(hook, &["rules"]).into_iter().flatten() {
                default_text(rule, "scope", "*");
            }
            if let Some(service) = hook
                .get_mut("clientConfig")
                .and_then(|config| config.get_mut("service"))
            {
                default_to(service, "port", 443);
            }
        }
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn bumps_generation(&self, new: &Value, old: &Value) -> bool {
        new.get("webhooks") != old.get("webhooks")
    }
}

/// Strategy of both admission policies.
pub(super) struct Policy;

impl Strategy for Policy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_text(spec, "failurePolicy", "Fail");
        if let Some(matching) = spec.get_mut("matchConstraints") {
            match_resources(matching);
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// Strategy of both bindings of admission policies.
pub(super) struct PolicyBinding;

impl Strategy for PolicyBinding {
    fn default(&self, object: &mut Value) {
        if let Some(matching) = object.get_mut("spec").and_then(|spec| spec.get_mut("matchResources")) {
            match_resources(matching);
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn match_resources(matching: &mut Value) {
    default_text(matching, "matchPolicy", "Equivalent");
    default_to(matching, "namespaceSelector", json!({}));
    default_to(matching, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        for rule in list_mut(matching, &[key]).into_iter().flatten() {
            default_text(rule, "scope", "*");
        }
    }
}

/// The FlowSchema kind's strategy.
pub(super) struct FlowSchema;

impl Strategy for FlowSchema {
    fn default(&self, object: &mut Value) {
        if int(object, &["spec", "matchingPrecedence"]).unwrap_or(0) == 0 && !at(object, &["spec"]).is_null() {
            set(object, &["spec", "matchingPrecedence"], 1000);
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// The PriorityLevelConfiguration kind's strategy.
pub(super) struct PriorityLevel;

impl Strategy for PriorityLevel {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        if text(spec, &["type"]) == "Exempt" {
            default_to(spec, "exempt", json!({}));
        }
        if let Some(exempt) = spec.get_mut("exempt") {
            default_to(exempt, "nominalConcurrencyShares", 0);
            default_to(exempt, "lendablePercent", 0);
        }
        let Some(limited) = spec.get_mut("limited") else { return };
        default_to(limited, "nominalConcurrencyShares", 30);
        default_to(limited, "lendablePercent", 0);
        if let Some(queuing) = limited
            .get_mut("limitResponse")
            .and_then(|response| response.get_mut("queuing"))
        {
            default_to(queuing, "queues", 64);
            default_to(queuing, "handSize", 8);
            default_to(queuing, "queueLengthLimit", 50);
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}
