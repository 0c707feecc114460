//! One directory that strangers may write into, and the files in it by their names.
//!
//! What is opened is below the given root and reached without following a link, whatever is swapped meanwhile; all that is done with
//! files there is done within the opened directory, and no link in it is followed either. So nothing outside can be read, renamed or
//! removed, however a container that has the directory as a volume plays with it.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat2};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

fn os(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error as i32)
}

/// An open directory.
#[derive(Debug)]
pub struct Directory(OwnedFd);

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Whether it is a plain file, and no link to one.
    pub is_file: bool,
    /// How many names it has.
    pub links: libc::nlink_t,
    /// Bytes.
    pub size: u64,
}

impl About {
    fn of(stat: &FileStat) -> Self {
        Self {
            is_file: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
            links: stat.st_nlink,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        }
    }

    /// Whether it is a plain file with this one name: no other name of it lies where somebody may not read.
    pub fn is_sole(&self) -> bool {
        self.is_file && self.links == 1
    }
}

impl Directory {
    /// Opens `relative` below `root`. The way to the root itself is the administrator's: links in it are followed.
    ///
    /// # Errors
    /// It is not there, is no directory, or a link is on the way.
    pub fn open(root: &Path, relative: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let root = openat(AT_FDCWD, root, flags, Mode::empty()).map_err(os)?;
        let stay = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let how = OpenHow::new().flags(flags | OFlag::O_NOFOLLOW).resolve(stay);
        openat2(&root, relative, how).map(Self).map_err(os)
    }

    /// The names in it, `most` at most.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self, most: usize) -> io::Result<Vec<String>> {
        // By the descriptor, not by a path that may lead elsewhere by now.
        let entries = fs::read_dir(format!("/proc/self/fd/{}", self.0.as_raw_fd()))?;
        let mut names = Vec::new();
        for entry in entries.take(most) {
            // What is no text is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    /// What a name stands for; nothing if it stands for nothing.
    ///
    /// # Errors
    /// The file system does not tell.
    pub fn about(&self, name: &str) -> io::Result<Option<About>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(About::of(&stat))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(os(error)),
        }
    }

    /// Opens a plain file that has no other name, to be read.
    ///
    /// # Errors
    /// It is not there, or is something else.
    pub fn read(&self, name: &str) -> io::Result<fs::File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::empty()).map_err(os)?;
        match About::of(&fstat(&file).map_err(os)?).is_sole() {
            true => Ok(fs::File::from(file)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no plain file, or has other names",
            )),
        }
    }

    /// Makes a file that nobody else may read yet, to be written.
    ///
    /// # Errors
    /// The name is taken, or there is no room.
    pub fn create(&self, name: &str) -> io::Result<fs::File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(os)?;
        Ok(fs::File::from(file))
    }

    /// Puts a text in place of what the file `name` had, for good: a power cut leaves one or the other. It is written as `beside` first: what
    /// has that name goes, and is neither written through, if it is a link, nor waited for, if it is a pipe.
    ///
    /// # Errors
    /// The kernel's; one of the names is a directory's, or was taken meanwhile.
    pub fn write(&self, name: &str, beside: &str, text: &[u8]) -> io::Result<()> {
        self.remove(beside)?;
        let mut file = self.create(beside)?;
        file.write_all(text)?;
        file.sync_all()?;
        self.replace(beside, name)?;
        fsync(&self.0).map_err(os)
    }

    /// Makes an empty file, unless a plain file has the name; what else has it goes.
    ///
    /// # Errors
    /// The kernel's, or it is a directory's name.
    pub fn touch(&self, name: &str) -> io::Result<()> {
        if self.about(name)?.is_some_and(|about| about.is_sole()) {
            return Ok(());
        }
        self.remove(name)?;
        self.create(name).map(drop)
    }

    /// Renames; what had the new name goes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        renameat2(&self.0, from, &self.0, to, RenameFlags::empty()).map_err(os)
    }

    /// Renames to a name that must be free.
    ///
    /// # Errors
    /// `AlreadyExists`, and the kernel's.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        renameat2(&self.0, from, &self.0, to, RenameFlags::RENAME_NOREPLACE).map_err(os)
    }

    /// Takes a name away; one that is not there is fine.
    ///
    /// # Errors
    /// It is a directory, or the kernel's.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(os(error)),
        }
    }
}

/// Puts a text in place of what the file at a path had, as [`Directory::write`] does. The way to its directory is the administrator's.
///
/// # Errors
/// The path has no name that is text, and the kernel's.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("tmp");
    let [name, beside] = [path, &beside].map(|path| path.file_name()?.to_str());
    let (Some(name), Some(beside), Some(directory)) = (name, beside, path.parent()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename));
    };
    Directory::open(directory, Path::new("."))?.write(name, beside, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    struct World {
        _dir: tempfile::TempDir,
        root: PathBuf,
        precious: PathBuf,
    }

    /// A root with a directory `a/b`, and a file outside.
    fn world() -> World {
        let dir = tempfile::tempdir().expect("temp dir");
        let (root, precious) = (dir.path().join("root"), dir.path().join("outside/0.log"));
        fs::create_dir_all(root.join("a/b")).expect("dirs");
        fs::create_dir_all(dir.path().join("outside")).expect("dirs");
        fs::write(&precious, "precious").expect("file");
        World {
            _dir: dir,
            root,
            precious,
        }
    }

    #[test]
    fn no_link_leads_out_whatever_it_is_tried_with() {
        let world = world();
        let outside = world.precious.parent().expect("a directory");
        symlink(outside, world.root.join("a/link")).expect("link");
        symlink(outside, world.root.join("top")).expect("link");
        for path in ["a/link", "top", "a/link/..", "../outside", "/"] {
            Directory::open(&world.root, Path::new(path)).expect_err(path);
        }
        let inside = Directory::open(&world.root, Path::new("a/b")).expect("opened");
        symlink(&world.precious, world.root.join("a/b/0.log")).expect("link");
        fs::hard_link(&world.precious, world.root.join("a/b/hard")).expect("link");
        for name in ["0.log", "hard"] {
            inside.read(name).expect_err(name);
            assert!(!inside.about(name).expect("told").expect("there").is_sole(), "{name}");
            inside.create(name).expect_err("the name is taken");
        }
        // Names change, files outside do not.
        inside.rename("0.log", "moved").expect("renamed");
        inside.replace("hard", "moved").expect("replaced");
        inside.remove("moved").expect("removed");
        inside.remove("moved").expect("again");
        assert_eq!(fs::read_to_string(&world.precious).expect("read"), "precious");
        assert_eq!(inside.names(9).expect("names"), Vec::<String>::new());
    }

    #[test]
    fn what_is_planted_where_a_file_is_written_is_neither_followed_nor_waited_for() {
        let world = world();
        let at = |name: &str| world.root.join("a/b").join(name);
        let inside = Directory::open(&world.root, Path::new("a/b")).expect("opened");
        let pipe = |name: &str| nix::unistd::mkfifo(&at(name), Mode::S_IRWXU).expect("a pipe");
        for text in ["1", "2"] {
            symlink(&world.precious, at("state.tmp")).expect("link");
            inside.write("state", "state.tmp", text.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(at("state")).expect("read"), text);
        }
        pipe("state.tmp");
        inside.write("state", "state.tmp", b"3").expect("written");
        fs::remove_file(at("state")).expect("removed");
        fs::hard_link(&world.precious, at("state")).expect("link");
        inside.write("state", "state.tmp", b"4").expect("written");
        assert_eq!(fs::read_to_string(at("state")).expect("read"), "4");
        fs::create_dir(at("state.tmp")).expect("a directory");
        inside
            .write("state", "state.tmp", b"5")
            .expect_err("it is not ours to remove");
        for plant in [&|| symlink(&world.precious, at("sign")).expect("link") as (), &|| {
            pipe("sign")
        }] as [&dyn Fn(); 2]
        {
            plant();
            inside.touch("sign").expect("made");
            inside.touch("sign").expect("there");
            assert!(inside.about("sign").expect("told").expect("there").is_sole());
            inside.remove("sign").expect("removed");
        }
        assert_eq!(fs::read_to_string(&world.precious).expect("read"), "precious");
    }

    #[test]
    fn a_way_that_is_swapped_later_changes_nothing() {
        let world = world();
        fs::write(world.root.join("a/b/0.log"), "own").expect("file");
        let inside = Directory::open(&world.root, Path::new("a/b")).expect("opened");
        fs::rename(world.root.join("a/b"), world.root.join("a/c")).expect("moved");
        symlink(world.precious.parent().expect("a directory"), world.root.join("a/b")).expect("link");
        inside.rename("0.log", "1.log").expect("renamed");
        inside.remove("1.log").expect("removed");
        assert!(world.precious.exists() && !world.root.join("a/c/1.log").exists());
        assert_eq!(inside.about("0.log").expect("told"), None);
        assert_eq!(
            inside.rename("none", "x").expect_err("none").kind(),
            io::ErrorKind::NotFound
        );
    }
}
