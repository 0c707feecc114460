//! What happened in the cluster, as far as it may let a pod be placed that was refused: the queueing hints. Pure.
//!
//! A node's own plugins judge by the node alone, so only what happened on a node can let it take the pod, and whether it does now, or
//! would without those that are less important, is asked at once. Plugins that look around say by their own rules whether an event may
//! change their mind.

pub mod label;

use super::cluster::{Cluster, NodeInfo, Room};
use super::constraint;
use super::plugin::{self, Plugin, PluginSet, default_preemption};
use super::pod::PodInfo;
use super::profile::Profile;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// One event.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// A node is there, is another, or is gone.
    Node {
        /// The labels it had, if it was there.
        before: Option<&'e BTreeMap<String, String>>,
        /// The node, if it is there.
        after: Option<&'e NodeInfo>,
    },
    /// A pod got a node, is another, or left its node: also where it only waited for room, and does no longer. Others took it for placed.
    Pod {
        /// What it was, if it was counted.
        before: Option<&'e PodInfo>,
        /// What it is, if it is counted.
        after: Option<&'e PodInfo>,
        /// Its node, if that is known.
        node: Option<&'e NodeInfo>,
    },
    /// The namespace of this name has other labels.
    Namespace(&'e str),
}

impl Event<'_> {
    /// The node on which more may be possible than before.
    fn freed(&self) -> Option<&NodeInfo> {
        match self {
            Event::Node { after, .. } => *after,
            Event::Pod {
                before: Some(_), node, ..
            } => *node,
            Event::Pod { .. } | Event::Namespace(_) => None,
        }
    }

    /// Plugins that may judge otherwise after it.
    pub fn concerns(&self) -> PluginSet {
        match self {
            // A pod more can only be wanted, by those who look around.
            Event::Pod { before: None, .. } | Event::Namespace(_) => PluginSet::default()
                .with(Plugin::InterPodAffinity)
                .with(Plugin::PodTopologySpread),
            _ => Plugin::ALL.into_iter().fold(PluginSet::default(), PluginSet::with),
        }
    }
}

/// What is asked about one event, of each pod that waits.
pub struct Hints<'e> {
    cluster: &'e Cluster,
    event: &'e Event<'e>,
    /// What the node has left where its pods of less than a priority are gone; nothing where it has none such. Counted once for all pods.
    emptied: RefCell<BTreeMap<i32, Option<Room>>>,
}

impl<'e> Hints<'e> {
    /// About this event, in the cluster as it is after it.
    pub fn new(cluster: &'e Cluster, event: &'e Event<'e>) -> Self {
        let emptied = RefCell::default();
        Self {
            cluster,
            event,
            emptied,
        }
    }

    /// Whether a pod that these plugins refused on some node may be placed after the event, or have others evicted for it.
    pub fn may_help(&self, profile: &Profile, pod: &PodInfo, refused: PluginSet) -> bool {
        if constraint::obstacle(pod).is_some() {
            return false;
        }
        if let Event::Node { after: None, .. } = self.event
            && self
                .waits_for(pod)
                .is_some_and(|node| self.cluster.node(node).is_none_or(|node| !node.present))
        {
            // The room that it waits for is no more.
            return true;
        }
        if refused.is_empty() && matches!(self.event, Event::Node { after: Some(_), .. }) {
            // There was no node at all: now there is one to say what it lacks.
            return true;
        }
        let looks_around = refused.each().any(|plugin| plugin.may_help(pod, self.event));
        let here = || match self.event.freed() {
            Some(node) if node.present && plugin::refused_locally(refused) => {
                plugin::fits_locally(profile, pod, node, &node.room) || self.may_evict(profile, pod, node)
            }
            _ => false,
        };
        looks_around || here()
    }

    /// The node where others make room for the pod.
    fn waits_for(&self, pod: &PodInfo) -> Option<&'e str> {
        self.cluster.nominated.node_of(&pod.uid)
    }

    /// Whether the pod may find room on the node if others go for it. One that waits for room already is helped by what happens there
    /// alone: when nobody is on the way out for it any more, or that would not do.
    fn may_evict(&self, profile: &Profile, pod: &PodInfo, node: &NodeInfo) -> bool {
        if !profile.preempts || !default_preemption::may_preempt(pod) {
            return false;
        }
        let waits_for = self.waits_for(pod);
        if waits_for.is_some_and(|name| name != node.name) {
            return false;
        }
        let mut emptied = self.emptied.borrow_mut();
        let lower = || node.pods.values().filter(|other| other.priority < pod.priority);
        let room = emptied.entry(pod.priority).or_insert_with(|| {
            lower().next().map(|_| {
                let mut room = node.room.clone();
                lower().for_each(|other| room.remove(other));
                room
            })
        });
        let fits = room
            .as_ref()
            .is_some_and(|room| plugin::fits_locally(profile, pod, node, room));
        match waits_for {
            None => fits,
            Some(_) => !fits || !lower().any(|other| default_preemption::is_leaving(other, self.cluster)),
        }
    }
}

#[cfg(test)]
mod tests;
