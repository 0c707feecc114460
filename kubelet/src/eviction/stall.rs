//! The kernel's notice that work stalls for want of memory (PSI, `/proc/pressure/memory`). Where the kernel has none, memory is only
//! looked at; so it is anyway, and the notice makes it sooner.

use crate::host::machine::Roots;
use crate::host::readiness;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Some task waits for memory for 70 ms of 2 s: a window that takes no privilege.
const TRIGGER: &[u8] = b"some 70000 2000000\0";

/// The notices. Nothing is read: that there was one is all it says.
pub(super) struct Stalls {
    file: Option<AsyncFd<File>>,
}

impl Stalls {
    /// Asks for notices. Must be called inside a tokio runtime.
    pub(super) fn open(roots: &Roots) -> Self {
        let file = Self::ask(roots);
        if let Err(error) = &file {
            tracing::debug!(%error, "the kernel tells of no stalls for want of memory");
        }
        Self { file: file.ok() }
    }

    fn ask(roots: &Roots) -> io::Result<AsyncFd<File>> {
        let path = roots.proc.join("pressure/memory");
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.write_all(TRIGGER)?;
        readiness::watched(file, Interest::PRIORITY)
    }

    /// Whether the kernel tells of any.
    pub(super) fn are_told(&self) -> bool {
        self.file.is_some()
    }

    /// Waits for one. Cancel safe.
    pub(super) async fn next(&self) {
        let Some(file) = &self.file else {
            return std::future::pending().await;
        };
        match file.ready(Interest::PRIORITY).await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => std::future::pending().await,
        }
    }
}
