//! The directory a store lives in: one process at a time, and the space its disk has left.
//!
//! Owns the lock and the measuring of free space; what is done about it is `reserve`'s. Knows nothing of what is stored.

use crate::store::StoreError;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// How many bytes are free for files in a directory; `None` when nobody knows.
pub(super) type FreeSpace = Box<dyn Fn(&Path) -> Option<u64> + Send>;

/// The data directory, held by this process as long as the value lives.
pub(super) struct Directory {
    path: PathBuf,
    /// How free space is measured: the file system's word, unless a test has another disk.
    pub(super) free_space: FreeSpace,
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
            free_space: Box::new(available_bytes),
            _lock: lock(path)?,
        })
    }

    /// Free space in bytes; `None` when nobody knows.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        (self.free_space)(&self.path)
    }

    /// The refusal of a write that needs more space than there is.
    pub(super) fn refusal(&self, needed_bytes: u64) -> StoreError {
        StoreError::Full {
            directory: self.path.clone(),
            free_mib: self.free_bytes().unwrap_or(0) >> 20,
            reserve_mib: needed_bytes.div_ceil(1 << 20),
        }
    }
}

fn available_bytes(path: &Path) -> Option<u64> {
    let found = nix::sys::statvfs::statvfs(path).ok()?;
    Some(found.blocks_available().saturating_mul(found.fragment_size()))
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
