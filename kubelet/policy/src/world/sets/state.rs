//! One set: what is in it, and what of that the kernel has not heard of. Pure.

use std::collections::BTreeMap;

use super::SetKey;
use crate::change::{Content, Member, NewSet, Refill, Revision, SetId};
use crate::facts::Facts;
use crate::selector::Labels;
use crate::world::shares::Shortage;

/// See the module.
pub(super) struct State {
    pub(super) key: SetKey,
    /// How many rules look into it, by the namespace of the pods they are for.
    pub(super) users: BTreeMap<String, usize>,
    /// Whether the kernel has not heard of it.
    pub(super) is_new: bool,
    /// Of what there is too little for it: then it is empty.
    pub(super) over: Option<Shortage>,
    /// Whether it is asked about each pod that changes.
    pub(super) is_followed: bool,
    /// Whether there is in it what ought to be.
    pub(super) is_filled: bool,
    /// How many members it would have, as long as it is followed; what two pods say counts twice.
    pub(super) wanted: usize,
    /// What is in it, with how many pods say so.
    pub(super) members: BTreeMap<Member, u32>,
    /// What the kernel has not heard of: whether it is in.
    pending: BTreeMap<Member, bool>,
    /// Whether the kernel's has what stays in it.
    is_told_filled: bool,
}

impl State {
    pub(super) fn new(key: SetKey) -> Self {
        Self {
            // What stays as it is is there at once, and asks nobody.
            is_filled: !key.follows(),
            key,
            users: BTreeMap::new(),
            is_new: true,
            over: None,
            is_followed: false,
            wanted: 0,
            members: BTreeMap::new(),
            pending: BTreeMap::new(),
            is_told_filled: false,
        }
    }

    pub(super) fn add_user(&mut self, namespace: &str) {
        match self.users.get_mut(namespace) {
            Some(count) => *count += 1,
            None => {
                self.users.insert(namespace.to_owned(), 1);
            }
        }
    }

    /// One user less; returns whether there is one left.
    pub(super) fn remove_user(&mut self, namespace: &str) -> bool {
        if let Some(count) = self.users.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(namespace);
            }
        }
        !self.users.is_empty()
    }

    pub(super) fn add(&mut self, member: Member) {
        let count = self.members.entry(member).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.note(member, true);
        }
    }

    pub(super) fn remove(&mut self, member: Member) {
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

    /// Takes everything out of it, until it is filled.
    pub(super) fn empty(&mut self) {
        self.is_filled = false;
        for member in std::mem::take(&mut self.members).into_keys() {
            self.note(member, false);
        }
    }

    /// Counts what these pods make of it, and puts it in where that is not more than `most`.
    pub(super) fn fill<'a>(&mut self, pods: impl Iterator<Item = (&'a str, &'a Labels, &'a Facts)>, most: usize) {
        (self.is_followed, self.is_filled, self.wanted) = (true, true, 0);
        for (namespace, labels, facts) in pods {
            let members = self.key.members(namespace, labels, facts);
            self.wanted += members.len();
            if !self.is_filled {
                continue;
            }
            members.into_iter().for_each(|member| self.add(member));
            if self.members.len() > most {
                self.empty();
            }
        }
    }

    pub(super) fn as_new(&mut self, id: SetId) -> NewSet {
        self.is_new = false;
        self.pending.clear();
        self.is_told_filled = self.is_filled;
        NewSet {
            id,
            v4: self.key.v4(),
            kind: self.key.kind(),
            content: self.content(),
        }
    }

    fn content(&self) -> Content {
        let stays = self.is_filled;
        match &self.key {
            SetKey::Blocks(blocks, v4) => Content::Ranges(blocks.of_family(*v4).filter(|_| stays).copied().collect()),
            SetKey::Ports(ports) => Content::Ports(ports.iter().filter(|_| stays).copied().collect()),
            _ => Content::Members(self.members.keys().copied().collect()),
        }
    }

    /// What the kernel has not heard of a set that follows pods.
    pub(super) fn take_revision(&mut self, id: SetId) -> Option<Revision> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = std::mem::take(&mut self.pending);
        let (added, removed): (Vec<_>, Vec<_>) = pending.into_iter().partition(|(_, is_in)| *is_in);
        let members = |list: Vec<(Member, bool)>| list.into_iter().map(|(member, _)| member).collect();
        Some(Revision {
            id,
            added: members(added),
            removed: members(removed),
        })
    }

    /// What the kernel has not heard of a set whose content stays.
    pub(super) fn take_refill(&mut self, id: SetId) -> Option<Refill> {
        let is_in = self.is_filled;
        if !matches!(self.key, SetKey::Blocks(..) | SetKey::Ports(_)) || self.is_told_filled == is_in {
            return None;
        }
        self.is_told_filled = is_in;
        self.is_filled = true;
        let content = self.content();
        self.is_filled = is_in;
        Some(Refill { id, content, is_in })
    }
}
