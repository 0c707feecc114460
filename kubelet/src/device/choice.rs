//! Which devices a container gets, and which NUMA nodes it could be on for them (kubelet contract §8). Pure.
//!
//! What init containers before it leave comes first, then what is on the NUMA nodes the container goes to, and among equals
//! what the plugin prefers.

#[cfg(test)]
mod tests;

use super::state::Device;
use crate::pinning::hint::{Hint, NumaMask, Wishes};
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

/// A choice under way.
struct Choosing {
    chosen: BTreeSet<String>,
    needed: usize,
    /// On the container's NUMA nodes.
    aligned: BTreeSet<String>,
    /// On others.
    unaligned: BTreeSet<String>,
    /// On none, or where nodes do not matter.
    anywhere: BTreeSet<String>,
}

impl Choosing {
    fn begin(pool: Pool<'_>, wanted: Wanted<'_>) -> Result<Self, TooFew> {
        let mut choosing = Self {
            chosen: BTreeSet::new(),
            needed: wanted.count,
            aligned: BTreeSet::new(),
            unaligned: BTreeSet::new(),
            anywhere: BTreeSet::new(),
        };
        let is_healthy = |id: &&String| pool.devices.get(*id).is_some_and(|device| device.healthy);
        choosing.take(wanted.reuse.iter().filter(is_healthy));
        let free = pool.free.difference(&choosing.chosen);
        let free: BTreeSet<String> = free.cloned().collect_ordered();
        if free.len() < choosing.needed {
            return Err(TooFew {
                resource: wanted.resource.to_owned(),
                requested: choosing.needed,
                available: free.len(),
            });
        }
        let near = wanted.near.filter(|_| is_placed(pool.devices));
        for id in free {
            let numas = pool.devices.get(&id).map_or(NumaMask::default(), Device::numas);
            let list = match near {
                None => &mut choosing.anywhere,
                Some(_) if numas.is_empty() => &mut choosing.anywhere,
                Some(near) if numas.meets(near) => &mut choosing.aligned,
                Some(_) => &mut choosing.unaligned,
            };
            list.insert(id);
        }
        Ok(choosing)
    }

    fn take<'a>(&mut self, ids: impl Iterator<Item = &'a String>) {
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
        self.take(aligned.iter());
    }

    fn all(&self) -> BTreeSet<String> {
        let all = self.aligned.iter().chain(&self.unaligned).chain(&self.anywhere);
        all.cloned().collect_ordered()
    }
}

/// What the plugin is to be asked; nothing where there is nothing to choose.
///
/// # Errors
/// There are too few.
pub fn question(pool: Pool<'_>, wanted: Wanted<'_>) -> Result<Option<Question>, TooFew> {
    let mut choosing = Choosing::begin(pool, wanted)?;
    let of = match choosing.has_choice_near() {
        true => choosing.aligned.clone(),
        false => {
            choosing.take_aligned();
            choosing.all()
        }
    };
    let must = choosing.chosen;
    Ok((choosing.needed > 0).then(|| Question {
        available: of.union(&must).cloned().collect_ordered(),
        must,
    }))
}

/// The devices a container gets; what the plugin prefers counts where it is available.
///
/// # Errors
/// There are too few.
pub fn choose(pool: Pool<'_>, wanted: Wanted<'_>, preferred: &BTreeSet<String>) -> Result<BTreeSet<String>, TooFew> {
    let mut choosing = Choosing::begin(pool, wanted)?;
    if choosing.has_choice_near() {
        let first: Vec<String> = preferred.intersection(&choosing.aligned).cloned().collect();
        choosing.take(first.iter());
        choosing.take_aligned();
    } else {
        choosing.take_aligned();
        let first: Vec<String> = preferred.intersection(&choosing.all()).cloned().collect();
        choosing.take(first.iter());
        for list in [choosing.unaligned.clone(), choosing.anywhere.clone()] {
            choosing.take(list.iter());
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
            true => hints(pool.devices, given, &BTreeSet::new(), wanted.count, numas),
            false => Wishes::One(Vec::new()),
        };
    }
    if pool.free.union(wanted.reuse).count() < wanted.count {
        return Wishes::One(Vec::new());
    }
    hints(pool.devices, pool.free, wanted.reuse, wanted.count, numas)
}

/// Whether where a resource's devices are matters.
fn is_placed(devices: &BTreeMap<String, Device>) -> bool {
    devices.values().any(|device| device.placed)
}

/// Devices that are on the same NUMA nodes.
#[derive(Default)]
struct Group {
    all: usize,
    free: usize,
    again: usize,
}

/// Every set of NUMA nodes with as many free devices and all that are to be used again; preferred are those of no more nodes than an
/// empty machine would need. Devices are counted by nodes first: a plugin may list many.
fn hints(
    devices: &BTreeMap<String, Device>,
    free: &BTreeSet<String>,
    reuse: &BTreeSet<String>,
    count: usize,
    numas: NumaMask,
) -> Wishes {
    let mut groups: BTreeMap<NumaMask, Group> = BTreeMap::new();
    for (id, device) in devices.iter().filter(|(_, device)| device.placed) {
        let group = groups.entry(device.numas()).or_default();
        group.all += 1;
        // What is to be used again and nobody's at once counts twice upstream: it never is both.
        group.free += usize::from(free.contains(id) && !reuse.contains(id));
        group.again += usize::from(reuse.contains(id));
    }
    let again: usize = groups.values().map(|group| group.again).sum();
    let mut fewest = numas.len();
    let mut possible = Vec::new();
    for mask in NumaMask::subsets(numas.ids()) {
        let own = groups.iter().filter(|(of, _)| of.meets(mask));
        let (all, has_free, has_again) = own.fold((0, 0, 0), |(all, free, again), (_, group)| {
            (all + group.all, free + group.free, again + group.again)
        });
        if all >= count {
            fewest = fewest.min(mask.len());
        }
        if has_again == again && has_again + has_free >= count {
            possible.push(mask);
        }
    }
    let hints = possible.into_iter().map(|mask| Hint {
        numas: Some(mask),
        preferred: mask.len() == fewest,
    });
    Wishes::One(hints.collect())
}
