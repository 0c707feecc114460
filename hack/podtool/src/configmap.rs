//! How long a change of a ConfigMap takes to a container that runs: from the request until the mounted file has the new value.
//!
//! The file is read on the host, in the volume's directory, which is what the container has mounted.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::connect;
use crate::figures::percentile;

/// What the ConfigMap and the pod are called.
const NAME: &str = "bench-configmap";
/// How long the pod may take to run, and a change to be seen.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// The pause between two changes, so that none is merged with the one before.
const PAUSE: Duration = Duration::from_millis(50);

/// What is measured, and where.
pub(crate) struct Plan<'a> {
    /// The node, whose files this program sees.
    pub(crate) node: String,
    /// The kubelet's `--root-dir`.
    pub(crate) root_dir: &'a Path,
    /// The pod's image.
    pub(crate) image: String,
    /// How many changes.
    pub(crate) changes: usize,
}

/// Changes a ConfigMap that a pod mounts, again and again, and prints how long it took to be seen.
///
/// # Errors
/// The first request that fails, or a change that is not seen in time.
pub(crate) async fn measure(kubeconfig: &Path, plan: Plan<'_>) -> anyhow::Result<()> {
    let client = connect::client(kubeconfig).await?;
    let (maps, pods) = (
        Api::<ConfigMap>::default_namespaced(client.clone()),
        Api::<Pod>::default_namespaced(client),
    );
    let measured = changes(&maps, &pods, &plan).await;
    let now = DeleteParams::default().grace_period(0);
    let removed = [
        pods.delete(NAME, &now).await.map(drop),
        maps.delete(NAME, &now).await.map(drop),
    ];
    let times = measured?;
    for removed in removed {
        removed.context("removing what was measured with")?;
    }
    let [median, p95, p99, most] =
        [50.0, 95.0, 99.0, 100.0].map(|percent| percentile(&times, percent).as_secs_f64() * 1e3);
    println!(
        "{} changes of a ConfigMap, request to file, ms: median {median:.1}  p95 {p95:.1}  p99 {p99:.1}  most {most:.1}",
        times.len()
    );
    Ok(())
}

async fn changes(maps: &Api<ConfigMap>, pods: &Api<Pod>, plan: &Plan<'_>) -> anyhow::Result<Vec<Duration>> {
    let map = serde_json::from_value(json!({"metadata": {"name": NAME}, "data": {"value": "0"}}))?;
    maps.create(&PostParams::default(), &map)
        .await
        .context("creating the ConfigMap")?;
    let pod = serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {
            "nodeName": plan.node,
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "map", "configMap": {"name": NAME}}],
            "containers": [{"name": "c", "image": plan.image, "imagePullPolicy": "IfNotPresent",
                "volumeMounts": [{"name": "map", "mountPath": "/map"}]}],
        },
    }))?;
    let pod = pods
        .create(&PostParams::default(), &pod)
        .await
        .context("creating the pod")?;
    let uid = pod.metadata.uid.context("a pod without a UID")?;
    until_running(pods).await?;
    let file = plan
        .root_dir
        .join(format!("pods/{uid}/volumes/kubernetes.io~configmap/map/value"));
    until(&file, "0").await?;
    let mut times = Vec::with_capacity(plan.changes);
    for number in 1..=plan.changes {
        tokio::time::sleep(PAUSE).await;
        let value = number.to_string();
        let patch = Patch::Merge(json!({"data": {"value": value}}));
        let begin = Instant::now();
        maps.patch(NAME, &PatchParams::default(), &patch)
            .await
            .context("changing the ConfigMap")?;
        until(&file, &value).await?;
        times.push(begin.elapsed());
    }
    Ok(times)
}

async fn until_running(pods: &Api<Pod>) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        let status = pods.get(NAME).await.context("reading the pod")?.status;
        if status.and_then(|status| status.phase).as_deref() == Some("Running") {
            return Ok(());
        }
        if begin.elapsed() > DEADLINE {
            bail!("the pod does not run after {DEADLINE:?}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn until(file: &PathBuf, value: &str) -> anyhow::Result<()> {
    let begin = Instant::now();
    while std::fs::read_to_string(file).ok().as_deref() != Some(value) {
        if begin.elapsed() > DEADLINE {
            bail!("{} is not {value:?} after {DEADLINE:?}", file.display());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
