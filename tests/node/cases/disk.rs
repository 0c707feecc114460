//! What a node does before its disk is full: logs are rotated under their readers, unused images go.

use std::fs;

use anyhow::{Context, ensure};

use super::pod::{delete, run_and_wait};
use crate::cluster::{Cluster, NODE};
use crate::command::Background;
use crate::wait;

/// A pod that writes numbered lines until it is told to end: some 20 KiB of its log a second.
const CHATTY: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: chatty}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  volumes: [{name: d, emptyDir: {}}]
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    volumeMounts: [{name: d, mountPath: /d}]
    command:
    - sh
    - -c
    - |
      i=0
      while [ ! -e /d/end ]; do
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
          echo "tick $i and so on, for a line of some length"
          i=$((i+1))
        done
        sleep 0.1
      done
      echo last
"#;

/// The cluster's kubelet with further flags, in place of the one that runs.
fn kubelet(cluster: &Cluster, flags: &[&str]) -> anyhow::Result<Background> {
    cluster.kill("kubelet")?;
    let mut command = cluster.kubelet();
    command.args(flags);
    Background::start(command)
}

/// Puts the cluster's own kubelet back, and tells what the other one said if something went wrong.
fn finish(cluster: &Cluster, kubelet: Background, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    let outcome = outcome.map_err(|error| {
        let log = kubelet.output().unwrap_or_default();
        error.context(format!("the kubelet says\n{log}"))
    });
    drop(kubelet);
    cluster.up()?;
    outcome
}

/// Small logs and few of them: whoever follows sees each line once, and no more files stay than may.
pub(crate) fn log_rotation(cluster: &Cluster) -> anyhow::Result<()> {
    let flags = ["--container-log-max-size=64Ki", "--container-log-max-files=3"];
    let kubelet = kubelet(cluster, &flags)?;
    let outcome = rotated(cluster);
    finish(cluster, kubelet, outcome)
}

/// The files of the pod's log, by name.
fn files(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let uid = cluster.get(&["pod", "chatty"], "{.metadata.uid}")?;
    let directory = cluster.path(&format!("kubelet/pod-logs/default_chatty_{uid}/c"));
    let entries = fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))?;
    let mut names: Vec<String> = entries
        .map(|entry| anyhow::Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, _>>()?;
    names.sort();
    Ok(names)
}

fn rotated(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(cluster, "chatty", CHATTY)?;
    let mut follow = Background::start(cluster.kubectl_command(&["logs", "-f", "chatty"]))?;
    let mut seen = std::collections::BTreeSet::new();
    wait::until(120, "five rotations", || {
        let names = files(cluster)?;
        ensure!(names.len() <= 4, "too many files: {names:?}");
        seen.extend(names.into_iter().map(|name| name.trim_end_matches(".gz").to_owned()));
        ensure!(seen.len() >= 6, "{seen:?}");
        Ok(())
    })?;
    cluster.kubectl(&["exec", "chatty", "--", "touch", "/d/end"])?;
    wait::until(60, "the end of the container ends the following", || {
        ensure!(follow.ended()?, "kubectl logs -f still runs");
        Ok(())
    })?;
    let output = follow.output()?;
    let lines: Vec<&str> = output.lines().collect();
    ensure!(lines.last() == Some(&"last"), "it ends with {:?}", lines.last());
    for (number, line) in lines[..lines.len() - 1].iter().enumerate() {
        let expected = format!("tick {number} and so on, for a line of some length");
        ensure!(*line == expected, "line {number} of {} is {line:?}", lines.len());
    }
    wait::until(60, "three files, one of them compressed", || {
        let names = files(cluster)?;
        let compressed = names.iter().filter(|name| name.ends_with(".gz")).count();
        ensure!(names.len() <= 3 && compressed == 1, "{names:?}");
        Ok(())
    })?;
    // What is read at once is the log that is written to, as upstream's.
    let rest = cluster.kubectl(&["logs", "chatty", "--tail=1"])?;
    ensure!(rest == "last\n", "{rest}");
    delete(cluster, "chatty")
}

/// A disk that is always too full: an image nobody uses goes, one that is used stays, and it is told why that is not enough.
pub(crate) fn image_collection(cluster: &Cluster) -> anyhow::Result<()> {
    run_and_wait(
        cluster,
        "busy",
        r#"
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "100000"]}
"#,
    )?;
    let flags = [
        "--image-gc-high-threshold=2",
        "--image-gc-low-threshold=1",
        "--minimum-image-ttl-duration=1s",
    ];
    let kubelet = kubelet(cluster, &flags)?;
    let outcome = collected(cluster);
    finish(cluster, kubelet, outcome)?;
    delete(cluster, "busy")
}

fn has_image(cluster: &Cluster, name: &str) -> anyhow::Result<bool> {
    let images = cluster.ctr(&["images", "list", "-q"])?;
    Ok(images.lines().any(|line| line.contains(name)))
}

fn collected(cluster: &Cluster) -> anyhow::Result<()> {
    ensure!(has_image(cluster, "/nginx:")?, "nothing to collect");
    wait::until(150, "the image nobody uses is gone", || {
        ensure!(!has_image(cluster, "/nginx:")?, "it is there");
        Ok(())
    })?;
    ensure!(has_image(cluster, "/busybox:")?, "an image in use went");
    ensure!(has_image(cluster, "/pause:")?, "the image of sandboxes went");
    wait::until(60, "why not more went", || {
        let events = cluster.get(
            &["events", "--field-selector=reason=FreeDiskSpaceFailed"],
            "{.items[*].message}",
        )?;
        let told = events.contains("Insufficient free disk space on the node's image filesystem")
            && events.contains(" in use, ");
        ensure!(told, "{events}");
        Ok(())
    })?;
    let page = cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/metrics")])?;
    let counted = page
        .lines()
        .any(|line| line.starts_with("kubelet_image_garbage_collected_total{reason=\"space\"} "));
    ensure!(counted, "the metric is not there");
    // It comes back when somebody wants it.
    run_and_wait(
        cluster,
        "again",
        r#"
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: nginx, imagePullPolicy: IfNotPresent}]
"#,
    )?;
    delete(cluster, "again")
}
