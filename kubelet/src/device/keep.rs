//! Has who has which devices on disk. A write that fails fails whoever waits for it, and is tried again by itself until it is done: the
//! next kubelet would not know what this one gave.
//!
//! Owns when the file is written, not what is in it.

use super::{Devices, Inner, checkpoint, socket};
use crate::host::WorkError;
use futures::FutureExt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a container's creation waits for the file.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);
/// The wait before a write that failed is tried again, at first and at most; it doubles.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(64);

/// The checkpoint cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("write {path}: {why}")]
pub struct KeepError {
    path: PathBuf,
    why: Arc<dyn std::error::Error + Send + Sync>,
}

impl Devices {
    /// Waits until all that was given and taken so far is on disk.
    ///
    /// # Errors
    /// It is not. The change stands in memory and is written later.
    pub async fn kept(&self) -> Result<(), KeepError> {
        let written = self.write_now().await;
        if written.is_err() && !std::mem::replace(&mut self.0.held().retries, true) {
            tokio::spawn(write_later(Arc::downgrade(&self.0)).boxed());
        }
        written
    }

    async fn write_now(&self) -> Result<(), KeepError> {
        let inner = &self.0;
        let change = {
            let held = inner.held();
            if held.written >= held.changed {
                return Ok(());
            }
            held.changed
        };
        let job = inner.clone();
        let written = inner.files.run(checkpoint::FILE, move || job.write(change)).await;
        let why: Arc<dyn std::error::Error + Send + Sync> = match written {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => Arc::new(error),
            Err(error) => Arc::<WorkError>::new(error),
        };
        let path = inner.directory.join(checkpoint::FILE);
        Err(KeepError { path, why })
    }
}

/// Tries until all is on disk, or nobody has any devices any more.
async fn write_later(devices: Weak<Inner>) {
    let mut pause = AGAIN;
    loop {
        tokio::time::sleep(pause).await;
        let Some(inner) = devices.upgrade() else { return };
        let devices = Devices(inner);
        if let Err(error) = devices.write_now().await {
            tracing::warn!(%error, "who has which devices is not on disk, trying again");
        }
        // Whoever fails from now on begins again.
        let held = &mut *devices.0.held();
        if held.written >= held.changed {
            held.retries = false;
            return;
        }
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

impl Inner {
    /// Writes the file, unless somebody else has meanwhile.
    fn write(&self, change: u64) -> io::Result<()> {
        // A copy, which shares what is large: nobody waits for the state while all of it becomes text.
        let (state, changed) = {
            let held = self.held();
            if held.written >= change {
                return Ok(());
            }
            (held.state.clone(), held.changed)
        };
        let text = checkpoint::write(&state);
        socket::make_directory(&self.directory)?;
        crate::host::directory::replace(&self.directory.join(checkpoint::FILE), &text)?;
        let mut held = self.held();
        held.written = held.written.max(changed);
        Ok(())
    }
}
