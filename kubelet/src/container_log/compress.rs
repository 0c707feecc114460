//! Writes a log that was put aside into a compressed one.

use super::files::{COMPRESSED, UNFINISHED};
use crate::host::directory::Directory;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: usize = 64 << 10;

/// What may be interrupted between two of its effects: tests do, as `kill -9` does.
pub(super) type Gate<'a> = &'a mut dyn FnMut(&'static str);

/// Compresses `name`. At every moment either it or the finished compressed log is there, whole.
///
/// # Errors
/// It is no plain file with one name, there is no room, or the kubelet stops: then the original stays, and nothing else.
pub(super) fn compress(directory: &Directory, name: &str, stopping: &AtomicBool, gate: Gate<'_>) -> io::Result<()> {
    let source = directory.read(name)?;
    let (unfinished, finished) = (format!("{name}{UNFINISHED}"), format!("{name}{COMPRESSED}"));
    let target = directory.create(&unfinished)?;
    gate("begun");
    let written = write(source, target, stopping);
    if let Err(error) = written {
        // What is half written is of no use; where it cannot be removed, the next rotation does.
        let _ = directory.remove(&unfinished);
        return Err(error);
    }
    gate("written");
    directory.replace(&unfinished, &finished)?;
    gate("finished");
    directory.remove(name)
}

fn write(mut source: fs::File, target: fs::File, stopping: &AtomicBool) -> io::Result<()> {
    let about = source.metadata()?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    let mut block = vec![0; BLOCK];
    // No more than there was: somebody may go on writing to it for ever.
    let mut left = about.len();
    while left > 0 {
        if stopping.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the kubelet stops"));
        }
        let most = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let size = source.read(&mut block[..most])?;
        if size == 0 {
            break;
        }
        encoder.write_all(&block[..size])?;
        left -= size as u64;
    }
    let target = encoder.finish()?;
    // Whoever may read the log may read this; first its owner, who may not change its mode otherwise.
    fchown(&target, Some(about.uid()), Some(about.gid()))?;
    target.set_permissions(fs::Permissions::from_mode(about.permissions().mode() & 0o777))?;
    target.set_modified(about.modified()?)?;
    // The original goes next: after a power failure one of the two is there.
    target.sync_all()
}
