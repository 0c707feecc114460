//! What one pod's containers are to have of the NUMA nodes' memory. Pure.

use super::table::{Node, Tables};
use super::{Amounts, Block};
use crate::pinning::asking::Asking;
use crate::pinning::hint::{Hint, NumaMask, Subset, Wishes, over_subsets};
use crate::pod_object::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// Why a container gets nothing; in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is not enough on nodes that may serve it.
    #[error("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")]
    Nowhere,
    /// It would have to be spread over more nodes than need be.
    #[error("[memorymanager] failed to find the default preferred hint")]
    Spread,
    /// There is not enough near what else the container gets.
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NotNear,
    /// It would have to be spread over more nodes than need be, near that.
    #[error("[memorymanager] failed to find the extended preferred hint")]
    SpreadNear,
    /// There is enough near that, of nodes that serve others.
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Grouped,
}

/// What is asked for, how many bytes of it, and of each set of nodes what it could give, and has left.
type Asked<'a> = (&'a String, u64, Vec<(u64, u64)>);

/// What one pod is to have.
#[derive(Clone, Debug)]
pub struct Draft {
    tables: Tables,
    given: BTreeMap<String, Vec<Block>>,
    /// The init containers that will have ended by the time the next container runs.
    ended: BTreeSet<String>,
}

impl Draft {
    pub(super) fn new(tables: Tables, given: BTreeMap<String, Vec<Block>>) -> Self {
        Self {
            tables,
            given,
            ended: BTreeSet::new(),
        }
    }

    /// What the pod's containers have now.
    pub fn given(self) -> BTreeMap<String, Vec<Block>> {
        self.given
    }

    /// The NUMA nodes that have what a container asks for; nothing, as upstream's, where none have: giving it will say why.
    pub fn hints(&self, asking: &Asking) -> Vec<Wishes> {
        match self.given.get(&asking.container) {
            Some(given) => kept(given),
            None => self.wishes(&asking.memory),
        }
    }

    /// The NUMA nodes that have what a pod's containers need at a time.
    pub fn pod_hints(&self, asked: &[Asking]) -> Vec<Wishes> {
        let given = asked.iter().find_map(|asking| self.given.get(&asking.container));
        match given {
            Some(given) => kept(given),
            None => self.wishes(&at_a_time(asked)),
        }
    }

    /// Gives a container what it asks for, near what else it gets. What it has, it keeps.
    ///
    /// # Errors
    /// Why it gets nothing.
    pub fn give(&mut self, asking: &Asking, near: Hint) -> Result<(), Refusal> {
        if asking.memory.is_empty() {
            return Ok(());
        }
        if !self.given.contains_key(&asking.container) {
            let numas = self.choose(&asking.memory, near)?;
            self.take(asking, numas);
        }
        if asking.kind == Kind::Init {
            self.ended.insert(asking.container.clone());
        }
        Ok(())
    }

    fn wishes(&self, wanted: &Amounts) -> Vec<Wishes> {
        let possible = self.possible(wanted);
        match possible.is_empty() {
            true => Vec::new(),
            false => vec![Wishes::One(possible); wanted.len()],
        }
    }

    fn choose(&self, wanted: &Amounts, near: Hint) -> Result<NumaMask, Refusal> {
        let possible = self.possible(wanted);
        let (around, missing, spread) = match near.numas {
            None => (NumaMask::default(), Refusal::Nowhere, Refusal::Spread),
            Some(numas) if possible.iter().any(|hint| hint.numas == Some(numas)) => return Ok(numas),
            Some(numas) => {
                let enough = wanted
                    .iter()
                    .all(|(name, bytes)| self.tables.free(numas, name) >= *bytes);
                let missing = if enough { Refusal::Grouped } else { Refusal::NotNear };
                (numas, missing, Refusal::SpreadNear)
            }
        };
        let wider = possible
            .into_iter()
            .filter_map(|hint| Some((hint.preferred, hint.numas?)));
        let wider = wider.filter(|(_, numas)| around.is_within(*numas));
        // The preferred one of the fewest nodes.
        let best = wider.min_by_key(|(preferred, numas)| (!preferred, numas.len(), *numas));
        match best {
            None => Err(missing),
            Some((false, _)) if near.preferred => Err(spread),
            Some((_, numas)) => Ok(numas),
        }
    }

    /// Every set of NUMA nodes that can serve this; preferred are those of no more nodes than an empty machine would need.
    fn possible(&self, wanted: &Amounts) -> Vec<Hint> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let nodes = &self.tables.0;
        // What each set of nodes could give of each, and has left of it.
        let amounts: Vec<Asked<'_>> = wanted
            .iter()
            .map(|(name, bytes)| {
                let of = |node: &Node| node.memory.get(name).map(|table| (table.allocatable, table.free));
                let each = nodes.values().map(|node| of(node).unwrap_or_default());
                let sums = over_subsets(each, |(all, free), (a, b)| {
                    (all.saturating_add(a), free.saturating_add(b))
                });
                (name, *bytes, sums)
            })
            .collect();
        let taken = nodes.iter().filter(|(_, node)| node.assignments > 0);
        let taken = NumaMask::of(taken.map(|(id, _)| *id));
        // Of several nodes most either serve nobody, or have one that serves others; all are asked where neither is so.
        let serves = |numas: NumaMask| {
            let first = match numas.len() {
                1 => None,
                _ => numas.common(taken).ids().next(),
            };
            match first.and_then(|id| nodes.get(&id)) {
                None if numas.len() > 1 => true,
                Some(node) if node.cells != numas => false,
                _ => self.tables.serves(numas),
            }
        };
        let mut fewest = nodes.len();
        let mut possible = Vec::new();
        for Subset { numas, at } in NumaMask::subsets(nodes.keys().copied()) {
            if amounts.iter().any(|(_, bytes, sums)| sums[at].0 < *bytes) {
                continue;
            }
            fewest = fewest.min(numas.len());
            let has = |(name, bytes, sums): &Asked<'_>| sums[at].1.saturating_add(self.reusable(numas, name)) >= *bytes;
            if serves(numas) && amounts.iter().all(has) {
                possible.push(numas);
            }
        }
        let possible = possible.into_iter();
        possible
            .map(|numas| Hint {
                numas: Some(numas),
                preferred: numas.len() == fewest,
            })
            .collect()
    }

    /// What init containers that have ended leave of just these nodes.
    fn reusable(&self, numas: NumaMask, resource: &str) -> u64 {
        let blocks = self.ended.iter().filter_map(|name| self.given.get(name)).flatten();
        let same = blocks.filter(|block| block.numas == numas && block.resource == resource);
        same.fold(0, |sum, block| sum.saturating_add(block.bytes))
    }

    /// Gives what ended init containers leave first; that is the later container's then, so that no byte counts for two.
    fn take(&mut self, asking: &Asking, numas: NumaMask) {
        let mut blocks = Vec::new();
        for (resource, bytes) in &asking.memory {
            let mut again = self.reusable(numas, resource).min(*bytes);
            let mut block = Block {
                numas,
                resource: resource.clone(),
                bytes: bytes - again,
            };
            self.tables.take(&block);
            block.bytes = *bytes;
            blocks.push(block);
            let ended = self.given.iter_mut().filter(|(name, _)| self.ended.contains(*name));
            for left in ended.flat_map(|(_, blocks)| blocks) {
                if left.numas == numas && left.resource == *resource {
                    let moved = again.min(left.bytes);
                    left.bytes -= moved;
                    again -= moved;
                }
            }
        }
        self.given.insert(asking.container.clone(), blocks);
    }
}

/// What is given stays where it is.
fn kept(given: &[Block]) -> Vec<Wishes> {
    let of = |block: &Block| {
        Wishes::One(vec![Hint {
            numas: Some(block.numas),
            preferred: true,
        }])
    };
    given.iter().map(of).collect()
}

/// How much a pod's containers have to themselves at a time.
fn at_a_time(asked: &[Asking]) -> Amounts {
    let (mut sidecars, mut inits, mut regulars) = (Amounts::new(), Amounts::new(), Amounts::new());
    for asking in asked {
        for (name, bytes) in &asking.memory {
            let beside = sidecars.get(name).copied().unwrap_or(0);
            let (list, sum) = match asking.kind {
                Kind::Init => (&mut inits, None),
                Kind::Sidecar => (&mut sidecars, Some(*bytes)),
                _ => (&mut regulars, Some(*bytes)),
            };
            let amount = list.entry(name.clone()).or_default();
            *amount = match sum {
                Some(more) => amount.saturating_add(more),
                None => (*amount).max(beside.saturating_add(*bytes)),
            };
        }
    }
    for (name, bytes) in sidecars {
        let amount = regulars.entry(name).or_default();
        *amount = amount.saturating_add(bytes);
    }
    for (name, bytes) in inits {
        let amount = regulars.entry(name).or_default();
        *amount = (*amount).max(bytes);
    }
    regulars
}
