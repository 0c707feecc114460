//! What a plan can ask for, and how each kind ends when it is no longer wanted.

use crate::id::{ContainerId, SandboxId};
use crate::pod_object::Kind;
use crate::reason::event;
use jiff::{SignedDuration, Timestamp};

/// The identity of an operation: at most one of each runs at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Cgroup and directories.
    Prepare,
    /// Volumes.
    Volumes,
    /// What the pod's resource claims stand for.
    Claims,
    /// The sandbox.
    Sandbox,
    /// A container's image, by the container and the reference it names: another name is another operation.
    Image(String, String),
    /// A container's creation and start.
    Start(String),
    /// A container's postStart hook.
    PostStart(ContainerId),
    /// A container's preStop hook.
    PreStop(ContainerId),
    /// A container's stop.
    Stop(ContainerId),
    /// A sandbox's stop.
    StopSandbox(SandboxId),
    /// A dead container's removal.
    Remove(ContainerId),
    /// A stopped sandbox's removal.
    RemoveSandbox(SandboxId),
    /// The end of what its claims stand for.
    ReleaseClaims,
    /// Unmounting.
    ReleaseVolumes,
    /// The pod cgroup's removal.
    ReleaseCgroup,
    /// Removal of directories and logs.
    Purge,
    /// Bringing containers to what the pod was given.
    Resize,
    /// A look at the runtime.
    Observe,
}

/// Why a container is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The pod ends, or its sandbox is replaced.
    PodEnds,
    /// Its liveness probe failed.
    Liveness,
    /// Its startup probe failed.
    Startup,
    /// Its postStart hook failed.
    PostStart,
    /// Its definition changed.
    Changed,
    /// It gets other resources, and wants a restart for that.
    Resize,
    /// The runtime lost track of it.
    Unknown,
    /// Another container's end restarts all.
    RestartAll,
}

impl StopReason {
    /// The text of the `Killing` event; `restarts` tells whether the container is started again afterwards.
    pub fn message(&self, kind: Kind, container: &str, restarts: bool) -> String {
        let failed = |what: &str| match kind {
            // Upstream leaves the rest unsaid of init containers.
            Kind::Init | Kind::Sidecar => format!("Init container {container} {what}"),
            Kind::Regular | Kind::Ephemeral if restarts => format!("Container {container} {what}, will be restarted"),
            Kind::Regular | Kind::Ephemeral => format!("Container {container} {what}"),
        };
        match self {
            Self::PodEnds | Self::RestartAll => format!("Stopping container {container}"),
            Self::Liveness => failed("failed liveness probe"),
            Self::Startup => failed("failed startup probe"),
            Self::PostStart => event::FAILED_POST_START_HOOK.to_owned(),
            Self::Changed => failed("definition changed"),
            Self::Resize => format!("Container {container} resize requires restart"),
            Self::Unknown => {
                let what = match kind {
                    Kind::Regular | Kind::Ephemeral => "Container",
                    Kind::Init | Kind::Sidecar => "Init container",
                };
                format!("{what} is in \"unknown\" state, try killing it before restart")
            }
        }
    }
}

/// Something that should be running now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Make the pod's cgroup and directories.
    Prepare,
    /// Mount the pod's volumes.
    Volumes,
    /// Have drivers prepare what the pod's resource claims stand for.
    PrepareClaims,
    /// Create and start a sandbox.
    StartSandbox {
        /// Its attempt number.
        attempt: u32,
    },
    /// Have a container's image there.
    PrepareImage {
        /// The container.
        container: String,
        /// The image as the container names it.
        image: String,
    },
    /// Create and start a container.
    StartContainer {
        /// The container.
        container: String,
        /// Its kind.
        kind: Kind,
        /// The sandbox to start it in.
        sandbox: SandboxId,
        /// The restart count, if one is known; the log directory decides otherwise.
        restart_count: Option<u32>,
    },
    /// Run a container's postStart hook.
    PostStart {
        /// Which.
        id: ContainerId,
        /// Its name.
        container: String,
    },
    /// Run a container's preStop hook, as the first part of its stop.
    PreStop {
        /// Which.
        id: ContainerId,
        /// Its name.
        container: String,
        /// The most it may take, seconds.
        grace_seconds: i64,
        /// Why the container is stopped.
        reason: StopReason,
    },
    /// Stop a container.
    StopContainer {
        /// Which.
        id: ContainerId,
        /// Its name.
        container: String,
        /// Its grace, seconds.
        grace_seconds: i64,
        /// Why.
        reason: StopReason,
    },
    /// Stop a sandbox.
    StopSandbox {
        /// Which.
        id: SandboxId,
    },
    /// Remove a dead container.
    RemoveContainer {
        /// Which.
        id: ContainerId,
        /// Whether all containers start anew: its log stays, and the next instance's count goes on from its own.
        starts_anew: bool,
    },
    /// Remove a stopped sandbox.
    RemoveSandbox {
        /// Which.
        id: SandboxId,
    },
    /// Have drivers let go of what its claims stand for.
    ReleaseClaims,
    /// Unmount the pod's volumes.
    ReleaseVolumes,
    /// Remove the pod's cgroup.
    ReleaseCgroup,
    /// Remove the pod's directories and logs.
    Purge,
    /// Bring containers and the pod's cgroup to what the pod was given.
    Resize,
    /// Look at the runtime again.
    Observe,
}

/// How an operation that is no longer wanted ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its future is dropped.
    Cancel,
    /// It goes on, and may be asked for again with less grace.
    Shorten,
    /// It runs to its own deadline, and is observed then.
    Never,
}

impl Operation {
    /// When the grace of what it stops is over, if it stops something.
    pub fn grace_ends(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::StopContainer { grace_seconds, .. } | Self::PreStop { grace_seconds, .. } => Some(
                now.saturating_add(SignedDuration::from_secs(*grace_seconds))
                    .unwrap_or(Timestamp::MAX),
            ),
            _ => None,
        }
    }

    /// The runtime's id of what it stops or removes.
    pub fn ends(&self) -> Option<String> {
        match self {
            Self::StopContainer { id, .. } | Self::RemoveContainer { id, .. } => Some(id.to_string()),
            Self::StopSandbox { id } | Self::RemoveSandbox { id } => Some(id.to_string()),
            _ => None,
        }
    }

    /// Its identity.
    pub fn key(&self) -> Key {
        match self {
            Self::Prepare => Key::Prepare,
            Self::Volumes => Key::Volumes,
            Self::PrepareClaims => Key::Claims,
            Self::StartSandbox { .. } => Key::Sandbox,
            Self::PrepareImage { container, image } => Key::Image(container.clone(), image.clone()),
            Self::StartContainer { container, .. } => Key::Start(container.clone()),
            Self::PostStart { id, .. } => Key::PostStart(id.clone()),
            Self::PreStop { id, .. } => Key::PreStop(id.clone()),
            Self::StopContainer { id, .. } => Key::Stop(id.clone()),
            Self::StopSandbox { id } => Key::StopSandbox(id.clone()),
            Self::RemoveContainer { id, .. } => Key::Remove(id.clone()),
            Self::RemoveSandbox { id } => Key::RemoveSandbox(id.clone()),
            Self::ReleaseClaims => Key::ReleaseClaims,
            Self::ReleaseVolumes => Key::ReleaseVolumes,
            Self::ReleaseCgroup => Key::ReleaseCgroup,
            Self::Purge => Key::Purge,
            Self::Resize => Key::Resize,
            Self::Observe => Key::Observe,
        }
    }
}

impl Key {
    /// How an operation of this key ends when it is no longer wanted.
    pub fn end(&self) -> End {
        match self {
            // A mount that was only waited for less would still happen, after its directory was released.
            Self::Image(..) | Self::Observe | Self::PostStart(_) | Self::PreStop(_) => End::Cancel,
            Self::Stop(_) => End::Shorten,
            _ => End::Never,
        }
    }

    /// Whether it can bring a process to life.
    pub fn starts_something(&self) -> bool {
        matches!(self, Self::Sandbox | Self::Start(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killing_says_restarted_only_where_that_is_so() {
        let check = |reason: StopReason, kind, restarts, text: &str| {
            assert_eq!(reason.message(kind, "c", restarts), text);
        };
        check(StopReason::PodEnds, Kind::Regular, true, "Stopping container c");
        check(
            StopReason::Liveness,
            Kind::Regular,
            true,
            "Container c failed liveness probe, will be restarted",
        );
        check(
            StopReason::Liveness,
            Kind::Regular,
            false,
            "Container c failed liveness probe",
        );
        check(
            StopReason::Startup,
            Kind::Regular,
            false,
            "Container c failed startup probe",
        );
        check(
            StopReason::Startup,
            Kind::Sidecar,
            true,
            "Init container c failed startup probe",
        );
        check(
            StopReason::Changed,
            Kind::Regular,
            true,
            "Container c definition changed, will be restarted",
        );
        let unknown = "Container is in \"unknown\" state, try killing it before restart";
        check(StopReason::Unknown, Kind::Regular, true, unknown);
    }
}
