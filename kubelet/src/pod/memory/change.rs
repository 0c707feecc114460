//! What a plan changes in the memory as its operations begin. The plan alone decides it; here it is only taken over. Pure.

use super::{Memory, Stop};
use crate::id::ContainerId;
use crate::pod::backoff::Crash;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A container that ended is started again.
    Crashed {
        /// Its name.
        container: String,
        /// How long it waits after its next end.
        crash: Crash,
    },
    /// A container that ended is removed so that all start anew: likewise, once it is gone.
    CrashedOnceGone {
        /// Which.
        id: ContainerId,
        /// Its name.
        container: String,
        /// How long it waits after its next end.
        crash: Crash,
    },
    /// A container of which something is remembered is gone.
    Gone(ContainerId),
    /// A container was found whose start an earlier kubelet did not live to see the end of, and that never ran.
    Interrupted(ContainerId),
    /// A container's next start has this restart count at least.
    CountsFrom {
        /// Its name.
        container: String,
        /// The count.
        least: u32,
    },
    /// A container is being stopped.
    Stopping {
        /// Which.
        id: ContainerId,
        /// Its name.
        container: String,
        /// Since when, why, and whether its hook is begun.
        stop: Stop,
        /// Whether it is to be started again, whatever its policy.
        restarts: bool,
        /// The text of the `Killing` event, when its stop begins.
        told: Option<String>,
    },
}

impl Memory {
    /// Takes a change over.
    pub fn take(&mut self, change: &Change) {
        match change {
            Change::Crashed { container, crash } => {
                self.crashes.insert(container.clone(), crash.clone());
            }
            Change::CrashedOnceGone { id, container, crash } => {
                let counted = (container.clone(), crash.clone());
                self.uncounted_crashes.insert(id.clone(), counted);
            }
            Change::Gone(id) => {
                self.stops.remove(id);
                self.interrupted.remove(id);
                self.crashes.extend(self.uncounted_crashes.remove(id));
            }
            Change::Interrupted(id) => drop(self.interrupted.insert(id.clone())),
            Change::CountsFrom { container, least } => {
                let known = self.restart_count_min.entry(container.clone()).or_default();
                *known = (*known).max(*least);
            }
            Change::Stopping {
                id,
                container,
                stop,
                restarts,
                ..
            } => {
                if *restarts {
                    self.restart_wanted.insert(container.clone());
                }
                self.stops.insert(id.clone(), stop.clone());
            }
        }
    }
}
