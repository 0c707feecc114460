//! The chains: shared by pods that are let have the same traffic, counted.

use std::collections::{BTreeMap, HashMap};

use crate::change::{Chain, ChainId, SetId};

struct State {
    chain: Chain,
    /// How many pods' traffic goes through it.
    users: usize,
    /// Whether the kernel has not heard of it.
    is_new: bool,
}

/// All chains there are.
#[derive(Default)]
pub(super) struct Chains {
    by_content: HashMap<Chain, ChainId>,
    states: BTreeMap<ChainId, State>,
    gone: Vec<ChainId>,
    last: u32,
}

impl Chains {
    /// The chain that is equal to this, with one more user; and whether it is a new one, which then keeps what it uses.
    pub(super) fn use_or_make(&mut self, chain: Chain) -> (ChainId, bool) {
        if let Some(id) = self.by_content.get(&chain).copied() {
            self.use_again(id);
            return (id, false);
        }
        self.last = self.last.wrapping_add(1);
        let id = ChainId(self.last);
        self.by_content.insert(chain.clone(), id);
        let state = State {
            chain,
            users: 1,
            is_new: true,
        };
        self.states.insert(id, state);
        (id, true)
    }

    /// One more user of a chain that is in use.
    pub(super) fn use_again(&mut self, id: ChainId) {
        if let Some(state) = self.states.get_mut(&id) {
            state.users += 1;
        }
    }

    /// One user less; with the last one the chain goes, and the sets it looked into are returned.
    pub(super) fn release(&mut self, id: ChainId) -> Vec<SetId> {
        let Some(state) = self.states.get_mut(&id) else {
            return Vec::new();
        };
        state.users -= 1;
        if state.users > 0 {
            return Vec::new();
        }
        let Some(state) = self.states.remove(&id) else {
            return Vec::new();
        };
        self.by_content.remove(&state.chain);
        if !state.is_new {
            self.gone.push(id);
        }
        state.chain.allows.iter().flat_map(|allow| allow.sets()).collect()
    }

    /// What the kernel has not heard of: new chains, and those that are gone.
    pub(super) fn take_news(&mut self) -> (Vec<(ChainId, Chain)>, Vec<ChainId>) {
        let new = self.states.iter_mut().filter(|(_, state)| state.is_new);
        let new = new.map(|(id, state)| {
            state.is_new = false;
            (*id, state.chain.clone())
        });
        (new.collect(), std::mem::take(&mut self.gone))
    }

    /// Everything, for a kernel that knows nothing.
    pub(super) fn whole(&mut self) -> Vec<(ChainId, Chain)> {
        self.gone.clear();
        let all = self.states.iter_mut().map(|(id, state)| {
            state.is_new = false;
            (*id, state.chain.clone())
        });
        all.collect()
    }
}
