//! StatefulSets, DaemonSets, ReplicationControllers and disruption budgets, as a person drives them.

use anyhow::ensure;

use crate::cluster::{Cluster, NODE};
use crate::wait;

const STATEFUL: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: nginx
        image: nginx:latest
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}
"#;

const DAEMON: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: nginx, image: "nginx:latest"}]
"#;

const GUARDED: &str = r#"
apiVersion: v1
kind: ReplicationController
metadata: {name: guarded}
spec:
  replicas: 2
  selector: {app: guarded}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: nginx, image: "nginx:latest"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guard}
spec: {minAvailable: 2, selector: {matchLabels: {app: guarded}}}
"#;

fn images(cluster: &Cluster, app: &str) -> anyhow::Result<Vec<String>> {
    let label = format!("app={app}");
    let path = "{range .items[*]}{.metadata.name} {.spec.containers[0].image}{\"\\n\"}{end}";
    let text = cluster.get(&["pods", "-l", &label], path)?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn gone(cluster: &Cluster, app: &str) -> anyhow::Result<()> {
    wait::until(60, "the pods are gone", || {
        let left = images(cluster, app)?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}

/// Three in order, one of them updated, then all, then one alone.
pub(crate) fn stateful_set(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(STATEFUL)?;
    cluster.kubectl(&["rollout", "status", "statefulset/db", "--timeout=90s"])?;
    let created = "{range .items[*]}{.metadata.name} {.spec.hostname} {.metadata.labels.apps\\.kubernetes\\.io/pod-index}{\"\\n\"}{end}";
    let order = ["pods", "-l", "app=db", "--sort-by=.metadata.creationTimestamp"];
    let pods = cluster.get(&order, created)?;
    ensure!(pods == "db-0 db-0 0\ndb-1 db-1 1\ndb-2 db-2 2\n", "{pods}");
    let partition = |n: u8| format!(r#"{{"spec":{{"updateStrategy":{{"rollingUpdate":{{"partition":{n}}}}}}}}}"#);
    cluster.kubectl(&["patch", "statefulset", "db", "-p", &partition(2)])?;
    cluster.kubectl(&["set", "image", "statefulset/db", "nginx=nginx:1.22-alt"])?;
    cluster.kubectl(&["rollout", "status", "statefulset/db", "--timeout=90s"])?;
    let parted = images(cluster, "db")?;
    ensure!(
        parted == ["db-0 nginx:latest", "db-1 nginx:latest", "db-2 nginx:1.22-alt"],
        "{parted:?}"
    );
    cluster.kubectl(&["patch", "statefulset", "db", "-p", &partition(0)])?;
    cluster.kubectl(&["rollout", "status", "statefulset/db", "--timeout=90s"])?;
    let all = images(cluster, "db")?;
    ensure!(
        all.iter().all(|pod| pod.ends_with("1.22-alt")) && all.len() == 3,
        "{all:?}"
    );
    cluster.kubectl(&["rollout", "undo", "statefulset/db"])?;
    cluster.kubectl(&["rollout", "status", "statefulset/db", "--timeout=90s"])?;
    let back = images(cluster, "db")?;
    ensure!(back.iter().all(|pod| pod.ends_with("latest")), "{back:?}");
    cluster.kubectl(&["scale", "statefulset/db", "--replicas=1"])?;
    wait::until(60, "one is left", || {
        let left = images(cluster, "db")?;
        ensure!(left == ["db-0 nginx:latest"], "{left:?}");
        Ok(())
    })?;
    cluster.kubectl(&["delete", "statefulset", "db"])?;
    gone(cluster, "db")
}

/// One pod on the node; restarted, updated and taken back.
pub(crate) fn daemon_set(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(DAEMON)?;
    let status = ["rollout", "status", "daemonset/agent", "--timeout=90s"];
    cluster.kubectl(&status)?;
    let node = cluster.get(&["pods", "-l", "app=agent"], "{.items[*].spec.nodeName}")?;
    ensure!(node == NODE, "{node}");
    let first = images(cluster, "agent")?;
    cluster.kubectl(&["rollout", "restart", "daemonset/agent"])?;
    cluster.kubectl(&status)?;
    let second = images(cluster, "agent")?;
    ensure!(second.len() == 1 && second != first, "{first:?}, then {second:?}");
    cluster.kubectl(&["set", "image", "daemonset/agent", "nginx=nginx:1.22-alt"])?;
    cluster.kubectl(&status)?;
    let updated = images(cluster, "agent")?;
    ensure!(updated.len() == 1 && updated[0].ends_with("1.22-alt"), "{updated:?}");
    let history = cluster.kubectl(&["rollout", "history", "daemonset/agent"])?;
    ensure!(
        ["1 ", "2 ", "3 "]
            .iter()
            .all(|n| history.lines().any(|l| l.starts_with(n))),
        "{history}"
    );
    cluster.kubectl(&["rollout", "undo", "daemonset/agent", "--to-revision=1"])?;
    cluster.kubectl(&status)?;
    let back = images(cluster, "agent")?;
    ensure!(back.len() == 1 && back[0].ends_with("latest"), "{back:?}");
    cluster.kubectl(&["delete", "daemonset", "agent"])?;
    gone(cluster, "agent")
}

/// A replication controller whose pods a budget guards: `kubectl drain` waits until the budget lets one go.
pub(crate) fn budget(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(GUARDED)?;
    wait::until(60, "both are ready and guarded", || {
        let path = "{.status.currentHealthy} {.status.desiredHealthy} {.status.disruptionsAllowed}";
        let status = cluster.get(&["pdb", "guard"], path)?;
        ensure!(status == "2 2 0", "{status}");
        Ok(())
    })?;
    let drain = ["drain", NODE, "--pod-selector=app=guarded", "--timeout=8s", "--force"];
    let refused = cluster.kubectl_fails(&drain, None)?;
    ensure!(
        refused.contains("Cannot evict pod as it would violate the pod's disruption budget"),
        "{refused}"
    );
    cluster.kubectl(&["uncordon", NODE])?;
    cluster.kubectl(&["scale", "replicationcontroller/guarded", "--replicas=3"])?;
    wait::until(60, "one may go", || {
        let allowed = cluster.get(&["pdb", "guard"], "{.status.disruptionsAllowed}")?;
        ensure!(allowed == "1", "{allowed}");
        Ok(())
    })?;
    cluster.kubectl(&[
        "patch",
        "pdb",
        "guard",
        "--type=merge",
        "-p",
        r#"{"spec":{"minAvailable":0}}"#,
    ])?;
    wait::until(60, "all may go", || {
        let allowed = cluster.get(&["pdb", "guard"], "{.status.disruptionsAllowed}")?;
        ensure!(allowed == "3", "{allowed}");
        Ok(())
    })?;
    let before = images(cluster, "guarded")?;
    cluster.kubectl(&["drain", NODE, "--pod-selector=app=guarded", "--timeout=60s", "--force"])?;
    cluster.kubectl(&["uncordon", NODE])?;
    wait::until(60, "others are there instead", || {
        let after = images(cluster, "guarded")?;
        ensure!(
            after.len() == 3 && !after.iter().any(|pod| before.contains(pod)),
            "{before:?}, {after:?}"
        );
        Ok(())
    })?;
    cluster.kubectl(&["delete", "pdb/guard", "replicationcontroller/guarded"])?;
    gone(cluster, "guarded")
}
