//! Watches what pods with limits on local storage use, and ends those that use more: emptyDirs with a `sizeLimit` and containers
//! with a limit on `ephemeral-storage` (kubelet contract §10).
//!
//! Only pods that have such a limit cost anything. They are measured one after another, on the blocking pool, each with a
//! deadline; after a pass that took long there is a longer rest, so that no pod can keep the node busy with its files.

use super::Kills;
use super::decide::{self, Limits, Used};
use crate::host::usage::{self, TreeUsage};
use crate::host::{FileWork, WorkError};
use crate::id::PodUid;
use crate::parts::Parts;
use crate::pod::spec;
use crate::pod::state::Cause;
use crate::pod::view::PodSnapshot;
use crate::pod::worker::Kill;
use crate::pod_object;
use crate::runtime::ContainerUsage;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pause between two passes.
const PERIOD: Duration = Duration::from_secs(10);
/// How many times as long as a pass the pause after it is at least.
const REST: u32 = 4;
/// How long one pod's files may take to be counted: what was counted by then counts.
const COUNT_DEADLINE: Duration = Duration::from_secs(30);
/// How long is waited for a count that was told to end.
const LAST_DEADLINE: Duration = Duration::from_secs(5);
/// Stands for the UID where the work is no pod's.
const NO_POD: &str = "";
/// The grace of a pod that outgrew its limits, seconds.
const GRACE_SECONDS: i64 = 1;

/// Measures pods and ends those that outgrow their limits.
pub struct LocalStorage {
    parts: Arc<Parts>,
    kills: watch::Sender<Kills>,
    files: FileWork,
    images_apart: Option<bool>,
}

/// What is counted of one pod, and where it is.
struct Paths {
    volumes: Vec<(String, PathBuf)>,
    logs: Vec<(String, PathBuf)>,
    files: Vec<PathBuf>,
}

impl LocalStorage {
    /// A measurer that tells `kills` whom to end.
    pub fn new(parts: Arc<Parts>, kills: watch::Sender<Kills>) -> Self {
        Self {
            parts,
            kills,
            files: FileWork::new(COUNT_DEADLINE + LAST_DEADLINE),
            images_apart: None,
        }
    }

    /// Measures until shut down.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut pause = PERIOD;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let begun = Instant::now();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.pass() => {}
            }
            pause = PERIOD.max(begun.elapsed() * REST);
        }
    }

    /// Measures every pod that has limits, once.
    async fn pass(&mut self) {
        let pods = self.parts.pods.list();
        self.forget_gone(&pods);
        let limited: Vec<(&Arc<PodSnapshot>, Limits)> = pods
            .iter()
            .filter(|snapshot| snapshot.active && !snapshot.ended)
            .map(|snapshot| (snapshot, Limits::of(&snapshot.pod)))
            .filter(|(_, limits)| !limits.is_empty())
            .collect();
        let layers = if limited.iter().any(|(_, limits)| limits.limits_containers()) {
            self.layers().await
        } else {
            Vec::new()
        };
        for (snapshot, limits) in limited {
            self.judge(snapshot, &limits, &layers).await;
        }
    }

    fn forget_gone(&self, pods: &[Arc<PodSnapshot>]) {
        let there: BTreeSet<PodUid> = pods.iter().map(|snapshot| pod_object::uid(&snapshot.pod)).collect();
        self.kills.send_if_modified(|kills| {
            let gone = kills.keys().any(|uid| !there.contains(uid));
            if gone {
                Arc::make_mut(kills).retain(|uid, _| there.contains(uid));
            }
            gone
        });
    }

    async fn judge(&self, snapshot: &PodSnapshot, limits: &Limits, layers: &[ContainerUsage]) {
        let uid = pod_object::uid(&snapshot.pod);
        if self.kills.borrow().contains_key(&uid) {
            return;
        }
        let mut used = match self.count(&uid, self.paths(snapshot, limits)).await {
            Ok(used) => used,
            Err(error) => {
                tracing::warn!(pod = %uid, %error, "what the pod uses of local storage cannot be counted");
                return;
            }
        };
        if used.is_incomplete() {
            tracing::warn!(pod = %uid, "not all that the pod uses of local storage could be counted");
        }
        let own = layers.iter().filter(|usage| usage.pod.as_ref() == Some(&uid));
        used.layers = own
            .filter_map(|usage| Some((usage.name.clone(), usage.layer?.0)))
            .collect();
        used.images_apart = self.images_apart;
        if let Some((signal, message)) = decide::exceeded(&snapshot.pod, limits, &used) {
            self.parts.metrics.pods.evicted(signal);
            tracing::info!(pod = %uid, message, "ending a pod that outgrew its limits");
            let kill = Kill {
                cause: Cause::StorageExceeded { message },
                grace_seconds: Some(GRACE_SECONDS),
            };
            self.kills.send_modify(|kills| {
                Arc::make_mut(kills).insert(uid, kill);
            });
        }
    }

    /// What running containers wrote into their layers, and whether that is on the file system of the kubelet's directory.
    async fn layers(&mut self) -> Vec<ContainerUsage> {
        if self.images_apart.is_none() {
            self.images_apart = self.are_images_apart().await;
        }
        let told = self.parts.runtime.list_container_stats().await;
        told.unwrap_or_else(|error| {
            tracing::warn!(%error, "containers' layers are not told by the runtime");
            Vec::new()
        })
    }

    async fn are_images_apart(&self) -> Option<bool> {
        let told = self.parts.runtime.image_fs_info().await.ok()?;
        let Some(images) = told.image_filesystems.into_iter().next().and_then(|fs| fs.fs_id) else {
            return Some(false);
        };
        let root = self.parts.context.root_dir.clone();
        let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
        let compare = move || Some(device(Path::new(&images.mountpoint))? != device(&root)?);
        self.files.run(NO_POD, compare).await.ok().flatten()
    }

    fn paths(&self, snapshot: &PodSnapshot, limits: &Limits) -> Paths {
        let pod = &snapshot.pod;
        let volumes = pod_object::spec(pod).volumes.iter().flatten();
        let measured: BTreeSet<&str> = volumes
            .filter(|volume| limits.measures(volume))
            .map(|volume| volume.name.as_str())
            .collect();
        let directories = self.parts.volumes.directories(pod);
        let mut paths = Paths {
            volumes: directories
                .into_iter()
                .filter(|(name, _)| measured.contains(name.as_str()))
                .collect(),
            logs: Vec::new(),
            files: Vec::new(),
        };
        if limits.limits_containers() {
            let logs = spec::pod_log_directory(pod, &self.parts.context);
            let containers = pod_object::containers(pod);
            paths.logs = containers.map(|(_, c)| (c.name.clone(), logs.join(&c.name))).collect();
            let own = self.parts.volumes.pod_dir(&pod_object::uid(pod));
            paths.files = vec![own.join("etc-hosts"), own.join("containers")];
        }
        paths
    }

    async fn count(&self, uid: &PodUid, paths: Paths) -> Result<Used, WorkError> {
        let given_up = Arc::new(AtomicBool::new(false));
        let flag = given_up.clone();
        let counting = self.files.run(uid.as_str(), move || count(paths, &flag));
        tokio::pin!(counting);
        tokio::select! {
            biased;
            counted = &mut counting => counted,
            () = tokio::time::sleep(COUNT_DEADLINE) => {
                given_up.store(true, Ordering::Relaxed);
                counting.await
            }
        }
    }
}

/// Counts one pod's files. What cannot even be opened is nothing, and makes the count incomplete.
fn count(paths: Paths, given_up: &AtomicBool) -> Used {
    let tree = |path: &Path| {
        usage::tree(path, given_up).unwrap_or(TreeUsage {
            incomplete: true,
            ..TreeUsage::default()
        })
    };
    let named = |list: Vec<(String, PathBuf)>| list.into_iter().map(|(name, path)| (name, tree(&path)));
    let mut used = Used {
        volumes: named(paths.volumes).collect(),
        logs: named(paths.logs).collect(),
        ..Used::default()
    };
    for path in &paths.files {
        used.files.add(tree(path));
    }
    used
}
