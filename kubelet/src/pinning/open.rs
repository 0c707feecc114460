//! How a kubelet takes over who has what from the one before it, or refuses to begin: what does not fit is the administrator's to
//! remove, with the pods that run by it.

use super::cpu::{self, PolicyError, Static};
use super::cpu_set::CpuSet;
use super::files::{self, STATIC_CPUS, STATIC_MEMORY};
use super::hint::{NODES_MAX, Nodes, NumaMask, Policy};
use super::memory::reserve::{ReserveError, reserve};
use super::memory::table::Tables;
use super::topology::Topology;
use super::topology::sysfs::TopologyError;
use super::{Held, Inner, Pinning, Rules, TopologyRules, memory};
use crate::host::FileWork;
use crate::host::directory::replace;
use std::error::Error;
use std::fmt;
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
    /// What is reserved of NUMA nodes does not fit the machine or the rest of the configuration.
    #[error("Failed to initialize memory manager: {0}")]
    Reserve(ReserveError),
    /// The memory policy cannot be.
    #[error("Failed to initialize memory manager: {0}")]
    MemoryPolicy(memory::PolicyError),
    /// The machine has too many NUMA nodes for its containers to be aligned.
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyNodes(usize),
    /// No set of ours holds this NUMA node.
    #[error("unsupported on machines with a NUMA node {0}: numbers up to 63 are")]
    NodeNumber(u32),
    /// The state file is of no use.
    #[error(
        "start {of} manager error: could not restore state from checkpoint: {why}, please drain this node and delete the {} manager checkpoint file {path:?} before restarting Kubelet",
        of.in_files()
    )]
    State {
        /// Whose.
        of: Manager,
        /// The file.
        path: PathBuf,
        /// Why.
        why: Box<dyn Error + Send + Sync>,
    },
    /// The state file does not fit the machine or the configuration.
    #[error("start {of} manager error: {why}: invalid state, please drain node and remove policy state file {path:?}")]
    Misfit {
        /// Whose.
        of: Manager,
        /// The file.
        path: PathBuf,
        /// Why.
        why: Box<dyn Error + Send + Sync>,
    },
    /// The state file can be neither read nor written.
    #[error("start {of} manager error: {path}: {source}")]
    File {
        /// Whose.
        of: Manager,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// One of upstream's managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// That of CPUs.
    Cpu,
    /// That of memory.
    Memory,
}

impl Manager {
    /// As upstream spells it where it speaks of files.
    fn in_files(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
        }
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        })
    }
}

impl Pinning {
    /// Takes over the state that is in a directory. Pods are kept from `kept` bytes of the node's memory: what is reserved and what
    /// hard eviction begins at.
    ///
    /// # Errors
    /// It is of no use, or the rules do not fit the machine.
    pub fn open(
        directory: &Path,
        rules: &Rules,
        kept: i64,
        machine: impl FnOnce() -> Result<Topology, TopologyError>,
    ) -> Result<Self, OpenError> {
        let aligns = rules.topology.policy != Policy::None;
        let gives = rules.cpu.is_some() || rules.memory.is_some();
        let known = match aligns || gives || !rules.reserved.is_empty() {
            true => machine().map_err(OpenError::Topology)?,
            false => Topology::default(),
        };
        if !rules.reserved.is_within(&known.all) {
            return Err(OpenError::Reserved {
                reserved: rules.reserved.to_string(),
                online: known.all.to_string(),
            });
        }
        let nodes = nodes(&known, rules)?;
        let memory = memory_policy(rules, &known, kept)?;
        let (cpu, cpus) = cpus(&directory.join(files::CPUS), rules, known)?;
        let blocks = blocks(&directory.join(files::MEMORY), memory.as_ref())?;
        if !gives && !aligns {
            return Ok(Self(None));
        }
        Ok(Self(Some(Arc::new(Inner {
            cpu,
            memory,
            topology: rules.topology,
            nodes,
            every: rules.reconcile_every,
            no_quota: rules.no_quota,
            directory: directory.to_owned(),
            held: Held {
                cpus,
                memory: blocks,
                ..Held::default()
            }
            .into(),
            applied: Default::default(),
            files: FileWork::new(DEADLINE),
        }))))
    }
}

/// The static CPU policy, if it rules, and whose the CPUs are.
fn cpus(path: &Path, rules: &Rules, known: Topology) -> Result<(Option<Static>, cpu::Assignments), OpenError> {
    let file = StateFile { of: Manager::Cpu, path };
    let restored = |policy: &'static str| {
        let fresh = || cpu::state::write(policy, &cpu::Assignments::default());
        file.restored(|bytes| cpu::state::read(bytes, policy), fresh)
    };
    let Some(cpu) = &rules.cpu else {
        return Ok((None, restored("none")?));
    };
    let policy = Static::new(Arc::new(known), cpu.reserved_milli, &rules.reserved, cpu.options);
    let policy = policy.map_err(OpenError::Policy)?;
    let mut held = restored(STATIC_CPUS)?;
    if policy.check(&mut held).map_err(|why| file.misfit(why))? {
        file.write(&cpu::state::write(STATIC_CPUS, &held))?;
    }
    Ok((Some(policy), held))
}

/// The static memory policy, if it rules.
fn memory_policy(rules: &Rules, known: &Topology, kept: i64) -> Result<Option<memory::Static>, OpenError> {
    let Some(reservations) = &rules.memory else {
        return Ok(None);
    };
    let reserved = reserve(&known.memory, reservations, kept).map_err(OpenError::Reserve)?;
    let policy = memory::Static::new(&known.memory, &reserved);
    policy.map(Some).map_err(OpenError::MemoryPolicy)
}

/// Whose the memory is.
fn blocks(path: &Path, policy: Option<&memory::Static>) -> Result<memory::Assignments, OpenError> {
    let file = StateFile {
        of: Manager::Memory,
        path,
    };
    let name = match policy {
        Some(_) => STATIC_MEMORY,
        None => "None",
    };
    let none = memory::Assignments::default();
    let fresh = |tables: &Tables| memory::state::write(name, tables, &none);
    let read = |bytes: &[u8]| memory::state::read(bytes, name);
    let (tables, held) = file.restored(read, || fresh(&Tables::default()))?;
    let Some(policy) = policy else { return Ok(held) };
    if policy.check(&tables, &held).map_err(|why| file.misfit(why))? {
        file.write(&fresh(&policy.tables(&none)))?;
    }
    Ok(held)
}

/// The file of one manager.
#[derive(Clone, Copy)]
struct StateFile<'a> {
    of: Manager,
    path: &'a Path,
}

impl StateFile<'_> {
    /// What is in it; one that is not there is begun.
    fn restored<T, E: Error + Send + Sync + 'static>(
        self,
        read: impl Fn(&[u8]) -> Result<T, E>,
        fresh: impl FnOnce() -> Vec<u8>,
    ) -> Result<T, OpenError> {
        let (of, path) = (self.of, self.path.to_owned());
        let bytes = match crate::host::kept::read(self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = fresh();
                self.write(&text)?;
                text
            }
            Err(source) => return Err(OpenError::File { of, path, source }),
        };
        read(&bytes).map_err(|why| OpenError::State {
            of,
            path,
            why: why.into(),
        })
    }

    fn write(self, text: &[u8]) -> Result<(), OpenError> {
        let made = self.path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = made.and_then(|()| replace(self.path, text));
        written.map_err(|source| OpenError::File {
            of: self.of,
            path: self.path.to_owned(),
            source,
        })
    }

    fn misfit(self, why: impl Error + Send + Sync + 'static) -> OpenError {
        OpenError::Misfit {
            of: self.of,
            path: self.path.to_owned(),
            why: why.into(),
        }
    }
}

/// The NUMA nodes that containers are aligned on.
fn nodes(topology: &Topology, rules: &Rules) -> Result<Nodes, OpenError> {
    let ids = topology.all_numas();
    let TopologyRules {
        policy,
        closest,
        nodes_max,
        ..
    } = rules.topology;
    let most = match policy {
        Policy::None => NODES_MAX,
        _ => nodes_max.unwrap_or(NUMA_NODES).min(NODES_MAX),
    };
    if policy != Policy::None || rules.memory.is_some() {
        if ids.len() > most {
            return Err(OpenError::TooManyNodes(most));
        }
        if let Some(id) = ids.iter().find(|id| **id >= u64::BITS) {
            return Err(OpenError::NodeNumber(*id));
        }
    }
    Ok(Nodes {
        all: NumaMask::of(ids),
        distances: match closest {
            true => topology.distances.clone(),
            false => Vec::new(),
        },
    })
}

/// CPUs as the configuration names them.
pub(crate) fn reserved_list(text: &str) -> Result<CpuSet, String> {
    CpuSet::parse(text).map_err(|why| format!("unable to parse reserved-cpus list: {why}"))
}
