//! Node IPAM: a podCIDR for every node, cut from the cluster's range.
//!
//! Source: control-plane contract §12: /24 for IPv4, /64 for IPv6. All nodes are one key, so two never get the same block.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{self, EventText, PatchKind, Plan, Write, reference};
use client::Key;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The controller.
pub struct NodeIpam {
    /// The shared informers.
    pub informers: Informers,
    /// The ranges, one per address family.
    pub ranges: Vec<Range>,
}

/// An address range that blocks are cut from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    base: u128,
    bits: u32,
    prefix: u32,
    block: u32,
}

impl Range {
    /// Parses `address/prefix`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.trim().split_once('/')?;
        let prefix: u32 = prefix.parse().ok()?;
        let (base, bits, block) = match address.parse().ok()? {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32, 24),
            IpAddr::V6(v6) => (u128::from(v6), 128, 64),
        };
        if prefix > bits {
            return None;
        }
        let host = bits - prefix;
        let mask = if host >= 128 { 0 } else { u128::MAX << host };
        Some(Self {
            base: base & mask,
            bits,
            prefix,
            block: block.max(prefix),
        })
    }

    /// Parses a comma-separated list.
    pub fn parse_list(text: &str) -> Option<Vec<Self>> {
        text.split(',').map(Self::parse).collect()
    }

    fn blocks(&self) -> impl Iterator<Item = String> {
        // A million blocks are more than any cluster has nodes.
        let count = 1u128 << (self.block - self.prefix).min(20);
        let step = self.bits - self.block;
        let (base, bits, block) = (self.base, self.bits, self.block);
        (0..count).map(move |i| {
            let address = base + (i << step);
            let address = if bits == 32 {
                IpAddr::V4(u32::try_from(address).unwrap_or(u32::MAX).into())
            } else {
                IpAddr::V6(address.into())
            };
            format!("{address}/{block}")
        })
    }
}

impl Controller for NodeIpam {
    const NAME: &'static str = "node-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on(&self.informers.nodes, |change| {
            // What a node without a block says of itself changes nothing: its plan is made, or waits for a block.
            let has = |node: &Option<Arc<Node>>| node.as_ref().is_some_and(|node| !pod_cidrs(node).is_empty());
            let gives_back = has(&change.old) && !has(&change.new);
            let lacks = change.old.is_none() && !has(&change.new);
            (gives_back || lacks).then(Key::default).into_iter().collect()
        });
    }

    fn plan(&self, _key: &Key, _now: Timestamp) -> Plan {
        plan(&self.informers.nodes.list(), &self.ranges)
    }
}

fn pod_cidrs(node: &Node) -> Vec<&str> {
    let spec = node.spec.as_ref();
    let list = spec
        .and_then(|s| s.pod_cidrs.as_ref())
        .into_iter()
        .flatten()
        .map(String::as_str);
    let single = spec.and_then(|s| s.pod_cidr.as_deref()).filter(|c| !c.is_empty());
    let mut all: Vec<&str> = single.into_iter().chain(list).collect();
    all.dedup();
    all
}

/// A block of each range for every node without one.
pub fn plan(nodes: &[Arc<Node>], ranges: &[Range]) -> Plan {
    let used: BTreeSet<String> = nodes.iter().flat_map(|n| pod_cidrs(n)).map(str::to_owned).collect();
    let mut plan = Plan::default();
    if ranges.is_empty() {
        return plan;
    }
    // From one node to the next the search goes on: a block that was passed is in use.
    let mut free: Vec<_> = ranges.iter().map(Range::blocks).collect();
    for node in nodes
        .iter()
        .filter(|n| pod_cidrs(n).is_empty() && n.metadata.deletion_timestamp.is_none())
    {
        let next = |blocks: &mut _| Iterator::find(blocks, |block| !used.contains(block));
        let blocks: Option<Vec<String>> = free.iter_mut().map(next).collect();
        let Some(blocks) = blocks else {
            plan.events.push(EventText {
                regarding: reference(&write::NODES, &**node),
                kind: "Normal",
                reason: "CIDRNotAvailable",
                message: format!("Node {} status is now: CIDRNotAvailable", node.name_any()),
            });
            continue;
        };
        let body = json!({
            "metadata": {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version},
            "spec": {"podCIDR": blocks[0], "podCIDRs": blocks},
        });
        plan.writes
            .push(Write::patch(write::NODES, Key::of(&**node), PatchKind::Merge, body));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::Verb;

    fn node(name: &str, cidr: Option<&str>) -> Arc<Node> {
        let value = json!({"metadata": {"name": name}, "spec": {"podCIDR": cidr, "podCIDRs": cidr.map(|c| [c])}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn assigned(plan: &Plan) -> Vec<(String, String)> {
        let one = |w: &Write| {
            let Verb::Patch(_, _, body) = &w.verb else { panic!() };
            (w.key.name.clone(), body["spec"]["podCIDRs"].to_string())
        };
        plan.writes.iter().map(one).collect()
    }

    #[test]
    fn blocks_are_never_given_twice() {
        let ranges = Range::parse_list("10.244.0.0/16").unwrap();
        let nodes = [node("a", None), node("b", Some("10.244.0.0/24")), node("c", None)];
        let want = [("a", "[\"10.244.1.0/24\"]"), ("c", "[\"10.244.2.0/24\"]")];
        assert_eq!(
            assigned(&plan(&nodes, &ranges)),
            want.map(|(n, c)| (n.to_owned(), c.to_owned()))
        );
    }

    #[test]
    fn an_exhausted_range_is_told() {
        let ranges = Range::parse_list("10.0.0.0/23").unwrap();
        let nodes = [node("a", None), node("b", None), node("c", None)];
        let plan = plan(&nodes, &ranges);
        assert_eq!((plan.writes.len(), plan.events.len()), (2, 1));
        assert_eq!(plan.events[0].reason, "CIDRNotAvailable");
    }

    #[test]
    fn ranges() {
        let dual = Range::parse_list("10.1.2.3/16, fd00::/48").unwrap();
        let got = assigned(&plan(&[node("a", None)], &dual));
        assert_eq!(got[0].1, "[\"10.1.0.0/24\",\"fd00::/64\"]");
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert_eq!(Range::parse(bad), None, "{bad}");
        }
        assert_eq!(
            Range::parse("10.0.0.0/26").unwrap().blocks().collect::<Vec<_>>(),
            ["10.0.0.0/26"]
        );
    }
}
