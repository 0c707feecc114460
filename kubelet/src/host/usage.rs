//! How much a tree takes up on its file system, counted while somebody writes into it.
//!
//! Follows no link, enters no other mount, holds few descriptors however deep the tree is, keeps no list of its files, and a
//! bounded list of its directories. What cannot be counted makes the result incomplete: what was counted is there all the same.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, fstat, fstatat};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// How many levels are descended with a descriptor each; what lies deeper is begun anew from the top.
const LEVELS_AT_ONCE: usize = 64;
/// How many bytes the paths of the deeper directories that wait for that may have, all together.
const WAITING_MAX: usize = 8 << 20;
/// How many bytes the path of one of them may have, sixteen times what a call takes.
const PATH_BYTES_MAX: usize = 64 << 10;
/// The longest path that is looked up in one call.
const LOOKUP_MAX: usize = 2048;
/// The unit of `st_blocks`, bytes.
const BLOCK: u64 = 512;

/// What a tree takes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Bytes on the file system.
    pub bytes: u64,
    /// Files, directories and everything else that has a name in it, itself included.
    pub inodes: u64,
    /// Whether something may not be counted: it takes up this, or more.
    pub incomplete: bool,
    /// Whether it is built so deep, and so wide where it is deep, that it is not counted to its end at any time.
    pub uncountable: bool,
}

impl TreeUsage {
    /// Adds another tree's.
    pub fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
        self.incomplete |= other.incomplete;
        self.uncountable |= other.uncountable;
    }

    fn count(&mut self, stat: &FileStat) {
        // A file with several names is counted in parts, so that nobody has to remember which were seen.
        let names = stat.st_nlink.max(1);
        let is_dir = kind(stat) == nix::libc::S_IFDIR;
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK);
        let own = if is_dir { bytes } else { bytes / names };
        self.bytes = self.bytes.saturating_add(own);
        self.inodes += 1;
    }
}

fn kind(stat: &FileStat) -> u32 {
    stat.st_mode & nix::libc::S_IFMT
}

/// Counts what is at `root` and below, until `given_up` says that nobody waits for it any more. Nothing there is nothing.
///
/// # Errors
/// `root` cannot be opened.
pub fn tree(root: &Path, given_up: &AtomicBool) -> io::Result<TreeUsage> {
    walked(root, given_up).map(|walk| walk.map(|walk| walk.usage).unwrap_or_default())
}

fn walked<'a>(root: &Path, given_up: &'a AtomicBool) -> io::Result<Option<Walk<'a>>> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let top = match openat2(AT_FDCWD, root, OpenHow::new().flags(flags)) {
        Ok(top) => top,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
        Err(error) => return Err(io::Error::from_raw_os_error(error as i32)),
    };
    let stat = fstat(&top).map_err(|error| io::Error::from_raw_os_error(error as i32))?;
    let mut walk = Walk {
        device: stat.st_dev,
        given_up,
        deeper: Vec::new(),
        waiting: 0,
        waiting_most: 0,
        usage: TreeUsage::default(),
    };
    walk.usage.count(&stat);
    if kind(&stat) == nix::libc::S_IFDIR {
        walk.from(&top);
    }
    Ok(Some(walk))
}

struct Walk<'a> {
    device: u64,
    given_up: &'a AtomicBool,
    /// Directories below the levels descended so far, relative to the top.
    deeper: Vec<Box<Path>>,
    /// The bytes of their paths, and the most there were at a time.
    waiting: usize,
    waiting_most: usize,
    usage: TreeUsage,
}

impl Walk<'_> {
    fn from(&mut self, top: &OwnedFd) {
        self.wait(PathBuf::new());
        while let Some(path) = self.deeper.pop() {
            self.waiting -= path.as_os_str().len();
            if self.given_up.load(Ordering::Relaxed) {
                self.usage.incomplete = true;
                return;
            }
            match open(top, &path) {
                Ok(dir) => self.directory(&dir, &path, 0),
                Err(error) => self.missed(error),
            }
        }
    }

    /// Leaves a directory for later, if there is room.
    fn wait(&mut self, path: PathBuf) {
        let bytes = path.as_os_str().len();
        if bytes > PATH_BYTES_MAX || self.waiting + bytes > WAITING_MAX {
            self.usage.incomplete = true;
            self.usage.uncountable = true;
            return;
        }
        self.waiting += bytes;
        self.waiting_most = self.waiting_most.max(self.waiting);
        self.deeper.push(path.into_boxed_path());
    }

    /// Something that went meanwhile takes up nothing; another mount is not this tree's.
    fn missed(&mut self, error: Errno) {
        self.usage.incomplete |= !matches!(error, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV);
    }

    fn directory(&mut self, dir: &OwnedFd, path: &Path, level: usize) {
        // The descriptor's own directory, not a path that may have changed since.
        let Ok(entries) = fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd())) else {
            self.usage.incomplete = true;
            return;
        };
        for entry in entries {
            if self.given_up.load(Ordering::Relaxed) {
                self.usage.incomplete = true;
                return;
            }
            let Ok(entry) = entry else {
                self.usage.incomplete = true;
                return;
            };
            let name = entry.file_name();
            match fstatat(dir, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) if stat.st_dev != self.device => {}
                Ok(stat) => {
                    self.usage.count(&stat);
                    if kind(&stat) == nix::libc::S_IFDIR {
                        self.below(dir, Path::new(&name), path.join(&name), level);
                    }
                }
                Err(error) => self.missed(error),
            }
        }
    }

    fn below(&mut self, dir: &OwnedFd, name: &Path, path: PathBuf, level: usize) {
        if level + 1 < LEVELS_AT_ONCE {
            match open(dir, name) {
                Ok(inner) => self.directory(&inner, &path, level + 1),
                Err(error) => self.missed(error),
            }
        } else {
            self.wait(path);
        }
    }
}

/// Opens a directory below another to read it, in as many steps as the path is long.
fn open(top: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let mut at = step(top, Path::new("."))?;
    let mut part = PathBuf::new();
    for name in path.components() {
        if part.as_os_str().len() + name.as_os_str().len() >= LOOKUP_MAX {
            at = step(&at, &part)?;
            part.clear();
        }
        part.push(name);
    }
    if part.as_os_str().is_empty() {
        return Ok(at);
    }
    step(&at, &part)
}

fn step(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let stay = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat2(at, path, OpenHow::new().flags(flags).resolve(stay))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const SOME: u64 = 1 << 20;

    fn counted(root: &Path) -> TreeUsage {
        tree(root, &AtomicBool::new(false)).expect("counted")
    }

    fn fill(path: &Path) {
        fs::write(path, vec![7; 1 << 20]).expect("written");
    }

    /// A directory `depth` levels down, made one by one because the path is longer than any call takes.
    fn descend(root: &Path, depth: usize) -> OwnedFd {
        let mut at = step(fs::File::open(root).expect("opened"), Path::new(".")).expect("opened");
        for _ in 0..depth {
            let name = "d".repeat(100);
            nix::sys::stat::mkdirat(&at, name.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("made");
            at = step(&at, Path::new(&name)).expect("opened");
        }
        at
    }

    #[test]
    fn links_are_neither_followed_nor_counted_twice() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("sub")).expect("dirs");
        fs::create_dir(&outside).expect("dir");
        fill(&outside.join("big"));
        symlink(&outside, root.join("link")).expect("link");
        symlink(outside.join("big"), root.join("file")).expect("link");
        assert!(counted(&root).bytes < SOME);
        fill(&root.join("sub/one"));
        for name in ["two", "three"] {
            fs::hard_link(root.join("sub/one"), root.join(name)).expect("linked");
        }
        let usage = counted(&root);
        assert!((SOME - 3..SOME + SOME / 2).contains(&usage.bytes), "{usage:?}");
        assert_eq!((usage.inodes, usage.incomplete), (7, false));
        assert_eq!(
            counted(&root.join("link")).inodes,
            1,
            "a link in place of the tree is itself"
        );
        assert_eq!(counted(&root.join("gone")), TreeUsage::default());
        assert!(
            counted(&root.join("sub/one")).bytes < SOME,
            "a third of a file with three names"
        );
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_counted_to_its_end() {
        let dir = tempfile::tempdir().expect("temp dir");
        let deepest = descend(dir.path(), 300);
        fill(&PathBuf::from(format!("/proc/self/fd/{}/big", deepest.as_raw_fd())));
        let usage = counted(dir.path());
        assert!(usage.bytes >= SOME, "{usage:?}");
        assert_eq!((usage.inodes, usage.incomplete), (302, false));
        let given_up = tree(dir.path(), &AtomicBool::new(true)).expect("begun");
        assert!(given_up.incomplete && given_up.bytes < SOME);
    }

    /// A chain of directories with many empty ones at its end, as a container makes it that wants the kubelet's memory.
    #[test]
    fn a_wide_directory_far_below_takes_bounded_memory_and_is_uncountable() {
        let dir = tempfile::tempdir().expect("temp dir");
        let deepest = descend(dir.path(), LEVELS_AT_ONCE * 5 - 1);
        let mode = nix::sys::stat::Mode::S_IRWXU;
        let wide = |from: usize, to: usize| {
            for number in from..to {
                let name = format!("{number:0>100}");
                nix::sys::stat::mkdirat(&deepest, name.as_str(), mode).expect("made");
            }
        };
        let counted = || {
            let not = AtomicBool::new(false);
            let walk = walked(dir.path(), &not).expect("counted").expect("there");
            (walk.waiting_most, walk.waiting, walk.usage)
        };
        wide(0, 100);
        let (_, left, usage) = counted();
        assert_eq!((left, usage.inodes, usage.incomplete), (0, 1 + 319 + 100, false));
        wide(100, 400);
        let (most, left, usage) = counted();
        assert!((WAITING_MAX / 2..=WAITING_MAX).contains(&most) && left == 0, "{most}");
        assert!(usage.incomplete && usage.uncountable && usage.inodes == 1 + 319 + 400);
    }

    #[test]
    fn what_is_deeper_than_any_tree_that_is_used_is_uncountable() {
        let dir = tempfile::tempdir().expect("temp dir");
        let _deepest = descend(dir.path(), PATH_BYTES_MAX / 101 + LEVELS_AT_ONCE);
        let usage = counted(dir.path());
        assert!(usage.incomplete && usage.uncountable, "{usage:?}");
        assert!(usage.inodes > (PATH_BYTES_MAX / 101) as u64 - LEVELS_AT_ONCE as u64);
    }

    #[test]
    fn a_count_that_is_given_up_opens_nothing_that_waits() {
        let dir = tempfile::tempdir().expect("temp dir");
        let given_up = AtomicBool::new(true);
        let top = step(fs::File::open(dir.path()).expect("opened"), Path::new(".")).expect("opened");
        fs::create_dir(dir.path().join("x")).expect("made");
        let mut walk = Walk {
            device: fstat(&top).expect("told").st_dev,
            given_up: &given_up,
            deeper: vec![Path::new("gone").into(), Path::new("x").into()],
            waiting: 5,
            waiting_most: 5,
            usage: TreeUsage::default(),
        };
        walk.from(&top);
        assert!(walk.usage.incomplete);
        assert_eq!(walk.deeper.len(), 2, "the top alone was looked at");
    }
}
