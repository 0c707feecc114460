//! What an operation failed at, and what follows from it: the event users see, the reason their container waits with, and
//! when it is tried again (design §8). Pure; the one place that says so.
//!
//! An image's failure names its reason itself ([`crate::image::ImageError`]), and its back-off is the image's.

use crate::cgroup::CgroupError;
use crate::device::give::DeviceError;
use crate::dra::DraError;
use crate::host::WorkError;
use crate::id::{ContainerId, PodUid};
use crate::objects::ObjectError;
use crate::pinning::PinError;
use crate::pod::execute::ResizeError;
use crate::pod::hook::handler::HookError;
use crate::pod::spec::SpecError;
use crate::reason::{event, waiting};
use crate::runtime::RuntimeError;
use crate::volume::VolumeError;
use policy::gate::Late;
use std::io;
use std::path::PathBuf;

/// A failed operation; `Display` and its sources are what users read.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The pod's cgroup.
    #[error("unable to ensure pod container exists")]
    PodCgroup(#[source] CgroupError),
    /// The pod's directories.
    #[error("error making pod data directories")]
    PodDirectories(#[source] VolumeError),
    /// The pod's log directory.
    #[error("error making pod data directories: create log directory {path}")]
    LogDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The pod's volumes.
    #[error(transparent)]
    Mount(VolumeError),
    /// What its resource claims stand for.
    #[error("prepare dynamic resources: {0}")]
    PrepareClaims(DraError),
    /// The end of that.
    #[error("error killing pod: unprepare dynamic resources: {0}")]
    ReleaseClaims(DraError),
    /// The pod's sandbox.
    #[error(transparent)]
    Sandbox(SandboxError),
    /// A container's creation or start.
    #[error(transparent)]
    Start(StartError),
    /// A container's postStart hook.
    #[error(transparent)]
    PostStart(HookError),
    /// A container's preStop hook; the stop goes on all the same.
    #[error(transparent)]
    PreStop(HookError),
    /// A container's stop.
    #[error("error killing pod: failed to \"KillContainer\" for {container:?} with KillContainerError: \"{error}\"")]
    KillContainer {
        /// Its name.
        container: String,
        /// Why.
        error: RuntimeError,
    },
    /// A sandbox's stop.
    #[error("error killing pod: failed to \"KillPodSandbox\" for \"{pod}\" with KillPodSandboxError: \"{error}\"")]
    KillSandbox {
        /// The pod.
        pod: PodUid,
        /// Why.
        error: RuntimeError,
    },
    /// A dead container's or a stopped sandbox's removal.
    #[error(transparent)]
    Remove(RuntimeError),
    /// Unmounting.
    #[error(transparent)]
    ReleaseVolumes(VolumeError),
    /// The pod cgroup's removal.
    #[error(transparent)]
    ReleaseCgroup(CgroupError),
    /// The removal of the pod's logs.
    #[error("remove log directory {path}")]
    RemoveLogs {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A resize. Its event shows the resources, so its worker tells it.
    #[error(transparent)]
    Resize(ResizeError),
    /// A look at the pod in the runtime.
    #[error(transparent)]
    Observe(RuntimeError),
}

/// Why a sandbox was not made.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The class it names is not there, or cannot be asked for.
    #[error(transparent)]
    RuntimeClass(ObjectError),
    /// It is to have users of its own, which its handler cannot give it.
    #[error("can't set `spec.hostUsers: false`, {}", no_user_namespaces(.handler, *.known))]
    NoUserNamespaces {
        /// The handler; empty for the runtime's own choice.
        handler: String,
        /// Whether the runtime tells of it at all.
        known: bool,
    },
    /// It has no ids for users of its own.
    #[error(transparent)]
    Ids(VolumeError),
    /// A file of the node cannot be read.
    #[error(transparent)]
    NodeFile(NodeFileError),
    /// The pod cannot be put into the runtime's terms.
    #[error(transparent)]
    Spec(SpecError),
    /// The kubelet ends.
    #[error("shutting down")]
    Shutdown,
    /// The runtime could not.
    #[error(transparent)]
    Runtime(RuntimeError),
}

fn no_user_namespaces(handler: &str, known: bool) -> String {
    let who = match handler {
        "" => "runtime".to_owned(),
        name => format!("RuntimeClass handler {name:?}"),
    };
    let why = match known {
        true => String::new(),
        false => format!(": the handler {handler:?} is not known"),
    };
    format!("{who} does not support user namespaces{why}")
}

/// Why a container was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The pod no longer has it.
    #[error("container {0:?} is no longer in the pod")]
    Gone(String),
    /// The container that an ephemeral one is to look at is not there.
    #[error("unable to find target container {0}")]
    Target(String),
    /// An object its environment refers to.
    #[error(transparent)]
    Object(ObjectError),
    /// A file of the node cannot be read.
    #[error(transparent)]
    NodeFile(NodeFileError),
    /// It cannot be put into the runtime's terms.
    #[error(transparent)]
    Spec(SpecError),
    /// Its files cannot be made or read, or its pod has no ids.
    #[error(transparent)]
    Files(VolumeError),
    /// Its devices were not prepared.
    #[error(transparent)]
    Claims(DraError),
    /// Its devices are the runtime's to add, which this one cannot: it would run without them.
    #[error("the runtime would leave out the devices of its resource claims (CDI): {0}")]
    NoDevices(String),
    /// What it has to itself is not on disk, or there is no CPU for it.
    #[error(transparent)]
    Pinning(PinError),
    /// It has no devices, or their plugin does not let it start.
    #[error(transparent)]
    Devices(DeviceError),
    /// Its pod's traffic is not judged yet.
    #[error(transparent)]
    Policies(Late),
    /// Its earlier logs cannot be listed.
    #[error("list the logs of container {container:?}: {why}")]
    Logs {
        /// Its name.
        container: String,
        /// Why.
        why: WorkError,
    },
    /// The runtime cannot create it. Of its error users are told the description alone, as upstream does here.
    #[error("{}", .error.message)]
    Create {
        /// The runtime's error.
        error: RuntimeError,
        /// The restart count it was to have.
        restart_count: u32,
    },
    /// The runtime cannot start it, told likewise.
    #[error("{}", .error.message)]
    Run {
        /// The runtime's error.
        error: RuntimeError,
        /// The container, as the runtime calls it.
        id: ContainerId,
    },
}

/// A file of the node that a pod needs and that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NodeFileError {
    /// It cannot be opened or read.
    #[error("open {path}: {why}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// Its file system hangs.
    #[error("open {path}: {why}")]
    Work {
        /// The file.
        path: PathBuf,
        /// Why.
        why: WorkError,
    },
}

/// By which clock a failed operation is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After a growing wait of the operation's own ([`super::backoff::Bounds::RETRY`]).
    Operation,
    /// With the container's next start, by its crash back-off.
    NextStart,
    /// Not at all: it is tried once.
    Never,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consequence {
    /// The reason of the Warning event, if users are told.
    pub event: Option<&'static str>,
    /// The reason its container waits with, if it is one container's.
    pub waiting: Option<&'static str>,
    /// When it is tried again.
    pub retry: Retry,
}

impl Failure {
    /// What follows from it.
    pub fn consequence(&self) -> Consequence {
        let (event, waiting, retry) = match self {
            Self::PodCgroup(_) => (Some(event::FAILED_CREATE_POD_CONTAINER), None, Retry::Operation),
            Self::PodDirectories(_) | Self::LogDirectory { .. } => {
                let event = event::FAILED_TO_MAKE_POD_DATA_DIRECTORIES;
                (Some(event), None, Retry::Operation)
            }
            Self::Mount(_) => (Some(event::FAILED_MOUNT), None, Retry::Operation),
            Self::PrepareClaims(_) => (Some(event::FAILED_PREPARE_DYNAMIC_RESOURCES), None, Retry::Operation),
            Self::ReleaseClaims(_) => (Some(event::FAILED_KILL_POD), None, Retry::Operation),
            Self::Sandbox(_) => (Some(event::FAILED_CREATE_POD_SANDBOX), None, Retry::Operation),
            Self::Start(error) => (Some(event::FAILED), Some(error.waiting()), Retry::Operation),
            Self::PostStart(_) => {
                let waiting = waiting::POST_START_HOOK_ERROR;
                (Some(event::FAILED_POST_START_HOOK), Some(waiting), Retry::NextStart)
            }
            Self::PreStop(_) => (Some(event::FAILED_PRE_STOP_HOOK), None, Retry::Never),
            Self::KillContainer { .. } | Self::KillSandbox { .. } => {
                (Some(event::FAILED_KILL_POD), None, Retry::Operation)
            }
            Self::Remove(_)
            | Self::ReleaseVolumes(_)
            | Self::ReleaseCgroup(_)
            | Self::RemoveLogs { .. }
            | Self::Resize(_)
            | Self::Observe(_) => (None, None, Retry::Operation),
        };
        Consequence { event, waiting, retry }
    }

    /// The event's text. The runtime's id of a container in it is replaced by the container's name: each restart has another, and events
    /// that say the same are counted, not written again.
    pub fn event_message(&self, container: Option<&str>) -> String {
        let text = self.event_text();
        match (self, container) {
            (Self::Start(StartError::Run { id, .. }), Some(name)) => text.replace(id.as_str(), name),
            _ => text,
        }
    }

    fn event_text(&self) -> String {
        match self {
            // The details are left out: an answer may hold secrets, and events are widely read.
            Self::PostStart(_) => "PostStartHook failed".to_owned(),
            Self::PreStop(_) => "PreStopHook failed".to_owned(),
            Self::Start(error) => format!("Error: {error}"),
            Self::PrepareClaims(_) => format!("Failed to prepare dynamic resources: {self}"),
            Self::Sandbox(error) => format!("Failed to create pod sandbox: {error}"),
            other => chain(other),
        }
    }

    /// Whether it is a sandbox whose name an unfinished creation still holds.
    pub fn is_sandbox_reserved(&self) -> bool {
        matches!(self, Self::Sandbox(SandboxError::Runtime(error)) if error.is_name_reserved())
    }

    /// The restart count whose container name an unfinished creation still holds.
    pub fn reserved_restart_count(&self) -> Option<u32> {
        match self {
            Self::Start(StartError::Create { error, restart_count }) if error.is_name_reserved() => {
                Some(*restart_count)
            }
            _ => None,
        }
    }
}

impl StartError {
    fn waiting(&self) -> &'static str {
        match self {
            Self::Gone(_)
            | Self::Target(_)
            | Self::Object(_)
            | Self::NodeFile(_)
            | Self::Spec(_)
            | Self::Files(_)
            | Self::Pinning(_)
            | Self::Claims(_)
            | Self::NoDevices(_)
            | Self::Devices(_)
            | Self::Policies(_)
            | Self::Logs { .. } => waiting::CREATE_CONTAINER_CONFIG_ERROR,
            Self::Create { .. } => waiting::CREATE_CONTAINER_ERROR,
            Self::Run { .. } => waiting::RUN_CONTAINER_ERROR,
        }
    }
}

/// An error with everything below it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn run(error: RuntimeError) -> StartError {
        StartError::Run {
            error,
            id: ContainerId::from("4f1e"),
        }
    }

    fn check(failure: Failure, event: Option<&str>, message: &str, waits: Option<&str>, retry: Retry) {
        let consequence = failure.consequence();
        assert_eq!(consequence.event, event, "{failure}");
        assert_eq!(consequence.waiting, waits, "{failure}");
        assert_eq!(consequence.retry, retry, "{failure}");
        assert_eq!(failure.event_message(Some("c")), message);
    }

    #[test]
    fn each_failure_has_its_event_its_reason_and_its_clock() {
        let no = |call| RuntimeError::new(call, Code::Unknown, "no");
        let create = StartError::Create {
            error: no("CreateContainer"),
            restart_count: 2,
        };
        let (own, waits) = (Retry::Operation, Some("CreateContainerError"));
        check(Failure::Start(create), Some("Failed"), "Error: no", waits, own);
        check(
            Failure::Start(run(RuntimeError::new(
                "StartContainer",
                Code::Unknown,
                "no task \"4f1e\" of 4f1e",
            ))),
            Some("Failed"),
            "Error: no task \"c\" of c",
            Some("RunContainerError"),
            own,
        );
        let config = StartError::Spec(SpecError::NonRoot("container has runAsNonRoot".into()));
        check(
            Failure::Start(config),
            Some("Failed"),
            "Error: container has runAsNonRoot",
            Some("CreateContainerConfigError"),
            own,
        );
        check(
            Failure::PostStart(HookError::Invalid("a secret".into())),
            Some("FailedPostStartHook"),
            "PostStartHook failed",
            Some("PostStartHookError"),
            Retry::NextStart,
        );
        check(
            Failure::PreStop(HookError::Invalid("a secret".into())),
            Some("FailedPreStopHook"),
            "PreStopHook failed",
            None,
            Retry::Never,
        );
        check(
            Failure::Sandbox(SandboxError::Runtime(no("RunPodSandbox"))),
            Some("FailedCreatePodSandBox"),
            "Failed to create pod sandbox: rpc error: code = Unknown desc = no",
            None,
            own,
        );
        let unsupported = |handler: &str, known, text: &str| {
            let handler = handler.to_owned();
            check(
                Failure::Sandbox(SandboxError::NoUserNamespaces { handler, known }),
                Some("FailedCreatePodSandBox"),
                &format!("Failed to create pod sandbox: can't set `spec.hostUsers: false`, {text}"),
                None,
                own,
            );
        };
        unsupported("", true, "runtime does not support user namespaces");
        unsupported(
            "kata",
            false,
            "RuntimeClass handler \"kata\" does not support user namespaces: the handler \"kata\" is not known",
        );
        let cgroup = CgroupError::Create {
            path: "/sys/x".into(),
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        };
        check(
            Failure::PodCgroup(cgroup),
            Some("FailedCreatePodContainer"),
            "unable to ensure pod container exists: create cgroup /sys/x: permission denied",
            None,
            own,
        );
        check(
            Failure::KillContainer {
                container: "c".into(),
                error: no("StopContainer"),
            },
            Some("FailedKillPod"),
            "error killing pod: failed to \"KillContainer\" for \"c\" with KillContainerError: \"rpc error: code = Unknown desc = no\"",
            None,
            own,
        );
        check(
            Failure::Remove(no("RemoveContainer")),
            None,
            "rpc error: code = Unknown desc = no",
            None,
            own,
        );
    }

    #[test]
    fn a_name_that_is_held_tells_whose() {
        let held = || RuntimeError::new("x", Code::Unknown, "name \"n\" is reserved for \"i\"");
        let create = StartError::Create {
            error: held(),
            restart_count: 2,
        };
        assert_eq!(Failure::Start(create).reserved_restart_count(), Some(2));
        assert_eq!(Failure::Start(run(held())).reserved_restart_count(), None);
        assert!(Failure::Sandbox(SandboxError::Runtime(held())).is_sandbox_reserved());
        assert!(!Failure::Remove(held()).is_sandbox_reserved());
    }
}
