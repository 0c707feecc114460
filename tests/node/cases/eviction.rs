//! A node that runs short of memory: the pods' own share of it is made so small that one pod fills it.

use anyhow::{Context, ensure};
use std::fs;

use crate::cases::pod::{delete, run_and_wait};
use crate::cluster::{Cluster, NODE};
use crate::command::Background;
use crate::wait;

/// What all pods together may use, and what of it must be left, MiB.
const SHARE: u64 = 1024;
const LEFT: u64 = 512;

fn pod(name: &str, request: &str, command: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - name: c\n    \
         image: busybox\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, \"{command}\"]\n    \
         resources: {{requests: {{memory: {request}}}}}\n    volumeMounts: [{{name: mem, mountPath: /mem}}]\n  \
         volumes: [{{name: mem, emptyDir: {{medium: Memory}}}}]\n"
    )
}

/// A kubelet that keeps all memory but the share for the system.
fn small(cluster: &Cluster) -> anyhow::Result<Background> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = total
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .context("the machine's memory")?;
    cluster.kill("kubelet")?;
    let mut command = cluster.kubelet();
    command.arg(format!("--kube-reserved=memory={}Mi", kib / 1024 - SHARE));
    command.arg(format!("--eviction-hard=memory.available<{LEFT}Mi"));
    command.arg("--eviction-pressure-transition-period=5s");
    Background::start(command)
}

fn pressure(cluster: &Cluster) -> anyhow::Result<(String, String)> {
    let condition = cluster.get(
        &["node", NODE],
        r#"{.status.conditions[?(@.type=="MemoryPressure")].status}"#,
    )?;
    let taints = cluster.get(&["node", NODE], "{.spec.taints[*].key}")?;
    Ok((condition, taints))
}

/// The pod that fills the share goes, the node says why meanwhile, and recovers; who keeps to its request stays.
pub(crate) fn memory(cluster: &Cluster) -> anyhow::Result<()> {
    let kubelet = small(cluster)?;
    let result = full(cluster);
    drop(kubelet);
    cluster.up()?;
    result
}

fn full(cluster: &Cluster) -> anyhow::Result<()> {
    wait::until(60, "allocatable memory follows", || {
        let told = cluster.get(&["node", NODE], "{.status.allocatable.memory}")?;
        // What the machine has is no whole number of MiB.
        let kib: u64 = told.strip_suffix("Ki").context(told.clone())?.parse()?;
        ensure!(kib / 1024 == SHARE - LEFT, "{told}");
        Ok(())
    })?;
    run_and_wait(cluster, "calm", &pod("calm", "64Mi", "sleep 1000"))?;
    // Nobody looks whether it is ready: it may be over before.
    cluster.apply(&pod(
        "hog",
        "8Mi",
        "sleep 2; dd if=/dev/zero of=/mem/x bs=1M count=640; sleep 1000",
    ))?;
    wait::until(60, "the hog is evicted", || {
        let told = cluster.get(&["pod", "hog"], "{.status.phase} {.status.reason} {.status.message}")?;
        let begin =
            format!("Failed Evicted The node was low on resource: memory. Threshold quantity: {LEFT}Mi, available: ");
        ensure!(told.starts_with(&begin), "{told}");
        ensure!(
            told.contains("Container c was using ")
                && told.contains("request is 8Mi, has larger consumption of memory. "),
            "{told}"
        );
        Ok(())
    })?;
    wait::until(60, "the node was seen short", || {
        let told = cluster.kubectl(&[
            "get",
            "events",
            "-A",
            "-o",
            "custom-columns=R:.reason,M:.message",
            "--no-headers",
        ])?;
        for words in [
            "NodeHasInsufficientMemory",
            "EvictionThresholdMet",
            "Attempting to reclaim memory",
            "Evicted",
        ] {
            ensure!(told.contains(words), "no {words} in {told}");
        }
        Ok(())
    })?;
    wait::until(60, "the node recovered", || {
        let (condition, taints) = pressure(cluster)?;
        ensure!(
            condition == "False" && !taints.contains("memory-pressure"),
            "{condition} {taints}"
        );
        Ok(())
    })?;
    let calm = cluster.get(
        &["pod", "calm"],
        "{.status.phase} {.status.containerStatuses[0].restartCount}",
    )?;
    ensure!(calm == "Running 0", "{calm}");
    delete(cluster, "hog")?;
    delete(cluster, "calm")
}
