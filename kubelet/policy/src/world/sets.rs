//! The sets: shared by whatever asks for an equal one, counted by namespace, and with what of them the kernel has not heard of.
//!
//! A set there is no room for is empty until there is: see [`super::shares`].

mod key;
mod state;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::Everybody;
use super::shares::{Claim, LIMITS, Limits, Shortage, served, until_shared};
use crate::change::{Member, NewSet, Refill, Revision, SetId};
use crate::facts::Facts;
use crate::selector::Labels;
pub(super) use key::SetKey;
use state::State;

/// What the kernel has not heard of.
#[derive(Default)]
pub(super) struct News {
    pub(super) new: Vec<NewSet>,
    pub(super) revisions: Vec<Revision>,
    pub(super) refills: Vec<Refill>,
    pub(super) gone: Vec<SetId>,
}

/// A set there is no room for.
pub(super) struct Over {
    pub(super) key: SetKey,
    pub(super) namespaces: BTreeSet<String>,
    pub(super) shortage: Shortage,
}

/// All sets there are.
pub(super) struct Sets {
    by_key: HashMap<SetKey, SetId>,
    states: BTreeMap<SetId, State>,
    gone: Vec<SetId>,
    last: u32,
    limits: Limits,
    /// What those that follow pods cost together.
    questions: usize,
    /// What those that do not cost together.
    ranges: usize,
    /// How many members those that are followed would have.
    wanted: usize,
    /// How many they have.
    stored: usize,
    /// Whether some are not filled.
    is_short: bool,
    /// Those there is no room for, and nobody has heard of.
    over: BTreeSet<SetId>,
}

impl Default for Sets {
    fn default() -> Self {
        let known = |v4| (SetId::Known(v4), State::new(SetKey::Known(v4)));
        Self {
            by_key: HashMap::new(),
            states: BTreeMap::from([true, false].map(known)),
            gone: Vec::new(),
            last: 0,
            limits: LIMITS,
            questions: 0,
            ranges: 0,
            wanted: 0,
            stored: 0,
            is_short: false,
            over: BTreeSet::new(),
        }
    }
}

impl Sets {
    /// Has so much of each at most.
    pub(super) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How much of each is asked for.
    #[cfg(test)]
    pub(super) fn asked_for(&self) -> Limits {
        Limits {
            members: self.wanted,
            questions: self.questions,
            ranges: self.ranges,
            rules: 0,
        }
    }

    /// The sets there was no room for since this was asked last, and is none now.
    pub(super) fn take_over(&mut self) -> Vec<Over> {
        let over = std::mem::take(&mut self.over);
        let state = |id: SetId| {
            let state = self.states.get(&id)?;
            Some(Over {
                key: state.key.clone(),
                namespaces: state.users.keys().cloned().collect(),
                shortage: state.over?,
            })
        };
        over.into_iter().filter_map(state).collect()
    }

    /// The set that is equal to this, with one more user, of this namespace.
    pub(super) fn use_or_make(&mut self, key: SetKey, namespace: &str, everybody: Everybody<'_>) -> SetId {
        if let Some(id) = self.by_key.get(&key).copied() {
            self.use_again(id, namespace);
            return id;
        }
        self.last = self.last.wrapping_add(1);
        let id = SetId::Numbered(self.last);
        let mut state = State::new(key.clone());
        state.add_user(namespace);
        if !key.follows() {
            self.ranges += key.cost();
        } else {
            self.questions += key.cost();
            // Beyond that it waits until it is known whose turn it is: who makes very many has not all pods asked for each.
            if self.questions <= until_shared(self.limits.questions) {
                self.fill(&mut state, everybody);
            }
            self.is_short |= !state.is_filled;
        }
        self.by_key.insert(key, id);
        self.states.insert(id, state);
        id
    }

    /// The set that is equal to this, if there is one.
    pub(super) fn find(&self, key: &SetKey) -> Option<SetId> {
        self.by_key.get(key).copied()
    }

    /// One user more of a set that is in use.
    pub(super) fn use_again(&mut self, id: SetId, namespace: &str) {
        if let Some(state) = self.states.get_mut(&id) {
            state.add_user(namespace);
        }
    }

    /// One user less; the last one takes the set along.
    pub(super) fn release(&mut self, id: SetId, namespace: &str) {
        let Some(state) = self.states.get_mut(&id) else {
            return;
        };
        if state.remove_user(namespace) {
            return;
        }
        if let Some(state) = self.states.remove(&id) {
            self.by_key.remove(&state.key);
            match state.key.follows() {
                true => self.questions -= state.key.cost(),
                false => self.ranges -= state.key.cost(),
            }
            self.discount(&state);
            if !state.is_new {
                self.gone.push(id);
            }
        }
    }

    fn discount(&mut self, state: &State) {
        self.wanted -= state.wanted;
        if state.key.follows() {
            self.stored -= state.members.len();
        }
    }

    /// Asks all pods what is in a set, and puts it in if there is any room for it.
    fn fill(&mut self, state: &mut State, everybody: Everybody<'_>) {
        let only = state.key.only_namespace().map(str::to_owned);
        let most = until_shared(self.limits.members).saturating_sub(self.stored);
        state.fill(everybody.of(only.as_deref()), most);
        self.wanted += state.wanted;
        self.stored += state.members.len();
    }

    /// A pod, or its namespace, is no longer what it was. Absent: it did not exist, or does not any more.
    pub(super) fn follow(&mut self, namespace: &str, old: Option<(&Labels, &Facts)>, new: Option<(&Labels, &Facts)>) {
        let most = until_shared(self.limits.members);
        for state in self.states.values_mut().filter(|state| state.is_followed) {
            let of = |side: Option<(&Labels, &Facts)>| {
                side.map(|(labels, facts)| state.key.members(namespace, labels, facts))
                    .unwrap_or_default()
            };
            let (before, after) = (of(old), of(new));
            if before == after {
                continue;
            }
            self.wanted = self.wanted + after.len() - before.len();
            state.wanted = state.wanted + after.len() - before.len();
            if !state.is_filled {
                continue;
            }
            self.stored -= state.members.len();
            after.into_iter().for_each(|member| state.add(member));
            before.into_iter().for_each(|member| state.remove(member));
            // Too much to wait until it is shared out. Whose turn it is is seen then.
            if self.stored + state.members.len() > most {
                state.empty();
                self.is_short = true;
            }
            self.stored += state.members.len();
        }
    }

    /// Shares out what there is: sets beyond it are emptied, those there is room for again are filled. Nothing is done where all
    /// fits.
    pub(super) fn balance(&mut self, everybody: Everybody<'_>) {
        let limits = self.limits;
        let fits = self.questions <= limits.questions && self.wanted <= limits.members && self.ranges <= limits.ranges;
        if fits && !self.is_short {
            return;
        }
        self.share(Shortage::Questions, everybody);
        self.share(Shortage::Members, everybody);
        self.share(Shortage::Ranges, everybody);
        self.is_short = self.states.values().any(|state| state.over.is_some());
    }

    /// Shares out one thing among the sets that take any of it.
    fn share(&mut self, shortage: Shortage, everybody: Everybody<'_>) {
        let takes = |state: &State| match shortage {
            Shortage::Questions => state.key.follows(),
            Shortage::Members => state.is_followed,
            _ => !state.key.follows() && !matches!(state.key, SetKey::Known(_)),
        };
        let room = self.limits.of(shortage);
        let claims = self.states.iter().filter(|(_, state)| takes(state));
        let claims = claims.map(|(id, state)| Claim {
            id: *id,
            cost: match shortage {
                Shortage::Members => state.wanted,
                _ => state.key.cost(),
            },
            has: state.over != Some(shortage),
            users: &state.users,
        });
        let served = served(room, &claims.collect::<Vec<_>>());
        let all = self.states.iter().filter(|(_, state)| takes(state));
        let (have, have_not): (Vec<SetId>, Vec<SetId>) = all.map(|(id, _)| *id).partition(|id| served.contains(id));
        // First what goes: there is room then for what comes.
        for id in have_not {
            self.cut(id, shortage);
        }
        for id in have {
            self.serve(id, shortage, everybody);
        }
    }

    fn cut(&mut self, id: SetId, shortage: Shortage) {
        let Some(mut state) = self.states.remove(&id) else {
            return;
        };
        self.discount(&state);
        state.empty();
        if shortage == Shortage::Questions {
            (state.is_followed, state.wanted) = (false, 0);
        }
        self.wanted += state.wanted;
        if state.over != Some(shortage) {
            state.over = Some(shortage);
            self.over.insert(id);
        }
        self.states.insert(id, state);
    }

    fn serve(&mut self, id: SetId, shortage: Shortage, everybody: Everybody<'_>) {
        let Some(mut state) = self.states.remove(&id) else {
            return;
        };
        if state.over == Some(shortage) {
            state.over = None;
        }
        let is_there = match shortage {
            Shortage::Questions => state.is_followed,
            _ => state.is_filled,
        };
        if !is_there && state.key.follows() {
            self.discount(&state);
            self.fill(&mut state, everybody);
        } else if !is_there {
            state.is_filled = true;
        }
        self.states.insert(id, state);
    }

    /// Puts an address of this node's pods into the set of them, or takes it out.
    pub(super) fn know(&mut self, addr: IpAddr, is_known: bool) {
        let Some(state) = self.states.get_mut(&SetId::Known(addr.is_ipv4())) else {
            return;
        };
        let member = Member::address(addr);
        match (state.members.contains_key(&member), is_known) {
            (false, true) => state.add(member),
            (true, false) => state.remove(member),
            _ => {}
        }
    }

    /// What the kernel has not heard of: new sets, other members, sets that are gone.
    pub(super) fn take_news(&mut self) -> News {
        let mut news = News::default();
        for (id, state) in &mut self.states {
            if state.is_new {
                news.new.push(state.as_new(*id));
            } else {
                news.revisions.extend(state.take_revision(*id));
                news.refills.extend(state.take_refill(*id));
            }
        }
        news.gone = std::mem::take(&mut self.gone);
        news
    }

    /// Everything, for a kernel that knows nothing.
    pub(super) fn whole(&mut self) -> Vec<NewSet> {
        self.gone.clear();
        self.states.iter_mut().map(|(id, state)| state.as_new(*id)).collect()
    }
}
