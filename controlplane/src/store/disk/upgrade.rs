//! Data of an older format become data of this one when the store is opened.
//!
//! A new file is written beside the old one, which is only read, and takes its place in one step: a process that dies at any moment
//! leaves the old data or the new, whole. What an upgrade that was cut off has left goes when the next begins. Records keep their
//! keys and revisions. What was remembered of the past (`past`) is in the old form, and is not believed any more: watches that go on
//! from before are told to list again. What an object is, is told by who opens the store; this owns the steps and their order.

use super::directory::{Directory, unusable};
use super::records::{FORMAT, META, RECORDS};
use super::{Disk, FILE, builder, guarded, reserve};
use crate::store::value::{TypeMeta, described};
use crate::store::{Revision, StoreError};
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// The file that is being written.
pub(super) const NEXT: &str = "state.redb.next";
/// What one transaction copies, in bytes of values, and so what is held in memory.
pub(super) const STEP_BYTES: usize = 4 << 20;
/// Revisions at the front of a record.
const REVISIONS_BYTES: usize = 16;

/// Tells what is stored under a key, of data that do not say it themselves; the function given reads values of other keys. `None` for
/// what is no object, or nobody knows.
pub type Describe<'d> = dyn FnMut(&str, &dyn Fn(&str) -> Option<Vec<u8>>) -> Option<TypeMeta<'static>> + 'd;

/// Where an upgrade stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The new file has so many records.
    Copied(u64),
    /// The new file is whole, and beside the old one.
    Whole,
    /// It has taken the old one's place.
    Done,
}

/// What the steps do beyond their work: nothing, but in tests.
struct Edge<'e> {
    step_bytes: usize,
    create: &'e dyn Fn(&Path) -> Result<Database, redb::DatabaseError>,
    reached: &'e mut dyn FnMut(Step),
}

impl Disk {
    /// As [`Disk::open`]; data of an older format are upgraded first.
    ///
    /// # Errors
    /// As [`Disk::open`]; also if the upgrade fails, which leaves the old data as they were.
    pub fn open_upgrading(directory: impl AsRef<Path>, describe: &mut Describe<'_>) -> Result<Self, StoreError> {
        let path = directory.as_ref();
        match Self::open(path) {
            Err(StoreError::Older { .. }) => {
                let edge = Edge {
                    step_bytes: STEP_BYTES,
                    create: &|file| builder().create(file),
                    reached: &mut |_| {},
                };
                let held = Directory::hold(path)?;
                guarded(&path.join(FILE), || upgrade(&held, path, describe, edge))?;
                drop(held);
                Self::open(path)
            }
            other => other,
        }
    }
}

fn upgrade(held: &Directory, path: &Path, describe: &mut Describe<'_>, mut edge: Edge<'_>) -> Result<(), StoreError> {
    let (file, next) = (path.join(FILE), path.join(NEXT));
    remove(&next)?;
    has_space(held, path)?;
    let old = builder()
        .open(&file)
        .map_err(|error| unusable(&file, "cannot be opened", &error))?;
    tracing::info!(path = %path.display(), to = FORMAT, "upgrading the store");
    let copied = (edge.create)(&next)
        .map_err(redb::Error::from)
        .and_then(|new| copy(&old, &new, describe, &mut edge));
    drop(old);
    let count = match copied {
        Ok(count) => count,
        Err(error) => {
            // The space it took is wanted back at once.
            remove(&next)?;
            return Err(unusable(path, "cannot be upgraded, and stays as it was", &error));
        }
    };
    (edge.reached)(Step::Whole);
    let replaced = std::fs::rename(&next, &file).and_then(|()| File::open(path)?.sync_all());
    replaced.map_err(|error| unusable(&file, "cannot be replaced by its upgrade", &error))?;
    (edge.reached)(Step::Done);
    tracing::info!(path = %path.display(), count, "the store has been upgraded");
    Ok(())
}

/// What an upgrade that was cut off has left goes.
pub(super) fn remove(next: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(next) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(unusable(next, "cannot be removed", &error)),
        _ => Ok(()),
    }
}

/// Refuses to begin what would fill the disk: the new file is as large as the old one, with a little more for each object, and grows ahead
/// of what is in it.
fn has_space(held: &Directory, path: &Path) -> Result<(), StoreError> {
    let old_bytes = held.backed_bytes(FILE);
    let needed_bytes = 2 * old_bytes + reserve::PUT_FLOOR_BYTES;
    match held.free_bytes() {
        Some(free_bytes) if free_bytes < needed_bytes => Err(StoreError::Unusable(format!(
            "data in {} cannot be upgraded, and stays as it was: that takes {} MiB, and {} MiB are free",
            path.display(),
            needed_bytes.div_ceil(1 << 20),
            free_bytes >> 20
        ))),
        _ => Ok(()),
    }
}

/// Copies all records in their new form, and what else is known; gives how many there are.
fn copy(old: &Database, new: &Database, describe: &mut Describe<'_>, edge: &mut Edge<'_>) -> Result<u64, redb::Error> {
    let reading = old.begin_read()?;
    let records = reading.open_table(RECORDS)?;
    let newest = reading.open_table(META)?.get("revision")?;
    let newest: Revision = newest.map_or(1, |found| found.value());
    let read = |key: &str| value_of(&records, key);
    let mut entries = records.iter()?;
    let mut count = 0;
    loop {
        let writing = new.begin_write()?;
        let mut is_end = true;
        {
            let mut written = writing.open_table(RECORDS)?;
            let mut bytes = 0;
            for entry in entries.by_ref() {
                let (key, record) = entry?;
                let (key, record) = (key.value(), record.value());
                match renewed(key, record, describe(key, &read)) {
                    Some(renewed) => written.insert(key, renewed.as_slice())?,
                    None => written.insert(key, record)?,
                };
                count += 1;
                bytes += record.len();
                if bytes >= edge.step_bytes {
                    is_end = false;
                    break;
                }
            }
            if is_end {
                let mut meta = writing.open_table(META)?;
                meta.insert("format", FORMAT)?;
                meta.insert("revision", newest)?;
            }
        }
        writing.commit()?;
        (edge.reached)(Step::Copied(count));
        if is_end {
            return Ok(count);
        }
    }
}

fn value_of(records: &ReadOnlyTable<&'static str, &'static [u8]>, key: &str) -> Option<Vec<u8>> {
    let found = records.get(key).ok()??;
    found.value().get(REVISIONS_BYTES..).map(<[u8]>::to_vec)
}

/// A record of format 1 as it is today; `None` if it stays what it is.
fn renewed(key: &str, record: &[u8], of: Option<TypeMeta<'_>>) -> Option<Vec<u8>> {
    let (revisions, value) = record.split_at_checked(REVISIONS_BYTES)?;
    let value = of.and_then(|of| described(&of, value));
    if value.is_none() && key.starts_with("/registry/") {
        tracing::warn!(key, "nobody knows what is stored under this key; it stays as it is");
    }
    Some([revisions, &value?].concat())
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
