//! CPUs spread evenly over the fewest NUMA nodes that allow it (`distribute-cpus-across-numa`, KEP-2902). Pure.

use super::{Manner, Shortage, Taking, not_by_cache, packed};
use crate::pinning::cpu_set::CpuSet;
use crate::pinning::topology::{Group, Topology};

/// How many ways to spread are compared. Upstream compares all, which a machine of dozens of NUMA nodes does not live to see; of
/// eight nodes this is all of them many times over.
const TRIES_MAX: usize = 20_000;

/// NUMA nodes to take from.
struct Spread {
    /// These evenly.
    evenly: Vec<usize>,
    /// What is left over from these.
    rest: Vec<usize>,
    /// How uneven the machine is afterwards.
    unevenness: f64,
}

/// Takes so many CPUs, a multiple of the group.
pub(super) fn take(
    topology: &Topology,
    free: &CpuSet,
    wanted: usize,
    (group, manner): (usize, Manner),
) -> Result<CpuSet, Shortage> {
    let manner = not_by_cache(manner);
    let mut taking = Taking::begin(topology, free, wanted)?;
    if wanted == 0 {
        return Ok(taking.taken);
    }
    let numas = taking.numas();
    let room: Vec<usize> = numas.iter().map(|numa| taking.free.shared(&numa.cpus)).collect();
    let Some(spread) = best(topology, &room, wanted, group) else {
        return packed(topology, free, wanted, manner);
    };
    let each = wanted / spread.evenly.len() / group * group;
    let mut give = |numa: &Group, many: usize| {
        let own = packed(topology, &taking.free.intersection(&numa.cpus), many, manner)?;
        taking.take(&own);
        Ok(())
    };
    for index in &spread.evenly {
        give(numas[*index], each)?;
    }
    let mut left = room.clone();
    for index in &spread.evenly {
        left[*index] -= each;
    }
    for index in rounds(&mut left, &spread.rest, wanted - each * spread.evenly.len(), group).unwrap_or_default() {
        give(numas[index], group)?;
    }
    match taking.needed {
        0 => Ok(taking.taken),
        _ => packed(topology, free, wanted, manner),
    }
}

/// The most even way over the fewest nodes, if there is one. `room` is what is free on each.
fn best(topology: &Topology, room: &[usize], wanted: usize, group: usize) -> Option<Spread> {
    let groups_wanted = wanted.div_ceil(group);
    let groups_per_numa = topology
        .all
        .len()
        .div_ceil(group)
        .div_ceil(topology.numas.len().max(1))
        .max(1);
    let fewest = groups_wanted.div_ceil(groups_per_numa);
    let mut tries = TRIES_MAX;
    for size in fewest..=groups_wanted.min(room.len()) {
        let mut best: Option<Spread> = None;
        subsets(room.len(), size, &mut |evenly| {
            if tries == 0 || best.as_ref().is_some_and(|best| best.unevenness == 0.0) {
                return false;
            }
            tries = tries.saturating_sub(1);
            if let Some(found) = over(room, evenly, (wanted, group), &mut tries)
                && best.as_ref().is_none_or(|best| found.unevenness < best.unevenness)
            {
                best = Some(found);
            }
            true
        });
        if best.is_some() {
            return best;
        }
    }
    None
}

/// The most even way over just these nodes.
fn over(room: &[usize], evenly: &[usize], (wanted, group): (usize, usize), tries: &mut usize) -> Option<Spread> {
    let groups: usize = evenly.iter().map(|index| room[*index] / group).sum();
    let each = wanted / evenly.len() / group * group;
    if groups * group < wanted || evenly.iter().any(|index| room[*index] < each) {
        return None;
    }
    let mut left = room.to_vec();
    for index in evenly {
        left[*index] -= each;
    }
    let remainder = wanted - each * evenly.len();
    let spread = |rest: &[usize], unevenness| Spread {
        evenly: evenly.to_vec(),
        rest: rest.to_vec(),
        unevenness,
    };
    if remainder == 0 {
        return Some(spread(&[], unevenness(&left)));
    }
    let with_room: Vec<usize> = evenly.iter().copied().filter(|index| left[*index] >= group).collect();
    let mut best: Option<Spread> = None;
    // As many nodes as possible first: of ways that are as even, the wider one stays.
    for size in (1..=with_room.len()).rev() {
        subsets(with_room.len(), size, &mut |chosen| {
            *tries = tries.saturating_sub(1);
            let rest: Vec<usize> = chosen.iter().map(|index| with_room[*index]).collect();
            let mut left = left.clone();
            if rounds(&mut left, &rest, remainder, group).is_some() {
                let unevenness = unevenness(&left);
                if best.as_ref().is_none_or(|best| unevenness < best.unevenness) {
                    best = Some(spread(&rest, unevenness));
                }
            }
            *tries > 0
        });
    }
    best
}

/// Takes the remainder from these nodes in rounds of a group each; tells from which, one after another, or that they have too little.
fn rounds(left: &mut [usize], rest: &[usize], mut remainder: usize, group: usize) -> Option<Vec<usize>> {
    let mut given = Vec::new();
    while remainder > 0 {
        let before = remainder;
        for index in rest {
            if remainder > 0 && left[*index] >= group {
                left[*index] -= group;
                remainder = remainder.saturating_sub(group);
                given.push(*index);
            }
        }
        if remainder == before {
            return None;
        }
    }
    Some(given)
}

/// The standard deviation to three digits, as upstream compares it.
fn unevenness(left: &[usize]) -> f64 {
    let rounded = |number: f64| (number * 1000.0).round() / 1000.0;
    let count = left.len() as f64;
    let mean = rounded(left.iter().map(|of| *of as f64).sum::<f64>() / count);
    let squares = left.iter().map(|of| (*of as f64 - mean).powi(2));
    rounded((squares.sum::<f64>() / count).sqrt())
}

/// Calls with every subset of `0..of` that has this size, in order, until told to stop.
fn subsets(of: usize, size: usize, each: &mut impl FnMut(&[usize]) -> bool) {
    let mut chosen: Vec<usize> = (0..size).collect();
    if size == 0 || size > of {
        return;
    }
    while each(&chosen) {
        let Some(last) = (0..size).rev().find(|at| chosen[*at] < of - size + at) else {
            return;
        };
        chosen[last] += 1;
        for at in last + 1..size {
            chosen[at] = chosen[at - 1] + 1;
        }
    }
}
