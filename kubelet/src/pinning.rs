//! Which CPUs, and which NUMA nodes' memory, a pod's containers have to themselves (kubelet contract §8).
//!
//! [`topology`] is the machine as a value, [`assign`] chooses CPUs of it, [`cpu`] is the static policy, [`hint`] brings together what
//! is near to each other. Here is the one owner of who has what, [`Pinning`]: the owner of the node's ledger gives and takes, what is
//! given is on disk before a container is created with it, and [`reconcile`] brings containers that share CPUs to those that are
//! left. Nothing is held where the policies give nothing. Never judges anything but what is given alone.

pub mod align;
pub mod asking;
pub mod assign;
pub mod cpu;
pub mod cpu_set;
mod giver;
pub mod hint;
mod open;
pub mod reconcile;
mod rules;
#[cfg(test)]
mod tests;
pub mod topology;

pub use open::OpenError;
pub(crate) use open::reserved_list;
pub use rules::{CpuRules, Rules, TopologyRules};

use crate::admission::decide::Rejection;
use crate::host::{FileWork, WorkError};
use crate::id::{ContainerId, PodUid};
use crate::metrics::PinningMetrics;
use crate::pod_object;
use align::Giver;
use cpu::{Assignments, Static};
use cpu_set::CpuSet;
use hint::{Nodes, NumaMask};
use k8s_openapi::api::core::v1::Pod;
use proto::cri::LinuxContainerResources;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const FILE: &str = "cpu_manager_state";
/// Upstream's name of the policy that gives CPUs.
pub(crate) const STATIC: &str = "static";

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
    topology: TopologyRules,
    nodes: Nodes,
    every: Duration,
    path: PathBuf,
    held: Mutex<Held>,
    /// The CPUs that running containers were last given by the runtime.
    applied: Mutex<BTreeMap<ContainerId, CpuSet>>,
    files: FileWork,
}

#[derive(Default)]
struct Held {
    cpus: Assignments,
    /// Counts changes.
    changed: u64,
    /// The newest change that is on disk.
    written: u64,
}

/// What a pod's containers are to have alone, until it is committed.
#[derive(Debug, Default)]
pub struct Share(BTreeMap<String, CpuSet>);

impl Pinning {
    /// What a pod's containers would have alone, near what `others` give them: those are asked first, as upstream's devices are.
    ///
    /// # Errors
    /// Why the node cannot give it.
    pub fn place(
        &self,
        pod: &Pod,
        others: &mut [&mut dyn Giver],
        metrics: &PinningMetrics,
    ) -> Result<Share, Rejection> {
        let asked = asking::of_pod(pod);
        let Some(inner) = &self.0 else {
            let rules = (&TopologyRules::default(), &Nodes::default());
            return align::give_all(rules, others, &asked, metrics).map(|()| Share::default());
        };
        let began = Instant::now();
        let mut cpus = inner.draft(pod_object::uid(pod).as_str(), metrics);
        let mut givers: Vec<&mut dyn Giver> = Vec::new();
        for other in others {
            givers.push(&mut **other);
        }
        givers.extend(cpus.as_mut().map(|cpus| cpus as &mut dyn Giver));
        let rules = (&inner.topology, &inner.nodes);
        let placed = align::give_all(rules, &mut givers, &asked, metrics);
        metrics.admitted(began.elapsed());
        placed.map(|()| Share(cpus.map(|cpus| cpus.draft.given()).unwrap_or_default()))
    }

    /// Gives a pod what was placed; nobody else gets it from now on.
    pub fn commit(&self, uid: &PodUid, share: Share, metrics: &PinningMetrics) {
        let Some(inner) = &self.0 else { return };
        let mut held = inner.held();
        let already = held.cpus.exclusive.get(uid.as_str());
        if share.0.is_empty() || already == Some(&share.0) {
            return;
        }
        held.cpus.commit(uid.as_str(), share.0);
        held.changed += 1;
        inner.count(&held, metrics);
    }

    /// Takes back what pods have that are not `kept`, by UID.
    pub fn retain(&self, kept: impl Fn(&str) -> bool, metrics: &PinningMetrics) {
        let Some(inner) = &self.0 else { return };
        let mut held = inner.held();
        if held.cpus.retain(kept) {
            held.changed += 1;
            inner.count(&held, metrics);
        }
    }

    /// Whether one of these pods, by UID, has something alone.
    pub fn is_held(&self, by: impl Fn(&str) -> bool) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.held().cpus.exclusive.keys().any(|uid| by(uid)))
    }

    /// Whether a container has CPUs alone.
    pub fn is_alone(&self, uid: &PodUid, container: &str) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.held().cpus.has(uid.as_str(), container))
    }

    /// Tells how much is given, and how much is left.
    pub fn count(&self, metrics: &PinningMetrics) {
        if let Some(inner) = &self.0 {
            inner.count(&inner.held(), metrics);
        }
    }

    /// Waits until all that was given and taken so far is on disk.
    ///
    /// # Errors
    /// It is not. The change stands in memory and is written with the next.
    pub async fn kept(&self) -> Result<(), PinError> {
        let Some(inner) = self.0.clone() else { return Ok(()) };
        let change = {
            let held = inner.held();
            if held.written >= held.changed {
                return Ok(());
            }
            held.changed
        };
        let (job, files, path) = (inner.clone(), inner.files.clone(), inner.path.clone());
        let written = files.run(FILE, move || job.write(change)).await;
        match written {
            Err(source) => Err(PinError::Work { path, source }),
            Ok(Err(source)) => Err(PinError::Write { path, source }),
            Ok(Ok(())) => Ok(()),
        }
    }

    /// Puts where a container runs into what the runtime is asked for; tells the CPUs, for [`Pinning::note`].
    ///
    /// # Errors
    /// There is no CPU it could run on.
    pub fn fit(
        &self,
        uid: &PodUid,
        container: &str,
        resources: &mut LinuxContainerResources,
    ) -> Result<Option<CpuSet>, PinError> {
        let Some(inner) = self.with_cpus() else { return Ok(None) };
        let cpus = inner.held().cpus.of(uid.as_str(), container).clone();
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

    /// Whether there is anything to bring containers to, and how often.
    pub fn every(&self) -> Option<Duration> {
        self.with_cpus().map(|inner| inner.every)
    }

    /// Whether a pod that has CPUs alone keeps as many as it has: it cannot be resized then.
    pub fn fixes_cpus(&self) -> bool {
        self.with_cpus().is_some()
    }

    /// Whoever gives CPUs.
    fn with_cpus(&self) -> Option<&Inner> {
        self.0.as_deref().filter(|inner| inner.cpu.is_some())
    }

    /// The NUMA nodes that containers are aligned on; none where they are not.
    pub fn numas(&self) -> NumaMask {
        self.0.as_ref().map_or(NumaMask::default(), |inner| inner.nodes.all)
    }

    /// The CPUs a container has to itself.
    pub fn alone(&self, uid: &str, container: &str) -> CpuSet {
        let Some(inner) = self.with_cpus() else {
            return CpuSet::default();
        };
        let held = inner.held();
        let own = held.cpus.exclusive.get(uid).and_then(|of| of.get(container));
        own.cloned().unwrap_or_default()
    }

    /// The CPUs that could be somebody's alone.
    pub fn allocatable(&self) -> CpuSet {
        let cpu = self.with_cpus().and_then(|inner| inner.cpu.as_ref());
        cpu.map_or(CpuSet::default(), |cpu| cpu.available(&cpu.topology().all))
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
    fn draft<'a>(&'a self, uid: &str, metrics: &'a PinningMetrics) -> Option<giver::Cpus<'a>> {
        let cpu = self.cpu.as_ref()?;
        Some(giver::Cpus {
            draft: cpu.draft(&self.held().cpus, uid),
            whole_cores: cpu.options().full_pcpus_only,
            metrics,
        })
    }

    fn count(&self, held: &Held, metrics: &PinningMetrics) {
        let Some(cpu) = &self.cpu else { return };
        let taken = held.cpus.taken();
        metrics.shared_pool(cpu.available(&held.cpus.shared).len());
        let nodes = &cpu.topology().numas;
        let by_node = nodes.iter().map(|node| (node.id, taken.shared(&node.cpus)));
        metrics.exclusive(taken.len(), by_node);
    }

    /// Writes the file, unless somebody else has meanwhile.
    fn write(&self, change: u64) -> io::Result<()> {
        let (text, changed) = {
            let held = self.held();
            if held.written >= change {
                return Ok(());
            }
            (cpu::state::write(STATIC, &held.cpus), held.changed)
        };
        replace(&self.path, &text)?;
        let mut held = self.held();
        held.written = held.written.max(changed);
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn applied(&self) -> MutexGuard<'_, BTreeMap<ContainerId, CpuSet>> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts a text in place of what the file had, for good: a power cut leaves one or the other.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let beside = path.with_extension("tmp");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    match path.parent() {
        Some(directory) => std::fs::File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
