//! Hard constraints of pods that this scheduler cannot evaluate yet: who has one stays pending, and is told which. Pure.
//!
//! To place such a pod anyway would break a promise (two replicas on one node, a volume that is elsewhere); each leaves this module
//! with the plugin that evaluates it.

use super::pod::PodInfo;
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use kube::ResourceExt;
use proto::api::selector::Selector;

/// Pods that must not come near a pod: one required term of its anti-affinity.
#[derive(Clone, Debug)]
pub struct AntiAffinityTerm {
    /// Namespaces the term is about; `None` for any, also where only a selector of namespaces could tell.
    namespaces: Option<Vec<String>>,
    /// Labels it is about.
    selector: Selector,
}

impl AntiAffinityTerm {
    fn new(term: &PodAffinityTerm, own_namespace: &str) -> Self {
        let named = term.namespaces.clone().unwrap_or_default();
        let namespaces = match &term.namespace_selector {
            Some(_) => None,
            None if named.is_empty() => Some(vec![own_namespace.to_owned()]),
            None => Some(named),
        };
        let selector = Selector::from_optional(term.label_selector.as_ref());
        Self {
            namespaces,
            // One that cannot be read may select anybody.
            selector: selector.unwrap_or_else(|_| Selector::everything()),
        }
    }

    fn is_about(&self, pod: &PodInfo) -> bool {
        let in_namespace = self
            .namespaces
            .as_ref()
            .is_none_or(|all| all.contains(&pod.key.namespace));
        in_namespace && self.selector.matches(pod.pod.labels())
    }
}

/// The required terms of the pod's anti-affinity.
pub fn repelled(pod: &Pod) -> Vec<AntiAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref());
    let namespace = pod.namespace().unwrap_or_default();
    terms
        .into_iter()
        .flatten()
        .map(|term| AntiAffinityTerm::new(term, &namespace))
        .collect()
}

/// What the pod demands that cannot be evaluated, in words with the field.
pub fn unknown(spec: &PodSpec) -> Vec<&'static str> {
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|a| a.pod_affinity.as_ref());
    let near = near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let apart = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    let apart = apart.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let spread = spec.topology_spread_constraints.iter().flatten();
    let mut volumes = spec.volumes.iter().flatten();
    [
        (
            near.is_some_and(|terms| !terms.is_empty()),
            "required pod affinity (spec.affinity.podAffinity)",
        ),
        (
            apart.is_some_and(|terms| !terms.is_empty()),
            "required pod anti-affinity (spec.affinity.podAntiAffinity)",
        ),
        (
            spread
                .into_iter()
                .any(|constraint| constraint.when_unsatisfiable != "ScheduleAnyway"),
            "topology spread with DoNotSchedule (spec.topologySpreadConstraints)",
        ),
        (
            volumes.any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()),
            "volumes that need claims (spec.volumes)",
        ),
        (
            spec.resource_claims.iter().flatten().next().is_some(),
            "resource claims (spec.resourceClaims)",
        ),
    ]
    .into_iter()
    .filter_map(|(has, name)| has.then_some(name))
    .collect()
}

/// Why the pod must wait whatever nodes there are; `repelling` are the pods with a node that have such anti-affinity.
pub fn obstacle<'p>(pod: &PodInfo, repelling: impl IntoIterator<Item = &'p PodInfo>) -> Option<String> {
    if !pod.unknown.is_empty() {
        return Some(pod.unknown.join(", "));
    }
    let mut others = repelling.into_iter();
    let other = others.find(|other| other.repelled.iter().any(|term| term.is_about(pod)))?;
    Some(format!(
        "required pod anti-affinity of pod {}, which is about this pod",
        other.key
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn pod(namespace: &str, app: &str, spec: Value) -> PodInfo {
        let value = json!({"metadata": {"name": app, "namespace": namespace, "uid": app, "labels": {"app": app}}, "spec": spec});
        PodInfo::new(Arc::new(serde_json::from_value(value).unwrap()))
    }

    fn anti(term: Value) -> Value {
        let mut term = term;
        term["topologyKey"] = json!("kubernetes.io/hostname");
        json!({"containers": [], "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    }

    #[test]
    fn what_cannot_be_evaluated_is_named() {
        let term = json!([{"topologyKey": "zone"}]);
        let cases = [
            (json!({}), None),
            (
                json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}),
                Some("podAffinity"),
            ),
            (
                json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}),
                Some("podAntiAffinity"),
            ),
            (
                json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}),
                None,
            ),
            (
                json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
                Some("topologySpreadConstraints"),
            ),
            (
                json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]}),
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
        ];
        for (mut spec, expected) in cases {
            spec["containers"] = json!([]);
            let found = obstacle(&pod("default", "p", spec.clone()), []);
            assert_eq!(found.is_some(), expected.is_some(), "{spec}");
            assert!(found.is_none_or(|text| text.contains(expected.unwrap())), "{spec}");
        }
    }

    #[test]
    fn pods_with_a_node_keep_those_away_that_their_terms_are_about() {
        let plain = json!({"containers": []});
        let web = json!({"labelSelector": {"matchLabels": {"app": "web"}}});
        let mut elsewhere = web.clone();
        elsewhere["namespaces"] = json!(["b"]);
        let mut selected = web.clone();
        selected["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
        for (term, namespace, app, blocked) in [
            (&web, "a", "web", true),
            (&web, "a", "db", false),
            (&web, "b", "web", false),
            (&elsewhere, "b", "web", true),
            (&elsewhere, "a", "web", false),
            (&selected, "c", "web", true),
            (&json!({}), "a", "web", false),
            (&json!({"labelSelector": {}}), "a", "db", true),
        ] {
            let existing = pod("a", "first", anti(term.clone()));
            let found = obstacle(&pod(namespace, app, plain.clone()), [&existing]);
            assert_eq!(found.is_some(), blocked, "{term} {namespace}/{app}: {found:?}");
            assert!(found.is_none_or(|text| text.contains("a/first")));
        }
    }
}
