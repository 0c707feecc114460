//! Whole files or none: write beside, sync, rename. Owns the permissions of what it writes.

use super::PkiError;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Reads a text file.
///
/// # Errors
/// Names the file.
pub fn read(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| PkiError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Reads a text file; `None` if there is none.
///
/// # Errors
/// Names the file.
pub fn read_if_there(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Writes a file of the given mode so that it appears whole, and survives a power cut once this returns.
///
/// # Errors
/// Names the file.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), PkiError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = Path::new(&beside);
    write_and_rename(beside, path, content, mode).map_err(|source| {
        // The half-written file is of no use; the error that matters is the first one.
        let _ = std::fs::remove_file(beside);
        PkiError::Write {
            path: path.to_owned(),
            source,
        }
    })
}

fn write_and_rename(beside: &Path, path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    if beside.exists() {
        std::fs::remove_file(beside)?;
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(beside, path)?;
    if let Some(dir) = path.parent() {
        std::fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Makes a directory (and its parents) that only its owner may enter.
///
/// # Errors
/// Names the directory.
pub fn make_private_dir(path: &Path) -> Result<(), PkiError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| PkiError::Write {
            path: path.to_owned(),
            source,
        })
}
