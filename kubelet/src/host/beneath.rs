//! Opening paths inside a volume while containers write into it: what is opened is inside, or nothing is.
//!
//! Links are followed as long as they stay inside the volume (kubelet contract §9, subPath). The kernel keeps that promise
//! (`openat2(2)`, `RESOLVE_BENEATH`), so there is no moment between a check and its use in which a container could swap a
//! directory for a link (CVE-2017-1002101, CVE-2021-25741). Callers must go on with the descriptor, never with the path.

#[cfg(test)]
mod tests;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, fstat, mkdirat};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// How often a lookup is begun anew when something was renamed beside it: the kernel then cannot tell where `..` leads.
const LOOKUPS_MAX: usize = 64;

fn os(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error as i32)
}

fn open_path(parent: impl AsFd, path: &Path, flags: OFlag, resolve: ResolveFlag) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | flags)
        .resolve(resolve);
    openat2(parent, path, how)
}

fn left() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it is not within the volume path")
}

/// Opens what is at `relative` below the volume `root` as a path descriptor; nothing is made.
pub fn find(root: &Path, relative: &Path) -> io::Result<OwnedFd> {
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return Err(left());
    }
    let root = open_path(AT_FDCWD, root, OFlag::empty(), ResolveFlag::empty()).map_err(os)?;
    lookup(&root, relative)
}

/// Opens `relative` below the volume `root` as a path descriptor. Directories missing at its end are made, the last of them
/// with the permissions of `root`. Whatever leads out of the volume is refused, and nothing is made or changed out there.
pub fn open(root: &Path, relative: &Path) -> io::Result<OwnedFd> {
    let mut names = Vec::new();
    for part in relative.components() {
        match part {
            Component::Normal(name) => names.push(Path::new(name)),
            Component::CurDir => {}
            _ => return Err(left()),
        }
    }
    let root = open_path(AT_FDCWD, root, OFlag::empty(), ResolveFlag::empty()).map_err(os)?;
    // The longest part that is there, then what is missing.
    for there in (0..=names.len()).rev() {
        let present: PathBuf = names[..there].iter().collect();
        match lookup(&root, &present) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && there > 0 => {}
            found => return make(found?, &names[there..], permissions(&root)?),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

fn permissions(root: &OwnedFd) -> io::Result<Mode> {
    Ok(Mode::from_bits_truncate(fstat(root).map_err(os)?.st_mode & 0o2777))
}

fn or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

fn lookup(root: &OwnedFd, relative: &Path) -> io::Result<OwnedFd> {
    let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    for _ in 0..LOOKUPS_MAX {
        match open_path(root, or_dot(relative), OFlag::empty(), inside) {
            Err(Errno::EAGAIN) => {}
            Err(Errno::EXDEV) => return lookup_absolute(root, relative),
            other => return other.map_err(os),
        }
    }
    Err(os(Errno::EAGAIN))
}

/// A link with an absolute target means a path of the host, as it does to every program there. Where it leads inside the
/// volume is looked up first, then opened without following any link: one swapped in meanwhile is refused.
fn lookup_absolute(root: &OwnedFd, relative: &Path) -> io::Result<OwnedFd> {
    let base = fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd()))?;
    let target = fs::canonicalize(base.join(relative))?;
    let inside = target.strip_prefix(&base).map_err(|_| left())?;
    let stay = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    open_path(root, or_dot(inside), OFlag::empty(), stay).map_err(os)
}

/// Makes the missing directories, each inside the one before by its descriptor.
fn make(parent: OwnedFd, names: &[&Path], mode: Mode) -> io::Result<OwnedFd> {
    let mut at = parent;
    for (index, name) in names.iter().enumerate() {
        let made = match mkdirat(&at, *name, mode) {
            Ok(()) => true,
            // Another container of the pod may have made it a moment ago.
            Err(Errno::EEXIST) => false,
            Err(error) => return Err(os(error)),
        };
        let stay = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        at = match open_path(&at, name, OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW, stay) {
            Err(Errno::ELOOP | Errno::ENOTDIR) => {
                let text = format!("{} became something else while it was made", name.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            other => other.map_err(os)?,
        };
        if made && index + 1 == names.len() {
            // The umask had its say in mkdirat. Through the descriptor, because the name may mean something else by now.
            let path = format!("/proc/self/fd/{}", at.as_raw_fd());
            fs::set_permissions(path, fs::Permissions::from_mode(mode.bits()))?;
        }
    }
    Ok(at)
}
