//! What pods ask of the runtime by name: a class's handler and overhead, users of their own, variables of files.

use anyhow::{Context, ensure};

use crate::cases::pod::{delete, memory_limit, run_and_wait};
use crate::cluster::Cluster;
use crate::wait;

/// A class that is there runs its pods with its overhead; one that is not is forbidden.
pub(crate) fn runtime_class(cluster: &Cluster) -> anyhow::Result<()> {
    let pod = |class: &str| {
        format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: classed}}
spec:
  terminationGracePeriodSeconds: 0
  runtimeClassName: {class}
  containers:
  - {{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"], resources: {{limits: {{cpu: 100m, memory: 64Mi}}}}}}
"#
        )
    };
    let refused = cluster.kubectl_fails(&["apply", "-f", "-"], Some(pod("absent").as_bytes()))?;
    ensure!(
        refused.contains("pod rejected: RuntimeClass \"absent\" not found"),
        "{refused}"
    );
    cluster.apply(
        r#"
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: plain}
handler: runc
overhead: {podFixed: {memory: 32Mi}}
"#,
    )?;
    run_and_wait(cluster, "classed", &pod("plain"))?;
    let uid = cluster.get(&["pod", "classed"], "{.metadata.uid}")?;
    let memory = memory_limit(&format!("{}/kubepods/pod{uid}", cluster.cgroup()))?;
    ensure!(memory == Some(96 << 20), "{memory:?}");
    delete(cluster, "classed")?;
    cluster.kubectl(&["delete", "runtimeclass", "plain"]).map(drop)
}

/// This containerd gives no pod users of its own, and the pod does not get the node's instead.
pub(crate) fn own_users(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: apart}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"]}]
"#,
    )?;
    let handlers = cluster.get(&["nodes"], "{.items[0].status.runtimeHandlers}")?;
    if handlers.contains("\"userNamespaces\":true") {
        return delete(cluster, "apart");
    }
    wait::until(60, "the refusal is told", || {
        let events = cluster.get(&["events"], "{.items[*].message}")?;
        let told =
            "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        ensure!(events.contains(told), "{events}");
        Ok(())
    })?;
    let phase = cluster.get(&["pod", "apart"], "{.status.phase}")?;
    ensure!(phase == "Pending", "{phase}");
    delete(cluster, "apart")
}

/// An init container writes a file, and another container has its variables, without mounting it.
pub(crate) fn env_file(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(
        cluster,
        "filed",
        r##"
apiVersion: v1
kind: Pod
metadata: {name: filed}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, emptyDir: {}}]
  initContainers:
  - name: write
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "mkdir /v/d && printf \"# made here\\nWORD='open sesame'\\n\" > /v/d/env"]
    volumeMounts: [{name: v, mountPath: /v}]
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "100000"]
    env:
    - {name: TOLD, valueFrom: {fileKeyRef: {volumeName: v, path: d/env, key: WORD}}}
    - {name: ABSENT, valueFrom: {fileKeyRef: {volumeName: v, path: d/env, key: NONE, optional: true}}}
"##,
    )?;
    let told = cluster.kubectl(&["exec", "filed", "--", "sh", "-c", "echo $TOLD ${ABSENT-unset}"])?;
    ensure!(told.trim() == "open sesame unset", "{told}");
    delete(cluster, "filed").context("the pod goes")
}
