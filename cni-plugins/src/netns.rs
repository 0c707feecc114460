//! Network namespaces. Work inside one runs on a thread of its own, which enters it and ends there: the caller's thread
//! never leaves its namespace, so nothing has to be restored and nothing can be forgotten.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::thread;

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

    /// Runs `work` inside the namespace, on a thread of its own.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| Error::Enter {
                    path: self.path.clone(),
                    source: errno.into(),
                })?;
                Ok(work())
            });
            match inside.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
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
    identity(path).is_some_and(|namespace| Some(namespace) == identity("/proc/thread-self/ns/net"))
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
