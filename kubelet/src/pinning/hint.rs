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
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(lowest)
        })
    }

    /// Whether some node is in both.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The nodes that are in both.
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Every set of some of these nodes, which come in ascending order; small ones first. As many as two to the power of the nodes, so these must be few.
    pub fn subsets(ids: impl IntoIterator<Item = u32>) -> Vec<Subset> {
        let masks = over_subsets(ids.into_iter().map(|id| Self::of([id])), |all, one| Self(all.0 | one.0));
        let mut all = Vec::with_capacity(masks.len() - 1);
        for size in 1..=masks.len().ilog2() {
            let mut at = (1_usize << size) - 1;
            while let Some(numas) = masks.get(at).copied() {
                all.push(Subset { numas, at });
                // The next larger number with as many bits.
                let lowest = at & at.wrapping_neg();
                let next = at + lowest;
                at = next | (((at ^ next) / lowest) >> 2);
            }
        }
        all
    }
}

/// One of the sets that [`NumaMask::subsets`] makes of some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subset {
    /// Which nodes are in it.
    pub numas: NumaMask,
    /// Where it is in what [`over_subsets`] makes of the same nodes.
    pub at: usize,
}

/// What each set of some nodes has together, of what each node has: bit N of a set's place is the Nth node, of [`NODES_MAX`] at most. Each
/// is added once to all sets without it, so that a set costs one addition, however many nodes are in it.
pub fn over_subsets<T: Copy + Default>(each: impl IntoIterator<Item = T>, add: impl Fn(T, T) -> T) -> Vec<T> {
    let mut all = vec![T::default()];
    for one in each.into_iter().take(NODES_MAX) {
        for at in 0..all.len() {
            all.push(add(all[at], one));
        }
    }
    all
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

/// The nodes there are, by places: sets of them are numbers below two to the power of the nodes.
struct Places {
    /// The nodes that bits stand for here, lowest first.
    ids: Vec<u32>,
    /// The set of all of them.
    all: usize,
}

impl Places {
    fn of(nodes: &Nodes) -> Self {
        let ids: Vec<u32> = nodes.all.ids().take(NODES_MAX).collect();
        let all = (1 << ids.len()) - 1;
        Self { ids, all }
    }

    fn bits(&self, numas: NumaMask) -> usize {
        // Most machines' nodes have the numbers of their places.
        if self.ids.last().is_none_or(|last| *last as usize + 1 == self.ids.len()) {
            return usize::try_from(numas.0 & self.all as u64).unwrap_or(self.all);
        }
        let own = self.ids.iter().enumerate().filter(|(_, id)| numas.has(**id));
        own.fold(0, |bits, (index, _)| bits | (1 << index))
    }

    fn numas(&self, bits: usize) -> NumaMask {
        let own = self.ids.iter().enumerate();
        NumaMask::of(own.filter(|(index, _)| bits & (1 << index) != 0).map(|(_, id)| *id))
    }

    /// What all prefer alike: what is in each list, but in those that prefer no nodes to others.
    fn preferred_by_all(&self, hints: &[Vec<Hint>]) -> Vec<usize> {
        let (mut by_all, mut by_any) = (vec![true; self.all + 1], vec![false; self.all + 1]);
        let mut anywhere = true;
        for hints in hints {
            let mut own = vec![false; self.all + 1];
            let mut minds = true;
            for hint in hints.iter().filter(|hint| hint.preferred) {
                match hint.numas {
                    Some(numas) => own[self.bits(numas)] = true,
                    None => minds = false,
                }
            }
            anywhere &= !minds;
            for ((all, any), own) in by_all.iter_mut().zip(&mut by_any).zip(own) {
                *all &= own || !minds;
                *any |= own;
            }
        }
        let is_it = |bits: &usize| by_all[*bits] && by_any[*bits] || anywhere && *bits == self.all;
        (1..=self.all).filter(is_it).collect()
    }

    /// What ways to take one hint of each have in common, if anything: few sets, however many ways there are.
    fn in_common(&self, hints: &[Vec<Hint>]) -> Vec<usize> {
        let mut found = vec![0; self.all + 1];
        found[self.all] = 1;
        for hints in hints {
            let mut wished = vec![0; self.all + 1];
            for hint in hints {
                wished[hint.numas.map_or(self.all, |numas| self.bits(numas))] = 1;
            }
            found = in_common(found, wished);
            // Which there are, not in how many ways: those are many.
            found.iter_mut().for_each(|ways| *ways = (*ways).min(1));
        }
        (1..=self.all).filter(|bits| found[*bits] > 0).collect()
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
/// common one is looked at; and where all prefer some nodes alike, no other way is.
fn best(nodes: &Nodes, hints: &[Vec<Hint>]) -> Hint {
    let places = Places::of(nodes);
    let rank = |of: Vec<usize>, rank: &dyn Fn(usize) -> (usize, usize)| {
        let of = of.into_iter().map(|bits| places.numas(bits));
        of.min_by_key(|common| (rank(common.len()), nodes.spread(*common), *common))
    };
    let of = |numas, preferred| Hint {
        numas: Some(numas),
        preferred,
    };
    if let Some(numas) = rank(places.preferred_by_all(hints), &|many| (0, many)) {
        return of(numas, true);
    }
    let fewest = hints.iter().filter_map(|hints| {
        let counts = hints.iter().filter_map(|hint| hint.numas.map(NumaMask::len));
        counts.min()
    });
    let aim = fewest.max().unwrap_or(0);
    // As near to what some giver needs as possible, rather below than above.
    let near = |many: usize| match many <= aim {
        true => (1, aim - many),
        false => (2, many),
    };
    of(rank(places.in_common(hints), &near).unwrap_or(nodes.all), false)
}
