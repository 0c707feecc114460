//! Three nodes, as a person drives them: where pods go, what a drain may take, who makes way, and a node that is lost and comes back.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};

use crate::cluster::{Cluster, NODE};
use crate::command::succeed;
use crate::wait;

/// Two of a revision on each node, at most one of them gone at a time; who is on a node that is lost goes elsewhere at once.
const SPREAD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: spread}
spec:
  replicas: 6
  selector: {matchLabels: {app: spread}}
  template:
    metadata: {labels: {app: spread}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, matchLabelKeys: [pod-template-hash], labelSelector: {matchLabels: {app: spread}}}
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
      containers: [{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: spread}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: spread}}}
"#;

/// Parts with names of their own, never two on a node: the fourth has no place.
const APART: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: apart}
spec:
  replicas: 4
  serviceName: apart
  selector: {matchLabels: {app: apart}}
  template:
    metadata: {labels: {app: apart}}
    spec:
      terminationGracePeriodSeconds: 0
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: apart}}}
      containers: [{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"]}]
"#;

/// One on each node, whatever its state.
const AGENT: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agents}
spec:
  selector: {matchLabels: {app: agents}}
  template:
    metadata: {labels: {app: agents}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"]}]
"#;

/// One on each node that asks for more than the half of it, and who is more important than them.
const CROWD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd}
spec:
  replicas: 3
  selector: {matchLabels: {app: crowd}}
  template:
    metadata: {labels: {app: crowd}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"], resources: {requests: {cpu: CPU}}}]
"#;
const IMPORTANT: &str = r#"
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: important}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {name: important, labels: {app: important}}
spec:
  priorityClassName: important
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"], resources: {requests: {cpu: CPU}}}]
"#;

/// `hack/up --nodes COUNT`.
fn nodes(cluster: &Cluster, count: usize) -> anyhow::Result<()> {
    let mut up = cluster.hack("up");
    up.args(["--nodes", &count.to_string()]);
    succeed(up, None)?;
    wait::until(60, "the nodes are ready", || {
        let path = "{range .items[*]}{.status.conditions[?(@.type==\"Ready\")].status} {end}";
        let text = cluster.get(&["nodes"], path)?;
        ensure!(text.split_whitespace().eq(std::iter::repeat_n("True", count)), "{text}");
        Ok(())
    })
}

/// A further node's name.
fn node(number: usize) -> String {
    format!("{NODE}-{number}")
}

/// How many running pods of an application each node has; those that end are not counted.
fn placed(cluster: &Cluster, app: &str) -> anyhow::Result<BTreeMap<String, usize>> {
    let path = "{range .items[*]}{.status.phase}/{.spec.nodeName}/{.metadata.deletionTimestamp}{\"\\n\"}{end}";
    let text = cluster.get(&["pods", "-l", &format!("app={app}")], path)?;
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        if let Some(node) = line.strip_prefix("Running/").and_then(|rest| rest.strip_suffix('/')) {
            *counts.entry(node.to_owned()).or_default() += 1;
        }
    }
    Ok(counts)
}

/// Waits until the nodes have these numbers of an application's pods.
fn wait_placed(cluster: &Cluster, app: &str, wanted: &[(&str, usize)]) -> anyhow::Result<()> {
    let wanted: BTreeMap<String, usize> = wanted
        .iter()
        .map(|(node, count)| ((*node).to_owned(), *count))
        .collect();
    wait::until(90, "the pods are where they belong", || {
        let counts = placed(cluster, app)?;
        ensure!(counts == wanted, "{app}: {counts:?}, not {wanted:?}");
        Ok(())
    })
}

/// Waits for what the scheduler says of a pod it has no node for.
fn wait_unschedulable(cluster: &Cluster, pod: &[&str], message: &str) -> anyhow::Result<()> {
    wait::until(60, "the scheduler says why", || {
        let path = "{range .items[*]}{.status.conditions[?(@.type==\"PodScheduled\")].message}{\"\\n\"}{end}";
        let text = cluster.get(pod, path)?;
        ensure!(text.lines().any(|line| line == message), "{text}");
        Ok(())
    })
}

/// Evenly over the nodes; never two on one; one on each.
fn placement(cluster: &Cluster, all: &[(&str, usize)]) -> anyhow::Result<()> {
    cluster.apply(SPREAD)?;
    cluster.apply(AGENT)?;
    cluster.apply(APART)?;
    cluster.kubectl(&["rollout", "status", "deployment/spread", "--timeout=90s"])?;
    cluster.kubectl(&["rollout", "status", "daemonset/agents", "--timeout=90s"])?;
    let twice: Vec<(&str, usize)> = all.iter().map(|(node, _)| (*node, 2)).collect();
    wait_placed(cluster, "spread", &twice)?;
    wait_placed(cluster, "agents", all)?;
    wait_placed(cluster, "apart", all)?;
    let fourth = ["pods", "-l", "app=apart", "--field-selector=status.phase=Pending"];
    wait_unschedulable(
        cluster,
        &fourth,
        "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
    )?;
    let name = cluster.get(&fourth, "{.items[*].metadata.name}")?;
    ensure!(name == "apart-3", "{name}");
    cluster.kubectl(&["scale", "statefulset/apart", "--replicas=3"])?;
    let path = "{.metadata.uid}";
    let before = cluster.get(&["pod", "apart-1"], path)?;
    cluster.kubectl(&["delete", "pod", "apart-1"])?;
    wait::until(60, "the part is back under its name", || {
        let after = cluster.get(&["pod", "apart-1"], path)?;
        ensure!(after != before, "{after}");
        Ok(())
    })?;
    wait_placed(cluster, "apart", all)?;
    cluster.kubectl(&["delete", "statefulset", "apart"]).map(drop)
}

/// A drain takes one guarded pod after another, never two; the node's agents stay; the others are spread over who is left.
fn drain(cluster: &Cluster) -> anyhow::Result<()> {
    let third = node(3);
    cluster.kubectl(&["drain", &third, "--ignore-daemonsets", "--timeout=90s"])?;
    wait_placed(cluster, "spread", &[(NODE, 3), (&node(2), 3)])?;
    let agents = placed(cluster, "agents")?;
    ensure!(agents.len() == 3, "{agents:?}");
    cluster.kubectl(&["uncordon", &third])?;
    cluster.kubectl(&["rollout", "restart", "deployment/spread"])?;
    cluster.kubectl(&["rollout", "status", "deployment/spread", "--timeout=90s"])?;
    wait_placed(cluster, "spread", &[(NODE, 2), (&node(2), 2), (&third, 2)])
}

/// Nodes that are full: who is more important takes the place of one, who then finds none.
fn preemption(cluster: &Cluster, all: &[(&str, usize)]) -> anyhow::Result<()> {
    let cpus = cluster.get(&["node", NODE], "{.status.allocatable.cpu}")?;
    let milli: u64 = match cpus.strip_suffix('m') {
        Some(milli) => milli.parse()?,
        None => cpus.parse::<u64>().context("allocatable CPUs")? * 1000,
    };
    let share = format!("{}m", milli * 3 / 4);
    cluster.apply(&CROWD.replace("CPU", &share))?;
    wait_placed(cluster, "crowd", all)?;
    let path = "{.items[*].metadata.uid}";
    let uids = |text: String| -> BTreeSet<String> { text.split_whitespace().map(str::to_owned).collect() };
    let before = uids(cluster.get(&["pods", "-l", "app=crowd"], path)?);
    cluster.apply(&IMPORTANT.replace("CPU", &share))?;
    wait::until(60, "the important pod runs", || {
        let counts = placed(cluster, "important")?;
        ensure!(counts.values().sum::<usize>() == 1, "{counts:?}");
        Ok(())
    })?;
    wait_unschedulable(
        cluster,
        &["pods", "-l", "app=crowd"],
        "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
    )?;
    let after = uids(cluster.get(&["pods", "-l", "app=crowd"], path)?);
    ensure!(before.intersection(&after).count() == 2, "{before:?}, then {after:?}");
    let told = cluster.get(
        &["events", "--field-selector=reason=Preempted"],
        "{.items[*].involvedObject.uid}",
    )?;
    let victim = before.difference(&after).next().context("who made way")?;
    ensure!(told.contains(victim.as_str()), "{victim} is not told of in {told:?}");
    cluster
        .kubectl(&["delete", "pod/important", "deployment/crowd", "priorityclass/important"])
        .map(drop)
}

/// A node whose kubelet is gone: its pods go elsewhere, its agent stays; it comes back and is used again.
fn loss(cluster: &Cluster, all: &[(&str, usize)]) -> anyhow::Result<()> {
    let third = node(3);
    cluster.kill("kubelet-3")?;
    wait_placed(cluster, "spread", &[(NODE, 3), (&node(2), 3)])?;
    let path = "{.status.conditions[?(@.type==\"Ready\")].status} {.spec.taints[*].key}";
    let lost = cluster.get(&["node", &third], path)?;
    ensure!(
        lost == "Unknown node.kubernetes.io/unreachable node.kubernetes.io/unreachable",
        "{lost}"
    );
    let agents = cluster.get(&["pods", "-l", "app=agents"], "{.items[*].spec.nodeName}")?;
    ensure!(agents.contains(&third), "{agents}");
    nodes(cluster, 3)?;
    wait::until(
        60,
        "the node's taints are gone, and the pods that were let go of",
        || {
            let taints = cluster.get(&["node", &third], "{.spec.taints[*].key}")?;
            let pods = cluster.get(&["pods", "-l", "app=spread"], "{.items[*].spec.nodeName}")?;
            ensure!(taints.is_empty() && !pods.contains(&third), "{taints:?}, {pods}");
            Ok(())
        },
    )?;
    wait_placed(cluster, "agents", all)?;
    cluster.kubectl(&["rollout", "restart", "deployment/spread"])?;
    cluster.kubectl(&["rollout", "status", "deployment/spread", "--timeout=90s"])?;
    wait_placed(cluster, "spread", &[(NODE, 2), (&node(2), 2), (&third, 2)])
}

/// Three nodes come, are worked with, and all but the first go.
pub(crate) fn three_nodes(cluster: &Cluster) -> anyhow::Result<()> {
    nodes(cluster, 3)?;
    let names = [NODE.to_owned(), node(2), node(3)];
    let all: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    placement(cluster, &all)?;
    drain(cluster)?;
    preemption(cluster, &all)?;
    loss(cluster, &all)?;
    cluster.kubectl(&["delete", "deployment/spread", "daemonset/agents", "pdb/spread"])?;
    wait::until(60, "the pods are gone", || {
        let left = cluster.get(&["pods"], "{.items[*].metadata.name}")?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    nodes(cluster, 1)
}
