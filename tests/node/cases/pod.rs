//! What a single pod gets from its node.

use std::fs;

use anyhow::{Context, ensure};

use crate::cluster::Cluster;
use crate::wait;

/// Creates a pod and waits until it runs with all containers ready.
pub(crate) fn run_and_wait(cluster: &Cluster, name: &str, manifest: &str) -> anyhow::Result<()> {
    cluster.apply(manifest)?;
    cluster
        .kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", &format!("pod/{name}")])
        .map(drop)
}

/// Deletes a pod and waits until it is gone.
pub(crate) fn delete(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    cluster.kubectl(&["delete", "pod", name, "--timeout=60s"]).map(drop)
}

/// A pod's phase, once it is the wanted one.
fn phase(cluster: &Cluster, name: &str, wanted: &str) -> anyhow::Result<()> {
    wait::until(60, "the pod's phase", || {
        let phase = cluster.get(&["pod", name], "{.status.phase}")?;
        ensure!(phase == wanted, "{name} is {phase}, not {wanted}");
        Ok(())
    })
}

/// Init containers in order, and every kind of volume of this path.
pub(crate) fn volumes(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, file.txt: "from the map\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {word: "open sesame"}
"#,
    )?;
    run_and_wait(
        cluster,
        "volumes",
        r#"
apiVersion: v1
kind: Pod
metadata: {name: volumes, labels: {side: left}}
spec:
  terminationGracePeriodSeconds: 0
  volumes:
  - {name: shared, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: map, configMap: {name: settings}}
  - {name: secret, secret: {secretName: password, defaultMode: 0400}}
  - {name: about, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - {name: host, hostPath: {path: /etc, type: Directory}}
  initContainers:
  - {name: one, image: busybox, imagePullPolicy: IfNotPresent, command: [sh, -c, 'echo one >> /shared/order'], volumeMounts: [{name: shared, mountPath: /shared}]}
  - {name: two, image: busybox, imagePullPolicy: IfNotPresent, command: [sh, -c, 'echo two >> /shared/order'], volumeMounts: [{name: shared, mountPath: /shared}]}
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "100000"]
    env:
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}
    - {name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: BOTH, value: "$(COLOUR) $(NOBODY)"}
    volumeMounts:
    - {name: shared, mountPath: /shared}
    - {name: memory, mountPath: /memory}
    - {name: map, mountPath: /map}
    - {name: secret, mountPath: /secret}
    - {name: about, mountPath: /about}
    - {name: host, mountPath: /host, readOnly: true}
"#,
    )?;
    let address = cluster.get(&["pod", "volumes"], "{.status.podIP}")?;
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    for (command, expected) in [
        ("cat /shared/order", "one\ntwo\n"),
        ("cat /map/file.txt", "from the map\n"),
        ("cat /secret/word", "open sesame"),
        ("stat -L -c %a /secret/word", "400\n"),
        ("cat /about/labels", "side=\"left\""),
        ("grep -c ' /memory tmpfs ' /proc/mounts", "1\n"),
        ("test -s /host/hostname && echo host", "host\n"),
        ("touch /host/x 2>/dev/null || echo read-only", "read-only\n"),
        ("echo \"$COLOUR|$WORD|$BOTH\"", "blue|open sesame|blue $(NOBODY)\n"),
        ("echo $ADDRESS", &format!("{address}\n")),
        (&format!("ls {token} | tr '\\n' ' '"), "ca.crt namespace token "),
        (&format!("cut -c1-2 {token}/token"), "ey\n"),
        (&format!("cat {token}/namespace"), "default"),
        ("hostname -i", &format!("{address}\n")),
    ] {
        let got = cluster.kubectl(&["exec", "volumes", "--", "sh", "-c", command])?;
        ensure!(got == expected, "{command}: {got:?}, not {expected:?}");
    }
    delete(cluster, "volumes")?;
    cluster
        .kubectl(&["delete", "configmap/settings", "secret/password"])
        .map(drop)
}

/// A change of a ConfigMap reaches the mounted file of a running pod.
pub(crate) fn configmap_change(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.kubectl(&["create", "configmap", "changing", "--from-literal=key=before"])?;
    run_and_wait(
        cluster,
        "reader",
        r#"
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: map, configMap: {name: changing}}]
  containers:
  - {name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"], volumeMounts: [{name: map, mountPath: /map}]}
"#,
    )?;
    cluster.kubectl(&[
        "patch",
        "configmap",
        "changing",
        "--type=merge",
        "-p",
        r#"{"data":{"key":"after"}}"#,
    ])?;
    wait::until(100, "the file changes", || {
        let text = cluster.kubectl(&["exec", "reader", "--", "cat", "/map/key"])?;
        ensure!(text == "after", "{text}");
        Ok(())
    })?;
    delete(cluster, "reader")?;
    cluster.kubectl(&["delete", "configmap", "changing"]).map(drop)
}

/// Succeeded, Failed, and a container that is restarted with back-off.
pub(crate) fn phases_and_restarts(cluster: &Cluster) -> anyhow::Result<()> {
    let pod = |name: &str, policy: &str, command: &str| {
        format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sh, -c, '{command}']}}
"#
        )
    };
    cluster.apply(&pod("done", "Never", "echo finished"))?;
    cluster.apply(&pod("broken", "Never", "echo why > /dev/termination-log; exit 3"))?;
    cluster.apply(&pod("again", "Always", "exit 1"))?;
    cluster.apply(&pod("retried", "OnFailure", "exit 1"))?;
    phase(cluster, "done", "Succeeded")?;
    phase(cluster, "broken", "Failed")?;
    let ended = "{.status.containerStatuses[0].state.terminated.exitCode} {.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.message}";
    let broken = cluster.get(&["pod", "broken"], ended)?;
    ensure!(broken.trim() == "3 Error why", "{broken}");
    let done = cluster.get(&["pod", "done"], ended)?;
    ensure!(done.trim() == "0 Completed", "{done}");
    ensure!(
        cluster.kubectl(&["logs", "done"])? == "finished\n",
        "the log of a finished pod"
    );
    for name in ["again", "retried"] {
        wait::until(60, "CrashLoopBackOff after restarts", || {
            let status = cluster.get(
                &["pod", name],
                "{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].state.waiting.reason}",
            )?;
            let (count, reason) = status.split_once(' ').context("no status yet")?;
            ensure!(
                count.parse::<u32>()? >= 1 && reason == "CrashLoopBackOff",
                "{name}: {status}"
            );
            Ok(())
        })?;
    }
    for name in ["done", "broken", "again", "retried"] {
        delete(cluster, name)?;
    }
    Ok(())
}

/// Readiness takes a pod out and in again; liveness restarts a container.
pub(crate) fn probes(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: ready
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "100000"]
    readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1}
  - name: live
    image: nginx
    imagePullPolicy: IfNotPresent
    livenessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1, failureThreshold: 2, timeoutSeconds: 10}
    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1, failureThreshold: 30}
"#,
    )?;
    let ready = |wanted: &str| {
        wait::until(60, "the Ready condition", || {
            let status = cluster.get(&["pod", "probed"], r#"{.status.conditions[?(@.type=="Ready")].status}"#)?;
            ensure!(status == wanted, "Ready is {status:?}, not {wanted}");
            Ok(())
        })
    };
    let restarts = || {
        cluster.get(
            &["pod", "probed"],
            r#"{.status.containerStatuses[?(@.name=="live")].restartCount}"#,
        )
    };
    phase(cluster, "probed", "Running")?;
    ready("False")?;
    cluster.kubectl(&["exec", "probed", "-c", "ready", "--", "touch", "/tmp/ready"])?;
    ready("True")?;
    cluster.kubectl(&["exec", "probed", "-c", "ready", "--", "rm", "/tmp/ready"])?;
    ready("False")?;
    ensure!(restarts()? == "0", "restarted although it answered");
    cluster.kubectl(&[
        "exec",
        "probed",
        "-c",
        "live",
        "--",
        "rm",
        "/usr/share/nginx/html/index.html",
    ])?;
    wait::until(60, "liveness restarts the container", || {
        let count = restarts()?;
        ensure!(count == "1", "restartCount {count}");
        Ok(())
    })?;
    wait::until(60, "the event that says why", || {
        let events = cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=probed"])?;
        ensure!(
            events.contains("Unhealthy")
                && events.contains("Liveness probe failed: HTTP probe failed with statuscode: "),
            "{events}"
        );
        Ok(())
    })?;
    delete(cluster, "probed")
}

/// preStop, then the stop signal, and what a container does within its grace period is done: here, a file on the host. The
/// container counts as running only once its postStart hook has ended.
pub(crate) fn graceful_end(cluster: &Cluster) -> anyhow::Result<()> {
    let directory = cluster.path("graceful");
    fs::create_dir_all(&directory)?;
    run_and_wait(
        cluster,
        "graceful",
        &format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: graceful}}
spec:
  terminationGracePeriodSeconds: 20
  volumes: [{{name: host, hostPath: {{path: {}}}}}]
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'trap "echo term >> /host/order; exit 0" TERM; while :; do sleep 0.1; done']
    lifecycle:
      postStart: {{exec: {{command: [sh, -c, "sleep 1; echo started >> /host/order"]}}}}
      preStop: {{exec: {{command: [sh, -c, "echo hook >> /host/order; sleep 1; echo hooked >> /host/order"]}}}}
    volumeMounts: [{{name: host, mountPath: /host}}]
"#,
            directory.display()
        ),
    )?;
    let order = || fs::read_to_string(directory.join("order"));
    ensure!(order()? == "started\n", "ready before its hook: {:?}", order()?);
    delete(cluster, "graceful")?;
    ensure!(order()? == "started\nhook\nhooked\nterm\n", "{:?}", order()?);
    Ok(())
}

/// Each quality-of-service class has its cgroup, and limits reach the kernel.
pub(crate) fn qos_cgroups(cluster: &Cluster) -> anyhow::Result<()> {
    let pod = |name: &str, resources: &str| {
        format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"], resources: {resources}}}
"#
        )
    };
    for (name, class, resources, parent) in [
        (
            "guaranteed",
            "Guaranteed",
            "{limits: {cpu: 100m, memory: 64Mi}}",
            "kubepods",
        ),
        (
            "burstable",
            "Burstable",
            "{requests: {cpu: 50m}, limits: {memory: 32Mi}}",
            "kubepods/burstable",
        ),
        ("besteffort", "BestEffort", "{}", "kubepods/besteffort"),
    ] {
        run_and_wait(cluster, name, &pod(name, resources))?;
        let text = cluster.get(&["pod", name], "{.metadata.uid} {.status.qosClass}")?;
        let (uid, got) = text.split_once(' ').context("no quality-of-service class")?;
        ensure!(got == class, "{name} is {got}, not {class}");
        let inside = format!("{}/{parent}/pod{uid}", cluster.cgroup());
        let memory = memory_limit(&inside)?;
        let expected = match name {
            "guaranteed" => Some(64 << 20),
            "burstable" => Some(32 << 20),
            _ => None,
        };
        ensure!(memory == expected, "{inside}: limit {memory:?}, not {expected:?}");
    }
    for name in ["guaranteed", "burstable", "besteffort"] {
        delete(cluster, name)?;
    }
    Ok(())
}

/// The memory limit of a cgroup, version 1 or 2; `None` is no limit.
pub(crate) fn memory_limit(cgroup: &str) -> anyhow::Result<Option<u64>> {
    let candidates = [
        format!("/sys/fs/cgroup/memory{cgroup}/memory.limit_in_bytes"),
        format!("/sys/fs/cgroup{cgroup}/memory.max"),
    ];
    let path = candidates
        .iter()
        .find(|path| fs::exists(path).unwrap_or(false))
        .with_context(|| format!("no cgroup {cgroup}"))?;
    let text = fs::read_to_string(path)?;
    // Version 1 writes "no limit" as the largest page-aligned number.
    Ok(text.trim().parse::<u64>().ok().filter(|limit| *limit < 1 << 62))
}
