//! The files that tell the next kubelet who has what: upstream's `cpu_manager_state` and `memory_manager_state`.

use super::{Held, Inner, PinError, Pinning, cpu, memory};
use crate::host::directory::replace;
use std::io;
use std::path::PathBuf;

/// Upstream's name of the policy that gives CPUs.
pub(crate) const STATIC_CPUS: &str = "static";
/// Upstream's name of the policy that gives memory.
pub(crate) const STATIC_MEMORY: &str = "Static";
pub(super) const CPUS: &str = "cpu_manager_state";
pub(super) const MEMORY: &str = "memory_manager_state";

impl Pinning {
    /// Waits until all that was given and taken so far is on disk.
    ///
    /// # Errors
    /// It is not. The change stands in memory and is written with the next.
    pub async fn kept(&self) -> Result<(), PinError> {
        let Some(inner) = self.0.clone() else { return Ok(()) };
        let change = {
            let held = inner.held();
            if held.written >= held.changed {
                return Ok(());
            }
            held.changed
        };
        let (job, files, path) = (inner.clone(), inner.files.clone(), inner.directory.clone());
        match files.run("state of resource managers", move || job.write(change)).await {
            Err(source) => Err(PinError::Work { path, source }),
            Ok(Err((path, source))) => Err(PinError::Write { path, source }),
            Ok(Ok(())) => Ok(()),
        }
    }
}

impl Inner {
    /// Writes the files, unless somebody else has meanwhile.
    fn write(&self, change: u64) -> Result<(), (PathBuf, io::Error)> {
        let (texts, changed) = {
            let held = self.held();
            if held.written >= change {
                return Ok(());
            }
            (self.texts(&held), held.changed)
        };
        for (name, text) in texts {
            let path = self.directory.join(name);
            replace(&path, &text).map_err(|source| (path, source))?;
        }
        let mut held = self.held();
        held.written = held.written.max(changed);
        Ok(())
    }

    /// What the files are to have.
    fn texts(&self, held: &Held) -> Vec<(&'static str, Vec<u8>)> {
        let cpus = self
            .cpu
            .as_ref()
            .map(|_| (CPUS, cpu::state::write(STATIC_CPUS, &held.cpus)));
        let memory = self.memory.as_ref().map(|policy| {
            let tables = policy.tables(&held.memory);
            (MEMORY, memory::state::write(STATIC_MEMORY, &tables, &held.memory))
        });
        cpus.into_iter().chain(memory).collect()
    }
}
