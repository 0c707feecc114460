//! kill -9 of each part: running containers go on, none is doubled, and what was asked meanwhile is done afterwards.

use anyhow::ensure;

use crate::cases::workload::{addresses, delete};
use crate::cluster::{Cluster, NODE};
use crate::command::succeed;
use crate::{leftovers, wait};

/// Three pods to look at, and nothing else in the runtime.
fn deploy(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    leftovers::of_pods(cluster)?;
    cluster.kubectl(&["create", "deployment", "crash", "--image=nginx", "--replicas=3"])?;
    addresses(cluster, "app=crash", 3)
}

/// Each running task and its process: what a restart of anything above must not change.
pub(crate) fn tasks(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let text = cluster.ctr(&["tasks", "list"])?;
    let mut tasks: Vec<_> = text
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    tasks.sort();
    Ok(tasks)
}

fn restart_counts(cluster: &Cluster) -> anyhow::Result<String> {
    cluster.get(
        &["pods", "-l", "app=crash"],
        "{.items[*].status.containerStatuses[*].restartCount}",
    )
}

pub(crate) fn node_ready(cluster: &Cluster, wanted: &str) -> anyhow::Result<()> {
    wait::until(60, "the node's Ready condition", || {
        let status = cluster.get(&["node", NODE], r#"{.status.conditions[?(@.type=="Ready")].status}"#)?;
        ensure!(status == wanted, "Ready is {status}, not {wanted}");
        Ok(())
    })
}

/// The kubelet: while it is away one pod is deleted and the deployment grows.
pub(crate) fn kubelet_killed(cluster: &Cluster) -> anyhow::Result<()> {
    deploy(cluster)?;
    let before = tasks(cluster)?;
    ensure!(
        before.len() == 6,
        "three sandboxes and three containers, not {before:?}"
    );
    cluster.kill("kubelet")?;
    ensure!(tasks(cluster)? == before, "containers ended with the kubelet");
    cluster.up()?;
    node_ready(cluster, "True")?;
    addresses(cluster, "app=crash", 3)?;
    ensure!(tasks(cluster)? == before, "{before:?}\nthen {:?}", tasks(cluster)?);
    ensure!(restart_counts(cluster)? == "0 0 0", "{}", restart_counts(cluster)?);

    cluster.kill("kubelet")?;
    let gone = cluster.get(&["pods", "-l", "app=crash"], "{.items[0].metadata.name}")?;
    cluster.kubectl(&["delete", "pod", &gone, "--wait=false"])?;
    cluster.up()?;
    wait::until(60, "the pod deleted meanwhile is gone", || {
        let left = cluster.kubectl(&["get", "pod", &gone, "--ignore-not-found", "--no-headers"])?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    addresses(cluster, "app=crash", 3)?;
    wait::until(60, "no container of the deleted pod is left", || {
        let now = tasks(cluster)?;
        ensure!(now.len() == 6, "{now:?}");
        ensure!(
            now.iter().filter(|task| before.contains(task)).count() == 4,
            "{before:?}\nthen {now:?}"
        );
        Ok(())
    })?;
    delete(cluster, "crash", "app=crash")
}

/// The node's object is deleted under a live kubelet: it registers again, and pods go on.
pub(crate) fn node_deleted(cluster: &Cluster) -> anyhow::Result<()> {
    let uid = cluster.get(&["node", NODE], "{.metadata.uid}")?;
    cluster.kubectl(&["delete", "node", NODE, "--wait=false"])?;
    wait::until(60, "another node object", || {
        let now = cluster.get(&["node", NODE], "{.metadata.uid}")?;
        ensure!(now != uid, "still {now}");
        Ok(())
    })?;
    node_ready(cluster, "True")?;
    deploy(cluster)?;
    delete(cluster, "crash", "app=crash")
}

/// The control plane: what it had acknowledged is there, and pods do not notice.
pub(crate) fn controlplane_killed(cluster: &Cluster) -> anyhow::Result<()> {
    deploy(cluster)?;
    let before = tasks(cluster)?;
    cluster.kubectl(&["create", "configmap", "acknowledged", "--from-literal=key=value"])?;
    cluster.kill("controlplane")?;
    cluster.up()?;
    let value = cluster.get(&["configmap", "acknowledged"], "{.data.key}")?;
    ensure!(value == "value", "{value}");
    cluster.kubectl(&["delete", "configmap", "acknowledged"])?;
    node_ready(cluster, "True")?;
    addresses(cluster, "app=crash", 3)?;
    ensure!(tasks(cluster)? == before, "{before:?}\nthen {:?}", tasks(cluster)?);
    // The kubelet and the controllers are connected again.
    cluster.kubectl(&["scale", "deployment/crash", "--replicas=4"])?;
    addresses(cluster, "app=crash", 4)?;
    delete(cluster, "crash", "app=crash")
}

/// The runtime: the node says that it is not ready and why, and goes on when the runtime is back.
pub(crate) fn runtime_killed(cluster: &Cluster) -> anyhow::Result<()> {
    deploy(cluster)?;
    let before = tasks(cluster)?;
    let kubelet = cluster.pid("kubelet")?;
    cluster.kill("containerd")?;
    node_ready(cluster, "False")?;
    let message = cluster.get(&["node", NODE], r#"{.status.conditions[?(@.type=="Ready")].message}"#)?;
    ensure!(message.contains("runtime"), "{message}");
    cluster.up()?;
    node_ready(cluster, "True")?;
    ensure!(cluster.pid("kubelet")? == kubelet, "the kubelet was restarted");
    ensure!(tasks(cluster)? == before, "{before:?}\nthen {:?}", tasks(cluster)?);
    ensure!(restart_counts(cluster)? == "0 0 0", "{}", restart_counts(cluster)?);
    cluster.kubectl(&["scale", "deployment/crash", "--replicas=4"])?;
    addresses(cluster, "app=crash", 4)?;
    delete(cluster, "crash", "app=crash")
}

/// `hack/down` ends pods but not what the API server knows of them: after `hack/up` they run again.
pub(crate) fn down_and_up(cluster: &Cluster) -> anyhow::Result<()> {
    deploy(cluster)?;
    succeed(cluster.hack("down"), None)?;
    ensure!(
        cluster.kubectl(&["get", "nodes"]).is_err(),
        "the API server answers after hack/down"
    );
    cluster.up()?;
    node_ready(cluster, "True")?;
    for address in addresses(cluster, "app=crash", 3)? {
        ensure!(
            cluster.page(&address)?.contains("Welcome to nginx"),
            "{address} gives no page"
        );
    }
    delete(cluster, "crash", "app=crash")
}

/// Every daemon at once, with pods running: nobody is left to clean up but `hack/down`.
pub(crate) fn everything_killed(cluster: &Cluster) -> anyhow::Result<()> {
    deploy(cluster)?;
    for component in ["kubelet", "controlplane", "containerd"] {
        cluster.kill(component)?;
    }
    Ok(())
}
