//! Which devices a container gets, and which NUMA nodes it could be on for them (kubelet contract §8). Pure.
//!
//! What init containers before it leave comes first, then what is on the NUMA nodes the container goes to, and among equals
//! what the plugin prefers.

#[cfg(test)]
mod tests;

use super::state::Device;
use crate::pinning::hint::{Hint, NODES_MAX, NumaMask, Wishes};
use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet};

/// A resource's devices.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// All that its plugin lists.
    pub devices: &'a BTreeMap<String, Device>,
    /// Those that are healthy and nobody's.
    pub free: &'a BTreeSet<String>,
}

/// What one container wants of one resource.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The resource.
    pub resource: &'a str,
    /// How many devices.
    pub count: usize,
    /// What the pod's init containers before it leave.
    pub reuse: &'a BTreeSet<String>,
    /// The NUMA nodes the container goes to.
    pub near: Option<NumaMask>,
}

/// What a plugin is asked before others choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Of these.
    pub available: BTreeSet<String>,
    /// With all of these.
    pub must: BTreeSet<String>,
}

/// There are too few; in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}")]
pub struct TooFew {
    /// The resource.
    pub resource: String,
    /// As many as were still to be found.
    pub requested: usize,
    /// As many as there are.
    pub available: usize,
}

impl<'a> Pool<'a> {
    /// The devices, and whether each is free: both are in the order of names.
    fn all(self) -> impl Iterator<Item = (&'a String, &'a Device, bool)> {
        let mut free = self.free.iter().peekable();
        self.devices.iter().map(move |(id, device)| {
            while free.next_if(|next| *next < id).is_some() {}
            (id, device, free.next_if(|next| *next == id).is_some())
        })
    }
}

/// A choice under way.
struct Choosing<'a> {
    chosen: BTreeSet<String>,
    needed: usize,
    /// On the container's NUMA nodes.
    aligned: Vec<&'a String>,
    /// On others.
    unaligned: Vec<&'a String>,
    /// On none, or where nodes do not matter.
    anywhere: Vec<&'a String>,
}

impl<'a> Choosing<'a> {
    fn begin(pool: Pool<'a>, wanted: Wanted<'_>) -> Result<Self, TooFew> {
        let mut choosing = Self {
            chosen: BTreeSet::new(),
            needed: wanted.count,
            aligned: Vec::new(),
            unaligned: Vec::new(),
            anywhere: Vec::new(),
        };
        let is_healthy = |id: &&String| pool.devices.get(*id).is_some_and(|device| device.healthy);
        choosing.take(wanted.reuse.iter().filter(is_healthy));
        let again = choosing.chosen.iter().filter(|id| pool.free.contains(*id)).count();
        let available = pool.free.len() - again;
        if available < choosing.needed {
            return Err(TooFew {
                resource: wanted.resource.to_owned(),
                requested: choosing.needed,
                available,
            });
        }
        let near = wanted.near.filter(|_| is_placed(pool.devices));
        for (id, device, _) in pool.all().filter(|(.., is_free)| *is_free) {
            if choosing.chosen.contains(id) {
                continue;
            }
            let numas = device.numas();
            let list = match near {
                None => &mut choosing.anywhere,
                Some(_) if numas.is_empty() => &mut choosing.anywhere,
                Some(near) if numas.meets(near) => &mut choosing.aligned,
                Some(_) => &mut choosing.unaligned,
            };
            list.push(id);
        }
        Ok(choosing)
    }

    fn take<'b>(&mut self, ids: impl Iterator<Item = &'b String>) {
        for id in ids {
            if self.needed == 0 {
                return;
            }
            if self.chosen.insert(id.clone()) {
                self.needed -= 1;
            }
        }
    }

    /// Whether the aligned ones are more than are needed.
    fn has_choice_near(&self) -> bool {
        self.needed < self.aligned.len()
    }

    fn take_aligned(&mut self) {
        let aligned = self.aligned.clone();
        self.take(aligned.into_iter());
    }

    fn all(&self) -> impl Iterator<Item = &'a String> {
        let all = self.aligned.iter().chain(&self.unaligned).chain(&self.anywhere);
        all.copied()
    }
}

/// What the plugin is to be asked; nothing where there is nothing to choose.
///
/// # Errors
/// There are too few.
pub fn question(pool: Pool<'_>, wanted: Wanted<'_>) -> Result<Option<Question>, TooFew> {
    let mut choosing = Choosing::begin(pool, wanted)?;
    let near = choosing.has_choice_near();
    if !near {
        choosing.take_aligned();
    }
    if choosing.needed == 0 {
        return Ok(None);
    }
    let mut available: BTreeSet<String> = match near {
        true => choosing.aligned.iter().copied().cloned().collect_ordered(),
        false => choosing.all().cloned().collect_ordered(),
    };
    let must = choosing.chosen;
    available.extend(must.iter().cloned());
    Ok(Some(Question { available, must }))
}

/// The devices a container gets; what the plugin prefers counts where it is available.
///
/// # Errors
/// There are too few.
pub fn choose(pool: Pool<'_>, wanted: Wanted<'_>, preferred: &BTreeSet<String>) -> Result<BTreeSet<String>, TooFew> {
    let mut choosing = Choosing::begin(pool, wanted)?;
    if choosing.has_choice_near() {
        let aligned = choosing.aligned.clone();
        choosing.take(aligned.into_iter().filter(|id| preferred.contains(*id)));
        choosing.take_aligned();
    } else {
        choosing.take_aligned();
        let mut first: BTreeSet<&String> = BTreeSet::new();
        first.extend(choosing.all().filter(|id| preferred.contains(*id)));
        choosing.take(first.into_iter());
        for list in [choosing.unaligned.clone(), choosing.anywhere.clone()] {
            choosing.take(list.into_iter());
        }
    }
    Ok(choosing.chosen)
}

/// The NUMA nodes a container could be on. `given` is what it has already.
pub fn wishes(pool: Pool<'_>, wanted: Wanted<'_>, given: Option<&BTreeSet<String>>, numas: NumaMask) -> Wishes {
    if !is_placed(pool.devices) {
        return Wishes::Any;
    }
    if let Some(given) = given {
        return match given.len() == wanted.count {
            true => {
                let own = Pool { free: given, ..pool };
                hints(own, &BTreeSet::new(), wanted.count, numas)
            }
            false => Wishes::One(Vec::new()),
        };
    }
    let again = wanted.reuse.iter().filter(|id| !pool.free.contains(*id)).count();
    if pool.free.len() + again < wanted.count {
        return Wishes::One(Vec::new());
    }
    hints(pool, wanted.reuse, wanted.count, numas)
}

/// Whether where a resource's devices are matters.
fn is_placed(devices: &BTreeMap<String, Device>) -> bool {
    devices.values().any(|device| device.placed)
}

/// Devices of some NUMA nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Group {
    all: usize,
    free: usize,
    again: usize,
}

impl Group {
    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.free += other.free;
        self.again += other.again;
    }
}

/// How many devices are on which of the machine's NUMA nodes. A plugin may list many devices, each on nodes of its own, and nodes that no
/// machine has: there are as many entries as there are ways to choose some of the machine's nodes, and no more.
struct Table {
    ids: Vec<u32>,
    /// By the nodes chosen, a bit each: the devices that are on none but these.
    within: Vec<Group>,
}

impl Table {
    fn of(pool: Pool<'_>, reuse: &BTreeSet<String>, numas: NumaMask) -> Self {
        let ids: Vec<u32> = numas.ids().take(NODES_MAX).collect();
        let mut table = Self {
            within: vec![Group::default(); 1 << ids.len()],
            ids,
        };
        for (id, device, is_free) in pool.all().filter(|(_, device, _)| device.placed) {
            let again = reuse.contains(id);
            let at = table.at(device.numas());
            table.within[at].add(Group {
                all: 1,
                // What is to be used again and nobody's at once counts twice upstream: it never is both.
                free: usize::from(is_free && !again),
                again: usize::from(again),
            });
        }
        // So far of exactly these nodes: one node after another, all that have it also have what those without it have.
        for node in (0..table.ids.len()).map(|index| 1 << index) {
            for at in (0..table.within.len()).filter(|at| at & node != 0) {
                let without = table.within[at ^ node];
                table.within[at].add(without);
            }
        }
        table
    }

    fn at(&self, numas: NumaMask) -> usize {
        let own = self.ids.iter().enumerate().filter(|(_, id)| numas.has(**id));
        own.fold(0, |at, (index, _)| at | (1 << index))
    }

    /// All devices, those that are on none of the machine's nodes too.
    fn all(&self) -> Group {
        self.within.last().copied().unwrap_or_default()
    }

    /// The devices that are on one of the nodes at least that are at this place: all but those that are only on the others.
    fn meeting(&self, at: usize) -> Group {
        let others = self.within[self.within.len() - 1 - at];
        let all = self.all();
        Group {
            all: all.all - others.all,
            free: all.free - others.free,
            again: all.again - others.again,
        }
    }
}

/// Every set of NUMA nodes with as many free devices and all that are to be used again; preferred are those of no more nodes than an
/// empty machine would need.
fn hints(pool: Pool<'_>, reuse: &BTreeSet<String>, count: usize, numas: NumaMask) -> Wishes {
    let table = Table::of(pool, reuse, numas);
    let again = table.all().again;
    let mut fewest = numas.len();
    let mut possible = Vec::new();
    for subset in NumaMask::subsets(numas.ids()) {
        let own = table.meeting(subset.at);
        if own.all >= count {
            fewest = fewest.min(subset.numas.len());
        }
        if own.again == again && own.again + own.free >= count {
            possible.push(subset.numas);
        }
    }
    let hints = possible.into_iter().map(|mask| Hint {
        numas: Some(mask),
        preferred: mask.len() == fewest,
    });
    Wishes::One(hints.collect())
}
