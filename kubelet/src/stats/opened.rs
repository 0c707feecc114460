//! Cgroups' files and directories, open from one look to the next: of what it costs to read such a file, most is opening it.
//!
//! Owns the descriptors. They are few, and what nobody read for a minute is closed ([`Opened::let_go`]). A cgroup can be removed while
//! they are open: reading from it fails then, and what has its path by that time is opened.

use futures::FutureExt;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The most that is read of one file: what is longer is no file of ours.
const FILE_MAX: usize = 256 << 10;
/// Half of the page by which the kernel gives what a file says: a call that gives less gives all there is, because no line is longer than
/// the other half.
const SURELY_ALL: usize = 2048;
/// For how long something stays open: a little more than a minute, for whoever asks once a minute.
const KEPT: Duration = Duration::from_secs(65);
/// How many descriptors stay open. One of a file takes the kernel about five kilobytes.
const MOST: usize = 4096;

/// What is open.
#[derive(Debug)]
pub(super) struct Opened {
    cgroups: BTreeMap<Box<str>, Cgroup>,
    count: usize,
    most: usize,
    /// When is looked.
    now: Duration,
    /// Nothing is to be closed before.
    due: Duration,
    /// Whether somebody will close what is not read any more.
    attended: bool,
}

/// What is open, for one look at a time. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept(Arc<Mutex<Opened>>);

/// Whether a file stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// It is read rarely.
    Never,
    /// It is read often.
    Open,
    /// It is read often, and if it was read less than so long ago, it is to be opened anew all the same.
    Rested(Duration),
}

/// What is open of one cgroup.
#[derive(Debug, Default)]
pub(super) struct Cgroup {
    now: Duration,
    /// The place of the file that is likely read next: each look reads the same in the same order.
    next: usize,
    /// Its directories, by tree; nothing where it is not there.
    directories: Vec<Open<Option<OwnedFd>>>,
    files: Vec<Open<File>>,
}

#[derive(Debug)]
struct Open<T> {
    name: &'static str,
    it: T,
    used: Duration,
    /// How long ago that must be before it is read again.
    rest: Duration,
    /// Whether it was opened by this look.
    fresh: bool,
}

impl Default for Opened {
    fn default() -> Self {
        Self {
            cgroups: BTreeMap::new(),
            count: 0,
            most: MOST,
            now: Duration::ZERO,
            due: Duration::ZERO,
            attended: false,
        }
    }
}

impl Kept {
    /// Looks with what is open, `now` after `begun`. What the look leaves open is closed later; for that this must be called inside a
    /// tokio runtime.
    pub(super) fn look<T>(&self, (begun, now): (Instant, Duration), look: impl FnOnce(&mut Opened) -> T) -> T {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        opened.now = now;
        let looked = look(&mut opened);
        if opened.attended && now < opened.due {
            return looked;
        }
        if let Some(next) = opened.let_go(now)
            && !std::mem::replace(&mut opened.attended, true)
        {
            tokio::spawn(attend(Arc::downgrade(&self.0), begun, next).boxed());
        }
        looked
    }
}

/// Closes what nobody reads any more, first at `next`, until nothing is open.
async fn attend(opened: Weak<Mutex<Opened>>, begun: Instant, mut next: Duration) {
    loop {
        tokio::time::sleep_until(begun + next).await;
        let (Some(opened), now) = (opened.upgrade(), begun.elapsed()) else {
            return;
        };
        // Whoever looks has it.
        next = now + KEPT;
        if let Ok(mut opened) = opened.try_lock() {
            let Some(due) = opened.let_go(now) else {
                opened.attended = false;
                return;
            };
            next = due;
        }
    }
}

impl Opened {
    /// Reads from the cgroup of that path, and keeps what that leaves open of it, if there is room.
    pub(super) fn with<T>(&mut self, path: &str, read: impl FnOnce(&mut Cgroup) -> T) -> T {
        let cgroup = match self.cgroups.get_mut(path) {
            Some(cgroup) => cgroup,
            None => self.cgroups.entry(path.into()).or_default(),
        };
        let others = self.count - cgroup.count();
        (cgroup.now, cgroup.next) = (self.now, 0);
        cgroup.directories.iter_mut().for_each(|open| open.fresh = false);
        let done = read(cgroup);
        cgroup.directories.retain(|open| open.it.is_some());
        let count = cgroup.count();
        if count == 0 || others + count > self.most {
            self.cgroups.remove(path);
            self.count = others;
        } else {
            self.count = others + count;
        }
        done
    }

    /// Closes what nobody read for so long; tells when there is something to close again, if anything is open.
    pub(super) fn let_go(&mut self, now: Duration) -> Option<Duration> {
        let is_used = |used: Duration| now.saturating_sub(used) < KEPT;
        self.cgroups.retain(|_, cgroup| {
            cgroup.directories.retain(|open| is_used(open.used));
            cgroup.files.retain(|open| is_used(open.used));
            cgroup.count() > 0
        });
        self.count = self.cgroups.values().map(Cgroup::count).sum();
        let used = self.cgroups.values().flat_map(Cgroup::used);
        let due = used.min().map(|used| used + KEPT);
        self.due = due.unwrap_or_default();
        due
    }

    /// How many descriptors there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

impl Cgroup {
    fn count(&self) -> usize {
        self.directories.len() + self.files.len()
    }

    fn used(&self) -> impl Iterator<Item = Duration> {
        let directories = self.directories.iter().map(|open| open.used);
        directories.chain(self.files.iter().map(|open| open.used))
    }

    /// Reads one of its files into the buffer; how long it is, or nothing if it is not there. `keep` is asked of a file that is not open
    /// whether it is to stay open, and must say the same each time. `at` is where the cgroup is in that tree.
    pub(super) fn read(
        &mut self,
        (tree, name): (&'static str, &'static str),
        keep: impl Fn() -> Keep,
        at: impl Fn() -> Option<PathBuf>,
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        let place = self.place(name);
        if let Some(place) = place {
            let open = &mut self.files[place];
            self.next = place + 1;
            let is_old = self.now.saturating_sub(open.used) < open.rest;
            if !is_old && let Some(length) = whole(&open.it, buffer) {
                open.used = self.now;
                return Some(length);
            }
            self.files.remove(place);
        }
        let file = self.open(tree, name, at)?;
        let length = whole(&file, buffer)?;
        let rest = match keep() {
            Keep::Never => return Some(length),
            Keep::Open => Duration::ZERO,
            Keep::Rested(rest) => rest,
        };
        let open = Open {
            rest,
            ..Open::new(name, file, self.now)
        };
        self.files.insert(place.unwrap_or(self.files.len()), open);
        Some(length)
    }

    /// Where that file is among those that are open.
    fn place(&self, name: &str) -> Option<usize> {
        let is_it = |open: &Open<File>| open.name == name;
        match self.files.get(self.next).is_some_and(is_it) {
            true => Some(self.next),
            false => self.files.iter().position(is_it),
        }
    }

    fn open(&mut self, tree: &'static str, name: &str, at: impl Fn() -> Option<PathBuf>) -> Option<File> {
        if let Some(place) = self.directories.iter().position(|open| open.name == tree) {
            let open = &mut self.directories[place];
            if let Some(file) = open.it.as_ref().and_then(|directory| file(directory, Path::new(name))) {
                open.used = self.now;
                return Some(file);
            }
            // One that was opened just now has no such file; an older one may be of a cgroup that is gone.
            if open.fresh {
                return None;
            }
            self.directories.swap_remove(place);
        }
        let directory = at().and_then(|path| directory(&path));
        let found = directory
            .as_ref()
            .and_then(|directory| file(directory, Path::new(name)));
        self.directories.push(Open::new(tree, directory, self.now));
        found
    }
}

impl<T> Open<T> {
    fn new(name: &'static str, it: T, now: Duration) -> Self {
        Self {
            name,
            it,
            used: now,
            rest: Duration::ZERO,
            fresh: true,
        }
    }
}

/// A cgroup's directory, from which its files are opened: the way to them is not gone again for each.
fn directory(path: &Path) -> Option<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, path, flags, Mode::empty()).ok()
}

fn file(at: impl AsFd, path: &Path) -> Option<File> {
    let file = openat(at, path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    file.ok().map(File::from)
}

/// Reads a file from its beginning into the buffer, in as few calls as can be; how much there is. The kernel makes the text anew for each
/// read from the beginning.
fn whole(file: &File, buffer: &mut Vec<u8>) -> Option<usize> {
    let mut length = 0;
    loop {
        if buffer.len() < length + 2 * SURELY_ALL {
            buffer.resize(length + 4 * SURELY_ALL, 0);
        }
        let end = buffer.len().min(FILE_MAX);
        let read = file.read_at(&mut buffer[length..end], length as u64).ok()?;
        length += read;
        if read == 0 || length < SURELY_ALL {
            return Some(length);
        }
    }
}

/// Reads a file that is not kept open into the buffer; how long it is.
pub(super) fn read(path: &Path, buffer: &mut Vec<u8>) -> Option<usize> {
    whole(&file(AT_FDCWD, path)?, buffer)
}

#[cfg(test)]
mod tests;
