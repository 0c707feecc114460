//! Volumes whose files the file system counts itself: project quotas for emptyDirs on disk (KEP-1029), so that nobody has to walk through
//! them.
//!
//! A volume of a pod with users of its own has a project while it is there, if the gate is on and the file system counts projects: any
//! other pod's root could take its files out of it. Which directory has which is in the node's lists (`/etc/projects`, `/etc/projid`) and
//! in the directory itself: both must agree, so that the next kubelet goes on with it and nobody else's project is taken for a volume's.
//! Nothing is limited by it and no volume fails for it: whatever cannot be counted so is counted file by file, and that is told once.

mod files;
mod lists;

use crate::host::project::{self, ProjectQuotas, ProjectUse};
use crate::host::usage::{self, TreeUsage};
use client::ordered::CollectOrdered;
use files::ListFiles;
use lists::{FIRST, Lists};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many volumes of the node, and of one pod, have a project: each is a line in a list that is written anew for each.
const VOLUMES_MAX: usize = 4096;
const OF_A_POD_MAX: usize = 32;
/// How many projects that others use without a line are passed over in the search for a free one, as upstream does.
const IN_USE_MAX: usize = 128;
/// More than any file system has: a limit that only has a project counted, in bytes, as upstream's on ext4.
const NO_LIMIT: u64 = (1 << 58) - 1;

/// Which volumes have projects. Clones are the same; the default has none.
#[derive(Clone, Debug, Default)]
pub struct Projects(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    quotas: Arc<dyn ProjectQuotas>,
    files: ListFiles,
    /// Volumes' directories with their projects, as far as the lists say; nothing before somebody asks.
    known: Mutex<Option<BTreeMap<PathBuf, u32>>>,
    /// Who changes the lists.
    turn: Mutex<()>,
    /// What was told already.
    told: Mutex<BTreeSet<Hindrance>>,
}

/// Why a volume's files are counted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hindrance {
    /// The file system counts no projects.
    Uncounted,
    /// There are as many as there may be.
    Many,
    /// A project cannot be given.
    Give,
    /// What one has is not told.
    Read,
    /// The lists cannot be read, or a volume that goes stays in them.
    Lists,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Projects {
    /// Volumes' projects, in lists below `etc`.
    pub fn new(quotas: Arc<dyn ProjectQuotas>, etc: &Path) -> Self {
        Self(Some(Arc::new(Inner {
            quotas,
            files: ListFiles::new(etc),
            known: Mutex::default(),
            turn: Mutex::default(),
            told: Mutex::default(),
        })))
    }

    /// Gives a new volume a project, before anybody writes into it. `pods` is where all pods' directories are.
    pub(super) fn assign(&self, pods: &Path, volume: &Path) {
        let Some(inner) = &self.0 else { return };
        if let Err((hindrance, error)) = inner.assign(pods, volume) {
            inner.tell(hindrance, volume, &error);
        }
    }

    /// Takes the projects of all volumes below a pod's directory back.
    pub(super) fn take_back(&self, pod: &Path) {
        let Some(inner) = &self.0 else { return };
        if let Err(error) = inner.take_back(pod) {
            inner.tell(Hindrance::Lists, pod, &error);
        }
    }

    /// What is at `root` and below: as the file system counted it, else counted file by file until `given_up`.
    ///
    /// # Errors
    /// `root` cannot be opened.
    pub fn count(&self, root: &Path, given_up: &AtomicBool) -> io::Result<TreeUsage> {
        let counted = self.0.as_ref().and_then(|inner| inner.counted(root));
        counted.map_or_else(|| usage::tree(root, given_up), Ok)
    }
}

impl Inner {
    /// Tells once of each hindrance.
    fn tell(&self, hindrance: Hindrance, path: &Path, error: &io::Error) {
        if locked(&self.told).insert(hindrance) {
            let path = path.display();
            tracing::warn!(%path, %error, "a volume's files are counted one by one, not by project quotas; so may be others', which is not told again");
        }
    }

    /// Works with what is known, which the lists told first. They are read again until they can be.
    fn known<T>(&self, work: impl FnOnce(&mut BTreeMap<PathBuf, u32>) -> T) -> io::Result<T> {
        let mut known = locked(&self.known);
        let known = match &mut *known {
            Some(known) => known,
            empty => empty.insert(self.files.read()?.directories()),
        };
        Ok(work(known))
    }

    fn assign(&self, pods: &Path, volume: &Path) -> Result<(), (Hindrance, io::Error)> {
        let of_lists = |error| (Hindrance::Lists, error);
        let failed = |error| (Hindrance::Give, error);
        let directory = project::open(volume).map_err(failed)?;
        if !self.quotas.are_counted(directory.as_fd()).map_err(failed)? {
            let error = io::Error::new(io::ErrorKind::Unsupported, "the file system counts no projects");
            return Err((Hindrance::Uncounted, error));
        }
        // What is in it already would not be counted.
        if fs::read_dir(volume).map_err(failed)?.next().is_some() {
            return Ok(());
        }
        let _turn = locked(&self.turn);
        let id = match self.known(|known| known.get(volume).copied()).map_err(of_lists)? {
            // Whoever gave it one died before the directory had it.
            Some(id) => id,
            None => {
                self.make_room(pods, volume)?;
                self.list(pods, volume, directory.as_fd()).map_err(of_lists)?
            }
        };
        let given = self.quotas.limit(directory.as_fd(), id, NO_LIMIT);
        let given = given.and_then(|()| self.quotas.set_project(directory.as_fd(), id));
        given.map_err(|error| match self.unlist(&BTreeSet::from([volume.to_owned()])) {
            Ok(()) => failed(error),
            Err(unlisted) => of_lists(unlisted),
        })
    }

    /// Forgets volumes that are gone; an error if there are as many as there may be.
    fn make_room(&self, pods: &Path, volume: &Path) -> Result<(), (Hindrance, io::Error)> {
        let pod = volume.strip_prefix(pods).ok().and_then(|rest| rest.iter().next());
        let pod = pods.join(pod.unwrap_or_default());
        let room = self.known(|known| {
            known.retain(|path, _| !is_gone(pods, path));
            let below = |of: &Path| known.keys().filter(|path| path.starts_with(of)).count();
            below(pods) < VOLUMES_MAX && below(&pod) < OF_A_POD_MAX
        });
        if room.map_err(|error| (Hindrance::Lists, error))? {
            return Ok(());
        }
        let why = format!("{VOLUMES_MAX} volumes of the node and {OF_A_POD_MAX} of a pod have projects at most");
        Err((Hindrance::Many, io::Error::new(io::ErrorKind::QuotaExceeded, why)))
    }

    /// Puts a volume into the lists with a project that nobody has.
    fn list(&self, pods: &Path, volume: &Path, directory: BorrowedFd<'_>) -> io::Result<u32> {
        let is_free = |id: u32| Ok(self.quotas.used(directory, id)? == ProjectUse::default());
        let id = self.files.change(|lists| {
            lists.remove(|path| is_gone(pods, path));
            let id = free(lists, is_free)?;
            lists.add(volume, id).map(|()| id)
        })?;
        self.known(|known| known.insert(volume.to_owned(), id))?;
        Ok(id)
    }

    fn unlist(&self, volumes: &BTreeSet<PathBuf>) -> io::Result<()> {
        self.known(|known| known.retain(|path, _| !volumes.contains(path)))?;
        self.files.change(|lists| {
            lists.remove(|path| volumes.contains(path));
            Ok(())
        })
    }

    fn take_back(&self, pod: &Path) -> io::Result<()> {
        let volumes: BTreeMap<PathBuf, u32> = self.known(|known| {
            let below = known.iter().filter(|(path, _)| path.starts_with(pod));
            below.map(|(path, id)| (path.clone(), *id)).collect_ordered()
        })?;
        if volumes.is_empty() {
            return Ok(());
        }
        let _turn = locked(&self.turn);
        for (volume, id) in &volumes {
            // Of a directory that is gone nothing is counted any more.
            let directory = project::open(volume);
            let limited = directory.and_then(|directory| match self.quotas.project(directory.as_fd())? == *id {
                true => self.quotas.limit(directory.as_fd(), *id, 0),
                false => Ok(()),
            });
            if let Err(error) = limited {
                tracing::debug!(volume = %volume.display(), id, %error, "a project keeps a limit that is none");
            }
        }
        self.unlist(&volumes.into_keys().collect_ordered())
    }

    /// What the file system counted for a volume, if it has a project of its own.
    fn counted(&self, volume: &Path) -> Option<TreeUsage> {
        let listed = self.known(|known| known.get(volume).copied());
        let listed = listed.inspect_err(|error| self.tell(Hindrance::Lists, volume, error));
        let id = listed.ok().flatten()?;
        let directory = project::open(volume).ok()?;
        let told = self.quotas.project(directory.as_fd()).and_then(|project| {
            let used = self.quotas.used(directory.as_fd(), id)?;
            // The directory itself is one: of nothing nothing was counted.
            Ok((project == id && used.inodes > 0).then_some(used))
        });
        let used = told
            .inspect_err(|error| self.tell(Hindrance::Read, volume, error))
            .ok()??;
        Some(TreeUsage {
            bytes: used.bytes,
            inodes: used.inodes,
            ..TreeUsage::default()
        })
    }
}

/// Whether it was a volume's directory, and is not there any more.
fn is_gone(pods: &Path, path: &Path) -> bool {
    let missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
    path.starts_with(pods) && path.symlink_metadata().is_err_and(missing)
}

/// The first project that no list has and that has nothing.
fn free(lists: &Lists, is_free: impl Fn(u32) -> io::Result<bool>) -> io::Result<u32> {
    let taken = lists.taken();
    let candidates = (FIRST..=i32::MAX.unsigned_abs()).filter(|id| !taken.contains(id));
    for id in candidates.take(IN_USE_MAX) {
        if is_free(id)? {
            return Ok(id);
        }
    }
    Err(io::Error::new(io::ErrorKind::QuotaExceeded, "no project is free"))
}

#[cfg(test)]
mod tests;
