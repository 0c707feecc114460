//! What records were before the newest writes, so that a window opened after a restart knows the changes of a moment ago, and
//! watches go on where they were.
//!
//! Two files beside the store's, each of at most [`SEGMENT_BYTES`], written over in turn: they hold the newest changes, and the
//! disk knows no other bound. Nothing waits for them to be durable, and the store is right without them: what a crash tore, what
//! was written ahead of a commit that never came, and what a full disk took, is left out when they are read; whoever reads what
//! they say compares it with the records. They are given up while the disk has little space, before any write is.

use super::Change;
use crate::store::{Record, Replaced, Revision};
use bytes::Bytes;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files: that being written, and the one before.
const NEWER: &str = "past.newer";
const OLDER: &str = "past.older";
/// How a file begins: the number is of the form values are in. Others are left out.
const MAGIC: &[u8] = b"skiffpa2";
/// A file ends with the entry that makes it longer.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Free space that is left to everything else.
const FLOOR_BYTES: u64 = 128 << 20;
/// What one commit may take the place of; more is not remembered.
const COMMIT_BYTES: usize = 8 << 20;
/// An entry's length and checksum.
const HEAD_BYTES: usize = 8;

/// The files of one data directory.
pub(super) struct Past {
    directory: PathBuf,
    /// `None` until something is written.
    newer: Option<File>,
    written: u64,
    buffer: Vec<u8>,
    /// Whether the last attempt failed: that is said once.
    has_failed: bool,
}

/// Forgets all that is remembered.
///
/// # Errors
/// The file system's.
pub(super) fn remove(directory: &Path) -> std::io::Result<()> {
    for name in [OLDER, NEWER] {
        match std::fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Past {
    /// Reads what led to the records of `newest`, the oldest first, without gaps; nothing if that is not known. Goes on behind it.
    pub(super) fn open(directory: &Path, newest: Revision) -> (Self, Vec<Replaced>) {
        let mut past = Self {
            directory: directory.to_owned(),
            newer: None,
            written: 0,
            buffer: Vec::new(),
            has_failed: false,
        };
        let mut found: Vec<Replaced> = Vec::new();
        for (name, is_newer) in [(OLDER, false), (NEWER, true)] {
            let bytes = read(&directory.join(name));
            let mut at = MAGIC.len();
            while let Some((entry, end)) = bytes.as_deref().and_then(|bytes| decode(bytes, at)) {
                if entry.revision > newest {
                    break;
                }
                if found.last().is_some_and(|last| last.revision + 1 != entry.revision) {
                    found.clear();
                }
                found.push(entry);
                at = end;
            }
            if is_newer && bytes.is_some() {
                past.go_on(at as u64);
            }
        }
        if found.last().is_none_or(|last| last.revision != newest) {
            past.give_up();
            found.clear();
        }
        (past, found)
    }

    /// Goes on in the file being written, from there on.
    fn go_on(&mut self, at: u64) {
        let file = OpenOptions::new().append(true).open(self.directory.join(NEWER));
        match file.and_then(|file| file.set_len(at).map(|()| file)) {
            Ok(file) => (self.newer, self.written) = (Some(file), at),
            Err(error) => self.fail(&error),
        }
    }

    /// Takes down what a change takes the place of.
    pub(super) fn note(&mut self, change: &Change, old: Option<&Record>) {
        if self.buffer.len() > COMMIT_BYTES {
            return;
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; HEAD_BYTES]);
        let buffer = &mut self.buffer;
        buffer.extend_from_slice(&change.revision.to_be_bytes());
        buffer.push(u8::from(change.value.is_none()) | u8::from(old.is_some()) << 1);
        buffer.extend_from_slice(&(change.key.len() as u32).to_be_bytes());
        buffer.extend_from_slice(change.key.as_bytes());
        if let Some(old) = old {
            buffer.extend_from_slice(&old.created.to_be_bytes());
            buffer.extend_from_slice(&old.modified.to_be_bytes());
            buffer.extend_from_slice(&old.value);
        }
        let content = &buffer[start + HEAD_BYTES..];
        let (length, sum) = (content.len() as u32, crc32fast::hash(content));
        buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
        buffer[start + 4..start + HEAD_BYTES].copy_from_slice(&sum.to_be_bytes());
    }

    /// Writes what has been noted, ahead of the commit; gives everything up if there is little space.
    pub(super) fn write(&mut self, free_bytes: Option<u64>) {
        let noted = std::mem::take(&mut self.buffer);
        if noted.is_empty() {
            return;
        }
        let is_scarce = free_bytes.is_some_and(|free| free < FLOOR_BYTES);
        if is_scarce || noted.len() > COMMIT_BYTES {
            self.give_up();
        } else {
            match self.append(&noted) {
                Ok(()) => self.has_failed = false,
                Err(error) => self.fail(&error),
            }
        }
        // The memory is used again, unless it was for something large.
        if noted.capacity() <= 1 << 20 {
            self.buffer = noted;
            self.buffer.clear();
        }
    }

    fn append(&mut self, noted: &[u8]) -> std::io::Result<()> {
        let newer = self.directory.join(NEWER);
        if self.written > SEGMENT_BYTES {
            self.newer = None;
            std::fs::rename(&newer, self.directory.join(OLDER))?;
        }
        if self.newer.is_none() {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&newer)?;
            file.write_all(MAGIC)?;
            (self.newer, self.written) = (Some(file), MAGIC.len() as u64);
        }
        if let Some(file) = &mut self.newer {
            file.write_all(noted)?;
            self.written += noted.len() as u64;
        }
        Ok(())
    }

    fn fail(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let path = self.directory.display();
            tracing::warn!(%path, %error, "the recent past cannot be kept: watches do not go on after a restart");
        }
        self.give_up();
    }

    /// Takes the files away; with the next change a new past begins.
    fn give_up(&mut self) {
        self.newer = None;
        self.written = 0;
        for name in [OLDER, NEWER] {
            // Most often it is not there.
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }
}

/// A file's bytes, if it is one of these.
fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let mut bytes = Vec::new();
    // An entry holds one object, of a few MiB at most.
    file.take(SEGMENT_BYTES * 2).read_to_end(&mut bytes).ok()?;
    bytes.starts_with(MAGIC).then_some(bytes)
}

/// The entry at a position and where the next one is; `None` at the end, and where something is torn.
fn decode(bytes: &[u8], at: usize) -> Option<(Replaced, usize)> {
    let (head, rest) = bytes.get(at..)?.split_at_checked(HEAD_BYTES)?;
    let (length, sum) = head.split_first_chunk::<4>()?;
    let content = rest.get(..u32::from_be_bytes(*length) as usize)?;
    if crc32fast::hash(content).to_be_bytes() != sum {
        return None;
    }
    let (revision, rest) = content.split_first_chunk::<8>()?;
    let (flags, rest) = rest.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let key: Arc<str> = Arc::from(std::str::from_utf8(key).ok()?);
    let old = match flags & 2 {
        0 => None,
        _ => {
            let (created, rest) = rest.split_first_chunk::<8>()?;
            let (modified, value) = rest.split_first_chunk::<8>()?;
            Some(Record {
                key: Arc::clone(&key),
                value: Bytes::copy_from_slice(value),
                created: Revision::from_be_bytes(*created),
                modified: Revision::from_be_bytes(*modified),
            })
        }
    };
    let entry = Replaced {
        revision: Revision::from_be_bytes(*revision),
        key,
        is_deletion: flags & 1 == 1,
        old,
    };
    Some((entry, at + HEAD_BYTES + content.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Option<u64> = Some(1 << 40);

    fn change(revision: Revision, bytes: usize) -> (Change, Record) {
        let key: Arc<str> = Arc::from("/registry/a");
        let value = Bytes::from(vec![b'x'; bytes]);
        let old = Record {
            key: Arc::clone(&key),
            value: value.clone(),
            created: 1,
            modified: revision - 1,
        };
        let change = Change {
            revision,
            key,
            value: Some(value),
            created: false,
        };
        (change, old)
    }

    fn write(past: &mut Past, revision: Revision, bytes: usize) {
        let (change, old) = change(revision, bytes);
        past.note(&change, Some(&old));
        past.write(FREE);
    }

    fn revisions(directory: &Path, newest: Revision) -> Vec<Revision> {
        let (_, found) = Past::open(directory, newest);
        found.iter().map(|entry| entry.revision).collect()
    }

    #[test]
    fn what_was_written_is_read_and_what_was_ahead_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let (mut past, found) = Past::open(directory.path(), 7);
        assert!(found.is_empty());
        for revision in 8..=12 {
            write(&mut past, revision, 10);
        }
        // The last commit never came: another write has its revision.
        assert_eq!(revisions(directory.path(), 11), [8, 9, 10, 11]);
        let (mut past, found) = Past::open(directory.path(), 11);
        let (_, expected) = change(11, 10);
        assert_eq!(
            (found.last().unwrap().old.as_ref(), found.last().unwrap().is_deletion),
            (Some(&expected), false)
        );
        write(&mut past, 12, 20);
        let (_, found) = Past::open(directory.path(), 12);
        assert_eq!((found.len(), found[4].old.as_ref().unwrap().value.len()), (5, 20));
    }

    #[test]
    fn what_is_torn_or_has_a_gap_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let (mut past, _) = Past::open(directory.path(), 7);
        for revision in [8, 9, 11, 12] {
            write(&mut past, revision, 10);
        }
        assert_eq!(revisions(directory.path(), 12), [11, 12]);
        let file = directory.path().join(NEWER);
        let mut bytes = std::fs::read(&file).unwrap();
        let end = bytes.len() - 1;
        bytes[end] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(revisions(directory.path(), 12), [0; 0]);
        assert!(!file.exists(), "a past that does not reach the present is begun anew");
    }

    #[test]
    fn a_file_cut_off_anywhere_tells_its_whole_entries() {
        let directory = tempfile::tempdir().unwrap();
        let (mut past, _) = Past::open(directory.path(), 7);
        let file = directory.path().join(NEWER);
        // Where each entry ends.
        let mut ends = Vec::new();
        for revision in 8..=12 {
            write(&mut past, revision, 10);
            ends.push(std::fs::metadata(&file).unwrap().len() as usize);
        }
        let bytes = std::fs::read(&file).unwrap();
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count() as Revision;
            for newest in 8..=12 {
                std::fs::write(&file, &bytes[..cut]).unwrap();
                let expected = if newest <= 7 + whole { newest } else { 0 };
                assert_eq!(
                    revisions(directory.path(), newest),
                    (8..=expected).collect::<Vec<_>>(),
                    "{cut} {newest}"
                );
            }
            if whole == 0 {
                continue;
            }
            // What comes next stands where the torn entry began.
            std::fs::write(&file, &bytes[..cut]).unwrap();
            let (mut past, _) = Past::open(directory.path(), 7 + whole);
            write(&mut past, 8 + whole, 3);
            assert_eq!(
                revisions(directory.path(), 8 + whole),
                (8..=8 + whole).collect::<Vec<_>>(),
                "{cut}"
            );
        }
    }

    #[test]
    fn two_files_hold_the_newest_changes_and_a_full_disk_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let (mut past, _) = Past::open(directory.path(), 1);
        for revision in 2..=60 {
            write(&mut past, revision, 1 << 20);
        }
        let found = revisions(directory.path(), 60);
        assert!((17..=36).contains(&found.len()), "{}", found.len());
        assert_eq!(found.last(), Some(&60));
        let (change, old) = change(61, 10);
        past.note(&change, Some(&old));
        past.write(Some(FLOOR_BYTES - 1));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        write(&mut past, 62, 10);
        assert_eq!(revisions(directory.path(), 62), [62]);
    }
}
