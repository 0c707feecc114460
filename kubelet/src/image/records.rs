//! Who pulled which image, kept on disk over restarts: `image_manager/{pulling,pulled}` in upstream's format (kubelet contract
//! §2), so that a node can be taken over and given back.
//!
//! Owns those files. An intent is written before a pull and goes when its end is recorded; one that is left behind says "pulled
//! by a kubelet, nobody knows with what", which only costs another pull. [`aging`] says when they go. Never decides who may use an
//! image.

mod aging;

pub use aging::Open;

use super::reference;
use super::verification::{Access, Known};
use crate::host::{FileWork, WorkError};
use client::Clock;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Digest;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Versions whose fields mean what we take them for. What a newer one means is not known: its logins are verified anew.
const VERSIONS_READ: [&str; 2] = [API_VERSION, "kubelet.config.k8s.io/v1alpha1"];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PulledRecord {
    #[serde(default)]
    kind: String,
    api_version: String,
    #[serde(default)]
    last_updated_time: String,
    image_ref: String,
    #[serde(default)]
    credential_mapping: BTreeMap<String, Access>,
    /// What a newer kubelet adds, kept for it: it may come back.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PullIntent<'a> {
    kind: &'a str,
    api_version: &'a str,
    image: &'a str,
}

impl PulledRecord {
    /// The record by names as upstream writes them, registry and repository: kubelets of ours wrote them as pods did.
    fn with_full_names(mut self) -> Self {
        for (written, access) in std::mem::take(&mut self.credential_mapping) {
            let name = reference::repository(&written);
            match self.credential_mapping.entry(name) {
                Vacant(place) => drop(place.insert(access)),
                Occupied(mut known) => drop(known.get_mut().merge(&access)),
            }
        }
        self
    }
}

/// Names remembered of one image: whoever owns a registry can give it any number.
const NAMES_MAX: usize = 1000;
/// More than that many names with that many secrets and service accounts have.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How long a record is waited for. Its disk is the kubelet's own; one that hangs is no reason for a pod to hang.
const DEADLINE: Duration = Duration::from_secs(10);
/// The key of all file work here: one change of a record never undoes another, and a disk that hangs costs one thread.
const RECORDS: &str = "image records";

/// Why a record could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A file is wrong, or could not be read or written.
    #[error("image record {path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The file work is not over in time, or was lost.
    #[error("image records: {0}")]
    Work(#[from] WorkError),
}

/// The records. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    files: FileWork,
    /// Async code takes it too: never held while a file is worked on.
    running: Mutex<Running>,
}

/// Pulls under way.
#[derive(Default)]
struct Running {
    pulls: BTreeMap<String, usize>,
    /// Images with a pull whose end nobody waited for: it may have worked.
    unseen: BTreeSet<String>,
}

/// A pull under way, of everybody who waits for it: dropped without an end it leaves its intent behind.
pub struct Pull {
    records: Records,
    image: String,
    ended: AtomicBool,
}

impl std::fmt::Debug for Pull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pull")
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

impl Records {
    /// Records below the kubelet's root directory.
    pub fn new(root_dir: &Path, clock: Arc<dyn Clock>) -> Self {
        let inner = Inner {
            directory: root_dir.join("image_manager"),
            clock,
            files: FileWork::new(DEADLINE),
            running: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    async fn files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, RecordError> {
        let inner = self.inner.clone();
        self.inner.files.run(RECORDS, move || work(&inner)).await?
    }

    /// What is known of an image that is here; a record that cannot be read is as one of a pull nobody saw the end of.
    pub async fn known(&self, image: &str, reference: &str) -> Known {
        let (image, reference) = (image.to_owned(), reference.to_owned());
        let known = self.files(move |inner| inner.known(&image, &reference)).await;
        known.unwrap_or_else(|error| {
            tracing::warn!(%error, "a pulled image's record cannot be read, its login is verified by a pull");
            Known {
                pulled_by_kubelet: true,
                ..Known::default()
            }
        })
    }

    /// Writes down that a pull begins. Without that a pull must not begin: the image would pass for a preloaded one.
    pub async fn begin(&self, image: &str) -> Result<Pull, RecordError> {
        let pull = Pull {
            records: self.clone(),
            image: image.to_owned(),
            ended: AtomicBool::new(false),
        };
        *self.inner.running().pulls.entry(image.to_owned()).or_default() += 1;
        let image = image.to_owned();
        self.files(move |inner| inner.write_intent(&image)).await?;
        Ok(pull)
    }

    /// Adds who may use an image.
    pub async fn allow(&self, image: &str, reference: &str, access: Access) -> Result<(), RecordError> {
        let (image, reference) = (image.to_owned(), reference.to_owned());
        self.files(move |inner| inner.record(&image, &reference, &access, false))
            .await
    }
}

impl Pull {
    /// The pull worked: who may use the image is written down, then its intent goes.
    pub async fn worked(&self, reference: &str, access: Access) -> Result<(), RecordError> {
        let (image, reference) = (self.image.clone(), reference.to_owned());
        self.end();
        let done = self.records.files(move |inner| {
            inner.record(&image, &reference, &access, true)?;
            inner.running().unseen.remove(&image);
            inner.end(&image)
        });
        done.await
    }

    /// The pull failed: nothing came of it.
    pub async fn failed(&self) {
        let image = self.image.clone();
        self.end();
        if let Err(error) = self.records.files(move |inner| inner.end(&image)).await {
            tracing::warn!(%error, "an ended pull's intent stays");
        }
    }
}

impl Pull {
    /// Counts it as ended; tells whether it was not before.
    fn end(&self) -> bool {
        let is_first = !self.ended.swap(true, Ordering::Relaxed);
        if is_first {
            let mut running = self.records.inner.running();
            match running.pulls.get(&self.image).copied().unwrap_or(0) {
                0 => {}
                1 => drop(running.pulls.remove(&self.image)),
                more => drop(running.pulls.insert(self.image.clone(), more - 1)),
            }
        }
        is_first
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        if self.end() {
            self.records.inner.running().unseen.insert(self.image.clone());
        }
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pulled(&self, reference: &str) -> PathBuf {
        self.directory.join("pulled").join(file_name(reference))
    }

    fn pulling(&self, image: &str) -> PathBuf {
        self.directory.join("pulling").join(file_name(image))
    }

    fn known(&self, image: &str, reference: &str) -> Result<Known, RecordError> {
        let record = self.read(reference)?;
        Ok(Known {
            pulled_by_kubelet: record.is_some() || self.pulling(image).exists(),
            access: record.map(|record| record.credential_mapping).unwrap_or_default(),
        })
    }

    fn read(&self, reference: &str) -> Result<Option<PulledRecord>, RecordError> {
        let path = self.pulled(reference);
        let text = match read_bounded(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|why| wrong(&path, why))?,
        };
        let record: PulledRecord = serde_json::from_slice(&text).map_err(|why| wrong(&path, why))?;
        if !VERSIONS_READ.contains(&record.api_version.as_str()) {
            return Err(wrong(&path, format!("version {} is not known", record.api_version)));
        }
        let record = Some(record).filter(|record| record.image_ref == reference);
        Ok(record.map(PulledRecord::with_full_names))
    }

    /// Adds who may use an image. A pull is noted though it tells nothing new: its image is here since now, whatever was known before.
    fn record(&self, image: &str, reference: &str, access: &Access, pulled: bool) -> Result<(), RecordError> {
        // A record that cannot be read says nothing: this pull's begins a new one.
        let mut record = self
            .read(reference)
            .ok()
            .flatten()
            .unwrap_or_else(|| Self::fresh(reference));
        let name = reference::repository(image);
        let is_new = !record.credential_mapping.contains_key(&name);
        let is_full = is_new && record.credential_mapping.len() >= NAMES_MAX;
        if is_full {
            tracing::warn!(
                image,
                reference,
                "an image has so many names that this one is not remembered"
            );
        }
        let changed = !is_full && (record.credential_mapping.entry(name).or_default().merge(access) || is_new);
        if !changed && !pulled {
            return Ok(());
        }
        record.last_updated_time = self.now();
        write(&self.pulled(reference), &record)
    }

    fn fresh(reference: &str) -> PulledRecord {
        PulledRecord {
            kind: "ImagePulledRecord".to_owned(),
            api_version: API_VERSION.to_owned(),
            last_updated_time: String::new(),
            image_ref: reference.to_owned(),
            credential_mapping: BTreeMap::new(),
            rest: BTreeMap::new(),
        }
    }

    /// The time as records tell it, in whole seconds.
    fn now(&self) -> String {
        let now = self.clock.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
    }

    fn write_intent(&self, image: &str) -> Result<(), RecordError> {
        let intent = PullIntent {
            kind: "ImagePullIntent",
            api_version: API_VERSION,
            image,
        };
        write(&self.pulling(image), &intent)
    }

    /// Removes an ended pull's intent unless another pull of the image runs, or ran to an end nobody saw.
    fn end(&self, image: &str) -> Result<(), RecordError> {
        let is_open = {
            let running = self.running();
            running.pulls.contains_key(image) || running.unseen.contains(image)
        };
        if is_open {
            return Ok(());
        }
        // A pull that begins meanwhile writes its intent after this: its file work waits.
        let path = self.pulling(image);
        match fs::remove_file(&path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(wrong(&path, why)),
            _ => Ok(()),
        }
    }
}

/// What a file holds, if it is not more than a record can have.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes")));
    }
    Ok(text)
}

fn wrong(path: &Path, why: impl ToString) -> RecordError {
    RecordError::File {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn file_name(of: &str) -> String {
    format!("sha256-{}", hex::encode(sha2::Sha256::digest(of.as_bytes())))
}

/// Writes a record whole or not at all.
fn write(path: &Path, record: &impl Serialize) -> Result<(), RecordError> {
    let fail = |why: io::Error| wrong(path, why);
    let text = serde_json::to_vec(record).map_err(|why| wrong(path, why))?;
    if let Some(directory) = path.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(fail)?;
    }
    let fresh = path.with_extension("tmp");
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh);
    opened.and_then(|mut file| file.write_all(&text)).map_err(fail)?;
    fs::rename(&fresh, path).map_err(fail)
}

#[cfg(test)]
mod tests;
