//! Pure translation of a Pod to CRI messages.
//!
//! Owns every rule of kubelet contract §6: what a sandbox and a container look like to the runtime. Never does I/O, never
//! reads a clock; everything it needs arrives in [`NodeContext`], [`ContainerInput`] and their parts.

mod container;
mod context;
mod dns;
mod env;
mod hash;
mod hosts;
mod mounts;
mod resources;
mod sandbox;
mod security;
#[cfg(test)]
pub(crate) mod testing;

pub use crate::objects::ResolvedObjects;
pub use crate::volume::{ContainerFiles, SubPath};
pub use container::{ContainerInput, container_config};
pub use context::{NodeContext, ResolvConf};
pub use dns::{DnsWarning, dns_config};
pub use env::{env_references, environment};
pub use hash::container_hash;
pub use hosts::hosts_file;
pub use mounts::{mounts_hosts_file, sub_paths, termination_path};
pub use resources::{container_resources, oom_score_adj};
pub use sandbox::{hostname, pod_log_directory, sandbox_config};
pub use security::apparmor_profile;

/// Why a pod cannot be put into CRI terms; `Display` is the message users see behind `CreateContainerConfigError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A referenced object does not exist and is not optional.
    #[error("{kind} {name:?} not found")]
    ObjectMissing {
        /// Lower-case singular kind: `configmap` or `secret`.
        kind: &'static str,
        /// The object's name.
        name: String,
    },
    /// A referenced object lacks the key asked for.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    KeyMissing {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// The object's namespace.
        namespace: String,
        /// The object's name.
        name: String,
        /// The key asked for.
        key: String,
    },
    /// A downward API reference that names no known field.
    #[error(transparent)]
    Field(#[from] crate::downward::FieldError),
    /// A `subPathExpr` whose variable is unset or whose result is empty or leaves the volume.
    #[error("failed to expand subPath for volumeMount {volume:?}: {why}")]
    SubPath {
        /// The mount's volume.
        volume: String,
        /// What is wrong.
        why: String,
    },
    /// A mount of a volume that is not there.
    #[error("volume mount {volume:?} of container {container:?} names a volume the pod does not have")]
    VolumeMissing {
        /// The container.
        container: String,
        /// The volume named by the mount.
        volume: String,
    },
    /// `runAsNonRoot` would be broken.
    #[error("{0}")]
    NonRoot(String),
    /// A security profile, host name or other field with a value that cannot be used.
    #[error("invalid {field}: {why}")]
    Invalid {
        /// Path of the field.
        field: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A feature that is not in this kubelet yet.
    #[error("{0} is not supported by this kubelet")]
    Unsupported(&'static str),
    /// A variable taken from a file, which is not read here.
    #[error("environment variable {0:?}: fileKeyRef is not supported by this kubelet")]
    FileKey(String),
}
