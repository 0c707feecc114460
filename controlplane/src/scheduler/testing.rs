//! Clusters for tests: nodes and pods as JSON, and cycles over them.

use super::cluster::Cluster;
use super::cycle::{Request, Search, Unplaced};
use super::plugin::State;
use super::plugin::default_preemption::Budget;
use super::plugin::steps::Told;
use super::pod::PodInfo;
use super::profile::Profile;
use crate::held::{Node, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

/// A node of 4 CPUs and 8 GiB for 110 pods.
pub(super) fn node(name: &str, extra: Value) -> Node {
    let mut value = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    });
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

/// A node in a zone.
pub(super) fn zoned(name: &str, zone: &str) -> Node {
    let labels = json!({"topology.kubernetes.io/zone": zone});
    node(name, json!({"metadata": {"labels": labels}}))
}

/// A pod that requests nothing.
pub(super) fn pod(name: &str, extra: Value) -> Arc<PodInfo> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    });
    json_patch::merge(&mut value, &extra);
    Arc::new(PodInfo::new(Arc::new(Pod::whole(value).unwrap())))
}

/// A pod with the label `app`.
pub(super) fn labelled(name: &str, app: &str, spec: Value) -> Arc<PodInfo> {
    pod(name, json!({"metadata": {"labels": {"app": app}}, "spec": spec}))
}

/// A pod of a priority that requests so much CPU.
pub(super) fn important(name: &str, priority: i32, cpu: &str, extra: Value) -> Arc<PodInfo> {
    let containers = json!([{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}]);
    let mut value = json!({"spec": {"priority": priority, "containers": containers}});
    json_patch::merge(&mut value, &extra);
    pod(name, value)
}

pub(super) fn cluster(nodes: &[Node]) -> Cluster {
    let mut cluster = Cluster::default();
    for node in nodes {
        cluster.set_node(node);
    }
    cluster
}

/// One cycle with the default profile.
pub(super) fn schedule(search: &mut Search, cluster: &mut Cluster, pod: &PodInfo) -> Result<String, Box<Unplaced>> {
    schedule_as(&Profile::default(), search, cluster, pod, &[])
}

/// One cycle.
pub(super) fn schedule_as(
    profile: &Profile,
    search: &mut Search,
    cluster: &mut Cluster,
    pod: &PodInfo,
    budgets: &[Budget],
) -> Result<String, Box<Unplaced>> {
    let request = Request {
        pod,
        profile,
        owned: None,
        budgets: &|| budgets.to_vec(),
        lap: &|_| (),
        told: Told::default(),
    };
    search.schedule(cluster, request)
}

/// What filters say of each node, by name: nothing if it will do.
pub(super) fn verdicts(cluster: &mut Cluster, pod: &PodInfo) -> Vec<(String, String)> {
    cluster.refresh();
    cluster.know_all(pod.topology_keys());
    let profile = Profile::default();
    let state = State::begin(cluster, &profile, pod, None, Told::default()).unwrap();
    let verdict = |name: &str| {
        let node = cluster.node(name).unwrap();
        state
            .filter(node, &node.room)
            .err()
            .map_or_else(String::new, |rejection| rejection.reasons.join(", "))
    };
    let names = cluster.present().map(|node| node.name.clone());
    names.map(|name| (name.clone(), verdict(&name))).collect()
}
