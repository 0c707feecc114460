//! Counts what pods have on disk, and finds out which file systems are one.
//!
//! Files are counted on the blocking pool, one pod after another, each with a deadline: what was counted by then counts.

use super::decide::Used;
use super::threshold::Disks;
use crate::events::Severity;
use crate::host::usage::TreeUsage;
use crate::host::{FileWork, WorkError};
use crate::id::PodUid;
use crate::parts::Parts;
use crate::pod::spec;
use crate::pod_object;
use crate::reason;
use crate::runtime::ContainerUsage;
use crate::volume::Projects;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::{Pod, Volume};
use proto::cri as pb;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long is waited for a count that was told to end, at most; no longer than it had.
const LAST_DEADLINE: Duration = Duration::from_secs(5);
/// How long file work that is no count may take.
const LOOK_DEADLINE: Duration = Duration::from_secs(10);

/// What is told of a pod whose files cannot be counted.
const HANGS: &str = "The pod's files cannot be counted: the file system does not answer. Until it does, limits on local storage are not \
    enforced, and when the node runs short of disk the pod is judged by what was counted last";

/// Where images and containers' layers are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Places {
    pub(super) images: Option<PathBuf>,
    pub(super) disks: Disks,
}

/// What is counted of one pod, and where it is.
#[derive(Default)]
pub(super) struct Paths {
    pub(super) volumes: Vec<(String, PathBuf)>,
    pub(super) logs: Vec<(String, PathBuf)>,
    pub(super) files: Vec<PathBuf>,
    projects: Projects,
}

/// Counts files.
pub(super) struct Measurer {
    parts: Arc<Parts>,
    pub(super) looks: FileWork,
    pub(super) counts: FileWork,
}

impl Measurer {
    /// One that counts a pod's files for no longer than `count_max`.
    pub(super) fn new(parts: Arc<Parts>, count_max: Duration) -> Self {
        Self {
            parts,
            looks: FileWork::new(LOOK_DEADLINE),
            counts: FileWork::new(count_max + LAST_DEADLINE),
        }
    }

    /// Where images and layers are, as the runtime tells; nothing if it does not, or they cannot be found.
    pub(super) async fn places(&self) -> Option<Places> {
        let told = self.parts.runtime.image_fs_info().await.ok()?;
        let first = |list: Vec<pb::FilesystemUsage>| {
            let id = list.into_iter().next().and_then(|fs| fs.fs_id);
            id.map(|id| PathBuf::from(id.mountpoint))
        };
        let (images, layers) = (first(told.image_filesystems), first(told.container_filesystems));
        let root = self.parts.context.root_dir.clone();
        let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
        let compare = move || {
            let (own, of_images) = (device(&root)?, images.as_deref().map(device));
            let images_apart = match of_images {
                None => false,
                Some(of_images) => of_images? != own,
            };
            let layers_apart = match (of_images.flatten(), layers.as_deref()) {
                (Some(of_images), Some(layers)) => device(layers)? != of_images,
                _ => false,
            };
            let disks = Disks {
                images_apart,
                layers_apart,
            };
            Some(Places { images, disks })
        };
        self.look("places", compare).await.ok().flatten()
    }

    /// What running containers use, as the runtime tells; nothing if it does not.
    pub(super) async fn containers(&self) -> Option<Vec<ContainerUsage>> {
        let told = self.parts.runtime.list_container_stats().await;
        told.inspect_err(|error| tracing::warn!(%error, "what containers use is not told by the runtime"))
            .ok()
    }

    /// Where the pod's volumes are that `measures` names, and, with `own`, what else it has.
    pub(super) fn paths(&self, pod: &Pod, measures: impl Fn(&Volume) -> bool, own: bool) -> Paths {
        let volumes = pod_object::spec(pod).volumes.iter().flatten();
        let measured: Vec<&str> = volumes
            .filter(|volume| measures(volume))
            .map(|volume| volume.name.as_str())
            .collect();
        let directories = self.parts.volumes.directories(pod);
        let mut paths = Paths {
            volumes: directories
                .into_iter()
                .filter(|(name, _)| measured.contains(&name.as_str()))
                .collect(),
            projects: self.parts.volumes.projects().clone(),
            ..Paths::default()
        };
        if own {
            let logs = spec::pod_log_directory(pod, &self.parts.context);
            let containers = pod_object::containers(pod);
            paths.logs = containers.map(|(_, c)| (c.name.clone(), logs.join(&c.name))).collect();
            let own = self.parts.volumes.pod_dir(&pod_object::uid(pod));
            paths.files = vec![own.join("etc-hosts"), own.join("containers")];
        }
        paths
    }

    /// Whether an earlier count of the pod hangs: another would wait for it.
    pub(super) fn hangs(&self, uid: &PodUid) -> bool {
        self.counts.is_busy(uid.as_str())
    }

    /// Tells whoever looks after a pod that its files cannot be counted.
    pub(super) fn tell_hang(&self, pod: &Pod) {
        tracing::warn!(pod = %pod_object::described(pod), "a count of the pod's files hangs: the file system does not answer");
        let abnormal = reason::event::VOLUME_CONDITION_ABNORMAL;
        self.parts.recorder.pod(pod, Severity::Warning, abnormal, HANGS);
    }

    /// Counts them until the deadline.
    ///
    /// # Errors
    /// An earlier count of the pod hangs, or this one does.
    pub(super) async fn count(&self, uid: &PodUid, paths: Paths, deadline: Duration) -> Result<Used, WorkError> {
        let count = move |given_up: &AtomicBool| count(paths, given_up);
        let counting = self.counts.run_for(uid.as_str(), deadline, count);
        let ended = tokio::time::timeout(deadline + LAST_DEADLINE.min(deadline), counting).await;
        ended.unwrap_or(Err(WorkError::Overdue))
    }

    /// Looks at files of the node; what has the same name comes one after another.
    ///
    /// # Errors
    /// It hangs, or what has its name does.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        self.looks.run(name, work).await
    }
}

/// Counts one pod's files, as far as the file system did not. What cannot even be opened is nothing, and makes the count incomplete.
fn count(paths: Paths, given_up: &AtomicBool) -> Used {
    let tree = |path: &Path| {
        paths.projects.count(path, given_up).unwrap_or(TreeUsage {
            incomplete: true,
            ..TreeUsage::default()
        })
    };
    let named = |list: Vec<(String, PathBuf)>| list.into_iter().map(|(name, path)| (name, tree(&path)));
    let mut used = Used {
        volumes: named(paths.volumes).collect_ordered(),
        logs: named(paths.logs).collect_ordered(),
        ..Used::default()
    };
    for path in &paths.files {
        used.files.add(tree(path));
    }
    used
}
