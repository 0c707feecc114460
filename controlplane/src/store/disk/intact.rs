//! Opens a file as it is told, once every page is what was written: one that was closed in order is looked at before anything is read of it.
//!
//! redb verifies pages only after a process has died; a file that was closed in order it takes as it is. Owns that look at it, which
//! changes nothing of the file: what redb would mend, by going back to what was there before, stays damaged and is refused each time.
//! What the kernel has of it and could not write is not looked at, but refused.
//! Never says what is in the file.

use super::CACHE_BYTES;
use super::directory::{forget_cached, in_use, unusable};
use crate::store::StoreError;
use redb::{Database, DatabaseError, StorageBackend, StorageError};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is said of a file that is not what was written.
pub(super) const DAMAGED: &str = "is damaged; `controlplane restore` makes the store anew from a backup";
/// In what the file is covered by what would be written to it.
const PAGE: u64 = 4096;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Everything is as it was written, or there is nothing, or redb looks itself.
    Whole,
    /// Everything that was written is there; what is noted of free pages is not what follows from it.
    Unaccounted,
}

/// Opens a file that is there, if it is what was written.
///
/// # Errors
/// `Unusable`, naming the file: it is damaged, in use, or cannot be read.
pub(super) fn open(path: &Path) -> Result<Database, StoreError> {
    let found = check(path)?;
    let mut database = super::builder().open(path).map_err(|error| refusal(path, &error))?;
    if found == Found::Unaccounted {
        tracing::warn!(path = %path.display(), "what the store notes of its free pages is wrong; all records are there; noting it anew");
        database.check_integrity().map_err(|error| refusal(path, &error))?;
    }
    Ok(database)
}

/// Looks at a file, which may not be there, or be empty. One that was not closed in order is verified when it is opened. Reads all that is
/// in use, twice.
///
/// # Errors
/// `Unusable`, naming the file: it is damaged, or cannot be read.
fn check(path: &Path) -> Result<Found, StoreError> {
    let wrong = |error: &dyn std::fmt::Display| unusable(path, "cannot be opened", error);
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Whole),
        other => other.map_err(|error| wrong(&error))?,
    };
    settled(path, file.sync_all())?;
    let length = file.metadata().map_err(|error| wrong(&error))?.len();
    if length == 0 {
        return Ok(Found::Whole);
    }
    // Before it: it may take minutes.
    tracing::info!(path = %path.display(), bytes = length, "verifying what was stored");
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder.set_repair_callback(redb::RepairSession::abort);
    let checked = builder
        .create_with_backend(Shadow::over(file, length))
        .and_then(|mut database| database.check_integrity());
    match checked {
        Ok(true) | Err(DatabaseError::RepairAborted) => Ok(Found::Whole),
        // What it opens without a repair was committed in two phases: of that a page that is not what was written is an error, never
        // `false`. Counts and the state of the allocator are left.
        Ok(false) => Ok(Found::Unaccounted),
        Err(error) => Err(refusal(path, &error)),
    }
}

/// Refuses a file of which something could not be written (`synced`) after the process before had last asked, and has it read from its disk
/// the next time: what was to be there is no proof of what is.
fn settled(path: &Path, synced: io::Result<()>) -> Result<(), StoreError> {
    let Err(error) = synced else { return Ok(()) };
    let what = match forget_cached(path) {
        Ok(()) => "could not be written; the next start reads what the disk has".to_owned(),
        Err(left) => {
            format!("could not be written, and is not read from its disk again before the machine restarts ({left})")
        }
    };
    Err(unusable(path, &what, &error))
}

/// What is said of a file that redb does not open.
pub(super) fn refusal(path: &Path, error: &DatabaseError) -> StoreError {
    // What the file should have and does not is told so, too.
    let is_of_content = |kind| matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData);
    match error {
        DatabaseError::DatabaseAlreadyOpen => in_use(path.parent().unwrap_or(path), ""),
        DatabaseError::Storage(StorageError::Io(error)) if !is_of_content(error.kind()) => {
            unusable(path, "cannot be read", error)
        }
        error => unusable(path, DAMAGED, error),
    }
}

/// A file as it is, and what is written to it beside it.
#[derive(Debug)]
struct Shadow {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    length: u64,
    /// Where the file counts: what is behind is new.
    file_end: u64,
    pages: BTreeMap<u64, [u8; PAGE as usize]>,
}

impl Shadow {
    fn over(file: File, length: u64) -> Self {
        let state = State {
            length,
            file_end: length,
            pages: BTreeMap::new(),
        };
        Self {
            file,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's own bytes; nothing but zeros where it does not count.
    fn original(&self, file_end: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let counts = file_end.saturating_sub(offset).min(out.len() as u64);
        let (front, rest) = out.split_at_mut(usize::try_from(counts).unwrap_or(usize::MAX));
        rest.fill(0);
        self.file.read_exact_at(front, offset)
    }
}

/// The parts of so many bytes from an offset on, by the page they are in: its number, where in it, and where in the bytes.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let end = offset + length as u64;
    (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let from = offset.max(page * PAGE);
        let to = end.min((page + 1) * PAGE);
        let at = |place: u64, base: u64| (place - base) as usize;
        (page, at(from, page * PAGE), at(from, offset)..at(to, offset))
    })
}

impl StorageBackend for Shadow {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if offset + out.len() as u64 > state.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.original(state.file_end, offset, out)?;
        for (page, from, range) in parts(offset, out.len()) {
            if let Some(found) = state.pages.get(&page) {
                let length = range.len();
                out[range].copy_from_slice(&found[from..from + length]);
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.state();
        if length < state.length {
            state.file_end = state.file_end.min(length);
            state.pages.split_off(&length.div_ceil(PAGE));
            if let Some(last) = state.pages.get_mut(&(length / PAGE)) {
                last[(length % PAGE) as usize..].fill(0);
            }
        }
        state.length = length;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let file_end = state.file_end;
        for (page, from, range) in parts(offset, data.len()) {
            let found = match state.pages.entry(page) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(place) => {
                    let mut whole = [0; PAGE as usize];
                    self.original(file_end, page * PAGE, &mut whole)?;
                    place.insert(whole)
                }
            };
            let length = range.len();
            found[from..from + length].copy_from_slice(&data[range]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
