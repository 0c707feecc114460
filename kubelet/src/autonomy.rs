//! Node autonomy (`--node-autonomy`, a setting of our own: upstream has nothing like it): what this node's pods are and need is kept on its
//! disk, so that they start again after a reboot though no API server answers.
//!
//! Owns the folder of what is kept, its key, and whether it counts: not before the API server had [`PATIENCE`] to answer, and never
//! again once it has. [`decide`] says what is kept (pure), [`keeper`] keeps it current, [`folder`] and [`seal`] are the disk. Never decides
//! about a pod: the sources deliver what is kept in the API server's place, which counts as no delivery, and workers take it from there.

mod decide;
mod folder;
mod job;
pub mod keeper;
mod seal;
#[cfg(test)]
mod tests;

pub(crate) use decide::ended_for_good;

use crate::events::{Recorder, Severity};
use crate::host::{FileWork, WorkError};
use crate::id::PodUid;
use crate::objects::{ObjectRef, TokenRequestKey};
use crate::planted::{self, Fault};
use crate::reason::event;
use decide::{Item, POD_PREFIX, SERVICES_PREFIX};
use folder::{BOUNDS, Folder, FolderError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use seal::Found;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the API server has to answer before what is kept is started: a kubelet that starts again beside it needs nothing of this.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The folder, and its key beside it: whoever copies the one has not the other.
const FOLDER: &str = "node-autonomy";
const KEY: &str = "node-autonomy.key";
/// How long the disk is waited for, and the one name all work on it has: one job at a time.
const DEADLINE: Duration = Duration::from_secs(60);
const WORK: &str = "node autonomy";

/// Pods are forgotten before their objects are removed, which nobody waits long for: a slow turn of the keeper lets them in between.
const FORGET_DEADLINE: Duration = Duration::from_secs(10);
const FORGET_WORK: &str = "node autonomy: forget";

/// Why nothing is kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Useless {
    /// The disk refuses. Nothing of an earlier time is there to be believed.
    #[error("node autonomy: {0}")]
    Disk(String),
    /// What was kept at an earlier time can be neither opened nor made unreadable: it would come back one day.
    #[error("node autonomy: what was kept is not removed: {0}")]
    Stays(String),
}

/// Removes what is kept beneath the kubelet's root directory, its key first; tells whether there was anything. What is not kept
/// current must not be believed later. Blocks: for the start.
///
/// # Errors
/// The key stays.
pub(crate) fn discard(root: &Path) -> Result<bool, Useless> {
    let (key, folder) = (root.join(KEY), root.join(FOLDER));
    let unlink = |path: &Path| match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).map(|()| true),
        Ok(_) => fs::remove_file(path).map(|()| true),
    };
    let locked = || {
        let found = unlink(&key)? | unlink(&key.with_extension("tmp"))?;
        if found {
            File::open(root)?.sync_all()?;
        }
        Ok(found)
    };
    let found = locked().map_err(|error: io::Error| Useless::Stays(format!("{}: {error}", key.display())))?;
    // Without its key nobody reads it.
    let left = unlink(&folder).unwrap_or_else(|error| {
        tracing::warn!(path = %folder.display(), %error, "a folder nobody can read stays");
        false
    });
    Ok(found || left)
}

/// Why a pod is not forgotten.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// The disk refused.
    #[error("forget a kept pod: {0}")]
    Disk(String),
    /// It takes too long, or the kubelet ends.
    #[error("forget a kept pod")]
    Work(#[source] WorkError),
}

/// Whether what is kept counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The API server may still answer.
    #[default]
    Waiting,
    /// It did not: what is kept stands for what it would have said.
    Counts,
    /// It has answered: what it says is true, and what it does not say yet is waited for.
    Answered,
}

/// A token as it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeptToken {
    /// The JWT.
    pub value: String,
    /// The second of its end.
    pub expires: i64,
}

impl std::fmt::Debug for KeptToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptToken")
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The pods as they were kept when this kubelet started.
    pods: Vec<Arc<Pod>>,
    /// Pods whose objects are about to be removed: nothing of them is kept any more.
    gone: BTreeSet<PodUid>,
    /// Problems that were told and are not over.
    told: BTreeSet<&'static str>,
    /// Expired tokens that were told of.
    expired: BTreeSet<TokenRequestKey>,
}

/// What is kept on this node.
pub struct Kept {
    folder: Arc<Mutex<Folder>>,
    files: FileWork,
    removals: FileWork,
    state: Arc<Mutex<State>>,
    recorder: Recorder,
    node: String,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Kept {
    /// Opens what was kept beneath the kubelet's root directory, and reads the pods. A folder that does not open is removed, and one is
    /// made anew: what is in it could not be kept current, and must not be believed later. Blocks: for the start.
    ///
    /// # Errors
    /// There is no folder, or no key for it.
    pub fn open(root: &Path, node: &str, recorder: Recorder) -> Result<Self, Useless> {
        let open = || Folder::open(&root.join(FOLDER), &root.join(KEY), BOUNDS);
        let (folder, found, lost) = match open() {
            Ok((folder, found)) => (folder, found, None),
            Err(first) => {
                discard(root)?;
                let (folder, found) = open().map_err(|error| Useless::Disk(chain(&error)))?;
                (folder, found, Some(first))
            }
        };
        let names: Vec<String> = folder
            .names()
            .filter(|name| name.starts_with(POD_PREFIX))
            .cloned()
            .collect();
        let (mut pods, mut faults) = (Vec::new(), Vec::new());
        for name in &names {
            match read::<Pod>(&folder, name) {
                Ok(Some(pod)) if decide::is_deliverable(&pod, node, name) => pods.push(Arc::new(pod)),
                Ok(_) => faults.push(format!("{name} holds no pod of this node")),
                Err(why) => faults.push(why),
            }
        }
        let kept = Self {
            folder: Arc::new(Mutex::new(folder)),
            files: FileWork::new(DEADLINE),
            removals: FileWork::new(FORGET_DEADLINE),
            state: Arc::new(Mutex::new(State {
                pods,
                ..State::default()
            })),
            recorder,
            node: node.to_owned(),
        };
        if let Some(why) = lost {
            let message = format!("what was kept could not be opened and was removed: {}", chain(&why));
            kept.tell("folder", &message);
        }
        if found == Found::Replaced || (found == Found::Made && !names.is_empty()) {
            kept.tell(
                "key",
                "the node key is gone or spoiled, another was made: what was kept under it is lost",
            );
        }
        if let Some(first) = faults.first() {
            let message = format!(
                "{} of {} kept pods cannot be read, the first: {first}",
                faults.len(),
                names.len()
            );
            kept.tell("pods", &message);
        }
        Ok(kept)
    }

    /// What is kept counts from now on, unless the API server has answered; gives the pods.
    pub(crate) fn restore(&self) -> Vec<Arc<Pod>> {
        let mut state = self.state();
        if planted::is(Fault::KeptInVain) {
            return Vec::new();
        }
        if state.phase == Phase::Waiting {
            state.phase = Phase::Counts;
            let pods = state.pods.len();
            tracing::warn!(
                pods,
                "the API server does not answer: pods are started from what is kept on this node"
            );
        }
        match state.phase {
            Phase::Counts => state.pods.clone(),
            Phase::Waiting | Phase::Answered => Vec::new(),
        }
    }

    /// The API server has delivered its pods: what is kept counts no more.
    pub(crate) fn answered(&self) {
        let mut state = self.state();
        if state.phase == Phase::Counts {
            tracing::info!("the API server answers: its pods take the place of those that were kept");
        }
        state.phase = Phase::Answered;
        state.pods = Vec::new();
    }

    /// Whether what is kept stands for what the API server does not say.
    pub(crate) fn counts(&self) -> bool {
        self.state().phase == Phase::Counts
    }

    /// The ConfigMap as it was, or that there was none; nothing if that is not known, or does not count.
    pub(crate) async fn config_map(&self, of: &ObjectRef) -> Option<Option<Arc<ConfigMap>>> {
        let found: Option<ConfigMap> = self.recall(Item::Object(of.clone())).await?;
        Some(found.map(Arc::new))
    }

    /// The Secret, likewise.
    pub(crate) async fn secret(&self, of: &ObjectRef) -> Option<Option<Arc<Secret>>> {
        let found: Option<Secret> = self.recall(Item::Object(of.clone())).await?;
        Some(found.map(Arc::new))
    }

    /// The last token a pod had, whether it is still good or not.
    pub(crate) async fn token(&self, key: &TokenRequestKey, now: Timestamp) -> Option<KeptToken> {
        let token: KeptToken = self.recall(Item::Token(key.clone())).await?;
        if token.expires <= now.as_second() && self.state().expired.insert(key.clone()) {
            let (pod, namespace) = (&key.pod_name, &key.namespace);
            tracing::warn!(
                pod,
                namespace,
                "the pod gets its last token, which has expired; no API server gives another"
            );
        }
        Some(token)
    }

    /// The handler of a runtime class.
    pub(crate) async fn handler(&self, class: &str) -> Option<String> {
        self.recall(Item::RuntimeClass(class.to_owned())).await
    }

    /// The services as they were.
    pub(crate) async fn services(&self) -> Option<Vec<Arc<Service>>> {
        let read_all = |folder: &Folder| {
            let names = folder.names().filter(|name| name.starts_with(SERVICES_PREFIX));
            let files: Vec<Vec<Service>> = names
                .filter_map(|name| read(folder, name).transpose())
                .collect::<Result<_, _>>()?;
            Ok((!files.is_empty()).then_some(files))
        };
        let found: Vec<Vec<Service>> = self.recall_by(read_all).await?;
        Some(found.into_iter().flatten().map(Arc::new).collect())
    }

    /// Forgets a pod for good, and waits until that is so on disk: for before its object is removed.
    ///
    /// # Errors
    /// It is not so yet.
    pub async fn forget(&self, uid: &PodUid) -> Result<(), ForgetError> {
        self.state().gone.insert(uid.clone());
        let (folder, name) = (self.folder.clone(), Item::Pod(uid.clone()).file_name());
        let job = move || {
            let mut folder = lock(&folder);
            folder.remove(&name)?;
            folder.sync()
        };
        let done = self.removals.run(FORGET_WORK, job).await.map_err(ForgetError::Work)?;
        done.map_err(|error| ForgetError::Disk(chain(&error)))
    }

    async fn recall<T: DeserializeOwned + Send + 'static>(&self, item: Item) -> Option<T> {
        self.recall_by(move |folder| read(folder, &item.file_name())).await
    }

    async fn recall_by<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Folder) -> Result<Option<T>, String> + Send + 'static,
    ) -> Option<T> {
        if !self.counts() {
            return None;
        }
        let folder = self.folder.clone();
        let job = move || read(&lock(&folder));
        match self.files.run(WORK, job).await {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => {
                self.tell("objects", &format!("what a pod needs cannot be read: {why}"));
                None
            }
            Err(error) => {
                self.tell("disk", &format!("what pods need is not read in time: {error}"));
                None
            }
        }
    }

    /// Tells of a problem, once until it is over.
    fn tell(&self, problem: &'static str, message: &str) {
        if self.state().told.insert(problem) {
            tracing::error!(problem, message, "node autonomy");
            let (reason, message) = (event::NODE_AUTONOMY, format!("Node autonomy: {message}"));
            self.recorder.node(&self.node, Severity::Warning, reason, message);
        }
    }

    /// A problem is over: it may be told again.
    fn over(&self, problem: &'static str) {
        self.state().told.remove(problem);
    }

    /// Has the disk hang until this goes.
    #[cfg(test)]
    pub(crate) fn hang(&self) -> impl Sized + '_ {
        lock(&self.folder)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(folder: &Mutex<Folder>) -> MutexGuard<'_, Folder> {
    folder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a file holds; why not, in words.
fn read<T: DeserializeOwned>(folder: &Folder, name: &str) -> Result<Option<T>, String> {
    match folder.read(name) {
        Ok(None) => Ok(None),
        Ok(Some(content)) => {
            // By way of a tree: code that reads a pod from text would be there for this alone (`client::tree`).
            let tree = serde_json::from_slice(&content);
            let parsed = tree.and_then(serde_json::from_value::<T>);
            parsed.map(Some).map_err(|error| format!("{name}: {error}"))
        }
        Err(error) => Err(chain(&error)),
    }
}

fn chain(error: &FolderError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
