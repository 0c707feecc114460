//! `allocated_pods_state` and `actuated_pods_state` in upstream's form (kubelet contract §2), so that a node can be taken over
//! and given back.
//!
//! Owns one such file and what is in it. A change is on disk when [`Checkpoint::put`] returns; changes that come meanwhile are
//! written together. A file that cannot be read is put aside and counts as empty: then specs are what was given.

use super::PodResources;
use crate::checksum::fnv32a;
use crate::host::{FileWork, WorkError};
use crate::id::PodUid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a write is waited for.
const DEADLINE: Duration = Duration::from_secs(10);
/// A file's own key: one write at a time.
const FILE: &str = "checkpoint";

/// Why a change is not on disk.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file could not be written.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The disk takes too long, or the kubelet ends.
    #[error("write {path}")]
    Work {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WorkError,
    },
}

/// What the file holds: a text with its checksum.
#[derive(Serialize, Deserialize)]
struct Sealed {
    data: String,
    checksum: u64,
}

/// The text.
#[derive(Default, Serialize, Deserialize)]
struct Entries {
    #[serde(default)]
    entries: BTreeMap<String, PodResources>,
}

/// The state as changes are made to it.
#[derive(Default)]
struct Held {
    entries: BTreeMap<String, PodResources>,
    /// Counts changes.
    changed: u64,
    /// The newest change that is on disk.
    written: u64,
}

/// One of the two files. Clones share it.
#[derive(Clone)]
pub struct Checkpoint {
    path: Arc<Path>,
    held: Arc<Mutex<Held>>,
    files: FileWork,
}

impl Checkpoint {
    /// Reads the file, once, at the start; one that is not there is empty.
    pub fn open(path: PathBuf) -> Self {
        let entries = match crate::host::kept::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => put_aside(&path, &error.to_string()),
            Ok(bytes) => read(&bytes).unwrap_or_else(|why| put_aside(&path, why)),
        };
        let held = Held {
            entries,
            ..Held::default()
        };
        Self {
            path: path.into(),
            held: Arc::new(Mutex::new(held)),
            files: FileWork::new(DEADLINE),
        }
    }

    /// What is held of a pod.
    pub fn get(&self, pod: &PodUid) -> Option<PodResources> {
        self.held().entries.get(pod.as_str()).cloned()
    }

    /// Sets what is held of a pod, and waits until that is on disk.
    ///
    /// # Errors
    /// The file was not written. The change stands in memory and is written with the next.
    pub async fn put(&self, pod: &PodUid, resources: PodResources) -> Result<(), CheckpointError> {
        self.change(pod, |held| *held = resources).await
    }

    /// Changes what is held of a pod, and waits until that is on disk.
    ///
    /// # Errors
    /// As [`Checkpoint::put`].
    pub async fn change(&self, pod: &PodUid, change: impl FnOnce(&mut PodResources)) -> Result<(), CheckpointError> {
        let mine = {
            let mut held = self.held();
            let before = held.entries.get(pod.as_str()).cloned();
            let mut after = before.clone().unwrap_or_default();
            change(&mut after);
            if before.as_ref() == Some(&after) && held.written == held.changed {
                return Ok(());
            }
            held.entries.insert(pod.to_string(), after);
            held.changed += 1;
            held.changed
        };
        self.write(mine).await
    }

    /// Holds nothing of a pod any more, and waits until that is on disk.
    ///
    /// # Errors
    /// As [`Checkpoint::put`].
    pub async fn remove(&self, pod: &PodUid) -> Result<(), CheckpointError> {
        self.retain(|of| of != pod.as_str()).await
    }

    /// Holds nothing any more of pods that are not `kept`, by UID.
    ///
    /// # Errors
    /// As [`Checkpoint::put`].
    pub async fn retain(&self, kept: impl Fn(&str) -> bool) -> Result<(), CheckpointError> {
        let mine = {
            let mut held = self.held();
            let before = held.entries.len();
            held.entries.retain(|uid, _| kept(uid));
            if held.entries.len() == before {
                return Ok(());
            }
            held.changed += 1;
            held.changed
        };
        self.write(mine).await
    }

    /// Writes everything, unless somebody else has meanwhile.
    async fn write(&self, change: u64) -> Result<(), CheckpointError> {
        let (held, path) = (self.held.clone(), self.path.clone());
        let job = move || {
            let lock = || held.lock().unwrap_or_else(PoisonError::into_inner);
            let (text, changed) = {
                let held = lock();
                if held.written >= change {
                    return Ok(());
                }
                (sealed(&held.entries), held.changed)
            };
            replace(&path, &text)?;
            lock().written = changed;
            Ok(())
        };
        let path = || self.path.to_path_buf();
        match self.files.run(FILE, job).await {
            Err(source) => Err(CheckpointError::Work { path: path(), source }),
            Ok(Err(source)) => Err(CheckpointError::Write { path: path(), source }),
            Ok(Ok(())) => Ok(()),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts a text in place of what the file had, for good: a power cut leaves one or the other, never a file without its text.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("tmp");
    let mut file = fs::File::create(&beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(directory) => fs::File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Leaves a file that is of no use to whoever looks for the reason, under another name.
fn put_aside(path: &Path, why: &str) -> BTreeMap<String, PodResources> {
    let aside = path.with_extension("unreadable");
    tracing::error!(path = %path.display(), why, aside = %aside.display(), "a checkpoint is of no use and is put aside");
    if let Err(error) = fs::rename(path, &aside) {
        tracing::warn!(path = %path.display(), %error, "putting the checkpoint aside failed");
    }
    BTreeMap::new()
}

fn read(bytes: &[u8]) -> Result<BTreeMap<String, PodResources>, &'static str> {
    let sealed: Sealed = serde_json::from_slice(bytes).map_err(|_| "it is not of the form it should have")?;
    if sealed.checksum != checksum(&sealed.data) {
        return Err("its checksum is wrong");
    }
    let entries: Entries =
        serde_json::from_str(&sealed.data).map_err(|_| "its data is not of the form it should have")?;
    Ok(entries.entries)
}

fn sealed(entries: &BTreeMap<String, PodResources>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        entries: &'a BTreeMap<String, PodResources>,
    }
    let data = serde_json::to_string(&Borrowed { entries }).unwrap_or_default();
    let checksum = checksum(&data);
    serde_json::to_vec(&Sealed { data, checksum }).unwrap_or_default()
}

/// Upstream's checksum of a string: of what Go's dump makes of it.
fn checksum(data: &str) -> u64 {
    u64::from(fnv32a(format!("(string){data}").bytes()))
}

#[cfg(test)]
mod tests;
