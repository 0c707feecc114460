//! The files of the node's lists of projects: read and changed as the quota tools' own users do, under a lock and whole or not at all.

use super::lists::Lists;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most that is read of a list: what is longer is nobody's who uses quotas.
const LIST_MAX: u64 = 8 << 20;
/// How often a list is tried to be had alone, and the pause in between.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);
/// For how long nobody tries after that: anybody who may read a list can keep it, and pods' starts do not wait for him one after another.
const REST: Duration = Duration::from_secs(60);

/// Where the lists are.
#[derive(Debug)]
pub(super) struct ListFiles {
    projects: PathBuf,
    names: PathBuf,
    /// Since when they are left alone, because somebody keeps them.
    kept: Mutex<Option<Instant>>,
}

impl ListFiles {
    pub(super) fn new(etc: &Path) -> Self {
        Self {
            projects: etc.join("projects"),
            names: etc.join("projid"),
            kept: Mutex::default(),
        }
    }

    /// What they say; one that is not there says nothing.
    ///
    /// # Errors
    /// One is no plain file, too long or no text.
    pub(super) fn read(&self) -> io::Result<Lists> {
        Ok(Lists {
            projects: text_at(&self.projects)?,
            names: text_at(&self.names)?,
        })
    }

    /// Changes what they say, while nobody else does.
    ///
    /// # Errors
    /// They cannot be had alone, read or written; or as `change`, and nothing is changed.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Lists) -> io::Result<T>) -> io::Result<T> {
        let (mut projects, mut names) = self.both_alone()?;
        let before = Lists {
            projects: text(&mut projects)?,
            names: text(&mut names)?,
        };
        let mut lists = before.clone();
        let changed = change(&mut lists)?;
        // A name without a directory does no harm.
        if lists.names != before.names {
            replace(&self.names, &names, &lists.names)?;
        }
        if lists.projects != before.projects {
            replace(&self.projects, &projects, &lists.projects)?;
        }
        Ok(changed)
    }
}

impl ListFiles {
    fn both_alone(&self) -> io::Result<(Flock<File>, Flock<File>)> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_some_and(|since| since.elapsed() < REST) {
            return Err(busy());
        }
        let both = alone(&self.projects).and_then(|projects| Ok((projects, alone(&self.names)?)));
        let is_kept = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        *kept = both.as_ref().is_err_and(is_kept).then(Instant::now);
        both
    }
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "somebody else has the lists of projects")
}

fn opened(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // A pipe in its place is not waited for.
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = options.read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
    }
}

fn text_at(path: &Path) -> io::Result<String> {
    match opened(path, &mut OpenOptions::new()) {
        Ok(mut file) => text(&mut file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn text(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.take(LIST_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LIST_MAX {
        true => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
        false => Ok(text),
    }
}

/// The file, locked, and made if need be. Whoever had it before may have put another in its place.
fn alone(path: &Path) -> io::Result<Flock<File>> {
    for _ in 0..TRIES {
        let file = opened(path, OpenOptions::new().write(true).create(true).mode(0o644))?;
        if let Ok(locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            let (own, there) = (locked.metadata()?, fs::symlink_metadata(path));
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
                return Ok(locked);
            }
        }
        std::thread::sleep(PAUSE);
    }
    Err(busy())
}

fn replace(path: &Path, old: &File, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".kubelet");
    let new = path.with_file_name(name);
    let written = (|| {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(old.metadata()?.permissions())?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn add(files: &ListFiles, line: &'static str) -> io::Result<()> {
        files.change(|lists| {
            lists.projects.push_str(line);
            Ok(())
        })
    }

    #[test]
    fn lists_are_made_changed_and_left_alone_when_a_change_fails() {
        let dir = tempfile::tempdir().expect("temp dir");
        let files = ListFiles::new(dir.path());
        assert_eq!(files.read().expect("read"), Lists::default());
        assert_eq!(
            fs::read_dir(dir.path()).expect("dir").count(),
            0,
            "who reads makes nothing"
        );
        add(&files, "1:/a\n").expect("changed");
        let path = dir.path().join("projects");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        add(&files, "2:/b\n").expect("changed");
        assert_eq!(files.read().expect("read").projects, "1:/a\n2:/b\n");
        assert_eq!(
            fs::metadata(&path).expect("there").mode() & 0o777,
            0o600,
            "its mode stays"
        );
        let failed = files.change(|lists| {
            lists.projects.clear();
            Err::<(), _>(io::Error::from(io::ErrorKind::QuotaExceeded))
        });
        assert!(failed.is_err());
        assert_eq!(files.read().expect("read").projects, "1:/a\n2:/b\n");
        assert_eq!(
            fs::read_dir(dir.path()).expect("dir").count(),
            2,
            "nothing else is left there"
        );
    }

    #[test]
    fn what_is_no_list_is_not_touched() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (files, path) = (ListFiles::new(dir.path()), dir.path().join("projects"));
        let other = dir.path().join("other");
        fs::write(&other, "mine").expect("file");
        symlink(&other, &path).expect("link");
        assert!(files.read().is_err() && add(&files, "1:/a\n").is_err());
        assert_eq!(fs::read_to_string(&other).expect("there"), "mine");
        fs::remove_file(&path).expect("gone");
        fs::write(&path, [0xff, b'\n']).expect("file");
        assert!(add(&files, "1:/a\n").is_err(), "no text");
        assert_eq!(fs::read(&path).expect("there"), [0xff, b'\n']);
        File::create(&path).expect("file").set_len(LIST_MAX + 1).expect("long");
        assert!(files.read().is_err(), "too long");
    }

    #[test]
    fn who_has_the_lists_is_waited_for_and_not_for_good_and_not_by_everybody() {
        let dir = tempfile::tempdir().expect("temp dir");
        let files = ListFiles::new(dir.path());
        add(&files, "1:/a\n").expect("changed");
        let held = alone(&dir.path().join("projid")).expect("locked");
        assert_eq!(
            add(&files, "2:/b\n").expect_err("held").kind(),
            io::ErrorKind::ResourceBusy
        );
        let begun = Instant::now();
        for _ in 0..3 {
            assert!(add(&files, "2:/b\n").is_err(), "they are left alone for a while");
        }
        assert!(begun.elapsed() < TRIES * PAUSE, "{:?}", begun.elapsed());
        drop(held);
        let kept = files.kept.lock().expect("no panic").take();
        assert!(kept.is_some_and(|since| since.elapsed() < REST));
        add(&files, "2:/b\n").expect("changed");
        assert!(files.kept.lock().expect("no panic").is_none());
    }
}
