//! Who pulled which image, kept on disk over restarts: `image_manager/{pulling,pulled}` in upstream's format (kubelet contract
//! §2), so that a node can be taken over and given back.
//!
//! Owns those files. An intent is written before a pull and goes when its end is recorded; one that is left behind says "pulled
//! by a kubelet, nobody knows with what", which only costs another pull. Never decides who may use an image.

use super::reference;
use super::verification::{Access, Known};
use client::Clock;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Why a record could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("image record {path}: {why}")]
pub struct RecordError {
    /// The file.
    path: PathBuf,
    /// What is wrong.
    why: String,
}

/// The records. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    running: Mutex<Running>,
}

/// Pulls under way; held while files change, so that one change of a record never undoes another.
#[derive(Default)]
struct Running {
    pulls: BTreeMap<String, usize>,
    /// Images with a pull whose end nobody waited for: it may have worked.
    unseen: BTreeSet<String>,
}

/// A pull under way: dropped without an end it leaves its intent behind.
pub struct Pull {
    records: Records,
    image: String,
    ended: bool,
}

impl Records {
    /// Records below the kubelet's root directory.
    pub fn new(root_dir: &Path, clock: Arc<dyn Clock>) -> Self {
        let inner = Inner {
            directory: root_dir.join("image_manager"),
            clock,
            running: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> T + Send + 'static) -> Option<T> {
        let inner = self.inner.clone();
        client::blocking::spawn(move || work(&inner)).await.ok()
    }

    /// What is known of an image that is here; a record that cannot be read is as one of a pull nobody saw the end of.
    pub async fn known(&self, image: &str, reference: &str) -> Known {
        let (image, reference) = (image.to_owned(), reference.to_owned());
        let known = self.blocking(move |inner| inner.known(&image, &reference)).await;
        let unknown = Known {
            pulled_by_kubelet: true,
            ..Known::default()
        };
        match known {
            Some(Ok(known)) => known,
            Some(Err(error)) => {
                tracing::warn!(%error, "a pulled image's record cannot be read, its login is verified by a pull");
                unknown
            }
            None => unknown,
        }
    }

    /// Writes down that a pull begins. Without that a pull must not begin: the image would pass for a preloaded one.
    pub async fn begin(&self, image: &str) -> Result<Pull, RecordError> {
        let pull = Pull {
            records: self.clone(),
            image: image.to_owned(),
            ended: false,
        };
        *self.inner.running().pulls.entry(image.to_owned()).or_default() += 1;
        let image = image.to_owned();
        match self.blocking(move |inner| inner.write_intent(&image)).await {
            Some(Err(error)) => Err(error),
            _ => Ok(pull),
        }
    }

    /// Adds who may use an image.
    pub async fn allow(&self, image: &str, reference: &str, access: Access) -> Result<(), RecordError> {
        let (image, reference) = (image.to_owned(), reference.to_owned());
        let written = self.blocking(move |inner| inner.allow(&image, &reference, &access));
        written.await.unwrap_or(Ok(()))
    }
}

impl Pull {
    /// The pull worked: who may use the image is written down, then its intent goes.
    pub async fn worked(mut self, reference: &str, access: Access) -> Result<(), RecordError> {
        let (image, reference) = (self.image.clone(), reference.to_owned());
        self.ended = true;
        let done = self.records.blocking(move |inner| {
            inner.allow(&image, &reference, &access)?;
            inner.running().unseen.remove(&image);
            inner.end(&image);
            Ok(())
        });
        done.await.unwrap_or(Ok(()))
    }

    /// The pull failed: nothing came of it.
    pub async fn failed(mut self) {
        let image = self.image.clone();
        self.ended = true;
        self.records.blocking(move |inner| inner.end(&image)).await;
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        let mut running = self.records.inner.running();
        if !self.ended {
            running.unseen.insert(self.image.clone());
        }
        let left = running.pulls.get(&self.image).copied().unwrap_or(0);
        match left {
            0 => {}
            1 => drop(running.pulls.remove(&self.image)),
            _ => drop(running.pulls.insert(self.image.clone(), left - 1)),
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
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|why| wrong(&path, why))?,
        };
        let record: PulledRecord = serde_json::from_slice(&text).map_err(|why| wrong(&path, why))?;
        if !VERSIONS_READ.contains(&record.api_version.as_str()) {
            return Err(wrong(&path, format!("version {} is not known", record.api_version)));
        }
        Ok(Some(record).filter(|record| record.image_ref == reference))
    }

    fn allow(&self, image: &str, reference: &str, access: &Access) -> Result<(), RecordError> {
        let _serial = self.running();
        // A record that cannot be read says nothing: this pull's begins a new one.
        let mut record = self.read(reference).ok().flatten().unwrap_or_else(|| PulledRecord {
            kind: "ImagePulledRecord".to_owned(),
            api_version: API_VERSION.to_owned(),
            last_updated_time: String::new(),
            image_ref: reference.to_owned(),
            credential_mapping: BTreeMap::new(),
            rest: BTreeMap::new(),
        });
        let name = reference::name(image).to_owned();
        let is_new = !record.credential_mapping.contains_key(&name);
        let changed = record.credential_mapping.entry(name).or_default().merge(access);
        if !changed && !is_new {
            return Ok(());
        }
        let now = self.clock.now();
        record.last_updated_time = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        write(&self.pulled(reference), &record)
    }

    fn write_intent(&self, image: &str) -> Result<(), RecordError> {
        let intent = PullIntent {
            kind: "ImagePullIntent",
            api_version: API_VERSION,
            image,
        };
        write(&self.pulling(image), &intent)
    }

    /// Removes an image's intent unless another pull of it runs, or ran to an end nobody saw.
    fn end(&self, image: &str) {
        let running = self.running();
        if running.pulls.get(image).copied().unwrap_or(0) > 1 || running.unseen.contains(image) {
            return;
        }
        let path = self.pulling(image);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "an ended pull's intent stays");
        }
    }
}

fn wrong(path: &Path, why: impl ToString) -> RecordError {
    RecordError {
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
