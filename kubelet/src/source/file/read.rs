//! Reads what a static pod path has. Blocks on the disk only, never on a FIFO or a device.

use crate::source::MANIFEST_BYTES_MAX;
use nix::fcntl::OFlag;
use std::collections::BTreeMap;
use std::fs::{self, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a path has in place of a manifest, or the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Its bytes, one more than the most if there are too many.
    Text(Vec<u8>),
    /// It could not be read.
    Unreadable(String),
    /// A directory, FIFO, device or socket.
    NotRegular(&'static str),
}

/// Everything at a path.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The path itself is not there.
    pub(super) missing: bool,
    /// By path.
    pub(super) files: BTreeMap<PathBuf, Content>,
}

/// Reads a directory's files, or a file.
pub(super) fn read(path: &Path) -> io::Result<Reading> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Reading {
                missing: true,
                ..Reading::default()
            });
        }
        Err(error) => return Err(error),
    };
    let mut reading = Reading::default();
    if !metadata.is_dir() {
        reading
            .files
            .extend(file(path).map(|content| (path.to_owned(), content)));
        return Ok(reading);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().first() == Some(&b'.') {
            continue;
        }
        let path = entry.path();
        let content = file(&path);
        reading.files.extend(content.map(|content| (path, content)));
    }
    Ok(reading)
}

/// One file; nothing if it is gone.
fn file(path: &Path) -> Option<Content> {
    match open_and_read(path) {
        Ok(content) => Some(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Content::Unreadable(error.to_string())),
    }
}

fn open_and_read(path: &Path) -> io::Result<Content> {
    // Looked at before it is opened: opening a device can do something.
    if let Some(kind) = irregular(fs::metadata(path)?.file_type()) {
        return Ok(Content::NotRegular(kind));
    }
    // And again once it is open, without ever waiting for a writer: it may have been replaced meanwhile.
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).bits();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if let Some(kind) = irregular(file.metadata()?.file_type()) {
        return Ok(Content::NotRegular(kind));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(MANIFEST_BYTES_MAX).unwrap_or(u64::MAX);
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(Content::Text(bytes))
}

fn irregular(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("directory")
    } else if kind.is_fifo() {
        Some("FIFO")
    } else if kind.is_socket() {
        Some("socket")
    } else {
        Some("device")
    }
}
