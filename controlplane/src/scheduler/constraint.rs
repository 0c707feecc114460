//! Hard constraints of pods: those that this scheduler cannot evaluate yet (who has one stays pending, and is told which), and
//! whom a pod's required anti-affinity is about. Pure.
//!
//! To place such a pod anyway would break a promise (two replicas on one node, a volume that is elsewhere); each leaves this module
//! with the plugin that evaluates it.

use super::pod::PodInfo;
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use proto::api::selector::Selector;
use std::collections::BTreeMap;

/// Pods that must not come near a pod: one required term of its anti-affinity.
#[derive(Clone, Debug)]
pub struct AntiAffinityTerm {
    /// Label of nodes whose value tells what is near.
    pub topology_key: String,
    /// Namespaces the term names.
    namespaces: Vec<String>,
    /// Labels of further namespaces it is about.
    namespace_selector: Selector,
    /// Labels of the pods it is about.
    selector: Selector,
}

impl AntiAffinityTerm {
    fn new(term: &PodAffinityTerm, own_namespace: &str) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(own_namespace.to_owned());
        }
        // A selector that cannot be read may select anybody.
        let read = |selector: Option<&LabelSelector>| {
            Selector::from_optional(selector).unwrap_or_else(|_| Selector::everything())
        };
        Self {
            topology_key: term.topology_key.clone(),
            namespaces,
            namespace_selector: read(term.namespace_selector.as_ref()),
            selector: read(term.label_selector.as_ref()),
        }
    }

    /// Whether the term is about the pod, whose namespace has these labels.
    pub fn is_about(&self, pod: &PodInfo, namespace_labels: &BTreeMap<String, String>) -> bool {
        let in_namespace =
            self.namespaces.contains(&pod.key.namespace) || self.namespace_selector.matches(namespace_labels);
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

/// Why the pod must wait whatever nodes there are.
pub fn obstacle(pod: &PodInfo) -> Option<String> {
    (!pod.unknown.is_empty()).then(|| pod.unknown.join(", "))
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
            let found = obstacle(&pod("default", "p", spec.clone()));
            assert_eq!(found.is_some(), expected.is_some(), "{spec}");
            assert!(found.is_none_or(|text| text.contains(expected.unwrap())), "{spec}");
        }
    }

    #[test]
    fn a_term_is_about_pods_by_their_namespace_and_labels() {
        let plain = json!({"containers": []});
        let web = json!({"labelSelector": {"matchLabels": {"app": "web"}}});
        let mut elsewhere = web.clone();
        elsewhere["namespaces"] = json!(["b"]);
        let mut selected = web.clone();
        selected["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
        let mut both = selected.clone();
        both["namespaces"] = json!(["b"]);
        let mut anywhere = web.clone();
        anywhere["namespaceSelector"] = json!({});
        for (term, namespace, app, is_about) in [
            (&web, "a", "web", true),
            (&web, "a", "db", false),
            (&web, "b", "web", false),
            (&elsewhere, "b", "web", true),
            (&elsewhere, "a", "web", false),
            // Namespace x is of team x.
            (&selected, "x", "web", true),
            (&selected, "x", "db", false),
            (&selected, "a", "web", false),
            (&both, "b", "web", true),
            (&both, "x", "web", true),
            (&both, "a", "web", false),
            (&anywhere, "c", "web", true),
            (&json!({}), "a", "web", false),
            (&json!({"labelSelector": {}}), "a", "db", true),
        ] {
            let existing = pod("a", "first", anti(term.clone()));
            let labels = BTreeMap::from([("team".to_owned(), namespace.to_owned())]);
            let found = existing.repelled[0].is_about(&pod(namespace, app, plain.clone()), &labels);
            assert_eq!(found, is_about, "{term} {namespace}/{app}");
        }
    }

    /// The API server makes requirements of `matchLabelKeys` and `mismatchLabelKeys` when it makes the pod, as upstream's does, so
    /// that the terms as stored say all there is.
    #[test]
    fn label_keys_of_a_term_count_for_pods_as_they_are_stored() {
        let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["hash"], "mismatchLabelKeys": ["tenant"]});
        let mut stored = json!({"metadata": {"name": "first", "namespace": "a", "uid": "u",
            "labels": {"app": "web", "hash": "1", "tenant": "t"}}, "spec": anti(term)});
        let kind = crate::resource::Registry::built_in()
            .by_resource("", "v1", "pods")
            .unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let context = crate::resource::PrepareContext { uid: "u", now };
        kind.strategy.prepare_create(&mut stored, &context);
        let existing = PodInfo::new(Arc::new(serde_json::from_value(stored).unwrap()));
        for (hash, tenant, is_about) in [("1", "other", true), ("1", "t", false), ("2", "other", false)] {
            let value = json!({"metadata": {"name": "p", "namespace": "a", "uid": "p",
                "labels": {"app": "web", "hash": hash, "tenant": tenant}}, "spec": {"containers": []}});
            let other = PodInfo::new(Arc::new(serde_json::from_value(value).unwrap()));
            let found = existing.repelled[0].is_about(&other, &BTreeMap::new());
            assert_eq!(found, is_about, "{hash} {tenant}");
        }
    }
}
