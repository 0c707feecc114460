//! Why volumes are not as they should be, in the words users read.

use super::atomic_writer::WriteError;
use crate::downward::FieldError;
use crate::host::WorkError;
use crate::id::PodUid;
use crate::objects::ObjectError;
use crate::user_namespace::RangeError;
use std::io;
use std::path::PathBuf;

/// Why a pod's volumes are not as they should be; `Display` is the text of the `FailedMount` event.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// One volume could not be set up.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
    SetUp {
        /// The volume.
        volume: String,
        /// What went wrong.
        why: SetUpError,
    },
    /// A directory of the pod could not be made.
    #[error("failed to make pod directory {path}: {why}")]
    PodDirectory {
        /// The directory.
        path: PathBuf,
        /// What went wrong.
        why: io::Error,
    },
    /// The pod's UID cannot name its directory. Nothing was touched.
    #[error("pod UID {0:?} cannot be the name of a directory")]
    Uid(PodUid),
    /// A file for a container's start could not be made.
    #[error("failed to prepare {what} for container {container:?}: {why}")]
    ContainerFile {
        /// `hosts file`, `termination message file`, `log directory` or `preStop mark`.
        what: &'static str,
        /// The container.
        container: String,
        /// What went wrong.
        why: io::Error,
    },
    /// A sub path is not there, cannot be made, or is not inside its volume.
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}: {why}")]
    SubPath {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
        /// What went wrong.
        why: io::Error,
    },
    /// A file that variables are taken from cannot be read.
    #[error("failed to read environment variable file {path:?} of volume {volume:?}: {why}")]
    EnvFile {
        /// The volume.
        volume: String,
        /// The path inside it.
        path: String,
        /// What went wrong.
        why: io::Error,
    },
    /// The files that variables are taken from are too many, or tell too much.
    #[error("environment variable files: {0}")]
    EnvFiles(&'static str),
    /// The pod has no ids for users of its own.
    #[error(transparent)]
    Ids(#[from] RangeError),
    /// A pod's mounts or directories could not be removed; what is left stays for the next try.
    #[error("failed to release volumes of pod {uid}: {why}")]
    Release {
        /// The pod.
        uid: PodUid,
        /// What went wrong.
        why: ReleaseError,
    },
    /// The pod's volumes are not mounted in time.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition",
        .unmounted.join(" ")
    )]
    NotMounted {
        /// The volumes that were to be mounted.
        unmounted: Vec<String>,
    },
    /// The file work is not over in time, or was lost.
    #[error(transparent)]
    Work(#[from] WorkError),
}

/// What a pod's release failed at.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Its mounts could not be listed.
    #[error(transparent)]
    Mounts(io::Error),
    /// One of them would not go.
    #[error("unmount {path}: {why}")]
    Unmount {
        /// Where it is.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// One of them is there though it was unmounted.
    #[error("unmount {path}: it is still mounted")]
    StillMounted {
        /// Where it is.
        path: PathBuf,
    },
    /// Its directory could not be removed.
    #[error("remove {path}: {why}")]
    Remove {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
}

/// What is wrong with one volume, in upstream's words where it has some.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// A host path is not what its type says.
    #[error("hostPath type check failed: {path} is not {what}")]
    HostPathIsNot {
        /// The path.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
    },
    /// A host path that is missing cannot be made.
    #[error("failed to create {what} {path}: {why}")]
    HostPathNotMade {
        /// `directory` or `file`.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// A host path's type is none there is.
    #[error("{0} is an invalid volume type")]
    HostPathType(String),
    /// An object the volume is filled from does not exist.
    #[error("{kind} {name:?} not found")]
    ObjectMissing {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An object lacks a key.
    #[error("{missing}: {key}")]
    KeyMissing {
        /// What is missing, in upstream's words for that kind.
        missing: &'static str,
        /// The key.
        key: String,
    },
    /// An object cannot be had.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A downward API reference that names no known field.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// There is no token for a file that is to hold one.
    #[error("no token was issued")]
    NoToken,
    /// A kind of volume that is not in this kubelet yet.
    #[error("volume type {0} is not supported by this kubelet")]
    Unsupported(String),
    /// A kind of projection that is not in this kubelet yet.
    #[error("this kind of projection is not supported by this kubelet")]
    Projection,
    /// The volume says nothing of where it comes from.
    #[error("the volume has no source")]
    NoSource,
    /// An emptyDir of a medium there is none of.
    #[error("unknown storage medium {0:?}")]
    Medium(String),
    /// An emptyDir of huge pages, without saying of which of the sizes the pod requests.
    #[error("medium: {0} can't be used if container requests multiple huge page sizes")]
    HugePageSizes(String),
    /// An emptyDir of huge pages that the pod does not request.
    #[error("medium {0}: hugePages storage requested, but there is no resource request for huge pages")]
    NoHugePages(String),
    /// gitRepo volumes, which nobody should have: the program that fills them does what the repository says.
    #[error("git-repo volume plugin has been disabled: clone into an emptyDir in an init container instead")]
    GitRepo,
    /// A file with which the pod's volumes hold more than the kubelet writes for one.
    #[error("file {path:?}: files of the pod's volumes exceed maximum size of 64MB together")]
    Size {
        /// The file's path in the volume.
        path: String,
    },
    /// Its files could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its directory or mount could not be made.
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub(super) fn set_up(volume: &str, why: impl Into<SetUpError>) -> VolumeError {
    VolumeError::SetUp {
        volume: volume.to_owned(),
        why: why.into(),
    }
}
