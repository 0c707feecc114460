//! What is below a cgroup. Containers with a cgroup tree of their own make some there as they like: deeper than a path is long, and
//! deeper than a stack is.
//!
//! Goes down and up one level at a time, from directory to directory, and holds a descriptor or two however deep it is. A cgroup is never
//! moved below another, so that the way up leads back. Nothing is remembered of what goes; of what stays, a bounded list of names.

use super::CgroupError;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// How many steps from one directory to the next are made at a time. A kernel has no memory for cgroups so deep: each names all above it.
const STEPS_MAX: usize = 1 << 18;
/// How many bytes of names wait to be looked at, all together.
const WAITING_MAX: usize = 8 << 20;

fn open(at: Option<&OwnedFd>, path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match at {
        Some(at) => openat(at, path, flags | OFlag::O_NOFOLLOW, Mode::empty()),
        None => openat(AT_FDCWD, path, flags, Mode::empty()),
    }
}

fn parent(of: &OwnedFd) -> nix::Result<OwnedFd> {
    open(Some(of), Path::new(".."))
}

/// Names of the directories in one, with their inodes.
fn directories(of: &OwnedFd) -> io::Result<impl Iterator<Item = (OsString, u64)>> {
    // The descriptor's own directory, not a path, which may be too long.
    let entries = fs::read_dir(format!("/proc/self/fd/{}", of.as_raw_fd()))?;
    let entries = entries.filter_map(Result::ok);
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| (entry.file_name(), entry.ino())))
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Removes all cgroups below one that nothing runs in; one that is not there is fine.
///
/// # Errors
/// A process is in one of them: those after it are left, too.
pub(super) fn clear(path: &Path) -> Result<(), CgroupError> {
    cleared(path).map_err(|error| CgroupError::Remove {
        path: path.to_owned(),
        source: error.into(),
    })
}

fn cleared(path: &Path) -> nix::Result<()> {
    let mut at = match open(None, path) {
        Err(Errno::ENOENT) => return Ok(()),
        other => other?,
    };
    let (mut depth, mut left) = (0_usize, None);
    for _ in 0..STEPS_MAX {
        match remove_in(&at, left)? {
            Some(name) => match open(Some(&at), Path::new(&name)) {
                Ok(next) => {
                    (at, left) = (next, None);
                    depth += 1;
                }
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(error),
            },
            None if depth == 0 => return Ok(()),
            None => {
                left = Some(fstat(&at)?.st_ino);
                at = parent(&at)?;
                depth -= 1;
            }
        }
    }
    Err(Errno::ELOOP)
}

/// Removes the cgroups in one until one cannot be, which has others in it, or a process: its name.
///
/// # Errors
/// It is the one that was just `left`, in which there are no others any more.
fn remove_in(at: &OwnedFd, left: Option<u64>) -> nix::Result<Option<OsString>> {
    for (name, inode) in directories(at).map_err(|error| errno(&error))? {
        match unlinkat(at, Path::new(&name), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) if left == Some(inode) => return Err(error),
            Err(_) => return Ok(Some(name)),
        }
    }
    Ok(None)
}

/// Removes a cgroup and all below it that nothing runs in; one that is not there is fine.
///
/// # Errors
/// As [`clear`], or a process is in it itself.
pub(super) fn remove(path: &Path) -> Result<(), CgroupError> {
    clear(path)?;
    match fs::remove_dir(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(CgroupError::Remove {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// The processes in a cgroup and below it; of very many cgroups those of the first.
pub(super) fn processes(path: &Path, found: &mut BTreeSet<u32>) {
    let Ok(mut at) = open(None, path) else { return };
    let (mut levels, mut waiting): (Vec<Vec<OsString>>, usize) = (Vec::new(), 0);
    let mut is_new = true;
    for _ in 0..STEPS_MAX {
        if std::mem::take(&mut is_new) {
            read_processes(&at, found);
            let mut names = Vec::new();
            for (name, _) in directories(&at).into_iter().flatten() {
                if waiting + name.len() > WAITING_MAX {
                    break;
                }
                waiting += name.len();
                names.push(name);
            }
            levels.push(names);
        }
        let next = match levels.last_mut().and_then(Vec::pop) {
            Some(name) => {
                waiting -= name.len();
                // It may be gone.
                let Ok(next) = open(Some(&at), Path::new(&name)) else {
                    continue;
                };
                is_new = true;
                Ok(next)
            }
            None => {
                levels.pop();
                if levels.is_empty() {
                    return;
                }
                parent(&at)
            }
        };
        match next {
            Ok(next) => at = next,
            Err(_) => return,
        }
    }
}

fn read_processes(at: &OwnedFd, found: &mut BTreeSet<u32>) {
    let path = PathBuf::from("cgroup.procs");
    let Ok(file) = openat(at, &path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) else {
        return;
    };
    let mut text = String::new();
    if File::from(file).read_to_string(&mut text).is_ok() {
        let pids = text.lines().filter_map(|line| line.parse::<u32>().ok());
        found.extend(pids.filter(|pid| *pid != 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::mkdirat;

    /// Makes directories in each other, deeper than any path; the deepest one.
    fn dig(top: &Path, levels: usize) -> OwnedFd {
        let name = "d".repeat(200);
        let mut at = open(None, top).expect("there");
        for _ in 0..levels {
            mkdirat(&at, Path::new(&name), Mode::S_IRWXU).expect("made");
            at = open(Some(&at), Path::new(&name)).expect("opened");
        }
        at
    }

    fn write(at: &OwnedFd, text: &str) {
        use std::io::Write;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT;
        let file = openat(at, Path::new("cgroup.procs"), flags, Mode::S_IRWXU).expect("made");
        File::from(file).write_all(text.as_bytes()).expect("written");
    }

    #[test]
    fn what_is_deeper_than_a_path_is_long_is_found_and_goes() {
        let directory = tempfile::tempdir().expect("temp dir");
        let top = directory.path().join("pod");
        fs::create_dir_all(top.join("beside/it")).expect("made");
        let deepest = dig(&top, 2_000);
        write(&deepest, "0\n17\n");
        let mut found = BTreeSet::new();
        processes(&top, &mut found);
        assert_eq!(found, BTreeSet::from([17]));
        // A file in a plain directory stands for a process.
        assert!(remove(&top).is_err(), "occupied");
        unlinkat(&deepest, Path::new("cgroup.procs"), UnlinkatFlags::NoRemoveDir).expect("removed");
        remove(&top).expect("removed");
        assert!(!top.exists());
        remove(&top).expect("it is not there");
        found.clear();
        processes(&top, &mut found);
        assert!(found.is_empty());
    }

    #[test]
    fn however_many_there_are_beside_each_other_all_go_and_all_are_looked_at() {
        let directory = tempfile::tempdir().expect("temp dir");
        let top = directory.path().join("pod");
        for number in 1..=300 {
            let inner = top.join(format!("c{number}/inner"));
            fs::create_dir_all(&inner).expect("made");
            write(&open(None, &inner).expect("there"), &format!("{number}\n"));
        }
        let mut found = BTreeSet::new();
        processes(&top, &mut found);
        assert_eq!(found, (1..=300).collect());
        assert!(clear(&top).is_err(), "occupied");
        for number in 1..=300 {
            fs::remove_file(top.join(format!("c{number}/inner/cgroup.procs"))).expect("removed");
        }
        clear(&top).expect("cleared");
        assert_eq!(fs::read_dir(&top).expect("there").count(), 0, "it stays itself");
    }

    #[test]
    fn a_link_leads_nowhere() {
        let directory = tempfile::tempdir().expect("temp dir");
        let (top, other) = (directory.path().join("pod"), directory.path().join("other"));
        fs::create_dir_all(other.join("mine")).expect("made");
        fs::create_dir(&top).expect("made");
        std::os::unix::fs::symlink(&other, top.join("link")).expect("linked");
        assert!(remove(&top).is_err(), "no cgroup has links");
        assert!(other.join("mine").is_dir());
    }
}
