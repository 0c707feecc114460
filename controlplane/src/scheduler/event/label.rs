//! What events are called where pods that enter a queue are counted: upstream's labels. Pure.

use super::Event;
use crate::held::{Node, Pod};
use crate::scheduler::pod::{Amounts, PodInfo};
use kube::ResourceExt;

/// An attempt failed.
pub const FAILED: &str = "ScheduleAttemptFailure";
/// The back-off is over.
pub const BACKOFF_OVER: &str = "BackoffComplete";
/// The scheduler had nothing else to do.
pub const TAKEN_EARLY: &str = "PopFromBackoffQ";
/// Nothing happened for the pod for long.
pub const WAITED_LONG: &str = "UnschedulableTimeout";
/// A pod left its node, or waits for room there no longer.
pub const LEFT: &str = "AssignedPodDelete";
/// The pod is new.
pub const ADDED: &str = "UnschedulablePodAdd";

/// What is another of a pod, in upstream's order: the first counts.
enum Part {
    Labels,
    Less,
    Gates,
    Tolerations,
    Other,
}

fn is_less(old: &Amounts, new: &Amounts) -> bool {
    let scalar = |(name, amount): (&String, &i64)| new.scalar.get(name).is_none_or(|now| now < amount);
    new.cpu < old.cpu || new.memory < old.memory || new.storage < old.storage || old.scalar.iter().any(scalar)
}

fn changed(old: &PodInfo, new: &PodInfo) -> Part {
    let gates = |pod: &PodInfo| {
        let gates = pod.pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
        gates.is_some_and(|gates| !gates.is_empty())
    };
    let tolerations = |pod: &PodInfo| {
        let tolerations = pod.pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
        tolerations.map_or(0, Vec::len)
    };
    match () {
        () if old.pod.labels() != new.pod.labels() => Part::Labels,
        () if is_less(&old.requests, &new.requests) => Part::Less,
        () if gates(old) && !gates(new) => Part::Gates,
        () if tolerations(old) != tolerations(new) => Part::Tolerations,
        () => Part::Other,
    }
}

/// A pod without a node is another.
pub fn waiting_changed(old: &PodInfo, new: &PodInfo) -> &'static str {
    match changed(old, new) {
        Part::Labels => "UnschedulablePodUpdatePodLabel",
        Part::Less => "UnschedulablePodUpdatePodScaleDown",
        Part::Gates => "UnschedulablePodUpdatePodSchedulingGatesEliminated",
        Part::Tolerations => "UnschedulablePodUpdatePodToleration",
        Part::Other => "UnschedulablePodUpdate",
    }
}

/// A node is there, is another, or is gone.
pub fn node(old: Option<&Node>, new: Option<&Node>) -> &'static str {
    let (old, new) = match (old, new) {
        (None, _) => return "NodeAdd",
        (_, None) => return "NodeDelete",
        (Some(old), Some(new)) => (old, new),
    };
    let cordoned = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let taints = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        taints.unwrap_or_default()
    };
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    let conditions = |node: &Node| -> Vec<(String, String)> {
        let all = node
            .status
            .iter()
            .filter_map(|status| status.conditions.as_ref())
            .flatten();
        all.map(|one| (one.type_.clone(), one.status.clone())).collect()
    };
    match () {
        () if cordoned(old) && !cordoned(new) => "NodeUpdateNodeTaint",
        () if allocatable(old) != allocatable(new) => "NodeUpdateNodeAllocatable",
        () if old.labels() != new.labels() => "NodeUpdateNodeLabel",
        () if taints(old) != taints(new) => "NodeUpdateNodeTaint",
        () if conditions(old) != conditions(new) => "NodeUpdateNodeCondition",
        () if old.annotations() != new.annotations() => "NodeUpdateNodeAnnotation",
        () => "NodeUpdate",
    }
}

/// A change of a pod, where it is taken in: by whether it has a node, then and now.
pub fn pod(old: Option<&Pod>, new: Option<&Pod>) -> &'static str {
    let is_assigned = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| !node.is_empty())
    };
    match (old.map(is_assigned), new.map(is_assigned)) {
        (Some(true), Some(true)) => "AssignedPodUpdate",
        (_, Some(true)) => "AssignedPodAdd",
        (None, _) => ADDED,
        (Some(true), _) => LEFT,
        (Some(false), Some(false)) => "UnschedulablePodUpdate",
        (Some(false), None) => "UnschedulablePodDelete",
    }
}

/// Any other event. That a pod waits for a node no longer is to upstream as if one had left it; changes of namespaces wake nobody
/// there, and have a name of that kind.
pub fn of(event: &Event<'_>) -> &'static str {
    match event {
        Event::Pod {
            before: Some(old),
            after: Some(new),
            ..
        } => match changed(old, new) {
            Part::Labels => "AssignedPodUpdatePodLabel",
            Part::Less => "AssignedPodUpdatePodScaleDown",
            Part::Tolerations => "AssignedPodUpdatePodToleration",
            Part::Gates | Part::Other => "AssignedPodUpdate",
        },
        Event::Pod { before: None, .. } => "AssignedPodAdd",
        Event::Pod { .. } => LEFT,
        Event::Namespace(_) => "NamespaceUpdate",
        Event::Node { before: None, .. } => "NodeAdd",
        Event::Node { after: None, .. } => "NodeDelete",
        Event::Node { .. } => "NodeUpdate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node as some_node, pod};
    use serde_json::{Value, json};

    #[test]
    fn what_is_another_gives_the_name() {
        let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"schedulingGates": [{"name": "g"}],
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2", "example.com/x": "1"}}}]}});
        let of = |change: Value| {
            let mut new = old.clone();
            json_patch::merge(&mut new, &change);
            let (old, new) = (pod("p", old.clone()), pod("p", new));
            let event = Event::Pod {
                before: Some(&old),
                after: Some(&new),
                node: None,
            };
            (waiting_changed(&old, &new), super::of(&event))
        };
        let requests = |requests: Value| json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]}});
        let table = [
            (
                json!({"metadata": {"labels": {"a": "c"}}}),
                "UpdatePodLabel",
                "UpdatePodLabel",
            ),
            (
                requests(json!({"cpu": "1", "example.com/x": "1"})),
                "UpdatePodScaleDown",
                "UpdatePodScaleDown",
            ),
            (
                requests(json!({"cpu": "3"})),
                "UpdatePodScaleDown",
                "UpdatePodScaleDown",
            ),
            (requests(json!({"cpu": "3", "example.com/x": "1"})), "Update", "Update"),
            (
                json!({"spec": {"schedulingGates": null}}),
                "UpdatePodSchedulingGatesEliminated",
                "Update",
            ),
            (
                json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
                "UpdatePodToleration",
                "UpdatePodToleration",
            ),
            (json!({"status": {"phase": "Pending"}}), "Update", "Update"),
        ];
        for (change, waiting, assigned) in table {
            let expected = (format!("UnschedulablePod{waiting}"), format!("AssignedPod{assigned}"));
            let (waiting, assigned) = of(change.clone());
            assert_eq!((waiting.to_owned(), assigned.to_owned()), expected, "{change}");
        }
    }

    #[test]
    fn a_pod_that_is_taken_in_is_called_by_where_it_is() {
        let (waits, runs) = (pod("p", json!({})), pod("p", json!({"spec": {"nodeName": "n"}})));
        let (waits, runs) = (Some(&*waits.pod), Some(&*runs.pod));
        for (old, new, expected) in [
            (None, waits, "UnschedulablePodAdd"),
            (waits, waits, "UnschedulablePodUpdate"),
            (waits, None, "UnschedulablePodDelete"),
            (None, runs, "AssignedPodAdd"),
            (waits, runs, "AssignedPodAdd"),
            (runs, runs, "AssignedPodUpdate"),
            (runs, None, "AssignedPodDelete"),
            // Another pod of its name.
            (runs, waits, "AssignedPodDelete"),
        ] {
            assert_eq!(super::pod(old, new), expected);
        }
    }

    #[test]
    fn of_a_node_upstreams_first_counts() {
        let old =
            json!({"spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let all = json!({"spec": {"unschedulable": false, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
            "status": {"allocatable": {"cpu": "64"}, "conditions": [{"type": "Ready", "status": "True"}]}});
        let order = [
            ("/spec/unschedulable", "NodeUpdateNodeTaint"),
            ("/status/allocatable", "NodeUpdateNodeAllocatable"),
            ("/metadata/labels", "NodeUpdateNodeLabel"),
            ("/spec/taints", "NodeUpdateNodeTaint"),
            ("/status/conditions", "NodeUpdateNodeCondition"),
            ("/metadata/annotations", "NodeUpdateNodeAnnotation"),
        ];
        let mut new = all;
        for (pointer, expected) in order {
            let (one, other) = (some_node("n", old.clone()), some_node("n", new.clone()));
            assert_eq!(node(Some(&one), Some(&other)), expected);
            // As it was: the next in order counts.
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let was = old.pointer(pointer).cloned();
            let part = new.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            match was {
                Some(was) => part.insert(name.to_owned(), was),
                None => part.remove(name),
            };
        }
        let one = some_node("n", old);
        assert_eq!(node(Some(&one), Some(&one)), "NodeUpdate");
        assert_eq!(
            (node(None, Some(&one)), node(Some(&one), None)),
            ("NodeAdd", "NodeDelete")
        );
    }
}
