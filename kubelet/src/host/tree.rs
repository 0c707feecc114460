//! File trees other people can write into: removing them, and giving them to a group, without leaving them
//! (CVE-2017-1002102).

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat2, renameat2};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// How many levels are removed with a descriptor each; what lies deeper is moved up first.
const LEVELS_AT_ONCE: usize = 64;
/// How many names are tried for what is moved up: somebody may have taken some.
const NAMES_TRIED_MAX: u32 = 1 << 20;
/// How deep a tree may be that is given to a group; a deeper one is refused rather than overflowing the stack.
const DEPTH_MAX: usize = 512;

fn os(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error as i32)
}

fn how(flags: OFlag, resolve: ResolveFlag) -> OpenHow {
    OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve)
}

fn open_dir(parent: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let stay = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH;
    openat2(
        parent,
        name,
        how(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW, stay),
    )
}

/// Removes `path` and all below it, following no link and entering no other mount: one met on the way is an error and stays
/// whole. A path that is not there is fine.
pub fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let parent = match fs::File::open(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut removal = Removal { top: None, moved: 0 };
    removal.entry(parent.as_fd(), Path::new(name), 0)
}

/// A removal under way.
struct Removal {
    /// The tree's own directory.
    top: Option<OwnedFd>,
    /// How many directories were too deep down and are directly in it now.
    moved: u64,
}

impl Removal {
    fn entry(&mut self, parent: BorrowedFd<'_>, name: &Path, level: usize) -> io::Result<()> {
        match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EISDIR | Errno::EPERM) => {}
            Err(error) => return Err(os(error)),
        }
        if level >= LEVELS_AT_ONCE {
            return self.move_up(parent, name);
        }
        let dir = match open_dir(parent, name) {
            Ok(dir) => dir,
            Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EXDEV) => {
                let text = format!("{} is a mount point: not removed", name.display());
                return Err(io::Error::new(io::ErrorKind::CrossesDevices, text));
            }
            Err(error) => return Err(os(error)),
        };
        if level == 0 {
            self.top = Some(dir.try_clone()?);
        }
        loop {
            let moved = self.moved;
            // Reading the descriptor's own directory, not a path that may have changed since.
            for entry in fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))? {
                self.entry(dir.as_fd(), Path::new(&entry?.file_name()), level + 1)?;
            }
            if level > 0 || moved == self.moved {
                break;
            }
        }
        match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(os(error)),
        }
    }

    /// Takes a directory from deep down to the top, where it is removed in turn: however deep somebody made the tree, it goes
    /// with few descriptors and little stack.
    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
        let Some(top) = &self.top else { return Ok(()) };
        for _ in 0..NAMES_TRIED_MAX {
            self.moved += 1;
            let new = format!("..deep-{}", self.moved);
            match renameat2(parent, name, top, new.as_str(), RenameFlags::RENAME_NOREPLACE) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(os(error)),
            }
        }
        Err(os(Errno::EEXIST))
    }
}

/// Whether an open path descriptor refers to a directory.
pub fn is_dir(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let stat = nix::sys::stat::fstat(fd).map_err(os)?;
    Ok(stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR)
}

/// Gives a tree to a group: every file and directory gets the group, group permissions and, for directories, setgid, so that
/// what is made later belongs to it too. Children come before their directory (kubelet contract §9).
pub fn give_to_group(root: &Path, gid: u32, read_only: bool) -> io::Result<()> {
    give_entry(root, gid, read_only, 0)
}

fn give_entry(path: &Path, gid: u32, read_only: bool, depth: usize) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_dir() {
        if depth >= DEPTH_MAX {
            return Err(io::Error::other("directory tree is too deep"));
        }
        for entry in fs::read_dir(path)? {
            give_entry(&entry?.path(), gid, read_only, depth + 1)?;
        }
    }
    let group = Some(nix::unistd::Gid::from_raw(gid));
    nix::unistd::fchownat(nix::fcntl::AT_FDCWD, path, None, group, AtFlags::AT_SYMLINK_NOFOLLOW).map_err(os)?;
    if meta.is_symlink() {
        return Ok(());
    }
    let mut mode = meta.permissions_mode() & 0o7777;
    mode |= if read_only { 0o440 } else { 0o660 };
    if meta.is_dir() {
        mode |= 0o2110;
    }
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// The permission bits of metadata.
trait PermissionsMode {
    fn permissions_mode(&self) -> u32;
}

impl PermissionsMode for fs::Metadata {
    fn permissions_mode(&self) -> u32 {
        std::os::unix::fs::PermissionsExt::mode(&self.permissions())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{KernelMounter, Mounter};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn removal_follows_no_link() {
        let dir = tempfile::tempdir().expect("temp dir");
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).expect("dir");
        fs::write(outside.join("precious"), "x").expect("file");
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).expect("dirs");
        symlink(&outside, tree.join("a/link")).expect("link");
        symlink(outside.join("precious"), tree.join("file")).expect("link");
        remove(&tree).expect("removed");
        assert!(!tree.exists());
        assert!(outside.join("precious").exists());
        remove(&tree).expect("again");
    }

    /// Does something with mounts of its own, which end with it.
    fn with_mounts_of_its_own(work: impl FnOnce() + Send) {
        use nix::mount::{MsFlags, mount};
        use nix::sched::{CloneFlags, unshare};
        let apart = || {
            unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace (root)");
            let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private mounts");
            work();
        };
        std::thread::scope(|scope| scope.spawn(apart).join().expect("done"));
    }

    #[test]
    fn neither_removal_nor_counting_enters_a_mount_though_it_be_of_the_same_file_system() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        for path in [tree.join("a/bound"), tree.join("a/tmpfs"), outside.clone()] {
            fs::create_dir_all(path).expect("dirs");
        }
        fs::write(outside.join("precious"), vec![7; 1 << 20]).expect("file");
        with_mounts_of_its_own(|| {
            let (bound, tmpfs) = (tree.join("a/bound"), tree.join("a/tmpfs"));
            let source = fs::File::open(&outside).expect("opened");
            KernelMounter.bind_fd(source.as_fd(), &bound).expect("bound");
            KernelMounter.tmpfs(&tmpfs, "size=4194304").expect("mounted");
            fs::write(tmpfs.join("big"), vec![7; 1 << 20]).expect("file");
            let usage = crate::host::usage::tree(&tree, &std::sync::atomic::AtomicBool::new(false)).expect("counted");
            assert!(usage.bytes < 1 << 20 && !usage.incomplete, "{usage:?}");
            for mounted in [bound, tmpfs] {
                remove(&tree).expect_err("something is mounted");
                KernelMounter.unmount(&mounted).expect("unmounted");
            }
            remove(&tree).expect("removed");
        });
        assert!(!tree.exists());
        assert!(outside.join("precious").exists());
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("dir");
        fs::create_dir(tree.join("..deep-1")).expect("a name that is taken");
        let mut at = open_dir(fs::File::open(dir.path()).expect("opened").as_fd(), Path::new("tree")).expect("opened");
        for _ in 0..700 {
            for name in ["beside", "deeper"] {
                nix::sys::stat::mkdirat(&at, name, nix::sys::stat::Mode::S_IRWXU).expect("made");
            }
            at = open_dir(at.as_fd(), Path::new("deeper")).expect("opened");
        }
        remove(&tree).expect("removed");
        assert!(!tree.exists());
        assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0);
    }

    #[test]
    fn a_group_gets_the_tree() {
        let dir = tempfile::tempdir().expect("temp dir");
        fs::create_dir(dir.path().join("d")).expect("dir");
        fs::write(dir.path().join("d/f"), "").expect("file");
        fs::set_permissions(dir.path().join("d/f"), fs::Permissions::from_mode(0o600)).expect("mode");
        let gid = nix::unistd::getgid().as_raw();
        give_to_group(dir.path(), gid, false).expect("given");
        let mode = |path: &str| fs::metadata(dir.path().join(path)).expect("there").permissions().mode() & 0o7777;
        assert_eq!(mode("d/f"), 0o660);
        assert_eq!(mode("d") & 0o2770, 0o2770);
    }
}
