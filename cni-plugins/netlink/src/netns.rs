//! Network namespaces. Work inside one runs on the calling thread, which enters the namespace and returns from it, also
//! when the work panics. (A thread of its own would cost two waits for a processor, which on a busy node is the larger part
//! of a call.)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::{NSFS_MAGIC, PROC_SUPER_MAGIC, fstatfs};

/// The path is no network namespace, or it cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is there.
    #[error("failed to Statfs {0:?}: no such file or directory")]
    Missing(String),
    /// It cannot be opened.
    #[error("failed to Statfs {path:?}")]
    Open {
        /// The path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is an ordinary file or directory.
    #[error("unknown FS magic on {path:?}: {magic:x}")]
    NotNamespace {
        /// The path.
        path: String,
        /// The file system it is on.
        magic: i64,
    },
    /// Entering it failed.
    #[error("failed to enter namespace {path:?}")]
    Enter {
        /// The path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the namespace is gone, which a DEL takes as success.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::NotNamespace { .. })
    }
}

/// An open network namespace. Holding it keeps it alive.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: String,
}

impl Netns {
    /// Opens a namespace by its path.
    pub fn open(path: &str) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::Missing(path.to_owned()),
            _ => Error::Open {
                path: path.to_owned(),
                source,
            },
        })?;
        let statfs = fstatfs(&file).map_err(|errno| Error::Open {
            path: path.to_owned(),
            source: errno.into(),
        })?;
        let kind = statfs.filesystem_type();
        if kind == NSFS_MAGIC || kind == PROC_SUPER_MAGIC {
            return Ok(Self {
                file,
                path: path.to_owned(),
            });
        }
        Err(Error::NotNamespace {
            path: path.to_owned(),
            magic: kind.0 as i64,
        })
    }

    /// The descriptor, to name the namespace in a request.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The path it was opened by.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Runs `work` with the calling thread inside the namespace.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        let fail = |source| Error::Enter {
            path: self.path.clone(),
            source,
        };
        let own = File::open(OWN).map_err(fail)?;
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| fail(errno.into()))?;
        // Only who has entered has a way back to take.
        let way_back = WayBack(own);
        let outcome = work();
        drop(way_back);
        Ok(outcome)
    }
}

/// The calling thread's namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// Returns to a namespace when it is dropped.
struct WayBack(File);

impl Drop for WayBack {
    fn drop(&mut self) {
        // Going on in a wrong namespace would change the container where the host is meant.
        setns(&self.0, CloneFlags::CLONE_NEWNET).expect("an open namespace this thread came from can be entered again");
    }
}

/// Whether `path` is the calling thread's own network namespace. What cannot be opened is another one (contract §1.2).
pub fn is_current(path: &str) -> bool {
    if path.is_empty() {
        return false;
    }
    let identity = |path: &str| {
        std::fs::metadata(path)
            .map(|metadata| (metadata.dev(), metadata.ino()))
            .ok()
    };
    identity(path).is_some_and(|namespace| Some(namespace) == identity(OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_namespace_is_named() {
        let missing = Netns::open("/nowhere/ns").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "failed to Statfs \"/nowhere/ns\": no such file or directory"
        );
        assert!(missing.is_gone());
        let folder = tempfile::tempdir().unwrap();
        let error = Netns::open(folder.path().to_str().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("unknown FS magic on"), "{error}");
    }

    #[test]
    fn the_own_namespace_is_recognised() {
        assert!(is_current("/proc/self/ns/net"));
        assert!(!is_current("") && !is_current("/nowhere"));
    }
}
