//! All records at one revision, out of the file and into a new one: for backups.
//!
//! Owns the consistency of what is read, one transaction of the database's, and the steps in which a new file is written, which takes
//! its place whole. Values go as they are stored: what is encrypted stays so. Never knows what a backup looks like.

use super::directory::{Directory, unusable};
use super::moved::{self, Hold};
use super::records::{FORMAT, META, RECORDS};
use super::upgrade::{NEXT, STEP_BYTES, remove};
use super::{Disk, FILE, SharedDatabase, builder, guarded, intact, past};
use crate::store::{Record, Revision, StoreError};
use redb::ReadableDatabase;
use redb::ReadableTable;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// What a reading gives, in order.
pub enum Part<'a> {
    /// First: the form of the values, and the revision of the reading.
    Begin {
        /// The data format.
        format: u64,
        /// The newest revision.
        revision: Revision,
    },
    /// A record: its key, and its revisions with its value as they stand in the file.
    Record(&'a str, &'a [u8]),
}

/// Takes the parts.
pub type Sink<'s> = dyn FnMut(Part<'_>) -> std::io::Result<()> + 's;

/// Reads all of a store.
pub struct Snapshots {
    database: SharedDatabase,
    pub(super) path: PathBuf,
    pub(super) hold: Hold,
    /// Of a store that nobody else has open.
    _held: Option<Directory>,
}

impl Disk {
    /// Readings of what this store holds.
    pub fn snapshots(&self) -> Snapshots {
        Snapshots {
            database: Arc::clone(&self.database),
            path: self.path.clone(),
            hold: self.hold.clone(),
            _held: None,
        }
    }
}

impl Snapshots {
    /// Of a store that no process has open; others are kept from it meanwhile.
    ///
    /// # Errors
    /// `Unusable`: there is none, it cannot be opened, is in use, or its objects are elsewhere.
    pub fn of_closed(path: &Path) -> Result<Self, StoreError> {
        let file = path.join(FILE);
        if !file.exists() {
            return Err(StoreError::Unusable(format!("{} holds no store", path.display())));
        }
        let held = Directory::hold(path)?;
        moved::check(path)?;
        let database = guarded(&file, || intact::open(&file))?;
        Ok(Self {
            database: Arc::new(RwLock::new(database)),
            path: path.to_owned(),
            hold: Hold::default(),
            _held: Some(held),
        })
    }

    /// The same once more, for another thread; who holds the directory goes on to.
    pub fn again(&self) -> Self {
        Self {
            database: Arc::clone(&self.database),
            path: self.path.clone(),
            hold: self.hold.clone(),
            _held: None,
        }
    }

    /// Gives all records of one revision. Blocks, and writes go on meanwhile.
    ///
    /// # Errors
    /// `Unusable` if they cannot be read, or not be taken.
    pub fn read(&self, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let wrong = |error: &dyn std::fmt::Display| unusable(&self.path, "cannot be copied", error);
        guarded(&self.path.join(FILE), || {
            // Held to the end: who compacts the file wants it alone, and leaves it for another time.
            let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
            let reading = database.begin_read().map_err(|error| wrong(&error))?;
            let mut all = || -> Result<(), redb::Error> {
                let meta = reading.open_table(META)?;
                let number = |name: &str, default: u64| -> Result<u64, redb::Error> {
                    Ok(meta.get(name)?.map_or(default, |found| found.value()))
                };
                let (format, revision) = (number("format", FORMAT)?, number("revision", 1)?);
                sink(Part::Begin { format, revision })?;
                for entry in reading.open_table(RECORDS)?.iter()? {
                    let (key, record) = entry?;
                    sink(Part::Record(key.value(), record.value()))?;
                }
                Ok(())
            };
            all().map_err(|error| wrong(&error))
        })
    }
}

/// What a new store begins with.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The form of the values.
    pub format: u64,
    /// The revision its next write follows.
    pub revision: Revision,
    /// Whether it may take another's place.
    pub replaces: bool,
}

/// Gives the records of a new store, in any order, then nothing.
pub type Source<'s> = dyn FnMut() -> Result<Option<(String, Vec<u8>)>, StoreError> + 's;

/// A record as it stands in a file.
pub fn record_bytes(record: &Record) -> Vec<u8> {
    let revisions = [record.created, record.modified].map(Revision::to_be_bytes).concat();
    [&revisions, &record.value[..]].concat()
}

/// The value of a record as it stands in a file.
pub fn value_of(record: &[u8]) -> &[u8] {
    record.get(16..).unwrap_or_default()
}

/// Makes a store of these records; gives how many they are. What was remembered of another's past is gone, so nobody goes on from
/// there.
///
/// # Errors
/// `Unusable`: one is there already or in use, or is about to arrive, the form is newer than this binary's, or the disk is full; nothing
/// has changed then.
pub fn write(path: &Path, begins: Beginning, source: &mut Source<'_>) -> Result<u64, StoreError> {
    if begins.format > FORMAT {
        return Err(StoreError::Unusable(format!(
            "the data have format {}, newer than the {FORMAT} this binary knows: use a newer binary",
            begins.format
        )));
    }
    moved::check_arrived(path)?;
    let held = Directory::hold(path)?;
    let file = path.join(FILE);
    if !begins.replaces && file.exists() {
        return Err(StoreError::Unusable(format!(
            "{} holds a store already",
            path.display()
        )));
    }
    let next = path.join(NEXT);
    remove(&next)?;
    held.private(NEXT)?;
    let written = guarded(&next, || fill(&next, begins, source));
    let replaced = written.and_then(|count| {
        // Before the new file is in place: with it they would be another's past.
        past::remove(path).map_err(|error| unusable(path, "cannot be cleared", &error))?;
        let renamed = std::fs::rename(&next, &file).and_then(|()| File::open(path)?.sync_all());
        renamed.map_err(|error| unusable(&file, "cannot be put in place", &error))?;
        moved::forget(path).map_err(|error| unusable(path, "cannot be cleared", &error))?;
        Ok(count)
    });
    if replaced.is_err() {
        // The space it took is wanted back; the first error is the one that matters.
        let _ = remove(&next);
    }
    drop(held);
    replaced
}

fn fill(next: &Path, begins: Beginning, source: &mut Source<'_>) -> Result<u64, StoreError> {
    let wrong = |error: &dyn std::fmt::Display| unusable(next, "cannot be written", error);
    let database = builder().create(next).map_err(|error| wrong(&error))?;
    let mut count = 0;
    loop {
        // The file holds no more in memory than a step.
        let (mut step, mut bytes) = (Vec::new(), 0);
        while bytes < STEP_BYTES
            && let Some((key, record)) = source()?
        {
            bytes += key.len() + record.len();
            step.push((key, record));
        }
        let is_end = bytes < STEP_BYTES;
        count += step.len() as u64;
        let write = || -> Result<(), redb::Error> {
            let writing = database.begin_write()?;
            {
                let mut records = writing.open_table(RECORDS)?;
                for (key, record) in &step {
                    records.insert(key.as_str(), record.as_slice())?;
                }
                if is_end {
                    let mut meta = writing.open_table(META)?;
                    meta.insert("format", begins.format)?;
                    meta.insert("revision", begins.revision)?;
                }
            }
            Ok(writing.commit()?)
        };
        write().map_err(|error| wrong(&error))?;
        if is_end {
            return Ok(count);
        }
    }
}
