//! The chains: shared by a namespace's pods that are let have the same traffic, counted.

use std::collections::{BTreeMap, HashMap};

use crate::change::{Chain, ChainId, SetId};

struct State {
    /// The pods'.
    namespace: String,
    chain: Chain,
    /// How many pods' traffic goes through it.
    users: usize,
    /// Whether the kernel has not heard of it.
    is_new: bool,
}

/// All chains there are.
#[derive(Default)]
pub(super) struct Chains {
    by_content: HashMap<(String, Chain), ChainId>,
    states: BTreeMap<ChainId, State>,
    /// How many rules each namespace's have, and all.
    rules: BTreeMap<String, usize>,
    all_rules: usize,
    gone: Vec<ChainId>,
    last: u32,
}

impl Chains {
    /// The chain of this namespace that is equal to this, with one more user; and whether it is a new one, which then keeps what
    /// it uses.
    pub(super) fn use_or_make(&mut self, namespace: &str, chain: Chain) -> (ChainId, bool) {
        let content = (namespace.to_owned(), chain);
        if let Some(id) = self.by_content.get(&content).copied() {
            self.use_again(id);
            return (id, false);
        }
        self.last = self.last.wrapping_add(1);
        let id = ChainId(self.last);
        let state = State {
            namespace: content.0.clone(),
            chain: content.1.clone(),
            users: 1,
            is_new: true,
        };
        let rules = state.chain.allows.len();
        self.all_rules += rules;
        *self.rules.entry(content.0.clone()).or_default() += rules;
        self.by_content.insert(content, id);
        self.states.insert(id, state);
        (id, true)
    }

    /// The chain of this namespace that is equal to this, if there is one.
    pub(super) fn find(&self, namespace: &str, chain: Chain) -> Option<ChainId> {
        self.by_content.get(&(namespace.to_owned(), chain)).copied()
    }

    /// How many rules all of them have.
    pub(super) fn all_rules(&self) -> usize {
        self.all_rules
    }

    /// How many rules each namespace's have.
    pub(super) fn rules(&self) -> &BTreeMap<String, usize> {
        &self.rules
    }

    /// How many rules one has.
    pub(super) fn rules_of(&self, id: ChainId) -> usize {
        self.states.get(&id).map_or(0, |state| state.chain.allows.len())
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
        let rules = state.chain.allows.len();
        self.all_rules -= rules;
        if let Some(of_namespace) = self.rules.get_mut(&state.namespace) {
            *of_namespace -= rules;
            if *of_namespace == 0 {
                self.rules.remove(&state.namespace);
            }
        }
        if !state.is_new {
            self.gone.push(id);
        }
        let sets = state.chain.allows.iter().flat_map(|allow| allow.sets()).collect();
        self.by_content.remove(&(state.namespace, state.chain));
        sets
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
