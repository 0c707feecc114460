//! What of the machine's interfaces is this node's own. Pure.

use crate::plan::Own;
use crate::state::Family;
use client::ordered::CollectOrdered;
use netlink::address::Address;
use netlink::cidr::Cidr;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// `RT_SCOPE_UNIVERSE`: an address that counts everywhere.
pub(crate) const SCOPE_GLOBAL: u8 = 0;
/// `LOOPBACK_IFINDEX`: the index `lo` has in every namespace.
const LOOPBACK: u32 = 1;

/// The addresses no pod range may hold. One that is in the cluster's ranges counts only where somebody put it on purpose: on an
/// interface of the nodes' network (`underlays`) or on `lo`. Elsewhere it is what a range this node had before left behind, on a
/// bridge of pods, and that range may be another node's now.
pub(crate) fn addresses(found: &[Address], tunnels: &[u32], underlays: &[u32], cluster: &[Cidr]) -> BTreeSet<IpAddr> {
    let is_own = |address: &&Address| {
        let among_pods = cluster.iter().any(|cidr| cidr.contains(&address.cidr.addr));
        let on_purpose = address.index == LOOPBACK || underlays.contains(&address.index);
        address.scope == SCOPE_GLOBAL && !tunnels.contains(&address.index) && (!among_pods || on_purpose)
    };
    found
        .iter()
        .filter(is_own)
        .map(|address| address.cidr.addr)
        .collect_ordered()
}

/// By what a tunnel's packets go. What was found out of another way says nothing of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    device: u32,
    underlay: (IpAddr, u32),
    mtu: u32,
}

impl Way {
    /// Whether it leads through the device of this index.
    pub(crate) fn is_by(&self, device: u32) -> bool {
        self.device == device
    }

    /// The ways of the tunnels there are.
    pub(crate) fn all(own: &Own, devices: &BTreeMap<Family, u32>) -> BTreeMap<Family, Self> {
        let way = |(family, device): (&Family, &u32)| {
            let underlay = own.underlay.of(*family).as_ref()?;
            let way = Self {
                device: *device,
                underlay: (underlay.address, underlay.index),
                mtu: underlay.mtu,
            };
            Some((*family, way))
        };
        devices.iter().filter_map(way).collect_ordered()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_range_left_on_a_bridge_is_not_the_nodes() {
        let cluster = [Cidr::parse("10.244.0.0/16").unwrap()];
        let (eth0, bridge, tunnel) = (2, 3, 4);
        for (index, text, scope, expected) in [
            (eth0, "192.0.2.1/24", SCOPE_GLOBAL, true),
            (bridge, "198.51.100.1/24", SCOPE_GLOBAL, true),
            (bridge, "10.244.3.1/24", SCOPE_GLOBAL, false),
            (LOOPBACK, "10.244.90.7/32", SCOPE_GLOBAL, true),
            (eth0, "10.244.90.7/24", SCOPE_GLOBAL, true),
            (tunnel, "192.0.2.9/32", SCOPE_GLOBAL, false),
            (LOOPBACK, "127.0.0.1/8", 254, false),
        ] {
            let cidr = Cidr::parse(text).unwrap();
            let found = [Address {
                index,
                cidr,
                flags: 0,
                scope,
            }];
            let own = addresses(&found, &[tunnel], &[eth0], &cluster);
            assert_eq!(own.contains(&cidr.addr), expected, "{index} {text}");
        }
    }
}
