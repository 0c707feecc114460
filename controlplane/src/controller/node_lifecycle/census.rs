//! How many nodes of each zone are ready, and which nodes are not. Pure.
//!
//! Kept by what changes, so that a node's readiness costs what it concerns: the nodes that are not ready, and no look at all others.

use super::disruption::{Rates, zone_of};
use super::is_ready;
use crate::held::Node;
use kube::ResourceExt;
use std::collections::BTreeMap;

/// Nodes with this label say nothing of their zone, whatever its value is.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

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
    /// Zones of nodes that are not ready, by the nodes' names.
    silent: BTreeMap<String, (String, String)>,
    ready: usize,
}

/// Whether the node counts in its zone.
fn counts(node: &Node) -> bool {
    !node.labels().contains_key(EXCLUDED)
}

impl Census {
    /// Takes in what a node was and what it is.
    pub fn change(&mut self, old: Option<&Node>, new: Option<&Node>) {
        if let Some(node) = old {
            self.silent.remove(&node.name_any());
        }
        if let Some(node) = old.filter(|node| counts(node)) {
            let is_ready = is_ready(node);
            self.ready -= usize::from(is_ready);
            let zone = zone_of(node);
            if let Some(count) = self.zones.get_mut(&zone) {
                *count.of(is_ready) -= 1;
                if *count == Count::default() {
                    self.zones.remove(&zone);
                }
            }
        }
        if let Some(node) = new.filter(|node| !is_ready(node)) {
            self.silent.insert(node.name_any(), zone_of(node));
        }
        if let Some(node) = new.filter(|node| counts(node)) {
            let is_ready = is_ready(node);
            self.ready += usize::from(is_ready);
            *self.zones.entry(zone_of(node)).or_default().of(is_ready) += 1;
        }
    }

    /// Whether any node is ready; where none counts, nothing says that all are down.
    pub fn has_ready(&self) -> bool {
        self.ready > 0 || (self.zones.is_empty() && !self.silent.is_empty())
    }

    /// As [`Census::change`]; gives the names of nodes that are not ready and whose pace is another one by it.
    pub fn change_and_wake(&mut self, old: Option<&Node>, new: Option<&Node>, rates: &Rates) -> Vec<String> {
        let zones: Vec<_> = old.into_iter().chain(new).map(zone_of).collect();
        let pace = |census: &Self| -> Vec<_> {
            let interval = |zone| rates.interval(census.has_ready(), census.zone(zone));
            zones.iter().map(interval).collect()
        };
        let (had_ready, before) = (self.has_ready(), pace(self));
        self.change(old, new);
        let is_any_other = had_ready != self.has_ready();
        let after = pace(self);
        let changed = zones.iter().zip(before.iter().zip(&after));
        let changed: Vec<_> = changed.filter(|(_, (before, after))| before != after).collect();
        let is_concerned = |zone: &(String, String)| is_any_other || changed.iter().any(|(other, _)| *other == zone);
        let concerned = self.silent.iter().filter(|(_, zone)| is_concerned(zone));
        concerned.map(|(name, _)| name.clone()).collect()
    }

    /// Whether there is a node of that zone.
    pub fn has_zone(&self, zone: &(String, String)) -> bool {
        self.zones.contains_key(zone) || self.silent.values().any(|of_silent| of_silent == zone)
    }

    /// How many nodes of a zone there are, but for those that do not count.
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
        assert_eq!(census.silent.keys().collect::<Vec<_>>(), ["n"]);
        census.change(Some(&down), Some(&moved));
        assert_eq!(census.zone(&zone("b")), Count { ready: 0, silent: 1 });
        census.change(Some(&moved), None);
        census.change(Some(&node("m", "a", "True")), None);
        assert!(!census.has_ready() && census.silent.is_empty() && census.zones.is_empty());
    }

    #[test]
    fn nodes_that_are_excluded_say_nothing_of_their_zone() {
        let node = |name: &str, status: &str, labels: serde_json::Value| -> Node {
            let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
            serde_json::from_value(node).unwrap()
        };
        let (zone, excluded) = ((String::new(), String::new()), json!({EXCLUDED: "false"}));
        let mut census = Census::default();
        census.change(None, Some(&node("up", "True", excluded.clone())));
        assert!(!census.has_ready() && !census.has_zone(&zone));
        let down = node("down", "Unknown", excluded.clone());
        census.change(None, Some(&down));
        assert_eq!(
            census.silent.keys().collect::<Vec<_>>(),
            ["down"],
            "it is woken all the same"
        );
        assert!(census.has_zone(&zone), "and has its turn");
        assert_eq!(census.zone(&zone), Count::default());
        assert!(census.has_ready(), "nobody says that all are down");
        let lost = node("lost", "Unknown", json!({}));
        census.change(None, Some(&lost));
        assert!(!census.has_ready(), "now somebody does");
        census.change(Some(&lost), None);
        // The label comes and goes.
        let plain = node("up", "True", json!({}));
        census.change(Some(&node("up", "True", excluded.clone())), Some(&plain));
        assert!(census.has_ready());
        assert_eq!(census.zone(&zone), Count { ready: 1, silent: 0 });
        census.change(Some(&plain), Some(&node("up", "True", excluded)));
        census.change(Some(&down), None);
        assert!(!census.has_ready() && census.zones.is_empty());
    }

    #[test]
    fn a_nodes_readiness_concerns_those_whose_pace_it_changes() {
        let node = |name: &str, zone: &str, status: &str| -> Node {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
            serde_json::from_value(node).unwrap()
        };
        let (rates, mut census) = (Rates::default(), Census::default());
        let mut turn = |name: &str, zone: &str, old: Option<&str>, new: Option<&str>| {
            let (old, new) = (old.map(|s| node(name, zone, s)), new.map(|s| node(name, zone, s)));
            census.change_and_wake(old.as_ref(), new.as_ref(), &rates)
        };
        turn("far", "b", None, Some("False"));
        for name in ["1", "2", "3", "4"] {
            let woken = turn(name, "a", None, Some("True"));
            assert_eq!(
                woken,
                if name == "1" { vec!["far"] } else { vec![] },
                "the first one that is ready at all"
            );
        }
        let (up, down) = (Some("True"), Some("Unknown"));
        assert_eq!(turn("1", "a", up, down), [""; 0]);
        assert_eq!(turn("2", "a", up, down), [""; 0], "two are not too many");
        assert_eq!(turn("3", "a", up, down), ["1", "2", "3"], "and of its zone alone");
        assert_eq!(turn("3", "a", down, down), [""; 0]);
        assert_eq!(
            turn("4", "a", up, down),
            ["1", "2", "3", "4", "far"],
            "the last one that was ready"
        );
    }
}
