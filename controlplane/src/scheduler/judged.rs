//! What plugins that ask one node alone said of it, for pods that are alike: it is said again while the node is as it was. Pure.
//!
//! Equal pods come one after the other, and a cycle changes one node, so the last cycle has answered nearly all that the next asks.
//! Upstream's opportunistic batching (KEP-5598) goes by that for half a second, and where each node takes one pod: the next best of the
//! last order is tried first. Here an answer holds for as long as the node is what it was given for ([`Cluster::change`]), whoever
//! changed it, and nothing else is remembered: which nodes are looked at, who waits for room on them, spread and affinity between pods,
//! what is normalised over the nodes found, and ties are each cycle's own. So a cycle ends as it would without memory.
//!
//! [`Cluster::change`]: super::cluster::Cluster::change

use super::plugin::node_declared_features::Features;
use super::pod::{Amounts, HostPort, PodInfo};
use super::profile::Profile;
use k8s_openapi::api::core::v1::{NodeAffinity, Toleration};
use std::collections::BTreeMap;

/// Kinds of pods that are remembered: 48 bytes for each of them and node.
const KINDS_MAX: usize = 8;

/// All that plugins which ask one node alone ask of a pod and are told. Who gives one of them another field to read adds it here.
#[derive(Debug, PartialEq)]
struct Signature {
    profile: Profile,
    requests: Amounts,
    assumed: (i64, i64),
    ports: Vec<HostPort>,
    images: Vec<String>,
    features: Features,
    node: String,
    tolerations: Vec<Toleration>,
    node_selector: Option<BTreeMap<String, String>>,
    node_affinity: Option<NodeAffinity>,
}

fn node_selector(pod: &PodInfo) -> Option<&BTreeMap<String, String>> {
    pod.spec()?.node_selector.as_ref()
}

fn node_affinity(pod: &PodInfo) -> Option<&NodeAffinity> {
    pod.spec()?.affinity.as_ref()?.node_affinity.as_ref()
}

impl Signature {
    fn of(pod: &PodInfo, profile: &Profile) -> Self {
        Self {
            profile: profile.clone(),
            requests: pod.requests.clone(),
            assumed: pod.assumed,
            ports: pod.ports.clone(),
            images: pod.images.clone(),
            features: pod.features,
            node: pod.node().to_owned(),
            tolerations: pod.tolerations().to_vec(),
            node_selector: node_selector(pod).cloned(),
            node_affinity: node_affinity(pod).cloned(),
        }
    }

    /// Whether it is this pod's.
    fn is_of(&self, pod: &PodInfo, profile: &Profile) -> bool {
        self.requests == pod.requests
            && self.assumed == pod.assumed
            && self.ports == pod.ports
            && self.images == pod.images
            && self.features == pod.features
            && self.node == pod.node()
            && self.tolerations == pod.tolerations()
            && self.node_selector.as_ref() == node_selector(pod)
            && self.node_affinity.as_ref() == node_affinity(pod)
            && self.profile == *profile
    }
}

/// Scores of one node by plugins that ask it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scores {
    /// Of those that need no other node's: weighted, added up.
    pub sum: i64,
    /// TaintToleration, yet to be normalised.
    pub taints: i64,
    /// NodeAffinity, yet to be normalised.
    pub affinity: i64,
}

/// What was said of one node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verdict {
    /// The node's number of change that it was said for; the first is 1.
    change: u64,
    /// Whether filters let the pod in.
    pub fits: Option<bool>,
    /// What scores there are, if it was scored.
    pub scores: Option<Scores>,
}

/// What was said of nodes for one kind of pods.
#[derive(Debug)]
pub struct Judged {
    signature: Signature,
    /// Images of the pod with the share of nodes that have them: scores go by them.
    images: Vec<(String, f64)>,
    /// By slot of the node.
    verdicts: Vec<Verdict>,
}

impl Judged {
    /// What was said of the node since that change of it; it says nothing yet if nobody was asked.
    pub fn of(&mut self, slot: usize, change: u64) -> &mut Verdict {
        if self.verdicts.len() <= slot {
            self.verdicts.resize(slot + 1, Verdict::default());
        }
        let verdict = &mut self.verdicts[slot];
        if verdict.change != change {
            *verdict = Verdict {
                change,
                ..Verdict::default()
            };
        }
        verdict
    }

    /// What the node was scored in this cycle.
    pub fn scored(&self, slot: usize) -> Scores {
        let verdict = self.verdicts.get(slot);
        verdict.and_then(|verdict| verdict.scores).unwrap_or_default()
    }

    /// Forgets scores, if they were given by other shares of images.
    pub fn score_by(&mut self, images: &[(String, f64)]) {
        if self.images != images {
            self.images = images.to_vec();
            self.verdicts.iter_mut().for_each(|verdict| verdict.scores = None);
        }
    }
}

/// The kinds of pods that are remembered, the last first.
#[derive(Debug, Default)]
pub struct Memory(Vec<Judged>);

impl Memory {
    /// What was said for pods like this one; put it back with [`Memory::keep`].
    pub fn take(&mut self, pod: &PodInfo, profile: &Profile) -> Judged {
        if let Some(at) = self.0.iter().position(|judged| judged.signature.is_of(pod, profile)) {
            return self.0.remove(at);
        }
        // The one that was asked for longest ago goes, and leaves its room.
        let oldest = (self.0.len() >= KINDS_MAX).then(|| self.0.pop()).flatten();
        let mut verdicts = oldest.map(|oldest| oldest.verdicts).unwrap_or_default();
        verdicts.clear();
        Judged {
            signature: Signature::of(pod, profile),
            images: Vec::new(),
            verdicts,
        }
    }

    /// Remembers what was said.
    pub fn keep(&mut self, judged: Judged) {
        self.0.insert(0, judged);
    }

    /// Forgets everything.
    #[cfg(test)]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests;
