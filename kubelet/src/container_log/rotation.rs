//! The steps of a rotation, each of which leaves every line where the next start finds it.
//!
//! 1. What a rotation left unfinished, and what is too much, is removed; what was put aside before is compressed, unless it grew so far
//!    beyond what it may that this would cost disk and time just when the disk is short, and the log that is written to grew meanwhile.
//! 2. The log is renamed; the runtime goes on writing to it.
//! 3. The runtime opens a new log. Should a kubelet die before this, the log's name is missing, and the next one has it opened; should
//!    the runtime refuse, the old name is given back.

use super::compress::{Gate, compress};
use super::files;
use crate::host::directory::Directory;
use jiff::Timestamp;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Names of a directory that are looked at.
const NAMES_MAX: usize = 10_000;
/// Names that are tried for a log that is put aside.
const TRIES: usize = 8;
/// How many times as long as it may become a log is compressed.
const OUTGROWN: u64 = 4;

/// How many files of a log stay, and how long each of them may become, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) files: usize,
    pub(super) bytes: u64,
}

/// What a log needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is too long.
    Rotate,
    /// It is not there.
    Reopen,
}

/// A container's log below the directory of pods' logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log {
    /// `POD/CONTAINER`.
    directory: PathBuf,
    name: String,
}

impl Log {
    /// The log at that path, if it is one of a pod's container: the path is the runtime's word.
    pub(super) fn below(root: &Path, path: &Path) -> Option<Self> {
        let relative = path.strip_prefix(root).ok()?;
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let directory = relative.parent()?;
        (is_plain && directory.components().count() == 2).then_some(())?;
        Some(Self {
            directory: directory.to_owned(),
            name: relative.file_name()?.to_str()?.to_owned(),
        })
    }

    fn open(&self, root: &Path) -> io::Result<Directory> {
        Directory::open(root, &self.directory)
    }

    /// The name of its pod's directory.
    pub(super) fn pod(&self) -> String {
        let first = self.directory.components().next();
        first.map_or_else(String::new, |part| part.as_os_str().to_string_lossy().into_owned())
    }
}

/// The sizes of logs; nothing of one that is not there. One system call a log, because this is done all the time; a link on the way
/// could only tell another size.
pub(super) fn sizes(root: &Path, logs: &[Log]) -> Vec<io::Result<Option<u64>>> {
    let size = |log: &Log| match fs::symlink_metadata(root.join(&log.directory).join(&log.name)) {
        Ok(about) if about.is_file() => Ok(Some(about.len())),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    logs.iter().map(size).collect()
}

/// Whether a log is not there while its directory is, reached without a link: the runtime, who opens it, would follow one.
///
/// # Errors
/// The directory is not there, or is none of the kubelet's making.
pub(super) fn is_missing(root: &Path, log: &Log) -> io::Result<bool> {
    Ok(log.open(root)?.about(&log.name)?.is_none())
}

/// Steps 1 and 2; returns the name by which the log was put aside, nothing if it is gone.
///
/// # Errors
/// The log stays as it is.
pub(super) fn put_aside(
    root: &Path,
    log: &Log,
    most: Most,
    now: Timestamp,
    stopping: &AtomicBool,
    gate: Gate<'_>,
) -> io::Result<Option<String>> {
    let directory = log.open(root)?;
    let chores = files::chores(&directory.names(NAMES_MAX)?, &log.name, most.files);
    for name in &chores.remove {
        gate("remove");
        // What cannot go, as a directory that somebody made under that name, keeps no log from being put aside.
        if let Err(error) = directory.remove(name) {
            tracing::warn!(name, %error, "what lies beside a container's log is not removed");
        }
    }
    for name in &chores.compress {
        if has_outgrown(&directory, name, most.bytes) {
            // Told once, at the rotation after its own; it goes with the others when its time comes.
            if files::time_of(name, &log.name) == chores.newest {
                tracing::warn!(name, "a container's log has grown too far to be compressed");
            }
            continue;
        }
        gate("compress");
        // On a full disk, or where somebody put something else under that name, it stays as it is: it counts all the same.
        if let Err(error) = compress(&directory, name, stopping, gate) {
            tracing::warn!(name, %error, "a container's log that was put aside is not compressed");
        }
    }
    gate("rename");
    let mut newest = chores.newest;
    for _ in 0..TRIES {
        let aside = files::aside(&log.name, now, newest);
        match directory.rename(&log.name, &aside) {
            Ok(()) => {
                gate("renamed");
                return Ok(Some(aside));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // Somebody else's: the next second may be free.
            Err(_) => newest = files::time_of(&aside, &log.name),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn has_outgrown(directory: &Directory, name: &str, bytes_max: u64) -> bool {
    let size = directory.about(name).ok().flatten().map_or(0, |about| about.size);
    size > bytes_max.saturating_mul(OUTGROWN)
}

/// Gives the log its name back, because the runtime did not open a new one. If it did all the same, nothing is to be given back.
///
/// # Errors
/// The log stays aside; the next look has a new one opened.
pub(super) fn put_back(root: &Path, log: &Log, aside: &str) -> io::Result<()> {
    match log.open(root)?.rename(aside, &log.name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
