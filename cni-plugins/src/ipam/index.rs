//! The index beside the reservations: which addresses an owner holds, so that neither ADD nor DEL reads every file.
//!
//! It is never the truth. An entry is written before its reservation and removed after it, so it may name an address that
//! is not held (the reader looks) but never misses one this program reserved. A stamp of the reservations' folder tells
//! whether somebody else changed it, or this program was killed in between; the index is then built anew.
//!
//! It also remembers the boot the reservations belong to.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The index cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {path}")]
pub struct Error {
    action: &'static str,
    path: String,
    #[source]
    source: io::Error,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |source| Error { action, path, source }
}

/// The index of one network. The caller holds the network's lock.
#[derive(Debug)]
pub struct Index {
    folder: PathBuf,
}

impl Index {
    /// Opens the index of `network`, which lies beside the network's folder, where upstream's plugin does not look.
    pub fn open(data_dir: &Path, network: &str) -> Result<Self, Error> {
        let folder = data_dir.join(".index").join(network);
        let owners = folder.join("owners");
        fs::create_dir_all(&owners).map_err(failed("create", &owners))?;
        Ok(Self { folder })
    }

    /// The index's own folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a file can be written before it gets its final name: on the same file system as the reservations.
    pub fn scratch(&self) -> PathBuf {
        self.folder.join("new")
    }

    /// The boot the reservations belong to, if that was noted.
    pub fn boot(&self) -> Option<String> {
        fs::read_to_string(self.folder.join("boot"))
            .ok()
            .filter(|text| !text.is_empty())
    }

    /// Notes the boot, surviving a loss of power.
    pub fn set_boot(&self, boot_id: &str) -> Result<(), Error> {
        let path = self.folder.join("boot");
        replace(&self.scratch(), &path, boot_id, true).map_err(failed("write", &path))
    }

    /// Whether the index describes the folder as it is now. `last_reserved` reads the pointer of a range set.
    pub fn is_current(&self, reservations: &Path, last_reserved: impl Fn(usize) -> Option<String>) -> bool {
        let Ok(stamp) = fs::read_to_string(self.folder.join("stamp")) else {
            return false;
        };
        let mut lines = stamp.lines();
        if lines.next().map(str::to_owned) != folder_stamp(reservations).ok() {
            return false;
        }
        lines.all(|line| {
            let (set, addr) = line.split_once(' ').unwrap_or_default();
            set.parse().is_ok_and(|set| last_reserved(set).as_deref() == Some(addr))
        })
    }

    /// Declares the index current.
    pub fn stamp(&self, reservations: &Path, pointers: &BTreeMap<usize, String>) -> Result<(), Error> {
        let path = self.folder.join("stamp");
        let mut text = folder_stamp(reservations).map_err(failed("stat", reservations))?;
        for (set, addr) in pointers {
            text.push_str(&format!("\n{set} {addr}"));
        }
        fs::write(&path, text).map_err(failed("write", &path))
    }

    /// Takes that declaration back: the next call builds the index anew.
    pub fn distrust(&self) -> Result<(), Error> {
        let path = self.folder.join("stamp");
        remove(&path).map_err(failed("remove", &path))
    }

    /// The addresses `owner` may hold.
    pub fn addresses(&self, owner: &str) -> Vec<IpAddr> {
        let text = fs::read_to_string(self.entry(owner)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Replaces the addresses of `owner`.
    pub fn set_addresses(&self, owner: &str, addresses: &[IpAddr]) -> Result<(), Error> {
        let path = self.entry(owner);
        if addresses.is_empty() {
            return remove(&path).map_err(failed("remove", &path));
        }
        let text: String = addresses.iter().map(|addr| format!("{addr}\n")).collect();
        replace(&self.scratch(), &path, &text, false).map_err(failed("write", &path))
    }

    /// Builds the index from all reservations: pairs of owner and address.
    pub fn rebuild(&self, reservations: &[(String, IpAddr)]) -> Result<(), Error> {
        let owners = self.folder.join("owners");
        self.distrust()?;
        clear(&owners).map_err(failed("clear", &owners))?;
        self.remove_drafts();
        let mut by_owner: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
        for (owner, addr) in reservations {
            by_owner.entry(owner).or_default().push(*addr);
        }
        by_owner
            .into_iter()
            .try_for_each(|(owner, addresses)| self.set_addresses(owner, &addresses))
    }

    /// Removes drafts with a name that killed processes left.
    fn remove_drafts(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name.strip_prefix("draft-").and_then(|rest| rest.split('-').next());
            if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn entry(&self, owner: &str) -> PathBuf {
        let digest = Sha256::digest(owner.as_bytes());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        self.folder.join("owners").join(name)
    }
}

/// Removes the files of a folder. The folder itself stays, since another call may be opening it without the lock.
fn clear(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::read_dir(folder)?.try_for_each(|entry| remove(&entry?.path()))
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file under another name and renames it, so it is never seen half written.
pub(super) fn replace(scratch: &Path, path: &Path, text: &str, durable: bool) -> io::Result<()> {
    let file = create_scratch(scratch, text)?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(scratch, path)
}

/// Makes the scratch file anew; a kill may have left an old one.
fn create_scratch(scratch: &Path, text: &str) -> io::Result<fs::File> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    remove(scratch)?;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(scratch)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

fn folder_stamp(folder: &Path) -> io::Result<String> {
    let metadata = fs::metadata(folder)?;
    // What the index is ordered by is part of it: another version's is built anew.
    Ok(format!(
        "by container {}:{} {}.{:09}",
        metadata.dev(),
        metadata.ino(),
        metadata.mtime(),
        metadata.mtime_nsec()
    ))
}
