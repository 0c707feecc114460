//! Which nodes a daemon set's pods belong on, and the pod that is made for one. Pure.

use super::View;
use crate::controller::history::REVISION_LABEL;
use crate::controller::pod;
use crate::controller::write;
use crate::held::{Node, Pod};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod as NewPod, PodSpec, Toleration,
};
use kube::ResourceExt;
use proto::api::{affinity, taint};
use std::cmp::Ordering;

/// The label with the deprecated generation of the template.
pub const GENERATION_LABEL: &str = "pod-template-generation";
/// The annotation of the set that holds it.
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// The field that a pod for one node selects it by.
const NAME_FIELD: &str = "metadata.name";

/// Taints that every daemon pod stands: the key, without its prefix, and the effect.
const TOLERATED: &[(&str, &str)] = &[
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];

/// What a node is fit for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// A pod belongs there.
    pub should_run: bool,
    /// A pod that is there may stay.
    pub may_stay: bool,
}

/// What decides whether a node is fit: the template's spec with what every daemon pod stands.
pub struct Fitting {
    spec: PodSpec,
}

impl Fitting {
    /// Of a set's template.
    pub fn new(spec: &DaemonSetSpec) -> Self {
        let mut spec = spec.template.spec.clone().unwrap_or_default();
        tolerate(&mut spec);
        Self { spec }
    }

    /// What the node is fit for.
    pub fn of(&self, node: &Node) -> Fit {
        let named = self.spec.node_name.as_deref().filter(|name| !name.is_empty());
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let is_named = named.is_none_or(|named| named == name);
        if !is_named || !affinity::pod_allows(&self.spec, name, node.labels()) {
            return Fit::default();
        }
        let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
        let tolerations = self.spec.tolerations.as_deref().unwrap_or_default();
        let stands = |effects: &[&str]| taint::find_untolerated(taints, tolerations, effects).is_none();
        Fit {
            should_run: stands(&["NoSchedule", "NoExecute"]),
            may_stay: stands(&["NoExecute"]),
        }
    }
}

/// Adds what every daemon pod stands.
pub fn tolerate(spec: &mut PodSpec) {
    let network: &[(&str, &str)] = match spec.host_network {
        Some(true) => &[("network-unavailable", "NoSchedule")],
        _ => &[],
    };
    let all = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.iter().chain(network) {
        let new = Toleration {
            key: Some(format!("node.kubernetes.io/{key}")),
            operator: Some("Exists".to_owned()),
            effect: Some((*effect).to_owned()),
            ..Toleration::default()
        };
        let is_same = |old: &&mut Toleration| {
            let same_value = old.value.as_deref().unwrap_or_default().is_empty();
            same_value && (&old.key, &old.operator, &old.effect) == (&new.key, &new.operator, &new.effect)
        };
        match all.iter_mut().find(is_same) {
            Some(old) => *old = new,
            None => all.push(new),
        }
    }
}

/// The node that a pod is on, or is made for.
pub fn target(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(name) = spec.node_name.as_deref().filter(|name| !name.is_empty()) {
        return Some(name);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required
        .node_selector_terms
        .iter()
        .flat_map(|t| t.match_fields.iter().flatten());
    let mut named = fields.filter(|field| field.key == NAME_FIELD && field.operator == "In");
    match named.next()?.values.as_deref()? {
        [name] => Some(name),
        _ => None,
    }
}

/// Pods that have their node first, then the older, then by name.
pub fn oldest_first(a: &Pod, b: &Pod) -> Ordering {
    let key = |p: &Pod| {
        let created = p.metadata.creation_timestamp.as_ref().map(|t| t.0);
        (pod::node_name(p).is_empty(), created)
    };
    key(a).cmp(&key(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// The deprecated generation of the set's template, if its annotation holds one.
pub fn template_generation(set: &DaemonSet) -> Option<i64> {
    set.metadata
        .annotations
        .as_ref()?
        .get(GENERATION_ANNOTATION)?
        .parse()
        .ok()
}

/// Puts the node's name in the place of all other terms a pod must meet: that the node meets them is known.
fn pin(spec: &mut PodSpec, node: &str) {
    let term = NodeSelectorTerm {
        match_fields: Some(vec![NodeSelectorRequirement {
            key: NAME_FIELD.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]),
        match_expressions: None,
    };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let nodes = affinity.node_affinity.get_or_insert_default();
    nodes.required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![term],
    });
}

/// The pod for a node.
pub fn pod(view: &View<'_>, node: &str) -> NewPod {
    let mut pod = pod::from_template(&view.spec.template, &write::DAEMON_SETS, view.set);
    let labels = pod.metadata.labels.get_or_insert_default();
    if let Some(generation) = template_generation(view.set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string());
    }
    if !view.hash.is_empty() {
        labels.insert(REVISION_LABEL.to_owned(), view.hash.to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    tolerate(spec);
    pin(spec, node);
    pod
}
