//! What is to be read after a log file that was rotated away.
//!
//! Finds files, and reads no more than the beginning of one. Rotation renames `N.log` to `N.log.TIME`, has the runtime make a new `N.log`, and compresses what
//! it put aside before. A file may have been put aside while its reader waited for a slow client, more than once.

use super::files::LogFiles;
use super::source::Source;
use client::ordered::Arrange;
use nix::libc;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// The most names of the directory that are looked at, and the most files put aside that are read.
const NAMES_MAX: usize = 10_000;
const FILES_MAX: usize = 16;
/// What ends the names of compressed ones.
const COMPRESSED: &str = ".gz";
/// How long the runtime may take to open a new log: it is asked to right after the old one was renamed.
const REOPEN_TRIES: u32 = 20;
const REOPEN_PAUSE: Duration = Duration::from_millis(50);

/// Opens a log without following a link a container may have planted in its place.
pub(super) fn open(path: &Path) -> io::Result<fs::File> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the log is not a regular file",
        ))
    }
}

/// Opens the log that is written to, and tells the newest name beside it, which is asked for first. Between two names it is not there
/// for a moment, but others are beside it: the runtime is opening it.
pub(super) async fn open_present(files: &LogFiles, path: &Path) -> io::Result<(fs::File, Option<String>)> {
    let mut tries = 0;
    loop {
        let at = path.to_owned();
        let (newest, opened) = files.run(move || Ok((newest_aside(&at), open(&at)))).await?;
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && newest.is_some() && tries < REOPEN_TRIES => {
                tries += 1;
                tokio::time::sleep(REOPEN_PAUSE).await;
            }
            opened => return Ok((opened?, newest)),
        }
    }
}

/// The names of what was put aside, without what compressed ones end in, oldest first.
fn names_aside(path: &Path) -> Vec<String> {
    let (Some(directory), Some(own)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let entries = fs::read_dir(directory).into_iter().flatten().take(NAMES_MAX).flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let aside = |name: String| {
        let time = name.strip_prefix(own)?.strip_prefix('.')?;
        let is_whole = !time.is_empty() && !time.ends_with(".tmp");
        is_whole.then(|| name.strip_suffix(COMPRESSED).unwrap_or(&name).to_owned())
    };
    let mut names: Vec<String> = names.filter_map(aside).collect();
    names.arrange();
    names.dedup();
    names
}

/// The newest name of what was put aside so far; to be asked before the log is opened.
fn newest_aside(path: &Path) -> Option<String> {
    names_aside(path).pop()
}

/// What follows a file.
#[derive(Default)]
pub(super) struct Following {
    /// Oldest first; the last is the one at the path. None while nothing follows.
    pub(super) files: VecDeque<Source>,
    /// The newest name of what was put aside by then.
    pub(super) newest_aside: Option<String>,
}

/// What is to be read after `read`, which was the file at the path when `newest_aside` was the newest beside it.
///
/// Nothing follows while what follows is empty: between the new file's appearance and the runtime's switch to it there are
/// still lines for the old one. What is in it shows that the switch is over.
///
/// # Errors
/// The file now at the path cannot be opened; none at all is no error, since it is between two names then.
pub(super) fn following(path: &Path, read: &Source, newest_aside: Option<&str>) -> io::Result<Following> {
    let Source::Plain(read) = read else {
        // What is compressed is only read before something else.
        return Ok(Following::default());
    };
    let present = match open(path) {
        Ok(present) => present,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Following::default()),
        Err(error) => return Err(error),
    };
    let id = |file: &fs::File| file.metadata().map(|about| (about.dev(), about.ino()));
    let own = id(read)?;
    if own == id(&present)? {
        return Ok(Following::default());
    }
    let names = names_aside(path);
    let newest = names.last().cloned();
    let mut aside = Vec::new();
    for name in names.into_iter().rev().take(FILES_MAX) {
        if newest_aside.is_some_and(|before| *name <= *before) {
            break;
        }
        let plain = path.with_file_name(&name);
        if let Ok(file) = open(&plain) {
            if id(&file)? == own {
                break;
            }
            aside.push((file.metadata()?.len(), Source::plain(file)));
            continue;
        }
        // Compressed by now, or none of ours.
        let compressed = path.with_file_name(name + COMPRESSED);
        match Source::is_of(&compressed, read) {
            // What was read before it was compressed is another file then, with the same beginning.
            Ok(true) => break,
            Ok(false) => aside.extend(Source::compressed(&compressed).map(|source| (1, source))),
            Err(_) => {}
        }
    }
    let present = (present.metadata()?.len(), Source::plain(present));
    let files = aside.into_iter().rev().chain([present]);
    let files = files
        .skip_while(|(size, _)| *size == 0)
        .map(|(_, source)| source)
        .collect();
    Ok(Following {
        files,
        newest_aside: newest,
    })
}
