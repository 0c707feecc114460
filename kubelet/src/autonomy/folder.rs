//! Sealed files in one directory: each is there whole, as it was or as it is, or absent.
//!
//! Owns the directory, and the bounds of what may lie in it. Knows nothing of what is sealed. Blocks.

use super::seal::{self, Found, NodeKey};
use crate::planted::{self, Fault};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file on its way; what a crash leaves of it is removed when the folder is opened.
const UNFINISHED: &str = "unfinished.tmp";

/// How much a folder may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes of one content.
    pub(super) content: usize,
    /// Bytes of all files.
    pub(super) bytes: u64,
    /// Files.
    pub(super) files: usize,
}

/// A pod's status and what the API server takes of one object, sealed, of every pod of a large node.
pub(super) const BOUNDS: Bounds = Bounds {
    content: 4 << 20,
    bytes: 256 << 20,
    files: 16_384,
};

/// Why something is not kept, or cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    /// The disk.
    #[error("{path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file was cut, changed, swapped, or sealed with another key.
    #[error("{0} does not open with this node's key")]
    Spoiled(PathBuf),
    /// It is too large.
    #[error("{bytes} bytes are too many to be kept")]
    Large {
        /// How large.
        bytes: usize,
    },
    /// There is no more room.
    #[error("no more than {} MiB in {} files are kept", .0.bytes >> 20, .0.files)]
    Full(Bounds),
}

/// A directory of sealed files.
pub(super) struct Folder {
    directory: PathBuf,
    key: NodeKey,
    bounds: Bounds,
    /// The files there are, with their bytes.
    sizes: BTreeMap<String, u64>,
    /// All their bytes.
    held: u64,
}

impl Folder {
    /// Opens the directory, or makes it, with the key at `key`.
    ///
    /// # Errors
    /// The directory or the key is of no use.
    pub(super) fn open(directory: &Path, key: &Path, bounds: Bounds) -> Result<(Self, Found), FolderError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderError::Io { path, source }
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(failed(directory))?;
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(directory, private).map_err(failed(directory))?;
        let (key, found) = NodeKey::open(key).map_err(failed(key))?;
        let mut sizes = BTreeMap::new();
        for entry in fs::read_dir(directory).map_err(failed(directory))? {
            let entry = entry.map_err(failed(directory))?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let Ok(metadata) = entry.metadata() else { continue };
            if name == UNFINISHED {
                fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
            } else if metadata.is_file() {
                sizes.insert(name, metadata.len());
            }
        }
        let folder = Self {
            directory: directory.to_owned(),
            key,
            bounds,
            held: sizes.values().sum(),
            sizes,
        };
        Ok((folder, found))
    }

    /// The names of the files there are.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.sizes.keys()
    }

    /// The content of a file, if there is one.
    ///
    /// # Errors
    /// There is one that cannot be read or does not open.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FolderError> {
        if !self.sizes.contains_key(name) {
            return Ok(None);
        }
        let path = self.directory.join(name);
        let most = self.bounds.content + seal::OVERHEAD;
        let read = || {
            let mut sealed = Vec::new();
            File::open(&path)?.take(most as u64 + 1).read_to_end(&mut sealed)?;
            Ok(sealed)
        };
        let sealed = read().map_err(|source| FolderError::Io {
            path: path.clone(),
            source,
        })?;
        let content = self.key.unseal(name, &sealed);
        content.map(Some).ok_or(FolderError::Spoiled(path))
    }

    /// Puts a content in place of what the file had. After a crash it is one or the other; with [`Folder::sync`] it is this one.
    ///
    /// # Errors
    /// The disk, or a bound, refuses: the file has what it had.
    pub(super) fn write(&mut self, name: &str, content: Vec<u8>) -> Result<(), FolderError> {
        let bytes = content.len();
        if bytes > self.bounds.content {
            return Err(FolderError::Large { bytes });
        }
        let old = self.sizes.get(name).copied();
        if old.is_some() && planted::is(Fault::KeptForGood) {
            return Ok(());
        }
        let files = self.sizes.len() + usize::from(old.is_none());
        let size = (bytes + seal::OVERHEAD) as u64;
        let held = self.held - old.unwrap_or(0) + size;
        if files > self.bounds.files || held > self.bounds.bytes {
            return Err(FolderError::Full(self.bounds));
        }
        let (beside, path) = (self.directory.join(UNFINISHED), self.directory.join(name));
        let written = self.key.seal(name, content).and_then(|sealed| {
            seal::write_private(&beside, &sealed)?;
            fs::rename(&beside, &path)
        });
        match written {
            Ok(()) => {
                self.sizes.insert(name.to_owned(), size);
                self.held = held;
                Ok(())
            }
            Err(source) => {
                // On a full disk its bytes are somebody's.
                let _ = fs::remove_file(&beside);
                Err(FolderError::Io { path, source })
            }
        }
    }

    /// Removes a file; one that is not there is removed. After a crash it may be back until [`Folder::sync`].
    ///
    /// # Errors
    /// The disk.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), FolderError> {
        if planted::is(Fault::KeptForGood) {
            return Ok(());
        }
        let path = self.directory.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(FolderError::Io { path, source }),
            _ => {
                self.held -= self.sizes.remove(name).unwrap_or(0);
                Ok(())
            }
        }
    }

    /// Waits until everything written and removed stays so.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn sync(&self) -> Result<(), FolderError> {
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|source| FolderError::Io {
            path: self.directory.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(root: &Path, bounds: Bounds) -> Folder {
        let opened = Folder::open(&root.join("kept"), &root.join("kept.key"), bounds);
        opened.expect("a folder").0
    }

    fn read(folder: &Folder, name: &str) -> Option<Vec<u8>> {
        folder.read(name).expect("it opens")
    }

    #[test]
    fn what_was_written_is_there_again_and_only_for_its_owner() {
        let root = tempfile::tempdir().expect("a directory");
        let mut folder = open(root.path(), BOUNDS);
        folder.write("a", b"1".to_vec()).expect("written");
        folder.write("a", b"2".to_vec()).expect("written");
        folder.write("b", b"3".to_vec()).expect("written");
        folder.remove("b").expect("removed");
        folder.remove("b").expect("removed already");
        folder.sync().expect("synced");
        // A crash before the rename.
        fs::write(root.path().join("kept").join(UNFINISHED), "half").expect("written");
        let folder = open(root.path(), BOUNDS);
        assert_eq!(folder.names().collect::<Vec<_>>(), ["a"]);
        assert_eq!(read(&folder, "a").as_deref(), Some(&b"2"[..]));
        assert_eq!((read(&folder, "b"), read(&folder, "c")), (None, None));
        let mode = |path: &str| {
            fs::metadata(root.path().join(path))
                .expect("there")
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode("kept"), mode("kept/a"), mode("kept.key")), (0o700, 0o600, 0o600));
    }

    #[test]
    fn spoiled_files_do_not_open_and_the_others_do() {
        let root = tempfile::tempdir().expect("a directory");
        let mut folder = open(root.path(), BOUNDS);
        for name in ["a", "b", "c", "d"] {
            folder.write(name, name.into()).expect("written");
        }
        let path = |name: &str| root.path().join("kept").join(name);
        fs::copy(path("a"), path("b")).expect("swapped");
        fs::write(path("c"), &fs::read(path("c")).expect("there")[..9]).expect("cut");
        for name in ["b", "c"] {
            assert!(matches!(folder.read(name), Err(FolderError::Spoiled(_))), "{name}");
        }
        assert!(read(&folder, "a").is_some() && read(&folder, "d").is_some());
        folder.write("b", b"new".to_vec()).expect("written over");
        assert_eq!(read(&folder, "b").as_deref(), Some(&b"new"[..]));
        fs::remove_file(root.path().join("kept.key")).expect("removed");
        let folder = open(root.path(), BOUNDS);
        assert!(matches!(folder.read("a"), Err(FolderError::Spoiled(_))), "another key");
    }

    #[test]
    fn bounds_and_a_disk_that_refuses_leave_what_there_was() {
        let root = tempfile::tempdir().expect("a directory");
        let bounds = Bounds {
            content: 100,
            bytes: 250,
            files: 3,
        };
        let mut folder = open(root.path(), bounds);
        assert!(matches!(
            folder.write("a", vec![0; 101]),
            Err(FolderError::Large { bytes: 101 })
        ));
        folder.write("a", vec![0; 100]).expect("written");
        assert!(matches!(folder.write("b", vec![0; 100]), Err(FolderError::Full(_))));
        folder.write("a", vec![1; 100]).expect("in its own place");
        folder.write("b", vec![]).expect("written");
        folder.write("c", vec![]).expect("written");
        assert!(
            matches!(folder.write("d", vec![]), Err(FolderError::Full(_))),
            "a fourth file"
        );
        folder.remove("b").expect("removed");
        // Nothing can be renamed over a directory.
        fs::create_dir(root.path().join("kept/b")).expect("made");
        assert!(matches!(folder.write("b", vec![]), Err(FolderError::Io { .. })));
        assert!(!root.path().join("kept").join(UNFINISHED).exists());
        assert_eq!(read(&folder, "a"), Some(vec![1; 100]));
    }
}
