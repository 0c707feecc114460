//! Node IPAM: a podCIDR for every node, cut from the cluster's range, and one of each family where the cluster has both.
//!
//! Source: control-plane contract §12: /24 for IPv4, /64 for IPv6. All nodes are one key, so two never get the same block, nor blocks
//! that overlap: nodes keep those of another size that they were given before.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{self, EventText, PatchKind, Plan, Write, reference};
use crate::held::Node;
use client::Key;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
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

/// Prefix lengths of nodes' blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Of IPv4: 1 to 32.
    pub v4: u32,
    /// Of IPv6: 1 to 128.
    pub v6: u32,
}

impl Default for BlockSizes {
    /// Upstream's.
    fn default() -> Self {
        Self { v4: 24, v6: 64 }
    }
}

impl Range {
    /// Parses `address/prefix`, to be cut into blocks of these sizes; a range that is smaller than one is a block itself.
    pub fn parse(text: &str, sizes: BlockSizes) -> Option<Self> {
        let (address, prefix) = text.trim().split_once('/')?;
        let prefix: u32 = prefix.parse().ok()?;
        let (base, bits, block) = match address.parse().ok()? {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32, sizes.v4),
            IpAddr::V6(v6) => (u128::from(v6), 128, sizes.v6),
        };
        if prefix > bits || block == 0 || block > bits {
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
    pub fn parse_list(text: &str, sizes: BlockSizes) -> Option<Vec<Self>> {
        text.split(',').map(|text| Self::parse(text, sizes)).collect()
    }

    /// The first address and the last.
    fn ends(&self) -> (u128, u128) {
        let host = self.bits - self.prefix;
        let others = if host >= 128 { u128::MAX } else { (1 << host) - 1 };
        (self.base, self.base | others)
    }

    /// The blocks that share no address with `used`, the lowest first.
    fn free(&self, used: &[Self]) -> impl Iterator<Item = String> + use<> {
        let same = used.iter().filter(|other| other.bits == self.bits);
        let mut used: Vec<(u128, u128)> = same.map(Self::ends).collect();
        used.sort_unstable();
        // A million blocks are more than any cluster has nodes.
        let count = 1u128 << (self.block - self.prefix).min(20);
        let step = self.bits - self.block;
        let (base, bits, block) = (self.base, self.bits, self.block);
        // What ends below a block ends below all that come; the furthest end counts, for used ranges may lie within each other.
        let (mut next, mut furthest) = (0, None);
        (0..count).filter_map(move |i| {
            let address = base + (i << step);
            let last = address + ((1u128 << step) - 1);
            while let Some((_, end)) = used.get(next).filter(|(start, _)| *start <= last) {
                furthest = furthest.max(Some(*end));
                next += 1;
            }
            if furthest.is_some_and(|end| end >= address) {
                return None;
            }
            let address = if bits == 32 {
                IpAddr::V4(u32::try_from(address).ok()?.into())
            } else {
                IpAddr::V6(address.into())
            };
            Some(format!("{address}/{block}"))
        })
    }
}

impl Controller for NodeIpam {
    const NAME: &'static str = "node-controller";
    /// One node that nobody may write keeps no other from its block.
    const EACH_ALONE: bool = true;

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
    // How they are cut has no meaning here.
    let range = |text| Range::parse(text, BlockSizes::default());
    let used: Vec<Range> = nodes.iter().flat_map(|n| pod_cidrs(n)).filter_map(range).collect();
    let mut plan = Plan::default();
    if ranges.is_empty() {
        return plan;
    }
    // From one node to the next the search goes on: a block that was passed is in use.
    let mut free: Vec<_> = ranges.iter().map(|range| range.free(&used)).collect();
    for node in nodes
        .iter()
        .filter(|n| pod_cidrs(n).is_empty() && n.metadata.deletion_timestamp.is_none())
    {
        let blocks: Option<Vec<String>> = free.iter_mut().map(Iterator::next).collect();
        let told = |reason: &'static str| EventText {
            regarding: reference(&write::NODES, &**node),
            kind: "Normal",
            reason,
            message: format!("Node {} status is now: {reason}", node.name_any()),
        };
        let Some(blocks) = blocks else {
            plan.events.push(told("CIDRNotAvailable"));
            continue;
        };
        let body = json!({
            "metadata": {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version},
            "spec": {"podCIDR": blocks[0], "podCIDRs": blocks},
        });
        let write = Write::patch(write::NODES, Key::of(&**node), PatchKind::Merge, body);
        plan.writes.push(write.failure(told("CIDRAssignmentFailed")));
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
        let ranges = Range::parse_list("10.244.0.0/16", BlockSizes::default()).unwrap();
        let nodes = [node("a", None), node("b", Some("10.244.0.0/24")), node("c", None)];
        let want = [("a", "[\"10.244.1.0/24\"]"), ("c", "[\"10.244.2.0/24\"]")];
        assert_eq!(
            assigned(&plan(&nodes, &ranges)),
            want.map(|(n, c)| (n.to_owned(), c.to_owned()))
        );
    }

    #[test]
    fn an_exhausted_range_is_told() {
        let ranges = Range::parse_list("10.0.0.0/23", BlockSizes::default()).unwrap();
        let nodes = [node("a", None), node("b", None), node("c", None)];
        let plan = plan(&nodes, &ranges);
        assert_eq!((plan.writes.len(), plan.events.len()), (2, 1));
        assert_eq!(plan.events[0].reason, "CIDRNotAvailable");
    }

    #[test]
    fn ranges() {
        let dual = Range::parse_list("10.1.2.3/16, fd00::/48", BlockSizes::default()).unwrap();
        let got = assigned(&plan(&[node("a", None)], &dual));
        assert_eq!(got[0].1, "[\"10.1.0.0/24\",\"fd00::/64\"]");
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert_eq!(Range::parse(bad, BlockSizes::default()), None, "{bad}");
        }
        let small = Range::parse("10.0.0.0/26", BlockSizes::default()).unwrap();
        assert_eq!(small.free(&[]).collect::<Vec<_>>(), ["10.0.0.0/26"]);
    }

    #[test]
    fn blocks_of_another_size_do_not_overlap_those_there_are() {
        let sizes = BlockSizes { v4: 26, v6: 60 };
        let ranges = Range::parse_list("10.244.0.0/23,fd00::/58", sizes).unwrap();
        // Given when blocks were others; one of another cluster's range, one within another, one written in another way.
        let has = [
            "10.244.0.0/25",
            "10.244.0.128/27",
            "10.0.0.0/8",
            "10.244.1.0/24",
            "10.244.1.64/26",
            "fd00:0:0:10::/64",
        ];
        let mut nodes: Vec<_> = has.iter().map(|cidr| node(cidr, Some(cidr))).collect();
        nodes.push(node("new", None));
        assert_eq!(assigned(&plan(&nodes, &ranges)), []);
        nodes.remove(2);
        assert_eq!(
            assigned(&plan(&nodes, &ranges)),
            [("new".to_owned(), "[\"10.244.0.192/26\",\"fd00::/60\"]".to_owned())]
        );
        nodes.push(node("newer", None));
        let plan = plan(&nodes, &ranges);
        assert_eq!((plan.writes.len(), plan.events.len()), (1, 1), "IPv4 is used up");
        for bad in [BlockSizes { v4: 33, v6: 64 }, BlockSizes { v4: 0, v6: 64 }] {
            assert_eq!(Range::parse("10.0.0.0/8", bad), None, "{bad:?}");
        }
    }
}
