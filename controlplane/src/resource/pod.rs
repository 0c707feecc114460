//! Pods. Status starts Pending with its QoS class; an update may change little of the spec (control-plane contract §4). Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use proto::api::qos::qos_class;
use serde_json::{Value, json};

use super::field::{at, copy, flag, list, list_mut, set, text};
use super::pod_spec::{defaults, validate};
use super::{PrepareContext, Strategy, isolate};
use crate::resource::field_error::{FieldError, FieldErrors};

pub(crate) mod reference;
mod resize;
mod update;

/// The Pod kind's strategy.
pub(super) struct Pod;

impl Strategy for Pod {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec") {
            defaults::template(spec);
            defaults::pod(spec);
        }
    }

    fn prepare_create(&self, object: &mut Value, ctx: &PrepareContext<'_>) {
        merge_match_label_keys(object);
        let mut status = json!({"phase": "Pending", "qosClass": qos(object)});
        if !list(object, &["spec", "schedulingGates"]).is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "observedGeneration": 1,
            }]);
        }
        set(object, &["status"], status);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        match subresource {
            "" => {
                isolate(new, old, "");
                if let Some(grace) = at(new, &["spec", "terminationGracePeriodSeconds"]).as_i64()
                    && grace < 0
                {
                    set(new, &["spec", "terminationGracePeriodSeconds"], 1);
                }
            }
            "status" => {
                isolate(new, old, "status");
                copy(new, old, &["metadata", "ownerReferences"]);
                if text(new, &["status", "qosClass"]).is_empty() {
                    copy(new, old, &["status", "qosClass"]);
                }
            }
            "ephemeralcontainers" => {
                let sent = new.clone();
                restore_all(new, old);
                copy(new, &sent, &["spec", "ephemeralContainers"]);
            }
            "resize" => resize::keep_only_resources(new, old),
            _ => {}
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = validate::pod(object);
        let gated = !list(object, &["spec", "schedulingGates"]).is_empty();
        if gated && !text(object, &["spec", "nodeName"]).is_empty() {
            errors.push(FieldError::forbidden(
                "spec.nodeName",
                "cannot be set until all schedulingGates have been cleared",
            ));
        }
        if !list(object, &["spec", "ephemeralContainers"]).is_empty() {
            errors.push(FieldError::forbidden(
                "spec.ephemeralContainers",
                "cannot be set on create",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        match subresource {
            "" => {
                let mut errors = update::spec(new, old);
                errors.append(update::main(new, old));
                errors
            }
            "status" => update::status(new, old),
            "ephemeralcontainers" => update::ephemeral(new, old),
            "resize" => resize::validate(new, old),
            _ => FieldErrors::default(),
        }
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let spec = |key: &str| text(object, &["spec", key]).to_owned();
        let status = |key: &str| text(object, &["status", key]).to_owned();
        let ips: Vec<&str> = list(object, &["status", "podIPs"])
            .iter()
            .map(|ip| text(ip, &["ip"]))
            .collect();
        BTreeMap::from([
            ("spec.nodeName", spec("nodeName")),
            ("spec.host", spec("nodeName")),
            ("spec.restartPolicy", spec("restartPolicy")),
            ("spec.schedulerName", spec("schedulerName")),
            ("spec.serviceAccountName", spec("serviceAccountName")),
            ("spec.hostNetwork", flag(object, &["spec", "hostNetwork"]).to_string()),
            ("status.phase", status("phase")),
            (
                "status.podIP",
                ips.first().map_or_else(|| status("podIP"), |ip| (*ip).to_owned()),
            ),
            ("status.podIPs", ips.join(",")),
            ("status.nominatedNodeName", status("nominatedNodeName")),
        ])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.host",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// The QoS class of a pod's spec.
fn qos(object: &Value) -> &'static str {
    match serde_json::from_value::<PodSpec>(at(object, &["spec"]).clone()) {
        Ok(spec) => qos_class(&spec).as_str(),
        // A spec that lacks what the type requires fails validation right after.
        Err(_) => "BestEffort",
    }
}

/// Restores everything but what tells which object is meant and who manages it.
fn restore_all(new: &mut Value, old: &Value) {
    let sent = new.clone();
    for key in ["metadata", "spec", "status"] {
        copy(new, old, &[key]);
    }
    for key in ["name", "namespace", "uid", "resourceVersion", "managedFields"] {
        copy(new, &sent, &["metadata", key]);
    }
}

/// `matchLabelKeys` of affinity terms and spread constraints become requirements on the pod's own label values.
fn merge_match_label_keys(pod: &mut Value) {
    let labels = at(pod, &["metadata", "labels"]).clone();
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for kind in ["podAffinity", "podAntiAffinity"] {
        for term in list_mut(pod, &["spec", "affinity", kind, required])
            .into_iter()
            .flatten()
        {
            merge_keys(term, &labels);
        }
        for item in list_mut(pod, &["spec", "affinity", kind, preferred])
            .into_iter()
            .flatten()
        {
            if let Some(term) = item.get_mut("podAffinityTerm") {
                merge_keys(term, &labels);
            }
        }
    }
    for constraint in list_mut(pod, &["spec", "topologySpreadConstraints"])
        .into_iter()
        .flatten()
    {
        merge_keys(constraint, &labels);
    }
}

fn merge_keys(term: &mut Value, labels: &Value) {
    if at(term, &["labelSelector"]).is_null() {
        return;
    }
    let mut rules = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in list(term, &[keys]) {
            if let Some(value) = key.as_str().and_then(|key| labels.get(key)) {
                rules.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if rules.is_empty() {
        return;
    }
    let mut all = list(term, &["labelSelector", "matchExpressions"]).to_vec();
    all.extend(rules);
    set(term, &["labelSelector", "matchExpressions"], all);
}

#[cfg(test)]
mod tests;
