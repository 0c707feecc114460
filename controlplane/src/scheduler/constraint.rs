//! Hard constraints of pods that this scheduler cannot evaluate yet, or would take too long to: who has one stays pending, and is
//! told which. Pure.
//!
//! To place such a pod anyway would break a promise (two replicas on one node, a volume that is elsewhere); each leaves this module
//! with the plugin that evaluates it.

use super::pod::PodInfo;
use crate::held::PodSpec;

/// Terms about other pods and spread constraints of one pod. Every cycle of the pod asks each of them about every kind of pods and
/// every node, while all others wait; upstream knows no bound.
const RULES_MAX: usize = 1000;

/// What the pod demands that cannot be evaluated, in words with the field.
pub fn unknown(spec: &PodSpec) -> Vec<&'static str> {
    [
        (spec.volumes.need_claims, "volumes that need claims (spec.volumes)"),
        (
            spec.resource_claims.iter().flatten().next().is_some(),
            "resource claims (spec.resourceClaims)",
        ),
    ]
    .into_iter()
    .filter_map(|(has, name)| has.then_some(name))
    .collect()
}

/// Why the pod must wait whatever nodes there are.
pub fn obstacle(pod: &PodInfo) -> Option<String> {
    let rules = pod.terms.all().count() + pod.spread.len();
    if rules > RULES_MAX {
        let fields = "spec.affinity.podAffinity, spec.affinity.podAntiAffinity, spec.topologySpreadConstraints";
        return Some(format!(
            "{rules} rules about other pods, more than {RULES_MAX} ({fields})"
        ));
    }
    (!pod.unknown.is_empty()).then(|| pod.unknown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn pod(spec: Value) -> PodInfo {
        let value = json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": spec});
        PodInfo::new(Arc::new(serde_json::from_value(value).unwrap()))
    }

    #[test]
    fn what_cannot_be_evaluated_is_named() {
        let terms = |count: usize| {
            let all: Vec<Value> = (0..count).map(|i| json!({"topologyKey": format!("k{i}")})).collect();
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": all}}})
        };
        let cases = [
            (json!({}), None),
            (
                json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}}),
                None,
            ),
            (
                json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
                Some("spec.volumes"),
            ),
            (
                json!({"volumes": [{"name": "v", "ephemeral": {}}]}),
                Some("spec.volumes"),
            ),
            (json!({"volumes": [{"name": "v", "emptyDir": {}}]}), None),
            (json!({"resourceClaims": [{"name": "c"}]}), Some("resourceClaims")),
            (terms(RULES_MAX), None),
            (terms(RULES_MAX + 1), Some("spec.affinity.podAntiAffinity")),
        ];
        for (mut spec, expected) in cases {
            spec["containers"] = json!([]);
            let found = obstacle(&pod(spec.clone()));
            assert_eq!(found.is_some(), expected.is_some(), "{spec}");
            assert!(found.is_none_or(|text| text.contains(expected.unwrap())), "{spec}");
        }
    }
}
