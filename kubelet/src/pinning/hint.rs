//! Which NUMA nodes a container could be on, told by everybody who gives it something, and the one answer to all of them
//! (upstream's topology manager, KEP-693). Pure.

#[cfg(test)]
mod tests;

/// A set of NUMA nodes with ids below 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumaMask(u64);

impl NumaMask {
    /// These nodes; an id of 64 or more is left out.
    pub fn of(ids: impl IntoIterator<Item = u32>) -> Self {
        let bits = ids.into_iter().filter_map(|id| 1_u64.checked_shl(id));
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Whether this node is one of them.
    pub fn has(self, id: u32) -> bool {
        1_u64.checked_shl(id).is_some_and(|bit| self.0 & bit != 0)
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of them are among those.
    pub fn is_within(self, those: Self) -> bool {
        self.0 & !those.0 == 0
    }

    /// Their ids, lowest first.
    pub fn ids(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |id| self.has(*id))
    }

    /// Whether some node is in both.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Every set of some of these nodes, which come in ascending order; small ones first. As many as two to the power of the nodes, so these must be few.
    pub fn subsets(ids: impl IntoIterator<Item = u32>) -> Vec<Self> {
        let ids: Vec<Self> = ids.into_iter().take(NODES_MAX).map(|id| Self::of([id])).collect();
        let mut all = Vec::with_capacity((1 << ids.len()) - 1);
        for size in 1..=ids.len() {
            let mut bits = (1_u32 << size) - 1;
            while bits >> ids.len() == 0 {
                let chosen = ids.iter().enumerate().filter(|(index, _)| bits & (1 << index) != 0);
                all.push(chosen.fold(Self(0), |all, (_, id)| Self(all.0 | id.0)));
                // The next larger number with as many bits.
                let lowest = bits & bits.wrapping_neg();
                let next = bits + lowest;
                bits = next | (((bits ^ next) / lowest) >> 2);
            }
        }
        all
    }
}

/// More NUMA nodes are aligned to nowhere: the ways to choose some of them double with each.
pub const NODES_MAX: usize = 10;

/// NUMA nodes something could come from. By default none was looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// The nodes; nothing where it does not matter.
    pub numas: Option<NumaMask>,
    /// Whether no fewer nodes would do.
    pub preferred: bool,
}

/// What one giver wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wishes {
    /// Nothing: it gives nothing, or does not mind.
    Any,
    /// One of these; none is possible if there are none.
    One(Vec<Hint>),
}

/// How strictly all is kept on one node, or few (`topologyManagerPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Nobody is asked.
    #[default]
    None,
    /// As near as possible.
    BestEffort,
    /// On as few nodes as an empty machine would need, or not at all.
    Restricted,
    /// On one, or not at all.
    SingleNumaNode,
}

impl Policy {
    /// By its name in the configuration.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "best-effort" => Self::BestEffort,
            "restricted" => Self::Restricted,
            "single-numa-node" => Self::SingleNumaNode,
            _ => return None,
        })
    }
}

/// The nodes there are, and how far they are from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// All of them.
    pub all: NumaMask,
    /// The distance from one to another, where `prefer-closest-numa-nodes` is set and the kernel tells.
    pub distances: Vec<(u32, Vec<(u32, u32)>)>,
}

impl Nodes {
    /// The mean distance within a set, in hundredths; 0 where distances do not matter.
    fn spread(&self, numas: NumaMask) -> u64 {
        let own = self.distances.iter().filter(|(from, _)| numas.has(*from));
        let far = own.flat_map(|(_, to)| to.iter().filter(|(to, _)| numas.has(*to)));
        let (sum, count) = far.fold((0_u64, 0_u64), |(sum, count), (_, far)| {
            (sum + u64::from(*far), count + 1)
        });
        (sum * 100).checked_div(count).unwrap_or(0)
    }
}

/// Brings the wishes together: the nodes all go to, if that matters, and whether that is good enough for the policy.
pub fn merge(policy: Policy, nodes: &Nodes, wishes: Vec<Wishes>) -> (Hint, bool) {
    if policy == Policy::None {
        return (Hint::default(), true);
    }
    let mut hints: Vec<Vec<Hint>> = wishes.into_iter().map(hints_of).collect();
    if policy == Policy::SingleNumaNode {
        for hints in &mut hints {
            hints.retain(|hint| hint.preferred && hint.numas.is_none_or(|numas| numas.len() == 1));
        }
    }
    let best = best(nodes, &hints);
    match policy {
        Policy::None | Policy::BestEffort => (best, true),
        Policy::Restricted => (best, best.preferred),
        Policy::SingleNumaNode => {
            let numas = best.numas.filter(|numas| *numas != nodes.all);
            (Hint { numas, ..best }, best.preferred)
        }
    }
}

fn hints_of(wishes: Wishes) -> Vec<Hint> {
    let anywhere = |preferred| Hint { numas: None, preferred };
    match wishes {
        Wishes::Any => vec![anywhere(true)],
        Wishes::One(hints) if hints.is_empty() => vec![anywhere(false)],
        Wishes::One(hints) => hints,
    }
}

/// The ways to take one hint of each that differ in what they have in common, or in whether all were preferred and equal, or in
/// whether anybody minded yet: few, however many ways there are.
struct Ways {
    /// The nodes that bits stand for here, lowest first.
    ids: Vec<u32>,
    there: Vec<bool>,
}

impl Ways {
    fn of(nodes: &Nodes) -> Self {
        let ids: Vec<u32> = nodes.all.ids().take(NODES_MAX).collect();
        let mut there = vec![false; 4 << ids.len()];
        let all = (1 << ids.len()) - 1;
        there[Self::at(all, true, false)] = true;
        Self { ids, there }
    }

    fn at(common: usize, preferred: bool, minded: bool) -> usize {
        (common << 2) | (usize::from(preferred) << 1) | usize::from(minded)
    }

    fn bits(&self, numas: NumaMask) -> usize {
        let own = self.ids.iter().enumerate().filter(|(_, id)| numas.has(**id));
        own.fold(0, |bits, (index, _)| bits | (1 << index))
    }

    /// Lengthens every way by each of these. How many there are of either hardly matters: a machine of many nodes has many of both, and a
    /// pod many containers.
    fn take(&mut self, hints: &[Hint]) {
        let all = (1 << self.ids.len()) - 1;
        let mut next = vec![false; self.there.len()];
        let mut wished = vec![0; all + 1];
        for hint in hints {
            let Some(numas) = hint.numas else { continue };
            let numas = self.bits(numas);
            wished[numas] = 1;
            for preferred in [false, true] {
                if self.there[Self::at(all, preferred, false)] {
                    next[Self::at(numas, preferred && hint.preferred, true)] = true;
                }
            }
            // All equal, they are what they have in common.
            let equal = Self::at(numas, true, true);
            next[equal] |= hint.preferred && self.there[equal];
        }
        let minded = (0..=all).map(|common| {
            let is_there = |preferred| self.there[Self::at(common, preferred, true)];
            i64::from(is_there(false) || is_there(true))
        });
        // One that is preferred is better than this of the same nodes, which is among these too.
        for (common, ways) in in_common(minded.collect(), wished).into_iter().enumerate() {
            next[Self::at(common, false, true)] |= ways > 0;
        }
        for wished in [false, true] {
            if hints
                .iter()
                .any(|hint| hint.numas.is_none() && hint.preferred == wished)
            {
                for (at, _) in self.there.iter().enumerate().filter(|(_, there)| **there) {
                    next[Self::at(at >> 2, wished && at & 2 != 0, at & 1 != 0)] = true;
                }
            }
        }
        self.there = next;
    }

    /// What each has in common, and whether it is preferred.
    fn all(&self) -> impl Iterator<Item = (NumaMask, bool)> {
        let there = self.there.iter().enumerate().filter(|(_, there)| **there);
        there.map(|(at, _)| {
            let ids = self.ids.iter().enumerate();
            let own = ids.filter(move |(index, _)| (at >> 2) & (1 << index) != 0);
            (NumaMask::of(own.map(|(_, id)| *id)), at & 2 != 0)
        })
    }
}

/// In how many ways a set of the first and one of the second have just these bits in common, by the bits. By inclusion and exclusion: sets
/// that have them and maybe more in common are those of the first that have them times those of the second.
fn in_common(mut first: Vec<i64>, mut second: Vec<i64>) -> Vec<i64> {
    let each = |sets: &mut Vec<i64>, change: fn(&mut i64, i64)| {
        for bit in (0..sets.len().ilog2()).map(|bit| 1 << bit) {
            for at in (0..sets.len()).filter(|at| at & bit == 0) {
                let larger = sets[at | bit];
                change(&mut sets[at], larger);
            }
        }
    };
    each(&mut first, |set, larger| *set += larger);
    each(&mut second, |set, larger| *set += larger);
    for (ways, other) in first.iter_mut().zip(second) {
        *ways *= other;
    }
    each(&mut first, |set, larger| *set -= larger);
    first
}

/// The best of all ways to take one hint of each. What they have in common is all that matters of a way, so of ways with the same in
/// common one is looked at.
fn best(nodes: &Nodes, hints: &[Vec<Hint>]) -> Hint {
    let mut ways = Ways::of(nodes);
    for hints in hints {
        ways.take(hints);
    }
    let fewest = hints.iter().filter_map(|hints| {
        let counts = hints.iter().filter_map(|hint| hint.numas.map(NumaMask::len));
        counts.min()
    });
    let aim = fewest.max().unwrap_or(0);
    let ways = ways.all().filter(|(common, _)| !common.is_empty());
    let best = ways.min_by_key(|(common, preferred)| {
        let many = common.len();
        // Without a preferred way: as near to what some giver needs as possible, rather below than above.
        let rank = match (preferred, many <= aim) {
            (true, _) => (0, many),
            (false, true) => (1, aim - many),
            (false, false) => (2, many),
        };
        (rank, nodes.spread(*common), *common)
    });
    let (numas, preferred) = best.unwrap_or((nodes.all, false));
    Hint {
        numas: Some(numas),
        preferred,
    }
}
