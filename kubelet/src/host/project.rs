//! Project quotas: what a file system counts for a directory and all that is made in it. The kernel's, and for tests a pretended one.
//!
//! Knows no pods and no files of the node's: which directory has which project is the caller's to say.

#[cfg(test)]
pub mod fake;
mod sys;

use nix::sys::statfs::{FsType, fstatfs};
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// File systems that count projects as upstream's kubelet wants them counted, by their magic numbers: XFS and ext4.
const FILE_SYSTEMS: [FsType; 2] = [FsType(0x5846_5342), FsType(0xef53)];
/// What is made in a directory has its project.
const INHERIT: u32 = 0x0000_0200;
/// The unit of limits, bytes.
const BLOCK: u64 = 1024;
/// Errors of the kernel, or of a file system, that counts no projects, or whose counting is off.
const UNCOUNTED: [i32; 5] = [
    nix::libc::EINVAL,
    nix::libc::ENOSYS,
    nix::libc::ENOTTY,
    nix::libc::EOPNOTSUPP,
    nix::libc::ESRCH,
];

/// What the files of a project take up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectUse {
    /// Bytes on the file system, those of removed files that are still open too.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

/// Counts projects. Directories are open ones ([`open`]), which say what file system is meant, too. Calls block.
pub trait ProjectQuotas: Debug + Send + Sync + 'static {
    /// Whether the directory's file system counts what projects have.
    ///
    /// # Errors
    /// It cannot be asked.
    fn are_counted(&self, directory: BorrowedFd<'_>) -> io::Result<bool>;
    /// The directory's project; 0 is nobody's.
    ///
    /// # Errors
    /// Its file system knows no projects.
    fn project(&self, directory: BorrowedFd<'_>) -> io::Result<u32>;
    /// Puts the directory and all that is made in it from now on into a project.
    ///
    /// # Errors
    /// Its file system knows no projects, or the kubelet may not.
    fn set_project(&self, directory: BorrowedFd<'_>, id: u32) -> io::Result<()>;
    /// What a project has.
    ///
    /// # Errors
    /// Its file system does not count it.
    fn used(&self, directory: BorrowedFd<'_>, id: u32) -> io::Result<ProjectUse>;
    /// Lets a project have so many bytes; 0 is no limit.
    ///
    /// # Errors
    /// Its file system does not count it, or the kubelet may not.
    fn limit(&self, directory: BorrowedFd<'_>, id: u32, bytes: u64) -> io::Result<()>;
}

/// Opens a directory to ask for its project; a link is none.
///
/// # Errors
/// It is not there, or no directory.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// The kernel's counting.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelQuotas;

impl ProjectQuotas for KernelQuotas {
    fn are_counted(&self, directory: BorrowedFd<'_>) -> io::Result<bool> {
        if !FILE_SYSTEMS.contains(&fstatfs(directory)?.filesystem_type()) {
            return Ok(false);
        }
        match sys::is_counted(directory) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error().is_some_and(|code| UNCOUNTED.contains(&code)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn project(&self, directory: BorrowedFd<'_>) -> io::Result<u32> {
        Ok(sys::attributes(directory)?.project)
    }

    fn set_project(&self, directory: BorrowedFd<'_>, id: u32) -> io::Result<()> {
        let mut attributes = sys::attributes(directory)?;
        attributes.project = id;
        attributes.flags |= INHERIT;
        sys::set_attributes(directory, &attributes)
    }

    fn used(&self, directory: BorrowedFd<'_>, id: u32) -> io::Result<ProjectUse> {
        match sys::quota(directory, id) {
            Ok(quota) => Ok(ProjectUse {
                bytes: quota.bytes,
                inodes: quota.inodes,
            }),
            // XFS knows nothing of a project that has nothing.
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => Ok(ProjectUse::default()),
            Err(error) => Err(error),
        }
    }

    fn limit(&self, directory: BorrowedFd<'_>, id: u32, bytes: u64) -> io::Result<()> {
        sys::set_limit(directory, id, bytes / BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// The kernel's own answers; which file system is beneath is not known here, so that it is only asked.
    #[test]
    fn a_file_system_says_whether_it_counts_projects() {
        let dir = tempfile::tempdir().expect("temp dir");
        let opened = open(dir.path()).expect("opened");
        let counted = KernelQuotas.are_counted(opened.as_fd()).expect("asked");
        assert!(!counted || KernelQuotas.project(opened.as_fd()).is_ok());
        let proc = open(Path::new("/proc")).expect("opened");
        assert!(!KernelQuotas.are_counted(proc.as_fd()).expect("asked"));
        assert!(KernelQuotas.project(proc.as_fd()).is_err());
        assert!(KernelQuotas.used(proc.as_fd(), 1).is_err());
    }

    #[test]
    fn a_link_is_not_the_directory_it_leads_to() {
        let dir = tempfile::tempdir().expect("temp dir");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).expect("link");
        assert!(open(&dir.path().join("link")).is_err());
    }
}
