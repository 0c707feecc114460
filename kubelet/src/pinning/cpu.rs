//! The static CPU policy: who of a pod has which CPUs to itself, and what is left to share (kubelet contract §8). Pure.
//!
//! Reserved CPUs are never given; without `strict-cpu-reservation` they are shared all the same, so that the shared pool is never
//! empty. CPUs of an init container are given again to those after it; a sidecar keeps its own.

mod check;
pub mod options;
pub mod state;
#[cfg(test)]
mod tests;

use super::asking::Asking;
use super::assign::{Manner, Shortage, take};
use super::cpu_set::CpuSet;
use super::hint::{Hint, NumaMask, Wishes, over_subsets};
use super::topology::Topology;
use crate::pod_object::Kind;
pub use check::PolicyError;
use options::Options;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What of the CPUs is whose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments {
    /// What all others share.
    pub shared: CpuSet,
    /// What containers have to themselves, by pod UID and container.
    pub exclusive: BTreeMap<String, BTreeMap<String, CpuSet>>,
}

/// Why a container gets no CPUs to itself; in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It asks for half of a core.
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}")]
    Uneven {
        /// As many as it asks for.
        requested: usize,
        /// A core has so many.
        per_core: usize,
    },
    /// Too few whole cores are free.
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {per_core}"
    )]
    Cores {
        /// CPUs of the cores that are free.
        available: usize,
        /// As many as it asks for.
        requested: usize,
        /// A core has so many.
        per_core: usize,
    },
    /// Too few CPUs are free.
    #[error(transparent)]
    Shortage(#[from] Shortage),
}

impl Refusal {
    /// Whether it is one of alignment, which has a reason of its own.
    pub fn is_alignment(&self) -> bool {
        !matches!(self, Self::Shortage(_))
    }
}

/// The policy on one machine.
#[derive(Clone, Debug)]
pub struct Static {
    topology: Arc<Topology>,
    reserved: CpuSet,
    /// The reserved CPUs and those that share a core with one.
    reserved_cores: CpuSet,
    options: Options,
}

impl Static {
    /// The policy of a machine that keeps `reserved_milli` thousandths of a CPU, rounded up, from pods: `named` ones or else the
    /// lowest.
    ///
    /// # Errors
    /// Nothing is reserved, or not as many as named.
    pub fn new(
        topology: Arc<Topology>,
        reserved_milli: i64,
        named: &CpuSet,
        options: Options,
    ) -> Result<Self, PolicyError> {
        let wanted = usize::try_from(reserved_milli.max(0).saturating_add(999) / 1000).unwrap_or(usize::MAX);
        if wanted == 0 {
            return Err(PolicyError::NothingReserved);
        }
        if options.align_by_socket && topology.sockets.len() > topology.numas.len() {
            return Err(PolicyError::SocketsOverNumas);
        }
        let mut policy = Self {
            topology,
            reserved: CpuSet::default(),
            reserved_cores: CpuSet::default(),
            options,
        };
        policy.reserved = match named.is_empty() {
            false => named.clone(),
            true => take(&policy.topology, &policy.topology.all, wanted, policy.manner()).unwrap_or_default(),
        };
        if policy.reserved.len() != wanted {
            let set = policy.reserved.to_string();
            return Err(PolicyError::Reserved { set, wanted });
        }
        policy.reserved_cores = policy.topology.whole_cores(&policy.reserved);
        Ok(policy)
    }

    /// The machine.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What of the shared CPUs can be given to one alone.
    pub fn available(&self, shared: &CpuSet) -> CpuSet {
        shared.difference(&self.reserved)
    }

    /// Begins to give a pod what it asks for; nobody has it before that is committed.
    pub fn draft<'a>(&'a self, held: &Assignments, pod: &str) -> Draft<'a> {
        Draft {
            policy: self,
            shared: held.shared.clone(),
            given: held.exclusive.get(pod).cloned().unwrap_or_default(),
            reusable: CpuSet::default(),
        }
    }

    fn manner(&self) -> Manner {
        let group = match self.options.full_pcpus_only {
            true => self.topology.cpus_per_core(),
            false => 1,
        };
        Manner {
            distribute: self.options.distribute_across_numa.then_some(group),
            spread: self.options.distribute_across_cores,
            by_cache: self.options.prefer_caches,
        }
    }

    /// The CPUs near these NUMA nodes.
    fn near(&self, numas: NumaMask) -> CpuSet {
        let near = self.topology.in_numas(|id| numas.has(id));
        if !self.options.align_by_socket {
            return near;
        }
        let sockets = self.topology.sockets.iter();
        let sockets = sockets.filter(|socket| socket.cpus.shared(&near) > 0);
        sockets.fold(CpuSet::default(), |all, socket| all.union(&socket.cpus))
    }
}

/// What one pod is to have.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    policy: &'a Static,
    shared: CpuSet,
    given: BTreeMap<String, CpuSet>,
    /// What init containers that have ended by then leave to those that follow.
    reusable: CpuSet,
}

impl Draft<'_> {
    /// Gives a container what it asks for, if possible of these NUMA nodes. What it has, it keeps. Tells whether it was given CPUs that all
    /// have one last-level cache.
    ///
    /// # Errors
    /// Why it gets nothing.
    pub fn give(&mut self, asking: &Asking, near: Option<NumaMask>) -> Result<bool, Refusal> {
        if asking.cpus == 0 {
            return Ok(false);
        }
        let (cpus, is_new) = match self.given.get(&asking.container) {
            Some(cpus) => (cpus.clone(), false),
            None => (self.choose(asking.cpus, near)?, true),
        };
        self.shared = self.shared.difference(&cpus);
        self.reusable = match asking.kind {
            Kind::Init => self.reusable.union(&cpus),
            _ => self.reusable.difference(&cpus),
        };
        let mut caches = self.policy.topology.caches.iter();
        let in_one_cache = is_new && caches.any(|cache| cpus.is_within(&cache.cpus));
        self.given.insert(asking.container.clone(), cpus);
        Ok(in_one_cache)
    }

    fn choose(&self, wanted: usize, near: Option<NumaMask>) -> Result<CpuSet, Refusal> {
        let policy = self.policy;
        if policy.options.full_pcpus_only {
            self.judge_alignment(wanted)?;
        }
        let free = self.free();
        let first = match near {
            None => CpuSet::default(),
            Some(numas) => {
                let near = free.intersection(&policy.near(numas));
                take(&policy.topology, &near, wanted.min(near.len()), policy.manner())?
            }
        };
        let rest = free.difference(&first);
        let rest = take(&policy.topology, &rest, wanted - first.len(), policy.manner())?;
        Ok(first.union(&rest))
    }

    /// Whether whole cores are asked for, and there.
    fn judge_alignment(&self, requested: usize) -> Result<(), Refusal> {
        let per_core = self.policy.topology.cpus_per_core().max(1);
        if !requested.is_multiple_of(per_core) {
            return Err(Refusal::Uneven { requested, per_core });
        }
        let cores = self.shared.difference(&self.policy.reserved_cores);
        let available = cores.union(&self.reusable).len();
        if requested > available {
            return Err(Refusal::Cores {
                available,
                requested,
                per_core,
            });
        }
        Ok(())
    }

    fn free(&self) -> CpuSet {
        self.policy.available(&self.shared).union(&self.reusable)
    }

    /// The NUMA nodes that have what a container asks for.
    pub fn hints(&self, asking: &Asking) -> Wishes {
        if asking.cpus == 0 {
            return Wishes::Any;
        }
        match self.given.get(&asking.container) {
            Some(given) if given.len() != asking.cpus => Wishes::One(Vec::new()),
            Some(given) => Wishes::One(self.hints_of(given, &CpuSet::default(), asking.cpus)),
            None => {
                let available = self.policy.available(&self.shared);
                Wishes::One(self.hints_of(&available, &self.reusable, asking.cpus))
            }
        }
    }

    /// The NUMA nodes that have what a pod's containers need at a time.
    pub fn pod_hints(&self, asked: &[Asking]) -> Wishes {
        let wanted = at_a_time(asked);
        if wanted == 0 {
            return Wishes::Any;
        }
        let mut assigned = CpuSet::default();
        for asking in asked {
            if let Some(given) = self.given.get(&asking.container) {
                if given.len() != asking.cpus {
                    return Wishes::One(Vec::new());
                }
                assigned = assigned.union(given);
            }
        }
        if assigned.len() == wanted {
            return Wishes::One(self.hints_of(&assigned, &CpuSet::default(), wanted));
        }
        let available = self.policy.available(&self.shared);
        Wishes::One(self.hints_of(&available, &self.reusable.union(&assigned), wanted))
    }

    /// Every set of NUMA nodes with as many CPUs and all that are to be used again; preferred are those of no more nodes than an
    /// empty machine would need.
    fn hints_of(&self, available: &CpuSet, reusable: &CpuSet, wanted: usize) -> Vec<Hint> {
        let topology = &self.policy.topology;
        let counts = topology.numas.iter().map(|node| {
            let free = available.shared(&node.cpus);
            (node.cpus.len(), free, reusable.shared(&node.cpus))
        });
        let counts = over_subsets(counts, |(all, free, again), (a, b, c)| (all + a, free + b, again + c));
        let mut fewest = topology.numas.len();
        let mut hints = Vec::new();
        for subset in NumaMask::subsets(topology.numa_ids()) {
            let (all, free, again) = counts[subset.at];
            if all >= wanted {
                fewest = fewest.min(subset.numas.len());
            }
            if again == reusable.len() && again + free >= wanted {
                hints.push(subset.numas);
            }
        }
        let hints = hints.into_iter();
        hints
            .map(|numas| Hint {
                numas: Some(numas),
                preferred: numas.len() == fewest || self.is_within_sockets(numas, fewest),
            })
            .collect()
    }

    /// With `align-by-socket`, whether the nodes are of no more sockets than so many nodes would be.
    fn is_within_sockets(&self, numas: NumaMask, fewest: usize) -> bool {
        let topology = &self.policy.topology;
        let per_socket = topology.numas.len().checked_div(topology.sockets.len()).unwrap_or(0);
        if !self.policy.options.align_by_socket || per_socket == 0 {
            return false;
        }
        let own = topology.in_numas(|id| numas.has(id));
        let sockets = topology.sockets.iter();
        let touched = sockets.filter(|socket| socket.cpus.shared(&own) > 0).count();
        touched == fewest.div_ceil(per_socket)
    }

    /// What the pod's containers have now.
    pub fn given(self) -> BTreeMap<String, CpuSet> {
        self.given
    }
}

/// How many CPUs a pod's containers have to themselves at a time.
fn at_a_time(asked: &[Asking]) -> usize {
    // A pod may ask for more than there are numbers.
    let (mut sidecars, mut inits, mut regulars) = (0_usize, 0_usize, 0_usize);
    for asking in asked {
        match asking.kind {
            Kind::Sidecar => sidecars = sidecars.saturating_add(asking.cpus),
            Kind::Init => inits = inits.max(sidecars.saturating_add(asking.cpus)),
            _ => regulars = regulars.saturating_add(asking.cpus),
        }
    }
    inits.max(regulars.saturating_add(sidecars))
}

impl Assignments {
    /// Gives a pod's containers what was drafted for them.
    pub fn commit(&mut self, pod: &str, given: BTreeMap<String, CpuSet>) {
        if given.is_empty() {
            return;
        }
        for cpus in given.values() {
            self.shared = self.shared.difference(cpus);
        }
        self.exclusive.insert(pod.to_owned(), given);
    }

    /// Takes back what pods have that are not `kept`; tells whether there was anything.
    pub fn retain(&mut self, kept: impl Fn(&str) -> bool) -> bool {
        let before = self.exclusive.len();
        let (shared, exclusive) = (&mut self.shared, &mut self.exclusive);
        exclusive.retain(|pod, containers| {
            let stays = kept(pod);
            if !stays {
                containers.values().for_each(|cpus| shared.absorb(cpus));
            }
            stays
        });
        self.exclusive.len() < before
    }

    /// The CPUs a container runs on.
    pub fn of(&self, pod: &str, container: &str) -> &CpuSet {
        let own = self.exclusive.get(pod).and_then(|of| of.get(container));
        own.unwrap_or(&self.shared)
    }

    /// Whether a container has CPUs alone.
    pub fn has(&self, pod: &str, container: &str) -> bool {
        self.exclusive.get(pod).is_some_and(|of| of.contains_key(container))
    }

    /// All CPUs that somebody has alone.
    pub fn taken(&self) -> CpuSet {
        let all = self.exclusive.values().flat_map(BTreeMap::values);
        let mut taken = CpuSet::default();
        all.for_each(|cpus| taken.absorb(cpus));
        taken
    }
}
