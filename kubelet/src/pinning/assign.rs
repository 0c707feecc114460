//! Which of the free CPUs a container gets (upstream's `takeByTopology`; KEP-2902, KEP-4176, KEP-4800). Pure.
//!
//! Packed: whole sockets and NUMA nodes as long as they are needed whole, then whole cores, then single CPUs; among equals always
//! from what is fullest already, so that what stays free stays whole. [`distributed`] spreads what needs several NUMA nodes evenly.

mod distributed;
#[cfg(test)]
mod tests;

use super::cpu_set::CpuSet;
use super::topology::{Group, Topology};
use client::ordered::Arrange;

/// How CPUs are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// `distribute-cpus-across-numa`: evenly, in groups of so many CPUs.
    pub distribute: Option<usize>,
    /// `distribute-cpus-across-cores`: no core is taken whole for its own sake.
    pub spread: bool,
    /// `prefer-align-cpus-by-uncorecache`: from as few caches as possible.
    pub by_cache: bool,
}

/// Why there are not as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// Fewer are free.
    #[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
    TooFew {
        /// As many as are wanted.
        requested: usize,
        /// As many as are free.
        available: usize,
    },
}

/// Takes so many of the free CPUs.
///
/// # Errors
/// There are fewer.
pub fn take(topology: &Topology, free: &CpuSet, wanted: usize, manner: Manner) -> Result<CpuSet, Shortage> {
    match manner.distribute {
        Some(group) if group > 0 && wanted.is_multiple_of(group) => {
            distributed::take(topology, free, wanted, (group, manner))
        }
        Some(_) => packed(topology, free, wanted, not_by_cache(manner)),
        None => packed(topology, free, wanted, manner),
    }
}

/// Upstream's distribution does not look at caches.
fn not_by_cache(manner: Manner) -> Manner {
    Manner {
        by_cache: false,
        ..manner
    }
}

fn packed(topology: &Topology, free: &CpuSet, wanted: usize, manner: Manner) -> Result<CpuSet, Shortage> {
    let mut taking = Taking::begin(topology, free, wanted)?;
    taking.whole(|taking| taking.uppers());
    taking.whole(|taking| taking.lowers());
    if manner.by_cache {
        taking.by_cache();
    }
    // Fewer than any core has are taken one by one: no core is needed whole.
    let is_core = |core: &Group| core.cpus.len() <= taking.needed;
    if !manner.spread && topology.cores.iter().any(is_core) {
        taking.whole(Taking::cores);
    }
    taking.single(manner.spread);
    Ok(taking.taken)
}

/// What is being put together.
struct Taking<'a> {
    topology: &'a Topology,
    free: CpuSet,
    needed: usize,
    taken: CpuSet,
}

impl<'a> Taking<'a> {
    fn begin(topology: &'a Topology, free: &CpuSet, wanted: usize) -> Result<Self, Shortage> {
        let free = free.intersection(&topology.all);
        if wanted > free.len() {
            return Err(Shortage::TooFew {
                requested: wanted,
                available: free.len(),
            });
        }
        Ok(Self {
            topology,
            free,
            needed: wanted,
            taken: CpuSet::default(),
        })
    }

    fn take(&mut self, cpus: &CpuSet) {
        self.needed = self.needed.saturating_sub(cpus.len());
        self.free = self.free.difference(cpus);
        self.taken = self.taken.union(cpus);
    }

    /// Groups that have something free, the fullest first.
    fn fullest<'g>(&self, groups: impl Iterator<Item = &'g Group>) -> Vec<&'g Group> {
        let free = groups.map(|group| (self.free.shared(&group.cpus), group));
        let mut free: Vec<_> = free.filter(|(free, _)| *free > 0).collect();
        free.arrange_by_key(|(free, group)| (*free, group.id));
        free.into_iter().map(|(_, group)| group).collect()
    }

    /// The groups of a level that have something free inside of these, one of these after the other.
    fn inside(&self, outer: &[&Group], level: &'a [Group]) -> Vec<&'a Group> {
        let of = |outer: &&Group| {
            let free = self.free.intersection(&outer.cpus);
            let own = level.iter().filter(|group| group.cpus.shared(&free) > 0);
            self.fullest(own)
        };
        outer.iter().flat_map(of).collect()
    }

    /// Whether a socket has several NUMA nodes, rather than a NUMA node several sockets.
    fn sockets_first(&self) -> bool {
        self.topology.sockets.len() < self.topology.numas.len()
    }

    /// The larger of sockets and NUMA nodes.
    fn uppers(&self) -> Vec<&'a Group> {
        match self.sockets_first() {
            true => self.fullest(self.topology.sockets.iter()),
            false => self.fullest(self.topology.numas.iter()),
        }
    }

    /// The smaller of them, larger after larger.
    fn lowers(&self) -> Vec<&'a Group> {
        let level = match self.sockets_first() {
            true => &self.topology.numas,
            false => &self.topology.sockets,
        };
        self.inside(&self.uppers(), level)
    }

    fn numas(&self) -> Vec<&'a Group> {
        match self.sockets_first() {
            true => self.lowers(),
            false => self.uppers(),
        }
    }

    fn sockets(&self) -> Vec<&'a Group> {
        match self.sockets_first() {
            true => self.uppers(),
            false => self.lowers(),
        }
    }

    fn cores(&self) -> Vec<&'a Group> {
        self.inside(&self.lowers(), &self.topology.cores)
    }

    fn caches(&self) -> Vec<&'a Group> {
        self.inside(&self.numas(), &self.topology.caches)
    }

    /// Takes groups that are wholly free and needed whole.
    fn whole(&mut self, groups: impl FnOnce(&Self) -> Vec<&'a Group>) {
        if self.needed == 0 {
            return;
        }
        for group in groups(self) {
            let size = group.cpus.len();
            if self.needed >= size && self.free.shared(&group.cpus) == size {
                self.take(&group.cpus);
            }
        }
    }

    /// Takes what is free of cores that are begun and of those that follow, or socket by socket.
    fn single(&mut self, spread: bool) {
        if self.needed == 0 {
            return;
        }
        let groups = if spread { self.sockets() } else { self.cores() };
        for group in groups {
            let own: CpuSet = self.free.intersection(&group.cpus).iter().take(self.needed).collect();
            self.take(&own);
        }
    }

    /// Takes whole caches, and the rest from the first cache that has all of it.
    fn by_cache(&mut self) {
        for cache in self.caches() {
            if self.needed >= cache.cpus.len() {
                self.whole(Self::caches);
            }
            if self.needed == 0 {
                return;
            }
            self.part_of_cache(cache);
        }
    }

    /// Takes all that is needed from a cache, if its lowest cores have just that.
    fn part_of_cache(&mut self, cache: &Group) {
        let per_core = self.topology.cpus_per_core().max(1);
        let cores = self.topology.cores.iter();
        let cores = cores.filter(|core| core.cpus.meets(&cache.cpus, &self.free));
        let mut own = CpuSet::default();
        for core in cores.take(self.needed.div_ceil(per_core)) {
            own = own.union(&core.cpus.intersection(&self.free));
        }
        // Of an odd number the last core gives one CPU.
        if !self.needed.is_multiple_of(2) && per_core > 1 && own.len() > self.needed {
            let all_but_one = own.len() - 1;
            own = own.iter().take(all_but_one).collect();
        }
        if own.len() == self.needed {
            self.take(&own);
        }
    }
}
