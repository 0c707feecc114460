//! From one state of the Services to the next: which elements and chains come and go. Pure; remembers who asked for what, so
//! that a change costs what it changes.

use client::ordered::CollectOrdered;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::desired::{Bytes, Class, Element, Owner, Set};

mod pairs;

pub use pairs::Pairs;

/// Unused chains are kept up to this number: counts that were there come again, and deleting a chain is the slowest change.
const UNUSED_CHAINS_MAX: usize = 128;

/// Changes of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Elements that go, by set, with the data they had.
    pub gone: BTreeMap<Set, Pairs>,
    /// Elements that come, after those that go.
    pub come: BTreeMap<Set, Pairs>,
    /// Classes whose chains go.
    pub classes_gone: BTreeSet<Class>,
    /// Classes whose chains come.
    pub classes_come: BTreeSet<Class>,
}

impl Delta {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.come.is_empty() && self.classes_gone.is_empty() && self.classes_come.is_empty()
    }
}

/// Who asks for a key, and what for. The least one gets it; under a front, the one who has the front.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    rank: u8,
    owner: Owner,
    data: Bytes,
}

/// Nearly every key has one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Claims {
    One(Claim),
    Many(Vec<Claim>),
}

impl Claims {
    fn winner(&self) -> Option<&Claim> {
        self.list().iter().min()
    }

    fn list(&self) -> &[Claim] {
        match self {
            Self::One(claim) => std::slice::from_ref(claim),
            Self::Many(claims) => claims,
        }
    }

    fn add(&mut self, claim: Claim) {
        match self {
            Self::One(first) => *self = Self::Many(vec![first.clone(), claim]),
            Self::Many(claims) => claims.push(claim),
        }
    }

    /// Takes one claim back; returns whether none is left.
    fn remove(&mut self, claim: &Claim) -> bool {
        match self {
            Self::One(first) => first == claim,
            Self::Many(claims) => {
                if let Some(at) = claims.iter().position(|other| other == claim) {
                    claims.swap_remove(at);
                }
                if let [last] = claims.as_slice() {
                    *self = Self::One(last.clone());
                    return false;
                }
                matches!(self, Self::Many(claims) if claims.is_empty())
            }
        }
    }
}

/// What the kernel had of a key before a change.
type Touched = BTreeMap<(Set, Bytes), Option<Bytes>>;

/// What one family's table was told, and by whom.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Of the sets whose keys several may ask for; what stands in the others follows from the one who asks.
    claims: BTreeMap<(Set, Bytes), Claims>,
    classes: BTreeMap<Class, usize>,
    chains: BTreeSet<Class>,
}

/// The elements one port had and has.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Names the port.
    pub owner: Owner,
    /// What it asked for before.
    pub before: Vec<Element>,
    /// What it asks for now.
    pub after: Vec<Element>,
}

impl Book {
    /// Enters changes of ports, and returns what changes in the kernel.
    pub fn enter(&mut self, turns: impl Iterator<Item = Turn>) -> Delta {
        let mut delta = Delta::default();
        // A first write: what the kernel had of a key is nothing, and need not be remembered.
        let is_first = self.claims.is_empty();
        // What the kernel has of every touched key.
        let mut touched = Touched::new();
        let mut contested: BTreeSet<Bytes> = BTreeSet::new();
        for turn in turns {
            if !is_first {
                self.touch(&turn, &mut touched, &mut contested);
            }
            let (pooled, before) = split(turn.before);
            let (pools, after) = split(turn.after);
            exchange(pooled, pools, &mut delta);
            before.into_iter().for_each(|element| self.leave(turn.owner, element));
            after.into_iter().for_each(|element| self.claim(turn.owner, element));
        }
        if is_first {
            for (set, key) in self.claims.keys() {
                if let Some(data) = self.winner(*set, key) {
                    delta.come.entry(*set).or_default().push(key, &data);
                }
            }
        }
        for ((set, key), before) in touched {
            let after = self.winner(set, &key);
            if before == after {
                continue;
            }
            if let Some(data) = before {
                delta.gone.entry(set).or_default().push(&key, &data);
            }
            if let Some(data) = after {
                delta.come.entry(set).or_default().push(&key, &data);
            }
        }
        self.settle_classes(&mut delta);
        delta
    }

    /// Remembers what the kernel has of all that a turn may change.
    fn touch(&self, turn: &Turn, touched: &mut Touched, contested: &mut BTreeSet<Bytes>) {
        let elements = || turn.before.iter().chain(&turn.after);
        for element in elements() {
            if Set::CLAIMING.contains(&element.set)
                && self.is_contested(&element.key, turn.owner)
                && contested.insert(element.key.clone())
            {
                self.touch_front(&element.key, touched);
            }
        }
        for element in elements().filter(|element| !element.set.is_pooled()) {
            if let Entry::Vacant(entry) = touched.entry((element.set, element.key.clone())) {
                entry.insert(self.winner(element.set, &element.key));
            }
        }
    }

    /// What the kernel is to have of a key. Under a front that several ask for it is all of one of them: half of each would be
    /// answers of the one to the other's clients, and ranges that overlap, which the kernel refuses with the whole batch.
    fn winner(&self, set: Set, key: &[u8]) -> Option<Bytes> {
        let claims = self.claims.get(&(set, key.into()))?;
        let Some(front) = set.front(key) else {
            return claims.winner().map(|claim| claim.data.clone());
        };
        let (rank, owner) = self.front_owner(front)?;
        // Source ranges hold also where the same port has the front by a better right.
        let any_rank = matches!(set, Set::Guarded | Set::Allowed);
        let mut list = claims.list().iter();
        let found = list.find(|claim| claim.owner == owner && (any_rank || claim.rank == rank));
        found.map(|claim| claim.data.clone())
    }

    fn front_claims(&self, front: &[u8]) -> impl Iterator<Item = &Claim> {
        let of = move |set| self.claims.get(&(set, front.into()));
        Set::CLAIMING.into_iter().filter_map(of).flat_map(Claims::list)
    }

    fn front_owner(&self, front: &[u8]) -> Option<(u8, Owner)> {
        self.front_claims(front).map(|claim| (claim.rank, claim.owner)).min()
    }

    fn is_contested(&self, front: &[u8], owner: Owner) -> bool {
        self.front_claims(front).any(|claim| claim.owner != owner)
    }

    /// Remembers all the kernel has under a front: its owner may change.
    fn touch_front(&self, front: &[u8], touched: &mut Touched) {
        for set in Set::FRONTED {
            let from = self.claims.range((set, Bytes::from(front))..);
            let under = from.take_while(|((other, key), _)| *other == set && key.starts_with(front));
            for ((_, key), _) in under {
                if let Entry::Vacant(entry) = touched.entry((set, key.clone())) {
                    entry.insert(self.winner(set, key));
                }
            }
        }
    }

    fn claim(&mut self, owner: Owner, element: Element) {
        if let Some(class) = element.class {
            *self.classes.entry(class).or_default() += 1;
        }
        let claim = Claim {
            rank: element.rank,
            owner,
            data: element.data,
        };
        match self.claims.entry((element.set, element.key)) {
            Entry::Vacant(entry) => drop(entry.insert(Claims::One(claim))),
            Entry::Occupied(mut entry) => entry.get_mut().add(claim),
        }
    }

    fn leave(&mut self, owner: Owner, element: Element) {
        if let Some(users) = element.class.and_then(|class| self.classes.get_mut(&class)) {
            *users = users.saturating_sub(1);
        }
        let claim = Claim {
            rank: element.rank,
            owner,
            data: element.data,
        };
        if let Entry::Occupied(mut entry) = self.claims.entry((element.set, element.key))
            && entry.get_mut().remove(&claim)
        {
            entry.remove();
        }
    }

    /// Chains come with the first element of their class, and go when many are unused.
    fn settle_classes(&mut self, delta: &mut Delta) {
        self.classes.retain(|_, users| *users > 0);
        let mut needed = BTreeSet::new();
        for class in self.classes.keys() {
            needed.insert(*class);
            needed.extend(class.needs().iter().map(|route| class.with(*route)));
        }
        let unused: BTreeSet<Class> = self.chains.difference(&needed).copied().collect_ordered();
        delta.classes_come = needed.difference(&self.chains).copied().collect_ordered();
        self.chains.extend(needed);
        if unused.len() > UNUSED_CHAINS_MAX {
            self.chains.retain(|class| !unused.contains(class));
            delta.classes_gone = unused;
        }
    }
}

/// Apart: what stands under a pool, and the rest.
fn split(elements: Vec<Element>) -> (Vec<Element>, Vec<Element>) {
    elements.into_iter().partition(|element| element.set.is_pooled())
}

/// What stands under a pool is of one port alone: what it had and has not goes, what it has and had not comes.
fn exchange(before: Vec<Element>, after: Vec<Element>, delta: &mut Delta) {
    if before.is_empty() {
        for element in after {
            delta
                .come
                .entry(element.set)
                .or_default()
                .push(&element.key, &element.data);
        }
        return;
    }
    let (before, after) = (keyed(before), keyed(after));
    add_others(&before, &after, &mut delta.gone);
    add_others(&after, &before, &mut delta.come);
}

type Keyed = BTreeMap<(Set, Bytes), Bytes>;

fn keyed(elements: Vec<Element>) -> Keyed {
    let keyed = elements
        .into_iter()
        .map(|element| ((element.set, element.key), element.data));
    keyed.collect()
}

/// What the one has and the other has not.
fn add_others(of: &Keyed, than: &Keyed, to: &mut BTreeMap<Set, Pairs>) {
    for ((set, key), data) in of {
        if than.get(&(*set, key.clone())) != Some(data) {
            to.entry(*set).or_default().push(key, data);
        }
    }
}

#[cfg(test)]
mod tests;
