//! Where desired pods come from: the API server, a directory or file of manifests, a URL.
//!
//! Every source delivers all its pods at once, every time; [`merge`] makes one set of them. Owns what makes a pod static
//! (annotations, UID). Never decides what happens to a pod: workers do, from the merged set alone.

pub mod apiserver;
mod defaults;
mod file;
mod http;
pub mod manifest;
pub mod merge;
mod validate;

use crate::autonomy;
use crate::events::{Recorder, Severity};
use crate::id::{FullName, PodUid};
use crate::parts::Parts;
use crate::reason;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The most a manifest may have, bytes (kubelet contract §3).
const MANIFEST_BYTES_MAX: usize = 10 << 20;

/// What a source has delivered: all its pods, or `None` before its first delivery.
pub type Delivered = Option<Vec<Arc<Pod>>>;

/// Every pod that should be on this node.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    /// Pods of the API server and static pods. Never a mirror pod.
    pub desired: Arc<BTreeMap<PodUid, Arc<Pod>>>,
    /// The API server's mirror pods of this node, by name.
    pub mirrors: Arc<BTreeMap<FullName, Arc<Pod>>>,
    /// Whether every source has delivered. Before that nothing may be ended for being unknown.
    pub complete: bool,
    /// Whether the API server has.
    pub answered: bool,
    /// Those that are delivered because they were kept, while it has not: they were let in before.
    pub kept: Arc<BTreeSet<PodUid>>,
}

/// Where static pods come from, and how often that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSources {
    /// `staticPodPath`: a directory or a file.
    pub path: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub file_check: Duration,
    /// `staticPodURL`.
    pub url: Option<String>,
    /// `staticPodURLHeader`.
    pub headers: Vec<(String, String)>,
    /// `httpCheckFrequency`.
    pub http_check: Duration,
}

impl Default for StaticSources {
    fn default() -> Self {
        Self {
            path: None,
            file_check: Duration::from_secs(20),
            url: None,
            headers: Vec::new(),
            http_check: Duration::from_secs(20),
        }
    }
}

/// The sources of a kubelet.
pub struct Sources {
    /// The kubelet's parts: the API server (none in standalone mode), the clock for `kubernetes.io/config.seen`, and what tells
    /// users of pods that are ignored.
    pub parts: Arc<Parts>,
    /// Static pods.
    pub statics: StaticSources,
}

/// One source as the merging task sees it.
struct Feed {
    origin: merge::Origin,
    delivered: watch::Receiver<Delivered>,
}

impl Sources {
    /// Runs every source and delivers what they have together until shut down.
    pub async fn run(self, pods: watch::Sender<Pods>, shutdown: CancellationToken) {
        let parts = self.parts.clone();
        let mut tasks = JoinSet::new();
        let mut feeds = self.spawn(&mut tasks, &shutdown);
        let mut told = BTreeSet::new();
        let kept = parts.kept.clone();
        let patience = Instant::now() + autonomy::PATIENCE;
        loop {
            let seen: Vec<_> = feeds
                .iter_mut()
                .map(|feed| (feed.origin, feed.delivered.borrow_and_update().clone()))
                .collect();
            let answers = seen.iter().find(|(origin, _)| *origin == merge::Origin::Api);
            let silent = answers.is_some_and(|(_, delivered)| delivered.is_none());
            let waits = kept.as_ref().filter(|_| silent);
            if let Some(kept) = kept.as_ref().filter(|_| !silent) {
                kept.answered();
            }
            let late = Instant::now() >= patience;
            let stand_in = waits.filter(|_| late).map(|kept| kept.restore()).unwrap_or_default();
            let waits = waits.is_some() && !late;
            let merged = merge::merge(&seen, &stand_in);
            for (origin, pod) in &merged.ignored {
                tell_ignored(&parts.recorder, &mut told, *origin, pod);
            }
            pods.send_replace(merged.pods);
            let changes = feeds.iter_mut().map(|feed| Box::pin(feed.delivered.changed()));
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = any(changes.collect()) => {}
                () = tokio::time::sleep_until(patience), if waits => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    fn spawn(self, tasks: &mut JoinSet<()>, shutdown: &CancellationToken) -> Vec<Feed> {
        let mut feeds = Vec::new();
        let mut feed = |origin| {
            let (sender, delivered) = watch::channel(Delivered::None);
            feeds.push(Feed { origin, delivered });
            sender
        };
        let Self { parts, statics } = self;
        let (node, clock) = (parts.context.node_name.clone(), parts.clock.clone());
        if let Some(path) = statics.path {
            let source = file::FileSource::new(path, statics.file_check, node.clone(), clock.clone());
            tasks.spawn(source.run(feed(merge::Origin::File), shutdown.clone()).boxed());
        }
        if let Some(url) = statics.url {
            let source = http::HttpSource {
                url,
                headers: statics.headers,
                every: statics.http_check,
                node: node.clone(),
                clock,
            };
            tasks.spawn(source.run(feed(merge::Origin::Http), shutdown.clone()).boxed());
        }
        if let Some(client) = parts.client.clone() {
            let sender = feed(merge::Origin::Api);
            tasks.spawn(apiserver::run(client, node, parts.seed, sender, shutdown.clone()).boxed());
        }
        feeds
    }
}

fn tell_ignored(recorder: &Recorder, told: &mut BTreeSet<PodUid>, origin: merge::Origin, pod: &Pod) {
    let uid = crate::pod_object::uid(pod);
    if !told.insert(uid) {
        return;
    }
    let name = crate::pod_object::name(pod);
    let source = origin.as_str();
    tracing::warn!(pod = name, source, "a second pod of one name in one source is ignored");
    let message = format!("Error validating pod {name} from {source} due to duplicate pod name \"{name}\", ignoring");
    recorder.pod(pod, Severity::Warning, reason::event::FAILED_VALIDATION, message);
}

/// Waits for the first of them to be done; forever if there are none.
async fn any<F: Future + Unpin>(futures: Vec<F>) {
    if futures.is_empty() {
        return std::future::pending().await;
    }
    drop(futures::future::select_all(futures).await);
}
