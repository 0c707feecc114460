//! Three control planes over three members of etcd: each of either is killed in turn, and kubectl, controllers and scheduler go on.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};

use crate::cluster::Cluster;
use crate::wait;

const PLANES: usize = 3;

/// Runs beside the cluster of the other cases, and leaves nothing, whatever comes of it.
pub(crate) fn three(other: &Cluster) -> anyhow::Result<()> {
    other.beside(&Cluster::prepare_planes(PLANES)?, check)
}

fn check(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.up()?;
    wait_listed(cluster, PLANES)?;
    cluster.kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=1"])?;
    wait_ready(cluster, 1)?;
    let stop = AtomicBool::new(false);
    let (killed, acknowledged) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(cluster, &stop));
        let killed = each_in_turn(cluster);
        stop.store(true, Ordering::SeqCst);
        (killed, writer.join())
    });
    killed?;
    let acknowledged = acknowledged.map_err(|_| anyhow::anyhow!("the writer panicked"))?;
    let there = cluster.get(&["configmaps", "-l", "written=during"], "{.items[*].metadata.name}")?;
    let there: Vec<&str> = there.split_whitespace().collect();
    let lost = acknowledged.iter().filter(|name| !there.contains(&name.as_str()));
    let lost: Vec<_> = lost.collect();
    ensure!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    // Each of six failures had writes around it.
    ensure!(
        acknowledged.len() > 2 * 2 * PLANES,
        "{} writes succeeded",
        acknowledged.len()
    );
    Ok(())
}

/// Every control plane and every member once, whoever leads; all are back before the next goes.
fn each_in_turn(cluster: &Cluster) -> anyhow::Result<()> {
    let mut replicas = 1;
    for number in 1..=PLANES {
        let plane = match number {
            1 => "controlplane".to_owned(),
            _ => format!("controlplane-{number}"),
        };
        for component in [plane, format!("etcd-{number}")] {
            cluster.kill(&component)?;
            replicas = 4 - replicas;
            let scaled = format!("--replicas={replicas}");
            let scale = ["scale", "deployment/web", &scaled, "--request-timeout=5s"];
            // Whoever is connected to it when it dies finds out.
            wait::until(30, "kubectl goes on", || cluster.kubectl(&scale))
                .and_then(|_| wait_ready(cluster, replicas))
                .with_context(|| format!("without {component}"))?;
            if component == "controlplane" {
                wait_listed(cluster, PLANES - 1)?;
            }
            cluster.up()?;
        }
    }
    wait_listed(cluster, PLANES)
}

/// Asks for one object after the other until told to stop; the names of those that were acknowledged.
fn write(cluster: &Cluster, stop: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("w{number}");
        let manifest = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{written: during}}}}\ndata: {{number: \"{number}\"}}\n"
        );
        // What fails may have been written or not; nobody was told.
        if cluster.apply(&manifest).is_ok() {
            acknowledged.push(name);
        }
    }
    acknowledged
}

/// Waits until the Deployment has so many ready pods, and none besides.
fn wait_ready(cluster: &Cluster, replicas: usize) -> anyhow::Result<()> {
    // A leader that is killed holds its lease for 15 s.
    wait::until(60, "the pods are ready", || {
        let path = "{.status.observedGeneration}/{.metadata.generation} {.status.replicas} {.status.readyReplicas}";
        let text = cluster.get(&["deployment", "web"], path)?;
        let (generations, counts) = text.split_once(' ').context("no status")?;
        let (seen, newest) = generations.split_once('/').context("no generations")?;
        ensure!(seen == newest && counts == format!("{replicas} {replicas}"), "{text}");
        Ok(())
    })
}

/// Waits until the Service `kubernetes` leads to so many API servers.
fn wait_listed(cluster: &Cluster, count: usize) -> anyhow::Result<()> {
    wait::until(60, "the Service kubernetes lists who lives", || {
        let slices = ["endpointslices", "-l", "kubernetes.io/service-name=kubernetes"];
        let text = cluster.get(&slices, "{.items[*].endpoints[*].addresses[0]}")?;
        ensure!(text.split_whitespace().count() == count, "{text}");
        Ok(())
    })
}
