//! What happened in the cluster, as far as it may let a pod be placed that was refused: the queueing hints. Pure.
//!
//! A node's own plugins judge by the node alone, so only what happened on a node can let it take the pod, and whether it does now
//! is asked at once. Plugins that look around say by their own rules whether an event may change their mind.

pub mod label;

use super::cluster::NodeInfo;
use super::constraint;
use super::plugin::{self, Plugin, PluginSet};
use super::pod::PodInfo;
use super::profile::Profile;
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
    /// A pod got a node, is another, or left its node.
    Pod {
        /// What it was, if it was counted.
        before: Option<&'e PodInfo>,
        /// What it is, if it is counted.
        after: Option<&'e PodInfo>,
        /// Its node, if that is known.
        node: Option<&'e NodeInfo>,
    },
    /// A pod no longer waits for room that it was nominated for.
    Renounced(&'e NodeInfo),
    /// A namespace has other labels.
    Namespace,
}

impl Event<'_> {
    /// The node on which more may be possible than before.
    fn freed(&self) -> Option<&NodeInfo> {
        match self {
            Event::Node { after, .. } => *after,
            Event::Pod {
                before: Some(_), node, ..
            } => *node,
            Event::Renounced(node) => Some(node),
            Event::Pod { .. } | Event::Namespace => None,
        }
    }

    /// Plugins that may judge otherwise after it.
    pub fn concerns(&self) -> PluginSet {
        match self {
            // A pod more can only be wanted, by those who look around.
            Event::Pod { before: None, .. } | Event::Namespace => PluginSet::default()
                .with(Plugin::InterPodAffinity)
                .with(Plugin::PodTopologySpread),
            _ => Plugin::ALL.into_iter().fold(PluginSet::default(), PluginSet::with),
        }
    }
}

/// Whether a pod that these plugins refused on some node may be placed after the event.
pub fn may_help(profile: &Profile, pod: &PodInfo, refused: PluginSet, event: &Event<'_>) -> bool {
    if constraint::obstacle(pod).is_some() {
        return false;
    }
    let looks_around = refused.each().any(|plugin| plugin.may_help(pod, event));
    let here = || match event.freed() {
        Some(node) if node.present && (plugin::refused_locally(refused) || refused.is_empty()) => {
            plugin::fits_locally(profile, pod, node)
        }
        _ => false,
    };
    looks_around || here()
}

#[cfg(test)]
mod tests;
