//! How what a node has for policies is shared out among their namespaces where it does not do for all: each has an equal part of
//! it, and what one does not need is the others'. So it is who wants most that gets less than he wants. Pure.

use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet};

use client::Key;

use crate::change::SetId;

/// Most of each that is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Members of all sets that follow pods: some hundred bytes each here and in the kernel.
    pub(super) members: usize,
    /// What a pod's change asks of them: requirements of selectors, and something for each set.
    pub(super) questions: usize,
    /// Ranges in sets of addresses and of ports, and something for each set: what the kernel has for them grows faster.
    pub(super) ranges: usize,
    /// Rules of the kernel's, of all pods' chains. They alone bound the sets: those there is no room for are there still, empty, and
    /// for each rule that looks into one the kernel compares the names of all.
    pub(super) rules: usize,
}

impl Limits {
    /// Half of each, so often.
    pub(super) fn halved(self, times: u32) -> Self {
        Self {
            members: self.members >> times,
            questions: self.questions >> times,
            ranges: self.ranges >> times,
            rules: self.rules >> times,
        }
    }

    /// One of them.
    pub(super) fn of(&self, shortage: Shortage) -> usize {
        match shortage {
            Shortage::Members => self.members,
            Shortage::Questions => self.questions,
            Shortage::Ranges => self.ranges,
            Shortage::Rules => self.rules,
        }
    }
}

/// What is shared out. What is there with few policies is a small part of it; with all of it, a batch is some tens of megabytes.
pub(super) const LIMITS: Limits = Limits {
    members: 1_000_000,
    questions: 50_000,
    ranges: 50_000,
    rules: 20_000,
};

/// What there may be of it until it is shared out: so much more comes and goes without being looked at as a whole.
pub(super) fn until_shared(limit: usize) -> usize {
    limit + limit / 8
}

/// Of what there is too little on this node for all of a namespace's policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shortage {
    /// Members of sets.
    Members,
    /// Selectors to be asked about each pod.
    Questions,
    /// Ranges of addresses and ports.
    Ranges,
    /// Rules.
    Rules,
}

/// A policy there is no room for in what its namespace has of this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overfull {
    /// The policy.
    pub policy: Key,
    /// Of what there is too little.
    pub shortage: Shortage,
    /// How much there is of it for all.
    pub limit: usize,
}

impl Overfull {
    /// What is wrong, and what is done instead.
    pub fn text(&self) -> String {
        let limit = self.limit;
        let (what, instead) = match self.shortage {
            Shortage::Members => (
                format!("the peers of this node's policies have more than {limit} addresses and ports together"),
                "rules of it with peers by selector allow none of them",
            ),
            Shortage::Questions => (
                format!("the selectors of this node's policies have more than {limit} requirements together"),
                "rules of it with peers by selector allow none of them",
            ),
            Shortage::Ranges => (
                format!("the blocks and ports of this node's policies are more than {limit} ranges together"),
                "some rules of it with blocks or ports allow nobody",
            ),
            Shortage::Rules => (
                format!("the policies of this node's pods have more than {limit} rules together"),
                "of some pods it is about no traffic passes that it is about",
            ),
        };
        format!("{what}, and this namespace's more than its share; {instead} until there is room")
    }
}

/// A chain there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The same for pods of a namespace whose chains would be one.
    pub(super) likeness: u64,
    /// How many rules it would have.
    pub(super) rules: usize,
}

/// What each namespace may have of a room: the one that wants least first, each an equal part of what those before it left.
pub(super) fn parts<'n>(room: usize, wanted: &BTreeMap<&'n str, usize>) -> BTreeMap<&'n str, usize> {
    let mut order: Vec<(usize, &str)> = wanted.iter().map(|(name, want)| (*want, *name)).collect();
    order.sort_unstable();
    let (mut left, mut others) = (room, order.len());
    let part = |(want, name): (usize, &'n str)| {
        let part = left / others;
        left -= part.min(want);
        others -= 1;
        (name, part)
    };
    order.into_iter().map(part).collect_ordered()
}

/// A set that is to be filled.
pub(super) struct Claim<'s> {
    pub(super) id: SetId,
    /// Of the room.
    pub(super) cost: usize,
    /// Whether it had room until now.
    pub(super) has: bool,
    /// The namespaces whose pods' rules look into it.
    pub(super) users: &'s BTreeMap<String, usize>,
}

/// The sets there is room for, each namespace having its part as [`parts`] has it. A set of several is on the one's part that
/// wants least of those that can have it. What has room keeps it before what has none, the older before the newer; and
/// what has none has to fit with some to spare, so that no set is emptied and filled with each pod that comes and goes.
pub(super) fn served(room: usize, claims: &[Claim<'_>]) -> BTreeSet<SetId> {
    let mut wanted: BTreeMap<&str, (usize, Vec<&Claim<'_>>)> = BTreeMap::new();
    for claim in claims {
        for name in claim.users.keys() {
            let (sum, mine) = wanted.entry(name).or_default();
            *sum += claim.cost;
            mine.push(claim);
        }
    }
    let mut order: Vec<(usize, &str, Vec<&Claim<'_>>)> = wanted
        .into_iter()
        .map(|(name, (sum, mine))| (sum, name, mine))
        .collect();
    order.sort_unstable_by_key(|(sum, name, _)| (*sum, *name));
    let (mut left, mut others) = (room, order.len());
    let mut served = BTreeSet::new();
    for (_, _, mut mine) in order {
        let part = left / others;
        let mut spent = 0;
        mine.sort_unstable_by_key(|claim| (!claim.has, claim.id));
        for claim in mine {
            let most = if claim.has { part } else { part - part / 16 };
            if !served.contains(&claim.id) && spent + claim.cost <= most {
                spent += claim.cost;
                served.insert(claim.id);
            }
        }
        left -= spent;
        others -= 1;
    }
    served
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    #[test]
    fn who_wants_little_has_it_whatever_others_want() {
        for (room, wanted, expected) in [
            (12, &[("a", 2), ("b", 3)][..], &[("a", 6), ("b", 10)][..]),
            (12, &[("a", 100), ("b", 3), ("c", 50)], &[("a", 5), ("b", 4), ("c", 4)]),
            (
                12,
                &[("a", 100), ("b", 100), ("c", 100)],
                &[("a", 4), ("b", 4), ("c", 4)],
            ),
        ] {
            let wanted = wanted.iter().copied().collect();
            assert_eq!(parts(room, &wanted), expected.iter().copied().collect(), "{wanted:?}");
        }
    }

    fn served_of(room: usize, claims: &[(u32, usize, bool, &[&str])]) -> Vec<u32> {
        let users: Vec<BTreeMap<String, usize>> = claims
            .iter()
            .map(|(.., users)| users.iter().map(|name| ((*name).to_owned(), 1)).collect())
            .collect();
        let claims: Vec<Claim<'_>> = claims
            .iter()
            .zip(&users)
            .map(|((id, cost, has, _), users)| Claim {
                id: SetId::Numbered(*id),
                cost: *cost,
                has: *has,
                users,
            })
            .collect();
        let found = served(room, &claims).into_iter().map(|id| match id {
            SetId::Numbered(number) => number,
            SetId::Known(_) => 0,
        });
        found.collect()
    }

    proptest! {
        #[test]
        fn nobody_within_an_equal_part_goes_short_and_all_of_it_fits(
            room in 0usize..60,
            sets in prop::collection::vec((1usize..12, subsequence(vec!["a", "b", "c", "d"], 1..=3)), 0..14),
        ) {
            let claims: Vec<(u32, usize, bool, &[&str])> = sets
                .iter()
                .zip(0..)
                .map(|((cost, users), id)| (id, *cost, true, users.as_slice()))
                .collect();
            let served = served_of(room, &claims);
            let cost: usize = served.iter().map(|id| sets[*id as usize].0).sum();
            prop_assert!(cost <= room);
            let of = |name: &'static str| claims.iter().filter(move |(.., users)| users.contains(&name));
            let names: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|name| of(name).count() > 0).collect();
            for name in &names {
                let wanted: usize = of(name).map(|(_, cost, ..)| cost).sum();
                if wanted <= room / names.len() {
                    prop_assert!(of(name).all(|(id, ..)| served.contains(id)), "{}: {:?}", name, served);
                }
            }
        }
    }

    #[test]
    fn sets_are_served_within_their_namespaces_part() {
        // The newer of the bigger one's goes.
        assert_eq!(
            served_of(4, &[(1, 2, true, &["a"]), (2, 1, true, &["a"]), (3, 2, true, &["v"])]),
            [1, 3]
        );
        // A shared one is not charged twice, and stays for who can have it.
        assert_eq!(served_of(4, &[(1, 2, true, &["a", "v"]), (2, 2, true, &["a"])]), [1, 2]);
        assert_eq!(served_of(6, &[(1, 3, true, &["a", "v"]), (2, 9, true, &["a"])]), [1]);
        // What has room keeps it.
        assert_eq!(served_of(4, &[(1, 3, false, &["a"]), (2, 3, true, &["a"])]), [2]);
        // What has none has to fit with a sixteenth to spare.
        assert_eq!(served_of(32, &[(1, 31, true, &["a"])]), [1]);
        assert_eq!(served_of(32, &[(1, 31, false, &["a"])]), [0; 0]);
        assert_eq!(served_of(32, &[(1, 30, false, &["a"])]), [1]);
    }
}
