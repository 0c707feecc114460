//! The directory a store lives in: one process at a time, and never the last of its disk's space.
//!
//! Owns the lock and the watch over free space. Knows nothing of what is stored.

use crate::store::StoreError;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Free space below which nothing is added. A commit that finds no space leaves the process no choice but to end; refusing early
/// keeps reads and deletions going.
const RESERVE_BYTES: u64 = 16 << 20;

/// The data directory, held by this process as long as the value lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Free space below which nothing is added.
    pub(super) reserve_bytes: u64,
    _lock: File,
}

impl Directory {
    /// Makes and locks it.
    ///
    /// # Errors
    /// `Unusable`, naming the process that holds it.
    pub(super) fn hold(path: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(path).map_err(|error| unusable(path, "cannot be made", &error))?;
        Ok(Self {
            path: path.to_owned(),
            reserve_bytes: RESERVE_BYTES,
            _lock: lock(path)?,
        })
    }

    /// The refusal that holds at the moment for writes that add something; `None` when there is space, or nobody knows.
    pub(super) fn refusal(&self) -> Option<StoreError> {
        let found = nix::sys::statvfs::statvfs(&self.path).ok()?;
        let free_bytes = found.blocks_available().saturating_mul(found.fragment_size());
        (free_bytes < self.reserve_bytes).then(|| StoreError::Full {
            directory: self.path.clone(),
            free_mib: free_bytes >> 20,
            reserve_mib: self.reserve_bytes >> 20,
        })
    }
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join("lock");
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
    };
    let mut file = open().map_err(|error| unusable(&path, "cannot be opened", &error))?;
    if let Err(error) = file.try_lock() {
        let std::fs::TryLockError::Error(error) = error else {
            let mut holder = String::new();
            // Who holds it is a courtesy; without it the refusal stands.
            let _ = file.read_to_string(&mut holder);
            return Err(in_use(directory, holder.trim()));
        };
        return Err(unusable(&path, "cannot be locked", &error));
    }
    let write = |file: &mut File| -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    // On a full disk the number cannot be written; the lock holds without it.
    if let Err(error) = write(&mut file) {
        tracing::warn!(path = %path.display(), %error, "the lock does not name its holder");
    }
    Ok(file)
}

/// The refusal of a second process.
pub(super) fn in_use(directory: &Path, holder: &str) -> StoreError {
    let by = if holder.is_empty() {
        "another process".to_owned()
    } else {
        format!("process {holder}")
    };
    StoreError::Unusable(format!("data directory {} is in use by {by}", directory.display()))
}

/// A failure with the path it is about.
pub(super) fn unusable(path: &Path, what: &str, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unusable(format!("{} {what}: {error}", path.display()))
}
