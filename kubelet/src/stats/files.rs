//! What pods have on disk: counted when somebody asks, remembered for a minute.
//!
//! Nothing is counted while nobody asks. What the file system counts itself ([`Projects`]) is only read. A pod's files are counted for a moment at most, several pods at a time, and whoever asks waits
//! a bounded time for all: what hangs or has too much is absent, holds up nobody else, and is not begun again for a while.

use crate::host::machine::{self, Disk};
use crate::host::usage::TreeUsage;
use crate::host::{FileWork, WorkError};
use crate::id::PodUid;
use crate::parts::Parts;
use crate::pod::spec;
use crate::pod::view::PodSnapshot;
use crate::pod_object;
use crate::volume::Projects;
use client::ordered::{Arrange, CollectOrdered};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How old what is told may be: upstream's `volumeStatsAggPeriod`.
const KEPT: Duration = Duration::from_secs(60);
/// How long one pod's files are counted, and how long is waited for a count that was told to end.
const COUNT: Duration = Duration::from_millis(300);
const END: Duration = Duration::from_millis(200);
/// How long whoever asks waits for all.
const ALL: Duration = Duration::from_secs(2);
/// How many pods' files are counted at a time.
const AT_ONCE: usize = 4;

/// What one pod has on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFiles {
    /// When it was counted.
    pub at: Timestamp,
    /// Its volumes that are directories of its own, by name.
    pub volumes: Vec<(String, VolumeUse)>,
    /// Its containers' logs, by container.
    pub logs: Vec<(String, TreeUsage)>,
    /// Files the kubelet made for it.
    pub own: TreeUsage,
}

/// One volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VolumeUse {
    /// What is in it.
    pub usage: TreeUsage,
    /// The file system it is on; zeros if that cannot be asked.
    pub disk: Disk,
    /// Whether it is on the node's disk and counts as its local storage.
    pub is_local: bool,
}

/// One pod's, and when it was last begun.
struct Kept {
    begun: Instant,
    files: Option<Arc<PodFiles>>,
}

/// Counts pods' files.
pub struct Files {
    work: FileWork,
    known: Mutex<BTreeMap<PodUid, Kept>>,
    /// Who counts.
    turn: tokio::sync::Mutex<()>,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            work: FileWork::new(COUNT + END),
            known: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl Files {
    /// What these pods have; who is missing could not be counted. While others count, what was counted before is told at once, unless
    /// one of the pods is new.
    pub async fn of(&self, parts: &Parts, pods: &[Arc<PodSnapshot>]) -> BTreeMap<PodUid, Arc<PodFiles>> {
        let jobs = |uid: &PodUid| {
            let snapshot = pods.iter().find(|pod| pod.observed.uid == *uid)?;
            Some(Paths::of(parts, &snapshot.pod))
        };
        let uids = pods.iter().map(|pod| pod.observed.uid.clone()).collect_ordered();
        self.counted(parts.clock.now(), &uids, jobs).await
    }

    async fn counted(
        &self,
        at: Timestamp,
        uids: &BTreeSet<PodUid>,
        paths: impl Fn(&PodUid) -> Option<Paths>,
    ) -> BTreeMap<PodUid, Arc<PodFiles>> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) if uids.iter().all(|uid| self.known().contains_key(uid)) => return self.told(uids),
            Err(_) => self.turn.lock().await,
        };
        let due = self.due(uids);
        let until = Instant::now() + ALL;
        let begin = |uid: PodUid| {
            let paths = paths(&uid).unwrap_or_default();
            async move {
                let begun = Instant::now();
                let counted = self.count(&uid, paths, at).await;
                (uid, begun, counted)
            }
        };
        let mut counts = futures::stream::iter(due).map(begin).buffer_unordered(AT_ONCE);
        while let Ok(Some((uid, begun, counted))) = tokio::time::timeout_at(until, counts.next()).await {
            let counted =
                counted.inspect_err(|error| tracing::debug!(pod = %uid, %error, "a pod's files cannot be counted"));
            let files = counted.ok().map(Arc::new);
            self.known().insert(uid, Kept { begun, files });
        }
        drop(counts);
        self.told(uids)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<PodUid, Kept>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of these pods.
    fn told(&self, uids: &BTreeSet<PodUid>) -> BTreeMap<PodUid, Arc<PodFiles>> {
        let known = self.known();
        let of = |uid: &PodUid| Some((uid.clone(), known.get(uid)?.files.clone()?));
        uids.iter().filter_map(of).collect_ordered()
    }

    /// Whose files are to be counted now; who is gone is forgotten.
    fn due(&self, uids: &BTreeSet<PodUid>) -> Vec<PodUid> {
        let mut known = self.known();
        known.retain(|uid, _| uids.contains(uid));
        let is_due = |uid: &&PodUid| known.get(*uid).is_none_or(|kept| kept.begun.elapsed() >= KEPT);
        let mut due: Vec<PodUid> = uids.iter().filter(is_due).cloned().collect();
        // Who was counted before, or hung, can wait longest.
        due.arrange_by_key(|uid| known.get(uid).map(|kept| (kept.files.is_none(), kept.begun)));
        due
    }

    /// Counts one pod's files for a moment; what is not counted by then is incomplete.
    async fn count(&self, uid: &PodUid, paths: Paths, at: Timestamp) -> Result<PodFiles, WorkError> {
        let count = move |given_up: &AtomicBool| paths.count(at, given_up);
        self.work.run_for(uid.as_str(), COUNT, count).await
    }
}

/// Where what is counted is.
#[derive(Default)]
struct Paths {
    volumes: Vec<(String, PathBuf, bool)>,
    logs: Vec<(String, PathBuf)>,
    own: Vec<PathBuf>,
    projects: Projects,
}

impl Paths {
    fn of(parts: &Parts, pod: &Pod) -> Self {
        let directories = parts.volumes.directories(pod).into_iter();
        let logs = spec::pod_log_directory(pod, &parts.context);
        let own = parts.volumes.pod_dir(&pod_object::uid(pod));
        Self {
            volumes: directories
                .map(|(name, path)| {
                    let is_local = is_local(pod, &name);
                    (name, path, is_local)
                })
                .collect(),
            logs: pod_object::containers(pod)
                .map(|(_, c)| (c.name.clone(), logs.join(&c.name)))
                .collect(),
            own: vec![own.join("etc-hosts"), own.join("containers")],
            projects: parts.volumes.projects().clone(),
        }
    }

    fn count(self, at: Timestamp, given_up: &AtomicBool) -> PodFiles {
        let tree = |path: &Path| {
            self.projects.count(path, given_up).unwrap_or(TreeUsage {
                incomplete: true,
                ..TreeUsage::default()
            })
        };
        let mut files = PodFiles {
            at,
            ..PodFiles::default()
        };
        for path in &self.own {
            files.own.add(tree(path));
        }
        files.logs = self.logs.into_iter().map(|(name, path)| (name, tree(&path))).collect();
        for (name, path, is_local) in self.volumes {
            let of_volume = VolumeUse {
                usage: tree(&path),
                disk: machine::disk(&path),
                is_local,
            };
            files.volumes.push((name, of_volume));
        }
        files
    }
}

/// Whether the volume counts as local storage: emptyDirs on disk and ConfigMaps, as eviction counts them.
fn is_local(pod: &Pod, name: &str) -> bool {
    let mut volumes = pod_object::spec(pod).volumes.iter().flatten();
    let Some(volume) = volumes.find(|volume| volume.name == name) else {
        return false;
    };
    let on_disk = |medium: &Option<String>| medium.as_deref().unwrap_or_default().is_empty();
    volume.config_map.is_some() || volume.empty_dir.as_ref().is_some_and(|dir| on_disk(&dir.medium))
}

#[cfg(test)]
mod tests;
