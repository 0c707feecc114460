//! Node autonomy: the machine is rebooted while there is no control plane, and its pods start again from what the kubelet kept.

use std::fs;

use anyhow::{Context, ensure};

use crate::cluster::Cluster;
use crate::command::Background;
use crate::{leftovers, wait};

const POD: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: kept}
stringData: {word: sesame}
---
apiVersion: v1
kind: Pod
metadata: {name: kept}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: nginx:1.22
    imagePullPolicy: IfNotPresent
    env: [{name: WORD, valueFrom: {secretKeyRef: {name: kept, key: word}}}]
    volumeMounts: [{name: word, mountPath: /word}]
  volumes: [{name: word, secret: {secretName: kept}}]
"#;

/// A kubelet as `hack/up` starts it, which keeps its pods.
fn keeping(cluster: &Cluster) -> anyhow::Result<Background> {
    let mut command = cluster.kubelet();
    command.arg("--node-autonomy");
    Background::start(command)
}

/// How many files of a kind are kept.
fn kept(cluster: &Cluster, prefix: &str) -> usize {
    let entries = fs::read_dir(cluster.path("kubelet/root/node-autonomy"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with(prefix)).count()
}

/// The ids of the tasks that run.
fn running(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let text = cluster.ctr(&["tasks", "list"])?;
    let running = text.lines().skip(1).filter(|line| line.ends_with("RUNNING"));
    let mut running: Vec<String> = running
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    // The runtime lists them in no order.
    running.sort();
    Ok(running)
}

/// Everything that runs ends at once, as when the machine is switched off; the runtime remembers it.
fn end_all(cluster: &Cluster) -> anyhow::Result<()> {
    wait::until(60, "no task runs", || {
        let left = running(cluster)?;
        for task in &left {
            cluster.ctr(&["tasks", "kill", "--signal", "SIGKILL", "--all", task])?;
        }
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}

pub(crate) fn rebooted_alone(cluster: &Cluster) -> anyhow::Result<()> {
    leftovers::of_pods(cluster)?;
    cluster.kill("kubelet")?;
    let kubelet = keeping(cluster)?;
    let outcome = alone(cluster, kubelet);
    // Whatever came of it, the cluster is to be as it was.
    cluster.up()?;
    outcome?;
    cluster.kubectl(&["delete", "--ignore-not-found", "pod/kept", "secret/kept"])?;
    leftovers::of_pods(cluster)?;
    // A kubelet without the flag leaves nothing of it behind.
    wait::until(60, "what was kept is gone", || {
        for name in ["node-autonomy", "node-autonomy.key"] {
            ensure!(!cluster.path("kubelet/root").join(name).exists(), "{name}");
        }
        Ok(())
    })
}

fn alone(cluster: &Cluster, kubelet: Background) -> anyhow::Result<()> {
    cluster.apply(POD)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "pod/kept"])?;
    wait::until(60, "pod, secrets, token and services are kept", || {
        let kept = ["pod-", "object-", "token-", "services-"].map(|prefix| kept(cluster, prefix));
        ensure!(kept[0] == 1 && kept[1] >= 1 && kept[2] == 1 && kept[3] >= 1, "{kept:?}");
        Ok(())
    })?;
    drop(kubelet);
    cluster.kill("controlplane")?;
    end_all(cluster)?;
    let kubelet = keeping(cluster)?;
    let again = wait::until(120, "sandbox and container run again", || {
        let now = running(cluster)?;
        ensure!(now.len() == 2, "{now:?}");
        Ok(now)
    });
    let again = again.map_err(|error| error.context(kubelet.output().unwrap_or_default()))?;
    let said = again.iter().filter_map(|task| {
        let read = [
            "tasks",
            "exec",
            "--exec-id",
            "word",
            task,
            "sh",
            "-c",
            "echo $WORD; cat /word/word",
        ];
        cluster.ctr(&read).ok()
    });
    let said: Vec<String> = said.collect();
    ensure!(said.iter().any(|text| text.trim() == "sesame\nsesame"), "{said:?}");
    drop(kubelet);
    cluster.up()?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "pod/kept"])?;
    let after = running(cluster)?;
    ensure!(after == again, "{again:?}, and with the control plane {after:?}");
    // It was Ready before, too, so its status may be of then.
    wait::until(60, "its restart is told", || {
        let told = cluster.get(
            &["pod", "kept"],
            "{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].lastState.terminated.exitCode}",
        )?;
        let (restarts, ended) = told.split_once(' ').with_context(|| told.clone())?;
        ensure!(restarts == "1", "{restarts} restarts");
        ended.parse::<i32>().context("how it ended before").map(drop)
    })?;
    let after = running(cluster)?;
    ensure!(after == again, "{again:?}, and once that was told {after:?}");
    Ok(())
}
