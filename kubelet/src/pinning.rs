//! Which CPUs, and which NUMA nodes' memory, a pod's containers have to themselves (kubelet contract §8).
//!
//! [`topology`] is the machine as a value, [`assign`] chooses CPUs of it, [`cpu`] and [`memory`] are the static policies, [`hint`]
//! brings together what is near to each other and [`align`] whoever gives something. Here is the one owner of who has what,
//! [`Pinning`]: the owner of the node's ledger gives and takes, what is given is on disk before a container is created with it, and
//! [`reconcile`] brings containers that share CPUs to those that are left. Nothing is held where the policies give nothing. Never
//! judges anything but what is given alone.

pub mod align;
pub mod asking;
pub mod assign;
pub mod cpu;
pub mod cpu_set;
pub(crate) mod files;
mod giver;
pub mod hint;
pub mod memory;
mod open;
mod read;
pub mod reconcile;
mod rules;
mod tally;
#[cfg(test)]
mod tests;
mod told;
pub mod topology;
mod unbounded;

pub use open::OpenError;
pub(crate) use open::reserved_list;
pub use rules::{CpuRules, Rules, TopologyRules};
pub use tally::Tally;
pub use unbounded::Unbounded;

use crate::admission::decide::Rejection;
use crate::allocation::decide::Fixed;
use crate::host::{FileWork, WorkError};
use crate::id::{ContainerId, PodUid};
use crate::metrics::PinningMetrics;
use crate::pod_object;
use align::Giver;
use cpu::{Assignments, Static};
use cpu_set::CpuSet;
use hint::Nodes;
use k8s_openapi::api::core::v1::Pod;
use proto::cri::LinuxContainerResources;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Tests' nodes keep so much memory from pods.
#[cfg(test)]
pub(crate) const KEPT: i64 = 3 << 30;

/// Why a container cannot be started where it is to run.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// All CPUs that are not reserved strictly are somebody's alone. An empty set would stand for all of them.
    #[error(
        "there is no CPU to run on: all that are not strictly reserved (strict-cpu-reservation) are exclusively allocated"
    )]
    NothingShared,
    /// It cannot be written.
    #[error("write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its file system hangs.
    #[error("write {path}: {source}")]
    Work {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WorkError,
    },
}

/// Who has what alone. Clones share it.
#[derive(Clone, Default)]
pub struct Pinning(Option<Arc<Inner>>);

struct Inner {
    /// The static CPU policy, if it rules.
    cpu: Option<Static>,
    /// The static memory policy, if it rules.
    memory: Option<memory::Static>,
    topology: TopologyRules,
    nodes: Nodes,
    every: Duration,
    /// Who has CPUs alone has no quota of them.
    no_quota: bool,
    /// Where the files are.
    directory: PathBuf,
    held: Mutex<Held>,
    /// The CPUs that running containers were last given by the runtime.
    applied: Mutex<BTreeMap<ContainerId, CpuSet>>,
    files: FileWork,
}

#[derive(Default)]
struct Held {
    cpus: Assignments,
    memory: memory::Assignments,
    /// How much of which node that leaves, kept along for the next pod; nothing where that is to be counted anew.
    tables: Option<memory::table::Tables>,
    /// Counts changes.
    changed: u64,
    /// The newest change that is on disk.
    written: u64,
}

/// What is drafted for one pod, of CPUs and of memory.
type Drafts<'a> = (Option<giver::Cpus<'a>>, Option<giver::Memory<'a>>);

impl Held {
    /// A copy in which only the pods that are `kept`, by UID, have anything.
    fn only(&self, kept: impl Fn(&str) -> bool) -> Self {
        let mut only = Self {
            cpus: self.cpus.clone(),
            memory: self.memory.clone(),
            tables: self.tables.clone(),
            ..Self::default()
        };
        only.cpus.retain(&kept);
        only.memory.retain(&mut only.tables, &kept);
        only
    }
}

/// What a pod's containers are to have alone, until it is committed.
#[derive(Debug, Default)]
pub struct Share {
    cpus: BTreeMap<String, CpuSet>,
    memory: BTreeMap<String, Vec<memory::Block>>,
}

impl Pinning {
    /// [`Self::try_place`], counted.
    ///
    /// # Errors
    /// Why the node cannot give it.
    pub fn place(
        &self,
        pod: &Pod,
        others: &mut [&mut dyn Giver],
        metrics: &PinningMetrics,
    ) -> Result<Share, Rejection> {
        let (placed, tally) = self.try_place(pod, others);
        tally.tell(metrics);
        placed
    }

    /// What a pod's containers would have alone, or why the node cannot give it, near what `others` give them: those are asked first, as
    /// upstream's devices are. Whether this was the pod's one admission, which is counted, is whoever asks' to say.
    pub fn try_place(&self, pod: &Pod, others: &mut [&mut dyn Giver]) -> (Result<Share, Rejection>, Tally) {
        let (began, mut tally) = (Instant::now(), Tally::default());
        let inner = self.0.as_deref();
        let drafts = inner.map(|inner| inner.drafts(&mut inner.held(), pod, &tally));
        let placed = self.place_as(drafts, pod, others, &tally);
        tally.took(began.elapsed());
        (placed, tally)
    }

    /// Whether a pod would be placed if only the pods that are `kept`, by UID, had anything. Nothing changes, and nothing is counted.
    pub fn would_place(&self, pod: &Pod, others: &mut [&mut dyn Giver], kept: impl Fn(&str) -> bool) -> bool {
        let tally = Tally::default();
        let inner = self.0.as_deref();
        let drafts = inner.map(|inner| {
            let mut held = inner.held().only(kept);
            inner.drafts(&mut held, pod, &tally)
        });
        self.place_as(drafts, pod, others, &tally).is_ok()
    }

    fn place_as(
        &self,
        drafts: Option<Drafts<'_>>,
        pod: &Pod,
        others: &mut [&mut dyn Giver],
        tally: &Tally,
    ) -> Result<Share, Rejection> {
        let asked = asking::of_pod(pod);
        let (Some(inner), Some((mut cpus, mut memory))) = (&self.0, drafts) else {
            let rules = (&TopologyRules::default(), &Nodes::default());
            return align::give_all(rules, others, &asked, tally).map(|()| Share::default());
        };
        let mut givers: Vec<&mut dyn Giver> = Vec::new();
        for other in others {
            givers.push(&mut **other);
        }
        givers.extend(cpus.as_mut().map(|cpus| cpus as &mut dyn Giver));
        givers.extend(memory.as_mut().map(|memory| memory as &mut dyn Giver));
        let rules = (&inner.topology, &inner.nodes);
        let placed = align::give_all(rules, &mut givers, &asked, tally);
        placed.map(|()| Share {
            cpus: cpus.map(|cpus| cpus.draft.given()).unwrap_or_default(),
            memory: memory.map(|memory| memory.draft.given()).unwrap_or_default(),
        })
    }

    /// Gives a pod what was placed; nobody else gets it from now on.
    pub fn commit(&self, uid: &PodUid, share: Share, metrics: &PinningMetrics) {
        let Some(inner) = &self.0 else { return };
        let held = &mut *inner.held();
        let cpus = held.cpus.exclusive.get(uid.as_str());
        let memory = held.memory.0.get(uid.as_str());
        let is_news =
            cpus.unwrap_or(&BTreeMap::new()) != &share.cpus || memory.unwrap_or(&BTreeMap::new()) != &share.memory;
        if !is_news {
            return;
        }
        held.cpus.commit(uid.as_str(), share.cpus);
        held.memory.commit_with(&mut held.tables, uid.as_str(), share.memory);
        held.changed += 1;
        inner.count(held, metrics);
    }

    /// Takes back what pods have that are not `kept`, by UID.
    pub fn retain(&self, kept: impl Fn(&str) -> bool, metrics: &PinningMetrics) {
        let Some(inner) = &self.0 else { return };
        let held = &mut *inner.held();
        let cpus = held.cpus.retain(&kept);
        let memory = held.memory.retain(&mut held.tables, &kept);
        if cpus || memory {
            held.changed += 1;
            inner.count(held, metrics);
        }
    }

    /// Whether one of these pods, by UID, has something alone.
    pub fn is_held(&self, mut by: impl FnMut(&str) -> bool) -> bool {
        self.0.as_ref().is_some_and(|inner| {
            let held = inner.held();
            let mut uids = held.cpus.exclusive.keys().chain(held.memory.0.keys());
            uids.any(|uid| by(uid))
        })
    }

    /// Whether a container has something that another must not get.
    pub fn has_own(&self, uid: &PodUid, container: &str) -> bool {
        self.0.as_ref().is_some_and(|inner| {
            let (held, uid) = (inner.held(), uid.as_str());
            held.cpus.has(uid, container) || !held.memory.of(uid, container).is_empty()
        })
    }

    /// Tells how much is given, and how much is left.
    pub fn count(&self, metrics: &PinningMetrics) {
        if let Some(inner) = &self.0 {
            metrics.expect(inner.cpu.is_some(), inner.topology.policy != hint::Policy::None);
            inner.count(&inner.held(), metrics);
        }
    }

    /// Puts where a container runs, and gets its memory, into what the runtime is asked for; tells the CPUs, for [`Pinning::note`].
    ///
    /// # Errors
    /// There is no CPU it could run on.
    pub fn fit(
        &self,
        uid: &PodUid,
        container: &str,
        resources: &mut LinuxContainerResources,
    ) -> Result<Option<CpuSet>, PinError> {
        let Some(inner) = &self.0 else { return Ok(None) };
        let held = inner.held();
        let mems: Vec<String> = held
            .memory
            .numas(uid.as_str(), container)
            .ids()
            .map(|id| id.to_string())
            .collect();
        resources.cpuset_mems = mems.join(",");
        if inner.cpu.is_none() {
            return Ok(None);
        }
        let cpus = held.cpus.of(uid.as_str(), container).clone();
        if cpus.is_empty() {
            return Err(PinError::NothingShared);
        }
        resources.cpuset_cpus = cpus.to_string();
        Ok(Some(cpus))
    }

    /// Notes the CPUs the runtime gave a container.
    pub fn note(&self, id: &ContainerId, cpus: Option<CpuSet>) {
        if let (Some(inner), Some(cpus)) = (&self.0, cpus) {
            inner.applied().insert(id.clone(), cpus);
        }
    }

    /// Whether anything is given that is to be taken back, and containers brought elsewhere then; and how often that is looked at.
    pub fn every(&self) -> Option<Duration> {
        let inner = self.0.as_ref()?;
        (inner.cpu.is_some() || inner.memory.is_some()).then_some(inner.every)
    }

    /// What Guaranteed pods keep as it is: they cannot be resized then.
    pub fn fixed(&self) -> Fixed {
        let inner = self.0.as_ref();
        inner.map_or(Fixed::default(), |inner| Fixed {
            cpu: inner.cpu.is_some(),
            memory: inner.memory.is_some(),
        })
    }

    /// Whoever gives CPUs.
    fn with_cpus(&self) -> Option<&Inner> {
        self.0.as_deref().filter(|inner| inner.cpu.is_some())
    }

    /// The CPUs a container is to run on, if the runtime was not told yet.
    fn news_for(&self, uid: &PodUid, container: &str, id: &ContainerId) -> Option<CpuSet> {
        let inner = self.with_cpus()?;
        let cpus = inner.held().cpus.of(uid.as_str(), container).clone();
        (inner.applied().get(id) != Some(&cpus)).then_some(cpus)
    }

    /// Forgets containers that are not among these.
    fn forget_others(&self, there: &BTreeSet<ContainerId>) {
        if let Some(inner) = &self.0 {
            inner.applied().retain(|id, _| there.contains(id));
        }
    }
}

impl Inner {
    /// Begins to give a pod what it asks for.
    fn drafts<'a>(&'a self, held: &mut Held, pod: &Pod, tally: &'a Tally) -> Drafts<'a> {
        let uid = pod_object::uid(pod);
        let uid = uid.as_str();
        let cpus = self.cpu.as_ref().map(|cpu| giver::Cpus {
            draft: cpu.draft(&held.cpus, uid),
            whole_cores: cpu.options().full_pcpus_only,
            tally,
        });
        let memory = self.memory.as_ref().map(|memory| giver::Memory {
            draft: memory.draft(&mut held.tables, &held.memory, uid),
            tally,
        });
        (cpus, memory)
    }

    fn count(&self, held: &Held, metrics: &PinningMetrics) {
        let Some(cpu) = &self.cpu else { return };
        let taken = held.cpus.taken();
        metrics.shared_pool(cpu.available(&held.cpus.shared).len());
        let nodes = &cpu.topology().numas;
        let by_node = nodes.iter().map(|node| (node.id, taken.shared(&node.cpus)));
        metrics.exclusive(taken.len(), by_node);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn applied(&self) -> MutexGuard<'_, BTreeMap<ContainerId, CpuSet>> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
