//! Reservations on disk, in upstream's format (contract §3.3): one file per address that names its owner.
//!
//! A reservation appears complete or not at all: it is written and flushed without a name and then linked to the address,
//! which fails if the address is taken. An empty file, which upstream's plugin leaves behind when it is killed, counts as
//! free. Reservations of an earlier boot are dropped, as their containers ended with it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::draft::Draft;
use super::index::{self, Index, replace};

/// How long to wait for other calls on the same network.
const LOCK_DEADLINE: Duration = Duration::from_secs(60);

/// Between the container ID and the interface name.
const LINE_BREAK: &str = "\r\n";

/// What can go wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a file or folder.
    #[error("failed to {action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A folder cannot be made.
    #[error("mkdir {path}")]
    Mkdir {
        /// The folder.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The index could not be used.
    #[error("failed to index reservations")]
    Index(#[source] index::Error),
    /// Another call held the lock for too long.
    #[error("timed out waiting for the lock of network {0}")]
    Busy(String),
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |source| Error::File { action, path, source }
}

/// Who holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    id: String,
    ifname: String,
}

impl Owner {
    /// An attachment: a container and one of its interfaces.
    pub fn new(id: &str, ifname: &str) -> Self {
        Self {
            id: id.trim().to_owned(),
            ifname: ifname.to_owned(),
        }
    }

    /// The container's ID.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn content(&self) -> String {
        format!("{}{LINE_BREAK}{}", self.id, self.ifname)
    }
}

/// The container a file's trimmed content names: all of it, or its first line.
fn id_of(content: &str) -> &str {
    content.lines().next().unwrap_or_default().trim()
}

/// A reservation that needs only an address; good for one.
#[derive(Debug)]
pub struct Reservation {
    content: String,
    draft: Draft,
}

/// The reservations of one network.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    network: String,
    index: Index,
    boot_id: String,
}

impl Store {
    /// Opens the store of `network`, making its folder if needed. `boot_id` names the running boot.
    pub fn open(data_dir: &Path, network: &str, boot_id: &str) -> Result<Self, Error> {
        let folder = data_dir.join(network);
        create_folder(&folder)?;
        let index = Index::open(data_dir, network).map_err(Error::Index)?;
        Ok(Self {
            folder,
            network: network.to_owned(),
            index,
            boot_id: boot_id.trim().to_owned(),
        })
    }

    /// Prepares a reservation for `owner`. Best done before the lock is taken, since it waits for the disk.
    pub fn prepare(&self, owner: &Owner) -> Result<Reservation, Error> {
        let content = owner.content();
        let draft = Draft::write(&self.folder, self.index.folder(), &content);
        Ok(Reservation {
            content,
            draft: draft.map_err(failed("write to", &self.folder))?,
        })
    }

    /// Takes the network's lock, which upstream's plugin honours too, and brings the store up to date.
    pub fn lock(&self) -> Result<Locked<'_>, Error> {
        let path = self.folder.join("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o750)
            .open(&path)
            .map_err(failed("open", &path))?;
        let lock = acquire(file, &path, &self.network)?;
        let mut locked = Locked {
            store: self,
            pointers: BTreeMap::new(),
            doubtful: false,
            _lock: lock,
        };
        locked.drop_earlier_boot()?;
        locked.refresh_index()?;
        Ok(locked)
    }
}

/// Makes a folder and those above it; the error names the one that failed.
fn create_folder(folder: &Path) -> Result<(), Error> {
    let failed = |source| Error::Mkdir {
        path: folder.display().to_string(),
        source,
    };
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return Err(failed(io::Error::from_raw_os_error(libc::ENOTDIR))),
        Err(_) => {}
    }
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_folder(parent)?;
    }
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        // A parallel call was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.map_err(failed),
    }
}

/// Waits for a lock at most [`LOCK_DEADLINE`].
fn acquire(file: File, path: &Path, network: &str) -> Result<Flock<File>, Error> {
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) => file,
        Err((_, errno)) => return Err(failed("lock", path)(errno.into())),
    };
    // A blocking flock has no deadline, so a thread waits; if it comes too late, its lock is dropped with it.
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut file = file;
        loop {
            match Flock::lock(file, FlockArg::LockExclusive) {
                Err((again, Errno::EINTR)) => file = again,
                outcome => {
                    let _ = sender.send(outcome.map_err(|(_, errno)| errno));
                    return;
                }
            }
        }
    });
    match receiver.recv_timeout(LOCK_DEADLINE) {
        Ok(outcome) => outcome.map_err(|errno| failed("lock", path)(errno.into())),
        Err(_) => Err(Error::Busy(network.to_owned())),
    }
}

/// The store while its lock is held.
#[derive(Debug)]
pub struct Locked<'a> {
    store: &'a Store,
    pointers: BTreeMap<usize, String>,
    /// A change failed half-way, so the index may miss what is reserved.
    doubtful: bool,
    _lock: Flock<File>,
}

impl Locked<'_> {
    fn drop_earlier_boot(&mut self) -> Result<(), Error> {
        let store = self.store;
        let boot = store.index.boot();
        if boot.as_deref() == Some(store.boot_id.as_str()) || store.boot_id.is_empty() {
            return Ok(());
        }
        if boot.is_some() {
            for (_, addr) in self.reservations()? {
                self.remove(&addr)?;
            }
            store.index.rebuild(&[]).map_err(Error::Index)?;
        }
        store.index.set_boot(&store.boot_id).map_err(Error::Index)
    }

    fn refresh_index(&mut self) -> Result<(), Error> {
        let read = |set: usize| self.pointer_text(set);
        if !self.store.index.is_current(&self.store.folder, read) {
            let reservations = self.reservations()?;
            self.rebuild_index(&reservations)?;
        }
        Ok(())
    }

    /// Indexes reservations by container: content and address of each.
    fn rebuild_index(&self, reservations: &[(String, IpAddr)]) -> Result<(), Error> {
        let by_id = reservations
            .iter()
            .map(|(content, addr)| (id_of(content).to_owned(), *addr));
        let by_id: Vec<_> = by_id.collect();
        self.store.index.rebuild(&by_id).map_err(Error::Index)
    }

    /// Notes a failed change, after which the index is not trusted.
    fn note<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        self.doubtful |= outcome.is_err();
        outcome
    }

    /// Ends the work: declares the index current again, unless a change failed. Without it, the next call builds the
    /// index anew.
    pub fn close(mut self) -> Result<(), Error> {
        if self.doubtful {
            return self.store.index.distrust().map_err(Error::Index);
        }
        for set in 0.. {
            match self.pointer_text(set) {
                Some(addr) => self.pointers.insert(set, addr),
                None => break,
            };
        }
        self.store
            .index
            .stamp(&self.store.folder, &self.pointers)
            .map_err(Error::Index)
    }

    /// The address last handed out from a range set.
    pub fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        self.pointer_text(set)?.parse().ok()
    }

    fn pointer(&self, set: usize) -> PathBuf {
        self.store.folder.join(format!("last_reserved_ip.{set}"))
    }

    fn pointer_text(&self, set: usize) -> Option<String> {
        fs::read_to_string(self.pointer(set))
            .ok()
            .map(|text| text.trim().to_owned())
    }

    /// Whether an address is held by anybody.
    pub fn is_taken(&self, addr: &IpAddr) -> Result<bool, Error> {
        let path = self.path(addr);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() && metadata.len() == 0 => {
                self.remove(addr)?;
                Ok(false)
            }
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("stat", &path)(error)),
        }
    }

    /// Reserves an address and remembers it as the last of range set `set`. False: it is taken.
    pub fn reserve(&mut self, reservation: &Reservation, addr: IpAddr, set: usize) -> Result<bool, Error> {
        let outcome = self.try_reserve(reservation, addr, set);
        self.note(outcome)
    }

    fn try_reserve(&self, reservation: &Reservation, addr: IpAddr, set: usize) -> Result<bool, Error> {
        if self.is_taken(&addr)? {
            return Ok(false);
        }
        let index = &self.store.index;
        let id = id_of(&reservation.content);
        let mut held = index.addresses(id);
        held.retain(|other| *other != addr);
        held.push(addr);
        index.set_addresses(id, &held).map_err(Error::Index)?;
        let path = self.path(&addr);
        match reservation.draft.link(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            outcome => outcome.map_err(failed("reserve", &path))?,
        }
        let pointer = self.pointer(set);
        replace(&index.scratch(), &pointer, &addr.to_string(), false).map_err(failed("write", &pointer))?;
        Ok(true)
    }

    /// The addresses `owner` holds, also by files of old plugins that name the container alone.
    pub fn addresses_of(&self, owner: &Owner) -> Vec<IpAddr> {
        let known = [owner.content(), owner.id.clone()];
        let mut addresses = self.store.index.addresses(&owner.id);
        addresses.retain(|addr| self.content(addr).is_some_and(|content| known.contains(&content)));
        addresses
    }

    /// Frees what `owner` holds; holding nothing is no error. Files of old plugins that name the container alone are
    /// freed when no other match.
    pub fn release(&mut self, owner: &Owner) -> Result<(), Error> {
        let outcome = self.try_release(owner);
        self.note(outcome)
    }

    fn try_release(&self, owner: &Owner) -> Result<(), Error> {
        let mut left = self.store.index.addresses(&owner.id);
        for content in [owner.content(), owner.id.clone()] {
            let holds = |addr: &IpAddr| self.content(addr).as_deref() == Some(content.as_str());
            let (held, others): (Vec<_>, Vec<_>) = left.into_iter().partition(holds);
            held.iter().try_for_each(|addr| self.remove(addr))?;
            left = others;
            if !held.is_empty() {
                break;
            }
        }
        // What other interfaces of the container hold.
        left.retain(|addr| self.content(addr).is_some_and(|content| id_of(&content) == owner.id));
        self.store.index.set_addresses(&owner.id, &left).map_err(Error::Index)
    }

    /// Frees one address, if `owner` holds it.
    pub fn release_address(&mut self, owner: &Owner, addr: &IpAddr) -> Result<(), Error> {
        let outcome = self.try_release_address(owner, addr);
        self.note(outcome)
    }

    fn try_release_address(&self, owner: &Owner, addr: &IpAddr) -> Result<(), Error> {
        if self.content(addr).as_deref() == Some(owner.content().as_str()) {
            self.remove(addr)?;
        }
        let mut left = self.store.index.addresses(&owner.id);
        left.retain(|other| other != addr);
        self.store.index.set_addresses(&owner.id, &left).map_err(Error::Index)
    }

    /// Frees everything that belongs to none of the valid attachments (container ID, interface name).
    pub fn retain(&mut self, valid: &[(String, String)]) -> Result<(), Error> {
        let outcome = self.try_retain(valid);
        self.note(outcome)
    }

    fn try_retain(&self, valid: &[(String, String)]) -> Result<(), Error> {
        let contents: std::collections::BTreeSet<String> = valid
            .iter()
            .flat_map(|(id, ifname)| [Owner::new(id, ifname).content(), id.trim().to_owned()])
            .collect();
        let (kept, freed): (Vec<_>, Vec<_>) = self
            .reservations()?
            .into_iter()
            .partition(|(content, _)| contents.contains(content));
        freed.iter().try_for_each(|(_, addr)| self.remove(addr))?;
        self.rebuild_index(&kept)
    }

    /// Every reservation: its file's trimmed content and its address.
    pub fn reservations(&self) -> Result<Vec<(String, IpAddr)>, Error> {
        let folder = &self.store.folder;
        let mut reservations = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
            let entry = entry.map_err(failed("list", folder))?;
            let name = entry.file_name();
            let Some(addr) = name.to_str().and_then(|name| name.parse::<IpAddr>().ok()) else {
                continue;
            };
            reservations.extend(self.content(&addr).map(|content| (content, addr)));
        }
        reservations.sort_by_key(|(_, addr)| *addr);
        Ok(reservations)
    }

    fn path(&self, addr: &IpAddr) -> PathBuf {
        self.store.folder.join(addr.to_string())
    }

    fn content(&self, addr: &IpAddr) -> Option<String> {
        fs::read(self.path(addr))
            .ok()
            .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn remove(&self, addr: &IpAddr) -> Result<(), Error> {
        let path = self.path(addr);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path)(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
