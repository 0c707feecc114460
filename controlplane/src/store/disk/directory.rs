//! The directory a store lives in: one process at a time, and the space its disk has left.
//!
//! Owns the lock, the measuring of space, the mark of a compaction that has begun and what the kernel is told of its cache; what is done
//! about space is `reserve`'s and `compaction`'s. Knows nothing of what is stored.

use super::reserve::Told;
use crate::store::StoreError;
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{EXT4_SUPER_MAGIC, TMPFS_MAGIC};
use nix::unistd::{Whence, lseek};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::time::Instant;

/// There as long as a compaction is under way, and after one that failed.
const COMPACTING: &str = "compacting";

/// How many bytes are free for files in an open directory; `None` when nobody knows. It is asked for each commit: the way to the directory
/// is not gone again for that. Of the directory itself, because a project's quota is told of directories alone.
pub(super) type FreeSpace = Box<dyn Fn(&File) -> Option<u64> + Send>;

/// Has a file read from its disk again.
pub(super) type Forget = Box<dyn Fn(&Path) -> std::io::Result<()> + Send>;

/// The data directory, held by this process as long as the value lives.
pub(super) struct Directory {
    path: PathBuf,
    open: File,
    /// How free space is measured: the file system's word, unless a test has another disk.
    pub(super) free_space: FreeSpace,
    /// How the kernel is made to forget what it has of a file, unless a test has another disk.
    pub(super) forget: Forget,
    /// Whether a block that is written over stays where it is: what the file system is known for, unless a test has another.
    pub(super) writes_in_place: bool,
    /// The time, unless a test has another.
    pub(super) now: Box<dyn FnMut() -> Instant + Send>,
    lock: File,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing it is not enough: a child that is being started has it, too, until its program begins, and would hold what this
        // process opens again. What cannot be unlocked is let go of with the last of them.
        let _ = self.lock.unlock();
    }
}

impl Directory {
    /// Makes and locks it.
    ///
    /// # Errors
    /// `Unusable`, naming the process that holds it.
    pub(super) fn hold(path: &Path) -> Result<Self, StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| unusable(path, "cannot be made", &error))?;
        // Whoever made it: what is in it is for nobody else, Secrets in clear, and a lock that anybody who may read it can hold.
        narrow(path, 0o700)?;
        Ok(Self {
            path: path.to_owned(),
            open: File::open(path).map_err(|error| unusable(path, "cannot be opened", &error))?,
            free_space: Box::new(available_bytes),
            forget: Box::new(forget_cached),
            writes_in_place: writes_in_place(path),
            now: Box::new(Instant::now),
            lock: lock(path)?,
        })
    }

    /// Makes sure that a file, which is made if there is none, is its owner's alone; gives its path.
    ///
    /// # Errors
    /// `Unusable`, naming the file.
    pub(super) fn private(&self, file: &str) -> Result<PathBuf, StoreError> {
        let path = self.path.join(file);
        open_private(&path).map_err(|error| unusable(&path, "cannot be opened", &error))?;
        narrow(&path, 0o600)?;
        Ok(path)
    }

    /// Free space in bytes; `None` when nobody knows.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        (self.free_space)(&self.open)
    }

    /// How much of the disk a file takes, in bytes; 0 when nobody knows.
    pub(super) fn backed_bytes(&self, file: &str) -> u64 {
        let found = std::fs::metadata(self.path.join(file));
        found.map_or(0, |found| found.blocks().saturating_mul(512))
    }

    /// How much space writing over the first `front_bytes` of a file may take, in bytes: its holes before the last data, or all of
    /// it where the file system may put what is written over elsewhere, or cannot be asked.
    pub(super) fn unbacked_bytes(&self, file: &str, front_bytes: u64) -> u64 {
        match self.writes_in_place {
            true => holes(&self.path.join(file), front_bytes).unwrap_or(front_bytes),
            false => front_bytes,
        }
    }

    /// Notes that a compaction begins.
    ///
    /// # Errors
    /// The file system's, for instance that it is full.
    pub(super) fn compaction_begins(&self) -> std::io::Result<()> {
        let mark = File::create(self.path.join(COMPACTING))?;
        mark.sync_all()
    }

    /// Notes that a compaction has come to its end.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn compaction_succeeded(&self) -> std::io::Result<()> {
        std::fs::remove_file(self.path.join(COMPACTING))
    }

    /// Whether the last compaction that began has not come to its end: it failed, or the process ended meanwhile.
    pub(super) fn compaction_failed(&self) -> bool {
        self.path.join(COMPACTING).exists()
    }

    /// A file could not be written: whoever opens it next reads what its disk has, not what was to be there.
    pub(super) fn distrust(&self, file: &str) {
        let path = self.path.join(file);
        if let Err(error) = (self.forget)(&path) {
            let path = path.display();
            tracing::error!(%path, %error, "what the kernel has of the store may not be on its disk; restart the machine before it is used again");
        }
    }

    /// Says in the log that writes begin to be refused, as one of them was told, or that none is any more.
    pub(super) fn tell(&self, told: Told, refusal: Option<&StoreError>) {
        let path = self.path.display();
        match (told, refusal) {
            (Told::Scarce, Some(refusal)) => {
                tracing::error!(%path, error = %refusal, "the disk is nearly full: writes are refused until there is space");
            }
            _ => tracing::info!(%path, "there is space for the store again: no write is refused"),
        }
    }

    /// Says that a file of so many bytes may have room inside that is not given back while anybody waits.
    pub(super) fn tell_room(&self, file_bytes: u64) {
        let (path, file_mib) = (self.path.display(), file_bytes >> 20);
        tracing::warn!(
            %path,
            file_mib,
            "the disk is nearly full, and what was deleted may have left room in the store's file; giving it back takes too long while \
             anything is written: start the control plane again, which does it first"
        );
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

/// Drops what the kernel has cached of a file and takes for written. When a sync fails, Linux takes the pages for written all the same
/// (fsync(2), `EIO`): without this they are read, and built upon, by the next process, and lost with the cache.
///
/// # Errors
/// The file system's.
pub(super) fn forget_cached(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    // Of all of it (posix_fadvise(2)).
    Ok(posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}

fn available_bytes(directory: &File) -> Option<u64> {
    let found = nix::sys::statvfs::fstatvfs(directory).ok()?;
    Some(found.blocks_available().saturating_mul(found.fragment_size()))
}

/// Whether a block that is written over stays where it is, for certain: on ext2, ext3 and ext4, which share a number, and on tmpfs.
/// Others may write elsewhere, always (btrfs, bcachefs, ZFS) or now and then (XFS where extents are shared), or stand upon one that
/// does (overlayfs).
fn writes_in_place(path: &Path) -> bool {
    let kind = nix::sys::statfs::statfs(path).map(|found| found.filesystem_type());
    kind.is_ok_and(|kind| [EXT4_SUPER_MAGIC, TMPFS_MAGIC].contains(&kind))
}

/// The bytes of the file's front that no disk stands behind though data follows (lseek(2), `SEEK_DATA` and `SEEK_HOLE`).
fn holes(path: &Path, front_bytes: u64) -> Option<u64> {
    let file = File::open(path).ok()?;
    let end = i64::try_from(front_bytes.min(file.metadata().ok()?.len())).ok()?;
    let (mut at, mut found) = (0, 0);
    while at < end {
        let data = match lseek(&file, at, Whence::SeekData) {
            Ok(data) => data.min(end),
            // Only a hole follows.
            Err(Errno::ENXIO) => break,
            Err(_) => return None,
        };
        found += data - at;
        if data == end {
            break;
        }
        at = lseek(&file, data, Whence::SeekHole).ok()?;
    }
    u64::try_from(found).ok()
}

/// Opens a file, or makes it, for its owner alone.
fn open_private(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

/// Takes away what `mode` does not allow.
fn narrow(path: &Path, mode: u32) -> Result<(), StoreError> {
    let narrowed = std::fs::metadata(path).and_then(|found| {
        let present = found.permissions().mode() & 0o7777;
        match present & !mode {
            0 => Ok(()),
            _ => std::fs::set_permissions(path, Permissions::from_mode(present & mode)),
        }
    });
    narrowed.map_err(|error| unusable(path, "cannot be closed to others", &error))
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join("lock");
    let mut file = open_private(&path).map_err(|error| unusable(&path, "cannot be opened", &error))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_known_for_it_write_in_place() {
        assert!(!writes_in_place(Path::new("/proc")));
        assert!(!writes_in_place(Path::new("/none")), "nobody knows");
    }

    /// What a child has between its fork and its program is the same open file.
    #[test]
    fn what_is_let_go_of_is_free_whoever_has_been_forked_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let held = Directory::hold(directory.path()).unwrap();
        let forked = held.lock.try_clone().unwrap();
        assert!(Directory::hold(directory.path()).is_err());
        drop(held);
        drop(Directory::hold(directory.path()).unwrap());
        drop(forked);
    }

    #[test]
    fn what_is_stored_is_its_owners_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("made-by-another");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("state.redb"), "").unwrap();
        std::fs::write(path.join("lock"), "").unwrap();
        for (name, mode) in [("", 0o755), ("state.redb", 0o644)] {
            std::fs::set_permissions(path.join(name), Permissions::from_mode(mode)).unwrap();
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let held = Directory::hold(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        for name in ["state.redb", "new"] {
            assert_eq!(mode(&held.private(name).unwrap()), 0o600, "{name}");
        }
        let new = parent.path().join("new");
        drop(Directory::hold(&new).unwrap());
        assert_eq!((mode(&new), mode(&new.join("lock"))), (0o700, 0o600));
    }

    #[test]
    fn holes_are_counted_as_far_as_the_front_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let mut file = File::create(&path).unwrap();
        file.set_len(4 << 20).unwrap();
        assert_eq!(holes(&path, 1 << 20), Some(0), "no data follows");
        file.write_all(&[1; 1 << 20]).unwrap();
        file.seek(std::io::SeekFrom::Start(2 << 20)).unwrap();
        file.write_all(&[1; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        assert_eq!(holes(&path, 1 << 20), Some(0));
        assert_eq!(holes(&path, u64::MAX), Some(1 << 20));
        assert_eq!(holes(&path, 3 << 19), Some(1 << 19));
        let mut held = Directory::hold(directory.path()).unwrap();
        assert!(held.backed_bytes("f") >= 2 << 20);
        held.writes_in_place = true;
        assert_eq!(held.unbacked_bytes("f", 1 << 20), 0);
        assert_eq!(held.unbacked_bytes("none", 7), 7, "nobody knows");
        held.writes_in_place = false;
        assert_eq!(held.unbacked_bytes("f", 1 << 20), 1 << 20);
    }
}
