//! Pods through the API server, timed as a client sees them: create until Ready, delete until gone, from the arrival of
//! watch events.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::future::try_join_all;
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::connect;
use crate::figures::{Burst, Run};
use crate::processes::{self, Group};

/// How long all pods of one run may take to become Ready, or to be gone.
const RUN_DEADLINE: Duration = Duration::from_secs(180);
/// What the names of measured pods begin with.
pub(crate) const PREFIX: &str = "bench-";
/// The label by which this program knows its pods.
const LABEL: &str = "podtool";

/// An API server, and the node and image of the pods.
pub(crate) struct Cluster {
    pods: Api<Pod>,
    node: String,
    image: String,
}

/// A watch on this program's pods.
struct Watch {
    events: BoxStream<'static, kube::Result<WatchEvent<Pod>>>,
    ready: BTreeMap<String, Instant>,
    gone: BTreeMap<String, Instant>,
}

impl Cluster {
    /// A client by a kubeconfig file.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub(crate) async fn connect(kubeconfig: &Path, node: String, image: String) -> anyhow::Result<Self> {
        Ok(Self {
            pods: Api::default_namespaced(connect::client(kubeconfig).await?),
            node,
            image,
        })
    }

    /// Starts and stops the pods of one run.
    ///
    /// # Errors
    /// The first request that fails, or the pods that did not come or go in time.
    pub(crate) async fn run(&self, burst: Burst, groups: &[Group]) -> anyhow::Result<Run> {
        let mut watch = self.watch().await?;
        let names: Vec<_> = (0..burst.pods).map(|number| format!("{PREFIX}{number}")).collect();
        let (begin, cpu) = (Instant::now(), processes::cpu(groups)?);
        let mut created = BTreeMap::new();
        if burst.at_once {
            created.extend(names.iter().map(|name| (name.clone(), Instant::now())));
            // The watch is read while the requests are under way.
            let requests = try_join_all(names.iter().map(|name| self.create(name)));
            tokio::try_join!(requests, watch.until("Ready", |watch| watch.ready.len() == names.len()))?;
        } else {
            for name in &names {
                created.insert(name.clone(), Instant::now());
                self.create(name).await?;
                watch.until("Ready", |watch| watch.ready.contains_key(name)).await?;
            }
        }
        let (all_started, start_cpu) = (begin.elapsed(), processes::cpu_since(groups, &cpu)?);
        let (begin, cpu) = (Instant::now(), processes::cpu(groups)?);
        let mut deleted = BTreeMap::new();
        if burst.at_once {
            deleted.extend(names.iter().map(|name| (name.clone(), Instant::now())));
            let requests = try_join_all(names.iter().map(|name| self.delete(name)));
            tokio::try_join!(requests, watch.until("gone", |watch| watch.gone.len() == names.len()))?;
        } else {
            for name in &names {
                deleted.insert(name.clone(), Instant::now());
                self.delete(name).await?;
                watch.until("gone", |watch| watch.gone.contains_key(name)).await?;
            }
        }
        let (all_stopped, stop_cpu) = (begin.elapsed(), processes::cpu_since(groups, &cpu)?);
        Ok(Run {
            start: spans(&created, &watch.ready),
            stop: spans(&deleted, &watch.gone),
            all_started,
            all_stopped,
            start_cpu,
            stop_cpu,
        })
    }

    /// Has exactly `count` pods running and Ready, or none of this program's.
    ///
    /// # Errors
    /// The first request that fails, or pods that did not come or go in time.
    pub(crate) async fn fill(&self, count: usize) -> anyhow::Result<()> {
        let mut watch = self.watch().await?;
        let there = self.pods.list(&ListParams::default().labels(LABEL)).await?.items;
        try_join_all(
            there
                .iter()
                .map(|pod| self.delete(pod.metadata.name.as_deref().unwrap_or_default())),
        )
        .await?;
        watch.until("gone", |watch| watch.gone.len() == there.len()).await?;
        let names: Vec<_> = (0..count).map(|number| format!("fill-{number}")).collect();
        watch.ready.clear();
        try_join_all(names.iter().map(|name| self.create(name))).await?;
        watch.until("Ready", |watch| watch.ready.len() == count).await
    }

    async fn watch(&self) -> anyhow::Result<Watch> {
        let list = self
            .pods
            .list_metadata(&ListParams::default().labels(LABEL).limit(1))
            .await?;
        let revision = list.metadata.resource_version.unwrap_or_default();
        let events = self
            .pods
            .watch(&WatchParams::default().labels(LABEL).timeout(290), &revision)
            .await?
            .boxed();
        Ok(Watch {
            events,
            ready: BTreeMap::new(),
            gone: BTreeMap::new(),
        })
    }

    async fn create(&self, name: &str) -> anyhow::Result<()> {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {LABEL: "true"}},
            "spec": {
                "nodeName": self.node,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": self.image, "imagePullPolicy": "IfNotPresent"}],
            },
        }))?;
        self.pods
            .create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("creating pod {name}"))?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.pods
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("deleting pod {name}"))?;
        Ok(())
    }
}

impl Watch {
    /// Takes in events until `done`; `what` is what the pods should become.
    async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + RUN_DEADLINE;
        while !done(self) {
            let Ok(event) = tokio::time::timeout_at(deadline, self.events.next()).await else {
                bail!(
                    "after {RUN_DEADLINE:?} {} pods are Ready and {} gone: not all {what}",
                    self.ready.len(),
                    self.gone.len()
                );
            };
            let now = Instant::now();
            match event.context("the watch ended")?.context("watching pods")? {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) if is_ready(&pod) => {
                    self.ready.entry(pod.name_any()).or_insert(now);
                }
                WatchEvent::Deleted(pod) => {
                    self.gone.entry(pod.name_any()).or_insert(now);
                }
                WatchEvent::Error(status) => bail!("watching pods: {}", status.message),
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Each pod's time from `begin` to `end`.
fn spans(begin: &BTreeMap<String, Instant>, end: &BTreeMap<String, Instant>) -> Vec<Duration> {
    begin
        .iter()
        .filter_map(|(name, begin)| end.get(name).map(|end| end.duration_since(*begin)))
        .collect()
}
