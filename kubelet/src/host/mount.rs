//! Mounting: the kernel's, and for tests and simulations (feature `test-util`) a pretended one.

#[cfg(any(test, feature = "test-util"))]
pub mod fake;

use client::ordered::Arrange;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Mounts and unmounts. Calls block; run them on the blocking pool.
pub trait Mounter: Debug + Send + Sync + 'static {
    /// Mounts a tmpfs with these options (such as `size=1048576`).
    fn tmpfs(&self, target: &Path, options: &str) -> io::Result<()>;
    /// Mounts a hugetlbfs with these options.
    fn hugetlbfs(&self, target: &Path, options: &str) -> io::Result<()>;
    /// Binds what an open file descriptor refers to, so that nobody can swap the path in between.
    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()>;
    /// Unmounts; a target that is no mount point is fine.
    fn unmount(&self, target: &Path) -> io::Result<()>;
    /// Mount points at or below `root`, deepest first.
    fn mounts_below(&self, root: &Path) -> io::Result<Vec<PathBuf>>;
    /// Makes a directory a mount whose propagation is shared, so that containers' mounts below it are seen.
    fn make_shared(&self, path: &Path) -> io::Result<()>;
}

/// The kernel's mount table.
#[derive(Debug, Clone, Default)]
pub struct KernelMounter;

fn os(error: nix::Error) -> io::Error {
    io::Error::from_raw_os_error(error as i32)
}

/// Undoes the octal escapes of `/proc/self/mountinfo`.
fn unescape(field: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'\\')
            .then(|| field.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

/// Mount points at or below `root` in a mountinfo text, deepest first; a point mounted over twice appears twice.
fn parse_mountinfo(text: &str, root: &Path) -> Vec<PathBuf> {
    let mut points: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .filter(|point| point.starts_with(root))
        .collect();
    points.arrange_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}

impl Mounter for KernelMounter {
    fn tmpfs(&self, target: &Path, options: &str) -> io::Result<()> {
        let flags = MsFlags::empty();
        mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some(options)).map_err(os)
    }

    fn hugetlbfs(&self, target: &Path, options: &str) -> io::Result<()> {
        let flags = MsFlags::empty();
        mount(Some("nodev"), target, Some("hugetlbfs"), flags, Some(options)).map_err(os)
    }

    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
        let source = PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd()));
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(&source), target, None::<&str>, flags, None::<&str>).map_err(os)
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        match umount2(target, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => Ok(()),
            Err(error) => Err(os(error)),
        }
    }

    fn mounts_below(&self, root: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(parse_mountinfo(&fs::read_to_string("/proc/self/mountinfo")?, root))
    }

    fn make_shared(&self, path: &Path) -> io::Result<()> {
        let shared = MsFlags::MS_SHARED | MsFlags::MS_REC;
        match mount(None::<&str>, path, None::<&str>, shared, None::<&str>) {
            Ok(()) => Ok(()),
            // Not a mount point yet: bind it to itself first.
            Err(nix::Error::EINVAL) => {
                let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
                mount(Some(path), path, None::<&str>, bind, None::<&str>).map_err(os)?;
                mount(None::<&str>, path, None::<&str>, shared, None::<&str>).map_err(os)
            }
            Err(error) => Err(os(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_deepest_first_and_unescaped() {
        let text = "22 1 0:20 / /r rw - tmpfs t rw\n23 22 0:21 / /r/a\\040b/c rw shared:1 - tmpfs t rw\n24 22 0:21 / /rest rw - tmpfs t rw\n";
        assert_eq!(
            parse_mountinfo(text, Path::new("/r")),
            vec![PathBuf::from("/r/a b/c"), PathBuf::from("/r")]
        );
    }
}
