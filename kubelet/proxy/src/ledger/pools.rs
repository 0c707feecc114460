//! Which number each port's endpoints stand under in the kernel.

use std::collections::{BTreeMap, BTreeSet};

use crate::desired::{Owner, Pool, pool};

/// The pools that are taken. A pool is a part of its owner's name, so that it is the same after a restart and what the kernel
/// remembers of clients stays true; the few whose part is taken have the next that is free, and their clients may be
/// forgotten at a restart.
#[derive(Debug, Default)]
pub(super) struct Pools {
    taken: BTreeSet<Pool>,
    moved: BTreeMap<Owner, Pool>,
}

impl Pools {
    /// The pool of an owner that has one.
    pub(super) fn of(&self, owner: Owner) -> Pool {
        self.moved.get(&owner).copied().unwrap_or_else(|| pool(owner))
    }

    /// Gives an owner one, which had none.
    pub(super) fn take(&mut self, owner: Owner) {
        let mut free = pool(owner);
        while !self.taken.insert(free) {
            free = free.wrapping_add(1);
        }
        if free != pool(owner) {
            self.moved.insert(owner, free);
        }
    }

    /// An owner is gone.
    pub(super) fn give_back(&mut self, owner: Owner) {
        self.taken.remove(&self.of(owner));
        self.moved.remove(&owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::POOL_SHIFT;

    #[test]
    fn no_two_have_the_same_and_each_keeps_its_own() {
        let mut pools = Pools::default();
        let owner = |other: Owner, pool: Owner| other << 96 | pool << POOL_SHIFT;
        let (one, same, next) = (owner(0, 7), owner(1, 7), owner(0, 8));
        [one, same, next].into_iter().for_each(|owner| pools.take(owner));
        assert_eq!([one, same, next].map(|owner| pools.of(owner)), [7, 8, 9]);
        // Who was there first goes, and comes again while others are where they were.
        pools.give_back(one);
        assert_eq!((pools.of(same), pools.of(next)), (8, 9));
        pools.take(one);
        assert_eq!(pools.of(one), 7);
        [one, same, next].into_iter().for_each(|owner| pools.give_back(owner));
        assert!(pools.taken.is_empty() && pools.moved.is_empty());
        // Behind the last comes the first.
        let last = [owner(0, u32::MAX.into()), owner(1, u32::MAX.into())];
        last.into_iter().for_each(|owner| pools.take(owner));
        assert_eq!(last.map(|owner| pools.of(owner)), [u32::MAX, 0]);
    }
}
