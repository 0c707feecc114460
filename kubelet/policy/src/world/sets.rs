//! The sets: shared by whatever asks for an equal one, counted, and with what of them the kernel has not heard of.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::change::{Content, Member, NewSet, Revision, SetId, SetKind};
use crate::facts::Facts;
use crate::range::{PortRange, Ranges};
use crate::selector::Labels;
use crate::spec::{Peers, Rule, Selection};

/// What makes two sets equal: what is in them, not what is in them now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SetKey {
    /// Addresses of this node's pods.
    Known(bool),
    /// Addresses of the pods of any of these.
    Pods(Arc<Vec<Selection>>, bool),
    /// Addresses of a policy's blocks.
    Blocks(Arc<Ranges>, bool),
    /// Protocols and ports.
    Ports(Vec<PortRange>),
    /// Where pods that are peers (absent: all pods) have ports of these names.
    Places(Option<Peers>, Vec<(u8, String)>, bool),
}

impl SetKey {
    fn kind(&self) -> SetKind {
        match self {
            Self::Known(_) | Self::Pods(..) => SetKind::Addresses,
            Self::Blocks(..) => SetKind::AddressRanges,
            Self::Ports(_) => SetKind::Ports,
            Self::Places(..) => SetKind::AddressPorts,
        }
    }

    fn v4(&self) -> bool {
        match self {
            Self::Known(v4) | Self::Pods(_, v4) | Self::Blocks(_, v4) | Self::Places(_, _, v4) => *v4,
            Self::Ports(_) => true,
        }
    }

    /// Whether a rule looks into it.
    pub(super) fn is_of(&self, rule: &Rule) -> bool {
        match self {
            Self::Pods(selections, _) => rule.peers.as_ref().is_some_and(|peers| peers.selections == *selections),
            Self::Places(peers, ..) => rule.peers == *peers && rule.ports.is_some(),
            _ => false,
        }
    }

    /// The one namespace all pods in it are of, if that is known.
    pub(super) fn only_namespace(&self) -> Option<&str> {
        use crate::spec::Scope;
        let Self::Pods(selections, _) = self else {
            return None;
        };
        let mut names = selections.iter().map(|selection| match &selection.scope {
            Scope::Own(name) => Some(name.as_str()),
            Scope::Selected(_) => None,
        });
        let first = names.next()??;
        names.all(|name| name == Some(first)).then_some(first)
    }

    /// What a pod contributes.
    fn members(&self, namespace: &str, of_namespace: &Labels, facts: &Facts) -> Vec<Member> {
        let selected = |selections: &[Selection]| {
            selections
                .iter()
                .any(|selection| selection.selects(namespace, of_namespace, &facts.labels))
        };
        let of_family = |v4: bool| facts.addresses.iter().copied().filter(move |addr| addr.is_ipv4() == v4);
        if !facts.is_subject {
            return Vec::new();
        }
        match self {
            Self::Pods(selections, v4) if selected(selections) => of_family(*v4).map(Member::address).collect(),
            Self::Places(peers, names, v4) => {
                let is_peer = |addr: &IpAddr| {
                    let Some(peers) = peers else {
                        return true;
                    };
                    peers.blocks.contains(addr) || selected(&peers.selections)
                };
                let places = of_family(*v4).filter(is_peer).flat_map(|addr| {
                    let numbers = names
                        .iter()
                        .flat_map(|(protocol, name)| facts.numbers(*protocol, name).map(|number| (*protocol, number)));
                    numbers.map(move |port| Member { addr, port: Some(port) })
                });
                let mut all: Vec<Member> = places.collect();
                all.sort_unstable();
                all.dedup();
                all
            }
            _ => Vec::new(),
        }
    }
}

struct State {
    key: SetKey,
    /// How many rules look into it.
    users: usize,
    /// Whether the kernel has not heard of it.
    is_new: bool,
    /// Whether there was no room for it: it is empty for as long as anybody looks into it.
    is_over: bool,
    /// What is in it, with how many pods say so.
    members: BTreeMap<Member, u32>,
    /// What the kernel has not heard of: whether it is in.
    pending: BTreeMap<Member, bool>,
}

impl State {
    fn add(&mut self, member: Member) {
        let count = self.members.entry(member).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.note(member, true);
        }
    }

    fn remove(&mut self, member: Member) {
        let Some(count) = self.members.get_mut(&member) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.members.remove(&member);
            self.note(member, false);
        }
    }

    /// A member that came and went again is no news.
    fn note(&mut self, member: Member, is_in: bool) {
        if !self.is_new && self.pending.remove(&member).is_none() {
            self.pending.insert(member, is_in);
        }
    }

    /// Empties it for good.
    fn overflow(&mut self) {
        self.is_over = true;
        for member in std::mem::take(&mut self.members).into_keys() {
            self.note(member, false);
        }
    }

    fn as_new(&mut self, id: SetId) -> NewSet {
        self.is_new = false;
        self.pending.clear();
        let content = match &self.key {
            SetKey::Blocks(blocks, v4) => Content::Ranges(blocks.of_family(*v4).copied().collect()),
            SetKey::Ports(ports) => Content::Ports(ports.clone()),
            _ => Content::Members(self.members.keys().copied().collect()),
        };
        NewSet {
            id,
            v4: self.key.v4(),
            kind: self.key.kind(),
            content,
        }
    }
}

/// Most members of all sets that follow pods, together: some hundred bytes each here and in the kernel.
pub(crate) const MOST_MEMBERS: usize = 1_000_000;

/// All sets there are.
pub(super) struct Sets {
    by_key: HashMap<SetKey, SetId>,
    states: BTreeMap<SetId, State>,
    gone: Vec<SetId>,
    last: u32,
    /// How many members may still come.
    room: usize,
    /// What there was no room for, and nobody has heard of.
    over: Vec<SetKey>,
}

impl Default for Sets {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            states: BTreeMap::new(),
            gone: Vec::new(),
            last: 0,
            room: MOST_MEMBERS,
            over: Vec::new(),
        }
    }
}

impl Sets {
    /// Has it hold so many members at most.
    #[cfg(test)]
    pub(super) fn limit(&mut self, room: usize) {
        self.room = room;
    }

    /// The sets there was no room for since this was asked last.
    pub(super) fn take_over(&mut self) -> Vec<SetKey> {
        std::mem::take(&mut self.over)
    }

    /// The set that is equal to this, with one more user. `fill` gives the pods to look at when it is made.
    pub(super) fn use_or_make<'a, I>(&mut self, key: SetKey, fill: impl FnOnce(&SetKey) -> I) -> SetId
    where
        I: Iterator<Item = (&'a str, &'a Labels, &'a Facts)>,
    {
        if let Some(id) = self.by_key.get(&key) {
            let id = *id;
            if let Some(state) = self.states.get_mut(&id) {
                state.users += 1;
            }
            return id;
        }
        let id = match key {
            SetKey::Known(v4) => SetId::Known(v4),
            _ => {
                self.last = self.last.wrapping_add(1);
                SetId::Numbered(self.last)
            }
        };
        let mut state = State {
            key: key.clone(),
            users: 1,
            is_new: true,
            is_over: false,
            members: BTreeMap::new(),
            pending: BTreeMap::new(),
        };
        if matches!(key, SetKey::Pods(..) | SetKey::Places(..)) {
            for (namespace, labels, facts) in fill(&key) {
                key.members(namespace, labels, facts)
                    .into_iter()
                    .for_each(|member| state.add(member));
                if state.members.len() > self.room {
                    state.overflow();
                    self.over.push(key.clone());
                    break;
                }
            }
            self.room -= state.members.len();
        }
        self.by_key.insert(key, id);
        self.states.insert(id, state);
        id
    }

    /// One user more of a set that is in use.
    pub(super) fn use_again(&mut self, id: SetId) {
        if let Some(state) = self.states.get_mut(&id) {
            state.users += 1;
        }
    }

    /// One user less; the last one takes the set along.
    pub(super) fn release(&mut self, id: SetId) {
        let Some(state) = self.states.get_mut(&id) else {
            return;
        };
        state.users -= 1;
        if state.users > 0 {
            return;
        }
        if let Some(state) = self.states.remove(&id) {
            self.by_key.remove(&state.key);
            if !matches!(state.key, SetKey::Known(_)) {
                self.room += state.members.len();
            }
            if !state.is_new {
                self.gone.push(id);
            }
        }
    }

    /// A pod, or its namespace, is no longer what it was. Absent: it did not exist, or does not any more.
    pub(super) fn follow(&mut self, namespace: &str, old: Option<(&Labels, &Facts)>, new: Option<(&Labels, &Facts)>) {
        for state in self.states.values_mut().filter(|state| !state.is_over) {
            let of = |side: Option<(&Labels, &Facts)>| {
                side.map(|(labels, facts)| state.key.members(namespace, labels, facts))
                    .unwrap_or_default()
            };
            let (before, after) = (of(old), of(new));
            if before == after {
                continue;
            }
            self.room += state.members.len();
            after.into_iter().for_each(|member| state.add(member));
            before.into_iter().for_each(|member| state.remove(member));
            if state.members.len() > self.room {
                state.overflow();
                self.over.push(state.key.clone());
            }
            self.room -= state.members.len();
        }
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
    pub(super) fn take_news(&mut self) -> (Vec<NewSet>, Vec<Revision>, Vec<SetId>) {
        let mut new = Vec::new();
        let mut revisions = Vec::new();
        for (id, state) in &mut self.states {
            if state.is_new {
                new.push(state.as_new(*id));
            } else if !state.pending.is_empty() {
                let pending = std::mem::take(&mut state.pending);
                let (added, removed): (Vec<_>, Vec<_>) = pending.into_iter().partition(|(_, is_in)| *is_in);
                let members = |list: Vec<(Member, bool)>| list.into_iter().map(|(member, _)| member).collect();
                revisions.push(Revision {
                    id: *id,
                    added: members(added),
                    removed: members(removed),
                });
            }
        }
        (new, revisions, std::mem::take(&mut self.gone))
    }

    /// Everything, for a kernel that knows nothing.
    pub(super) fn whole(&mut self) -> Vec<NewSet> {
        self.gone.clear();
        self.states.iter_mut().map(|(id, state)| state.as_new(*id)).collect()
    }
}
