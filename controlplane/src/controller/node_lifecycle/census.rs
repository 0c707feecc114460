//! How many nodes of each zone are ready, and which nodes are not. Pure.
//!
//! Kept by what changes, so that a node's readiness costs what it concerns: the nodes that are not ready, and no look at all others.

use super::disruption::zone_of;
use super::is_ready;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

/// Ready nodes and others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Ready ones.
    pub ready: usize,
    /// All others.
    pub silent: usize,
}

impl Count {
    fn of(&mut self, is_ready: bool) -> &mut usize {
        match is_ready {
            true => &mut self.ready,
            false => &mut self.silent,
        }
    }
}

/// The nodes there are.
#[derive(Debug, Default)]
pub struct Census {
    zones: BTreeMap<(String, String), Count>,
    silent: BTreeSet<String>,
    ready: usize,
}

impl Census {
    /// Takes in what a node was and what it is.
    pub fn change(&mut self, old: Option<&Node>, new: Option<&Node>) {
        if let Some(node) = old {
            let is_ready = is_ready(node);
            self.ready -= usize::from(is_ready);
            self.silent.remove(&node.name_any());
            let zone = zone_of(node);
            if let Some(count) = self.zones.get_mut(&zone) {
                *count.of(is_ready) -= 1;
                if *count == Count::default() {
                    self.zones.remove(&zone);
                }
            }
        }
        if let Some(node) = new {
            let is_ready = is_ready(node);
            self.ready += usize::from(is_ready);
            if !is_ready {
                self.silent.insert(node.name_any());
            }
            *self.zones.entry(zone_of(node)).or_default().of(is_ready) += 1;
        }
    }

    /// Whether any node is ready.
    pub fn has_ready(&self) -> bool {
        self.ready > 0
    }

    /// Names of nodes that are not ready.
    pub fn silent(&self) -> impl Iterator<Item = &str> {
        self.silent.iter().map(String::as_str)
    }

    /// How many nodes of a zone there are.
    pub fn zone(&self, zone: &(String, String)) -> Count {
        self.zones.get(zone).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_follow_every_change() {
        let node = |name: &str, zone: &str, status: &str| -> Node {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
            serde_json::from_value(node).unwrap()
        };
        let mut census = Census::default();
        let (up, down, moved) = (
            node("n", "a", "True"),
            node("n", "a", "Unknown"),
            node("n", "b", "Unknown"),
        );
        let zone = |name: &str| (String::new(), name.to_owned());
        census.change(None, Some(&up));
        census.change(None, Some(&node("m", "a", "True")));
        assert_eq!(census.zone(&zone("a")), Count { ready: 2, silent: 0 });
        census.change(Some(&up), Some(&down));
        assert_eq!(census.zone(&zone("a")), Count { ready: 1, silent: 1 });
        assert_eq!(census.silent().collect::<Vec<_>>(), ["n"]);
        census.change(Some(&down), Some(&moved));
        assert_eq!(census.zone(&zone("b")), Count { ready: 0, silent: 1 });
        census.change(Some(&moved), None);
        census.change(Some(&node("m", "a", "True")), None);
        assert!(!census.has_ready() && census.silent().next().is_none() && census.zones.is_empty());
    }
}
