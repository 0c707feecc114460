//! Mounts that are only remembered, for tests and simulations of everything above the kernel.

use super::Mounter;
use client::ordered::Arrange;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// A mount table in memory: directories stay what they are.
#[derive(Debug, Default)]
pub struct FakeMounter {
    table: Mutex<BTreeMap<PathBuf, String>>,
    /// Mount points whose file system hangs, and whoever waits for that to end.
    hung: Mutex<BTreeSet<PathBuf>>,
    goes_on: Condvar,
    /// Mount points that stay whatever is asked.
    held: Mutex<BTreeSet<PathBuf>>,
    /// The kernel is too old to keep a tmpfs out of swap.
    old: AtomicBool,
}

impl FakeMounter {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<PathBuf, String>) -> T) -> T {
        work(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is mounted: target and `type options`.
    pub fn table(&self) -> BTreeMap<PathBuf, String> {
        self.with(|table| table.clone())
    }

    /// Has everything that mounts or unmounts there hang, as a file system whose server is away.
    pub fn hang(&self, target: &Path) {
        let mut hung = self.hung.lock().unwrap_or_else(PoisonError::into_inner);
        hung.insert(target.to_owned());
    }

    /// Has unmounts of this target do nothing, though they say otherwise.
    pub fn hold(&self, target: &Path, held: bool) {
        let mut all = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held {
            all.insert(target.to_owned());
        } else {
            all.remove(target);
        }
    }

    /// Has every tmpfs refused that is to be kept out of swap, as kernels before 6.4 do.
    pub fn forget_noswap(&self) {
        self.old.store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub fn has_no_noswap(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    /// Has what hangs go on.
    pub fn go_on(&self) {
        self.hung.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.goes_on.notify_all();
    }

    fn wait(&self, target: &Path) {
        let hung = self.hung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.goes_on.wait_while(hung, |hung| hung.contains(target));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn add(&self, target: &Path, what: String) -> io::Result<()> {
        self.wait(target);
        if !target.exists() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        self.with(|table| table.insert(target.to_owned(), what));
        Ok(())
    }
}

impl Mounter for FakeMounter {
    fn tmpfs(&self, target: &Path, options: &str) -> io::Result<()> {
        if self.has_no_noswap() && options.split(',').any(|option| option == "noswap") {
            return Err(io::Error::from_raw_os_error(nix::libc::EINVAL));
        }
        self.add(target, format!("tmpfs {options}"))
    }

    fn hugetlbfs(&self, target: &Path, options: &str) -> io::Result<()> {
        self.add(target, format!("hugetlbfs {options}"))
    }

    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
        let source = fs::read_link(format!("/proc/self/fd/{}", source.as_raw_fd()))?;
        self.add(target, format!("bind {}", source.display()))
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        self.wait(target);
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.contains(target) {
            self.with(|table| table.remove(target));
        }
        Ok(())
    }

    fn mounts_below(&self, root: &Path) -> io::Result<Vec<PathBuf>> {
        let mut points: Vec<PathBuf> =
            self.with(|table| table.keys().filter(|p| p.starts_with(root)).cloned().collect());
        points.arrange_by_key(|point| std::cmp::Reverse(point.components().count()));
        Ok(points)
    }

    fn make_shared(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}
