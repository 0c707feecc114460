//! How a kubelet takes over who has what from the one before it, or refuses to begin: what does not fit is the administrator's to
//! remove, with the pods that run by it.

use super::cpu::state::{self, StateError};
use super::cpu::{Assignments, PolicyError, Static};
use super::cpu_set::CpuSet;
use super::hint::{NODES_MAX, Nodes, NumaMask, Policy};
use super::topology::Topology;
use super::topology::sysfs::TopologyError;
use super::{FILE, Held, Inner, Pinning, Rules, STATIC, TopologyRules, replace};
use crate::host::FileWork;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a container's creation waits for the file.
const DEADLINE: Duration = Duration::from_secs(60);
/// How many NUMA nodes a machine may have for all to be aligned on it, if `max-allowable-numa-nodes` does not say.
const NUMA_NODES: usize = 8;

/// Why a kubelet does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The machine does not tell of its CPUs.
    #[error("unable to discover CPU topology info: {0}")]
    Topology(#[source] TopologyError),
    /// `reservedSystemCPUs` are none of this machine's.
    #[error("reserved-cpus: {reserved} is not a subset of online-cpus: {online}")]
    Reserved {
        /// As written.
        reserved: String,
        /// Those there are.
        online: String,
    },
    /// The policy cannot be.
    #[error("Failed to initialize cpu manager: new static policy error: {0}")]
    Policy(PolicyError),
    /// The machine has too many NUMA nodes for its containers to be aligned.
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyNodes(usize),
    /// The state file is of no use.
    #[error(
        "start cpu manager error: could not restore state from checkpoint: {why}, please drain this node and delete the CPU manager checkpoint file {path:?} before restarting Kubelet"
    )]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        why: StateError,
    },
    /// The state file does not fit the machine or the configuration.
    #[error("start cpu manager error: {why}: invalid state, please drain node and remove policy state file {path:?}")]
    Misfit {
        /// The file.
        path: PathBuf,
        /// Why.
        why: PolicyError,
    },
    /// The state file can be neither read nor written.
    #[error("start cpu manager error: {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Pinning {
    /// Takes over the state that is in a directory.
    ///
    /// # Errors
    /// It is of no use, or the rules do not fit the machine.
    pub fn open(
        directory: &Path,
        rules: &Rules,
        machine: impl FnOnce() -> Result<Topology, TopologyError>,
    ) -> Result<Self, OpenError> {
        let path = directory.join(FILE);
        let aligns = rules.topology.policy != Policy::None;
        let known = match aligns || rules.cpu.is_some() || !rules.reserved.is_empty() {
            true => machine().map_err(OpenError::Topology)?,
            false => Topology::default(),
        };
        if !rules.reserved.is_within(&known.all) {
            return Err(OpenError::Reserved {
                reserved: rules.reserved.to_string(),
                online: known.all.to_string(),
            });
        }
        let nodes = nodes(&known, &rules.topology)?;
        let (cpu, cpus) = cpus(&path, rules, known)?;
        if cpu.is_none() && !aligns {
            return Ok(Self(None));
        }
        Ok(Self(Some(Arc::new(Inner {
            cpu,
            topology: rules.topology,
            nodes,
            every: rules.reconcile_every,
            path,
            held: Held {
                cpus,
                ..Held::default()
            }
            .into(),
            applied: Default::default(),
            files: FileWork::new(DEADLINE),
        }))))
    }
}

/// The static CPU policy, if it rules, and whose the CPUs are.
fn cpus(path: &Path, rules: &Rules, known: Topology) -> Result<(Option<Static>, Assignments), OpenError> {
    let Some(cpu) = &rules.cpu else {
        return Ok((None, restored(path, "none")?));
    };
    let policy = Static::new(Arc::new(known), cpu.reserved_milli, &rules.reserved, cpu.options);
    let policy = policy.map_err(OpenError::Policy)?;
    let mut cpus = restored(path, STATIC)?;
    let misfit = |why| OpenError::Misfit {
        path: path.to_owned(),
        why,
    };
    if policy.check(&mut cpus).map_err(misfit)? {
        write(path, STATIC, &cpus)?;
    }
    Ok((Some(policy), cpus))
}

/// What is in the file; one that is not there is begun.
fn restored(path: &Path, policy: &'static str) -> Result<Assignments, OpenError> {
    match std::fs::read(path) {
        Ok(bytes) => state::read(&bytes, policy).map_err(|why| OpenError::State {
            path: path.to_owned(),
            why,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            write(path, policy, &Assignments::default())?;
            Ok(Assignments::default())
        }
        Err(source) => Err(OpenError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

fn write(path: &Path, policy: &str, cpus: &Assignments) -> Result<(), OpenError> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = made.and_then(|()| replace(path, &state::write(policy, cpus)));
    written.map_err(|source| OpenError::File {
        path: path.to_owned(),
        source,
    })
}

/// The NUMA nodes that containers are aligned on.
fn nodes(topology: &Topology, rules: &TopologyRules) -> Result<Nodes, OpenError> {
    let ids: Vec<u32> = topology.numa_ids().collect();
    let most = rules.nodes_max.unwrap_or(NUMA_NODES).min(NODES_MAX);
    if rules.policy != Policy::None && ids.len() > most {
        return Err(OpenError::TooManyNodes(most));
    }
    Ok(Nodes {
        all: NumaMask::of(ids),
        distances: match rules.closest {
            true => topology.distances.clone(),
            false => Vec::new(),
        },
    })
}

/// CPUs as the configuration names them.
pub(crate) fn reserved_list(text: &str) -> Result<CpuSet, String> {
    CpuSet::parse(text).map_err(|why| format!("unable to parse reserved-cpus list: {why}"))
}
