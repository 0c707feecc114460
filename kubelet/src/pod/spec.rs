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
mod namespaces;
mod resources;
mod room;
mod sandbox;
mod security;
#[cfg(test)]
pub(crate) mod testing;

pub use crate::objects::ResolvedObjects;
pub use crate::volume::{ContainerFiles, EnvFileError, SubPath};
pub use container::{ContainerInput, container_config};
pub use context::{NodeContext, ResolvConf};
pub use dns::{DnsWarning, dns_config, search_limit_exceeded};
pub use env::{env_files, env_references, environment};
pub use hash::container_hash;
pub use hosts::hosts_file;
pub use mounts::{image_mounts, mounts_hosts_file, recursive_read_only, sub_paths, termination_path};
pub use resources::{container_resources, oom_score_adj, sandbox_resources};
pub use sandbox::{hostname, pod_log_directory, sandbox_config};
pub use security::apparmor_profile;

use k8s_openapi::ByteString;

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
    /// A value of a Secret that is no text, which the runtime's protocol could not carry either.
    #[error("key {key} in Secret {namespace}/{name} is not UTF-8 text, which alone a variable can be")]
    Binary {
        /// The Secret's namespace.
        namespace: String,
        /// The Secret's name.
        name: String,
        /// The value's key.
        key: String,
    },
    /// A downward API reference that names no known field.
    #[error(transparent)]
    Field(#[from] crate::downward::FieldError),
    /// A `subPathExpr` whose variable is unset or whose result is empty or leaves the volume.
    #[error("{0}")]
    SubPath(String),
    /// A mount of a volume that is not there.
    #[error("volume mount {volume:?} of container {container:?} names a volume the pod does not have")]
    VolumeMissing {
        /// The container.
        container: String,
        /// The volume named by the mount.
        volume: String,
    },
    /// An image is to be mounted, which the runtime cannot do.
    #[error("image volumes need {needed}: the node's runtime is {runtime} {version}")]
    ImageVolumes {
        /// What can.
        needed: &'static str,
        /// The runtime's name.
        runtime: String,
        /// Its version.
        version: String,
    },
    /// A device plugin wants CDI devices, of which the runtime knows nothing.
    #[error("CDI devices of a device plugin need {needed}: the node's runtime is {runtime} {version}")]
    CdiDevices {
        /// What can.
        needed: &'static str,
        /// The runtime's name.
        runtime: String,
        /// Its version.
        version: String,
    },
    /// `runAsNonRoot` would be broken.
    #[error("{0}")]
    NonRoot(String),
    /// The pod's host name with its domain, which is longer than the kernel takes.
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {0} is too long ({max} characters is the max, {len} characters requested)",
        max = sandbox::FQDN_MAX,
        len = .0.len()
    )]
    LongHostName(String),
    /// A security profile or other field with a value that cannot be used.
    #[error("invalid {field}: {why}")]
    Invalid {
        /// Path of the field.
        field: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The pod has users of its own, and no ids for them.
    #[error("the pod has no user namespace")]
    NoIds,
    /// A mount that is to be read only with all below it cannot be.
    #[error(
        "failed to resolve recursive read-only mode: volume {volume:?} requested recursive read-only mode, but it {why}"
    )]
    RecursiveReadOnly {
        /// The mount's volume.
        volume: String,
        /// What stands in the way.
        why: String,
    },
    /// A variable or word with which there is more than a process can be started with.
    #[error("{what}: environment and command exceed maximum size of 2MB together")]
    Size {
        /// The variable, or the word's field.
        what: String,
    },
    /// A variable of a file cannot be had.
    #[error("environment variable {variable:?}: {why}")]
    FileKey {
        /// The variable.
        variable: String,
        /// What is wrong.
        why: FileKeyError,
    },
}

/// Why a variable cannot be taken from a file (KEP-3721).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileKeyError {
    /// The key is longer than keys may be.
    #[error("environment variable key {0:?} exceeds maximum length of 128 characters")]
    Key(String),
    /// There is no such volume.
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    Volume(String),
    /// There is no such file.
    #[error("couldn't parse env file: open {0:?}: no such file or directory")]
    File(String),
    /// The file is none of variables.
    #[error("couldn't parse env file: {0}")]
    Format(#[from] EnvFileError),
    /// The file does not have the variable.
    #[error("environment variable key {key:?} not found in file {path:?}")]
    Missing {
        /// The variable's name there.
        key: String,
        /// The file.
        path: String,
    },
    /// All values together are longer than they may be.
    #[error("environment variables of files exceed maximum size of 1MB together")]
    Sum,
    /// The value is longer than values may be.
    #[error("environment variable value for key {0:?} exceeds maximum size of 32KB")]
    Value(String),
}

/// A Secret's value as a variable: text, or nothing at all. Half of it would be another value.
fn secret_text(namespace: &str, name: &str, key: &str, value: &ByteString) -> Result<String, SpecError> {
    let text = std::str::from_utf8(&value.0).map_err(|_| SpecError::Binary {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
    })?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_text_is_refused_by_its_name() {
        let text = |bytes: &[u8]| secret_text("shop", "s", "k", &ByteString(bytes.to_vec()));
        assert_eq!(text("gr\u{fc}n".as_bytes()).expect("text"), "gr\u{fc}n");
        let refused = text(b"\xff\xfe").expect_err("refused").to_string();
        assert_eq!(
            refused,
            "key k in Secret shop/s is not UTF-8 text, which alone a variable can be"
        );
    }
}
