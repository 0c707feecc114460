//! Projects that are only remembered, for tests of everything above the kernel: directories stay what they are.

use super::{ProjectQuotas, ProjectUse};
use nix::errno::Errno;
use nix::sys::stat::fstat;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a file system knows.
#[derive(Clone, Debug, Default)]
pub struct FakeProjects {
    /// Whether it counts none.
    pub uncounted: bool,
    /// Whether projects cannot be given.
    pub refuses: bool,
    /// Projects by the directories' inodes.
    pub of: BTreeMap<u64, u32>,
    /// What projects have.
    pub used: BTreeMap<u32, ProjectUse>,
    /// What they may have.
    pub limits: BTreeMap<u32, u64>,
}

/// A file system in memory.
#[derive(Debug, Default)]
pub struct FakeQuotas(Mutex<FakeProjects>);

impl FakeQuotas {
    /// What it knows.
    pub fn state(&self) -> MutexGuard<'_, FakeProjects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProjectQuotas for FakeQuotas {
    fn are_counted(&self, _: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(!self.state().uncounted)
    }

    fn project(&self, directory: BorrowedFd<'_>) -> io::Result<u32> {
        let inode = fstat(directory)?.st_ino;
        Ok(self.state().of.get(&inode).copied().unwrap_or(0))
    }

    fn set_project(&self, directory: BorrowedFd<'_>, id: u32) -> io::Result<()> {
        let mut state = self.state();
        if state.refuses {
            return Err(Errno::EPERM.into());
        }
        state.of.insert(fstat(directory)?.st_ino, id);
        state.used.entry(id).or_default().inodes += 1;
        Ok(())
    }

    fn used(&self, _: BorrowedFd<'_>, id: u32) -> io::Result<ProjectUse> {
        let state = self.state();
        match state.uncounted {
            true => Err(Errno::ESRCH.into()),
            false => Ok(state.used.get(&id).copied().unwrap_or_default()),
        }
    }

    fn limit(&self, _: BorrowedFd<'_>, id: u32, bytes: u64) -> io::Result<()> {
        match bytes {
            0 => drop(self.state().limits.remove(&id)),
            bytes => drop(self.state().limits.insert(id, bytes)),
        }
        Ok(())
    }
}
