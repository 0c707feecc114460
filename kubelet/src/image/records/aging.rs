//! Records age out: what says something of images that are gone goes, what a dead kubelet left open is settled.
//!
//! Decides from files and what the caller says of the runtime; never asks the runtime itself. Files of other names than ours are
//! left alone, damaged ones are told, and go after a day.

use super::{API_VERSION, Inner, RecordError, Records, VERSIONS_READ, file_name, read_bounded, wrong};
use client::ordered::{Arrange, CollectOrdered};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How long what cannot be judged by its content is kept: a runtime may go on with a pull whose kubelet died.
const UNCLEAR_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Files looked at in one turn; the others have theirs later.
const LOOKED_AT_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    api_version: String,
    image: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    api_version: String,
    image_ref: String,
    #[serde(default)]
    last_updated_time: String,
}

/// An intent without a pull under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The image that was to be pulled.
    pub image: String,
    /// It is so old that nothing can come of it any more.
    pub is_old: bool,
}

impl Records {
    /// The intents nobody in this process works on; damaged ones that are old are gone with this.
    pub async fn open(&self) -> Result<Vec<Open>, RecordError> {
        self.files(Inner::open).await
    }

    /// Settles an open intent: the image is here as `reference` (it came, nobody knows with whose login), or it never came.
    pub async fn settle(&self, image: &str, reference: Option<&str>) -> Result<(), RecordError> {
        let (image, reference) = (image.to_owned(), reference.map(str::to_owned));
        self.files(move |inner| inner.settle(&image, reference.as_deref()))
            .await
    }

    /// The references of records of images that are not among those `present`, last changed before `until`; damaged ones that
    /// are old are gone with this.
    pub async fn stale(&self, present: &BTreeSet<String>, until: Timestamp) -> Result<Vec<String>, RecordError> {
        let present = present.iter().map(|reference| file_name(reference)).collect_ordered();
        self.files(move |inner| inner.stale(&present, until)).await
    }

    /// Removes the record of an image that is gone, unless it changed since `until`.
    pub async fn remove(&self, reference: &str, until: Timestamp) -> Result<(), RecordError> {
        let reference = reference.to_owned();
        self.files(move |inner| inner.remove(&reference, until)).await
    }
}

impl Inner {
    fn open(&self) -> Result<Vec<Open>, RecordError> {
        let mut open = Vec::new();
        for path in ours(&self.directory.join("pulling"))? {
            let age = self.age(&path);
            match read_json::<Intent>(&path) {
                Ok(intent)
                    if intent.api_version == API_VERSION || VERSIONS_READ.contains(&intent.api_version.as_str()) =>
                {
                    if !self.running().pulls.contains_key(&intent.image) {
                        let is_old = age > UNCLEAR_KEPT;
                        let image = intent.image;
                        open.push(Open { image, is_old });
                    }
                }
                // A newer kubelet's is its own affair.
                Ok(_) => {}
                Err(error) => discard(&path, &error, age)?,
            }
        }
        Ok(open)
    }

    fn settle(&self, image: &str, reference: Option<&str>) -> Result<(), RecordError> {
        if self.running().pulls.contains_key(image) {
            return Ok(());
        }
        if let Some(reference) = reference
            && !matches!(self.read(reference), Ok(Some(_)))
        {
            self.allow_nobody(reference)?;
        }
        self.running().unseen.remove(image);
        gone(&self.pulling(image))
    }

    /// That a kubelet pulled it is all that is known.
    fn allow_nobody(&self, reference: &str) -> Result<(), RecordError> {
        let mut record = Self::fresh(reference);
        record.last_updated_time = self.now();
        super::write(&self.pulled(reference), &record)
    }

    fn stale(&self, present: &BTreeSet<String>, until: Timestamp) -> Result<Vec<String>, RecordError> {
        let mut stale = Vec::new();
        for path in ours(&self.directory.join("pulled"))? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if present.contains(name) {
                continue;
            }
            match read_json::<Pulled>(&path) {
                Ok(record) if !VERSIONS_READ.contains(&record.api_version.as_str()) => {}
                Ok(record) if file_name(&record.image_ref) != name => {
                    let error = wrong(
                        &path,
                        format!("it is of {:?}, as which it has another name", record.image_ref),
                    );
                    discard(&path, &error, self.age(&path))?;
                }
                Ok(record) if is_before(&record.last_updated_time, until) => stale.push(record.image_ref),
                Ok(_) => {}
                Err(error) => discard(&path, &error, self.age(&path))?,
            }
        }
        Ok(stale)
    }

    fn remove(&self, reference: &str, until: Timestamp) -> Result<(), RecordError> {
        let path = self.pulled(reference);
        match read_json::<Pulled>(&path) {
            Ok(record) if !is_before(&record.last_updated_time, until) => Ok(()),
            _ => gone(&path),
        }
    }

    /// How long ago a file was written.
    fn age(&self, path: &Path) -> SignedDuration {
        let written = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        let written = written.and_then(|written| Timestamp::try_from(written).ok());
        written.map_or(SignedDuration::ZERO, |written| self.clock.now().duration_since(written))
    }
}

/// Whether a record says it was last changed before the second of then; one that does not say counts as old. Records tell whole
/// seconds: in its second one may have changed after.
fn is_before(changed: &str, until: Timestamp) -> bool {
    let changed = changed.parse::<Timestamp>();
    changed.map_or(true, |changed| changed.as_second() < until.as_second())
}

/// Files of ours in a directory, left-over temporary ones removed: nobody writes while this runs.
fn ours(directory: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|why| wrong(directory, why))?,
    };
    let mut found = Vec::new();
    for entry in entries.take(LOOKED_AT_MAX) {
        let path = entry.map_err(|why| wrong(directory, why))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name.strip_prefix("sha256-") {
            Some(rest) if rest.ends_with(".tmp") => gone(&path)?,
            Some(digits) if digits.len() == 64 => found.push(path),
            _ => {}
        }
    }
    found.arrange();
    Ok(found)
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, RecordError> {
    let text = read_bounded(path).map_err(|why| wrong(path, why))?;
    serde_json::from_slice(&text).map_err(|why| wrong(path, why))
}

/// Tells of a damaged file, and removes it once it is old.
fn discard(path: &Path, error: &RecordError, age: SignedDuration) -> Result<(), RecordError> {
    let is_old = age > UNCLEAR_KEPT;
    tracing::warn!(%error, removed = is_old, "an image record is damaged");
    if is_old { gone(path) } else { Ok(()) }
}

fn gone(path: &Path) -> Result<(), RecordError> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(wrong(path, why)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
