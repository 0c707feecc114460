//! `cpu_manager_state`: what of the CPUs is whose, as upstream's kubelets keep it (kubelet contract §2), so that a node can be
//! switched over either way with its pods running. Pure.
//!
//! Written in the form of 1.18 and later; the one before it, by container ids, is read as long as it gives nothing to anybody.

use super::Assignments;
use crate::checksum::fnv32a;
use crate::pinning::cpu_set::{CpuListError, CpuSet};
use client::ordered::CollectOrdered;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why a file is of no use; in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is no JSON, or not of the form.
    #[error("{0}")]
    Form(serde_json::Error),
    /// Somebody else wrote in it, or it is damaged.
    #[error("checkpoint is corrupted")]
    Checksum,
    /// Another policy wrote it.
    #[error("configured policy {configured:?} differs from state checkpoint policy {found:?}")]
    Policy {
        /// The policy of the configuration.
        configured: &'static str,
        /// That of the file.
        found: String,
    },
    /// `defaultCpuSet`.
    #[error("could not parse default cpu set {text:?}: {source}")]
    Shared {
        /// As written.
        text: String,
        /// Why.
        source: CpuListError,
    },
    /// One of `entries`.
    #[error("could not parse cpuset {text:?} for container {container:?} in pod {pod:?}: {source}")]
    Entry {
        /// As written.
        text: String,
        /// The container.
        container: String,
        /// Its pod's UID.
        pod: String,
        /// Why.
        source: CpuListError,
    },
    /// An entry of the form before 1.18.
    #[error("failed to migrate checkpoint from v1 to v2: containerID '{0}' not found in initial containers list")]
    Migration(String),
}

type ByContainer = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "E: Entries + Serialize", deserialize = "E: Entries + Deserialize<'de>"))]
struct File<E> {
    #[serde(rename = "policyName", default)]
    policy: String,
    #[serde(rename = "defaultCpuSet", alias = "defaultCPUSet", default)]
    shared: String,
    #[serde(default, skip_serializing_if = "Entries::is_none")]
    entries: E,
    #[serde(default)]
    checksum: u32,
}

/// One of the forms that `entries` had.
trait Entries: Default {
    /// Its type in Go.
    const TYPE: &'static str;
    fn is_none(&self) -> bool;
    /// As Go dumps it.
    fn dump(&self) -> String;
}

impl Entries for ByContainer {
    const TYPE: &'static str = "map[string]map[string]string";

    fn is_none(&self) -> bool {
        self.is_empty()
    }

    fn dump(&self) -> String {
        let pods: Vec<String> = self.iter().map(|(pod, of)| format!("{pod}:{}", of.dump())).collect();
        format!("map[{}]", pods.join(" "))
    }
}

impl Entries for BTreeMap<String, String> {
    const TYPE: &'static str = "map[string]string";

    fn is_none(&self) -> bool {
        self.is_empty()
    }

    fn dump(&self) -> String {
        let all: Vec<String> = self.iter().map(|(name, cpus)| format!("{name}:{cpus}")).collect();
        format!("map[{}]", all.join(" "))
    }
}

impl<E: Entries> File<E> {
    /// Upstream's checksum: of what Go's dump makes of the whole, itself being zero.
    fn sum(&self) -> u32 {
        let (policy, shared, kind, entries) = (&self.policy, &self.shared, E::TYPE, self.entries.dump());
        let dump = format!(
            "(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){shared} \
             Entries:({kind}){entries} Checksum:(checksum.Checksum)0}}"
        );
        fnv32a(dump.bytes())
    }

    /// Whether nobody but a kubelet wrote it; what was written before there were checksums has none.
    fn is_sound(&self) -> bool {
        self.checksum == 0 || self.checksum == self.sum()
    }
}

/// What a file tells a kubelet of this policy.
///
/// # Errors
/// It is damaged, or another policy's.
pub fn read(bytes: &[u8], configured: &'static str) -> Result<Assignments, StateError> {
    let file: File<ByContainer> = match serde_json::from_slice(bytes) {
        Ok(file) => file,
        Err(why) => migrated(bytes).map_err(|other| other.unwrap_or(StateError::Form(why)))?,
    };
    if !file.is_sound() {
        // The two forms differ in their sums though they give nothing to anybody.
        migrated(bytes).map_err(|other| other.unwrap_or(StateError::Checksum))?;
    }
    if file.policy != configured {
        return Err(StateError::Policy {
            configured,
            found: file.policy,
        });
    }
    let shared = CpuSet::parse(&file.shared).map_err(|source| StateError::Shared {
        text: file.shared.clone(),
        source,
    })?;
    let mut exclusive: BTreeMap<String, BTreeMap<String, CpuSet>> = BTreeMap::new();
    for (pod, containers) in file.entries {
        let mut own = BTreeMap::new();
        for (container, text) in containers {
            match CpuSet::parse(&text) {
                Ok(cpus) => drop(own.insert(container, cpus)),
                Err(source) => {
                    return Err(StateError::Entry {
                        text,
                        container,
                        pod,
                        source,
                    });
                }
            }
        }
        exclusive.insert(pod, own);
    }
    Ok(Assignments { shared, exclusive })
}

/// A file of the older form in the newer one; without a reason, it is none.
fn migrated(bytes: &[u8]) -> Result<File<ByContainer>, Option<StateError>> {
    let old: File<BTreeMap<String, String>> = serde_json::from_slice(bytes).map_err(|_| None)?;
    if !old.is_sound() {
        return Err(Some(StateError::Checksum));
    }
    match old.entries.into_keys().next() {
        Some(container) => Err(Some(StateError::Migration(container))),
        None => Ok(File {
            policy: old.policy,
            shared: old.shared,
            entries: ByContainer::new(),
            checksum: 0,
        }),
    }
}

/// The file of a policy.
pub fn write(policy: &str, held: &Assignments) -> Vec<u8> {
    let of_pod = |own: &BTreeMap<String, CpuSet>| {
        let own = own.iter();
        own.map(|(container, cpus)| (container.clone(), cpus.to_string()))
            .collect_ordered()
    };
    let pods = held.exclusive.iter();
    let entries: ByContainer = pods.map(|(pod, own)| (pod.clone(), of_pod(own))).collect_ordered();
    let mut file = File {
        policy: policy.to_owned(),
        shared: held.shared.to_string(),
        entries,
        checksum: 0,
    };
    file.checksum = file.sum();
    serde_json::to_vec(&file).unwrap_or_default()
}

#[cfg(test)]
mod tests;
