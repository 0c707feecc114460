//! A reservation before it has an address: a file with its full content, flushed to disk, that needs only a name.
//!
//! It is made before the network's lock is taken, so that parallel calls flush at the same time. Where the file system can
//! (`O_TMPFILE`), it has no name at all until then, and a kill leaves nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::linkat;

/// The draft.
#[derive(Debug)]
pub(super) struct Draft {
    file: File,
    /// The name it goes by where files without one are impossible.
    name: Option<PathBuf>,
}

impl Draft {
    /// Writes a draft in `folder`, where it will get its name, or, with a name of its own, in `spare`.
    pub(super) fn write(folder: &Path, spare: &Path, content: &str) -> io::Result<Self> {
        let nameless = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .mode(0o600)
            .open(folder);
        let mut draft = match nameless {
            Ok(file) => Self { file, name: None },
            Err(_) => Self::named(spare)?,
        };
        draft.file.write_all(content.as_bytes())?;
        draft.file.sync_all()?;
        Ok(draft)
    }

    fn named(spare: &Path) -> io::Result<Self> {
        let name = spare.join(format!("draft-{}-{:08x}", std::process::id(), rand::random::<u32>()));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&name)?;
        Ok(Self { file, name: Some(name) })
    }

    /// Gives it a name, all at once; an existing one is an error.
    pub(super) fn link(&self, path: &Path) -> io::Result<()> {
        match &self.name {
            Some(name) => fs::hard_link(name, path),
            None => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                Ok(linkat(
                    AT_FDCWD,
                    own.as_str(),
                    AT_FDCWD,
                    path,
                    AtFlags::AT_SYMLINK_FOLLOW,
                )?)
            }
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = fs::remove_file(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_appear_whole_and_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        let nameless = Draft::write(folder.path(), folder.path(), "content").unwrap();
        nameless.link(&one).unwrap();
        assert_eq!(nameless.link(&one).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let mut named = Draft::named(folder.path()).unwrap();
        named.file.write_all(b"content").unwrap();
        named.link(&two).unwrap();
        drop((nameless, named));
        for path in [&one, &two] {
            assert_eq!(fs::read_to_string(path).unwrap(), "content");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else stays");
    }
}
