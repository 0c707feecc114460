//! Which bridge our network is on.
//!
//! The bridge plugin refuses a bridge that carries another gateway, and taking that gateway away would cut off the pods
//! behind it. So when the node's range changed, or somebody else's bridge has the name, the network moves to the next
//! bridge: old pods keep theirs until they end. Never changes an interface.

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Bridges are called this and a digit.
const PREFIX: &str = "cni";
/// The conflist's key for what the network was before; runtimes do not read it, those who clean up do.
const FORMERLY: &str = "formerly";
/// Former networks remembered.
const FORMERLY_MAX: usize = 16;

/// An address and the length of its network's prefix.
pub(super) type Net = (IpAddr, u32);

/// A range or an address with its prefix, as text.
pub(super) fn parse(text: &str) -> Option<Net> {
    let (addr, bits) = text.split_once('/')?;
    Some((addr.parse().ok()?, bits.parse().ok()?))
}

/// Whether an address is in a range.
pub(super) fn is_in(addr: &IpAddr, (network, bits): &Net) -> bool {
    let shared = match (addr, network) {
        (IpAddr::V4(addr), IpAddr::V4(network)) => (addr.to_bits() ^ network.to_bits()).leading_zeros(),
        (IpAddr::V6(addr), IpAddr::V6(network)) => (addr.to_bits() ^ network.to_bits()).leading_zeros(),
        _ => return false,
    };
    shared >= *bits
}

/// The gateway of a range: its first address.
fn gateway((network, bits): Net) -> Net {
    let first = match network {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            IpAddr::V4(((addr.to_bits() & mask) | 1).into())
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            IpAddr::V6(((addr.to_bits() & mask) | 1).into())
        }
    };
    (first, bits)
}

/// Whether a bridge with `present` refuses `wanted`: any other IPv4 address, an overlapping IPv6 one.
fn refuses(present: &[Net], wanted: &Net) -> bool {
    let overlaps = |a: &Net, b: &Net| is_in(&a.0, b) || is_in(&b.0, a);
    !present.contains(wanted)
        && present
            .iter()
            .any(|have| have.0.is_ipv4() == wanted.0.is_ipv4() && (wanted.0.is_ipv4() || overlaps(have, wanted)))
}

/// The bridge for these ranges, given the addresses of the host's interfaces: the one that has their gateway, else the
/// first that would take it. Pure.
pub(super) fn choose(present: &BTreeMap<String, Vec<Net>>, ranges: &[Net]) -> String {
    let wanted: Vec<Net> = ranges.iter().copied().map(gateway).collect();
    let none = Vec::new();
    let of = |name: &String| present.get(name).unwrap_or(&none);
    let names: Vec<String> = (0..10).map(|n| format!("{PREFIX}{n}")).collect();
    let takes = |name: &&String| !wanted.iter().any(|gateway| refuses(of(name), gateway));
    let has = |name: &&String| wanted.iter().any(|gateway| of(name).contains(gateway));
    let candidates: Vec<&String> = names.iter().filter(takes).collect();
    let found = candidates.iter().copied().find(|name| has(name));
    let chosen = found.or(candidates.first().copied()).unwrap_or(&names[0]);
    chosen.clone()
}

/// The addresses of the host's interfaces, those of a link alone left out.
pub(super) fn present() -> BTreeMap<String, Vec<Net>> {
    let mut found: BTreeMap<String, Vec<Net>> = BTreeMap::new();
    let all = getifaddrs().into_iter().flatten();
    for interface in all {
        let address = interface.address.as_ref().and_then(ip);
        let mask = interface.netmask.as_ref().and_then(ip);
        let (Some(address), Some(mask)) = (address, mask) else {
            continue;
        };
        let (is_local, bits) = match (address, mask) {
            (IpAddr::V4(address), IpAddr::V4(mask)) => (address.is_link_local(), mask.to_bits().count_ones()),
            (IpAddr::V6(address), IpAddr::V6(mask)) => (address.is_unicast_link_local(), mask.to_bits().count_ones()),
            _ => continue,
        };
        if !is_local {
            found.entry(interface.interface_name).or_default().push((address, bits));
        }
    }
    found
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

/// Notes in a new conflist on which bridges and ranges the network was before, as the old one tells.
pub(super) fn remember(new: &mut Value, old: &Value) {
    let now = places(new);
    let earlier = old[FORMERLY].as_array().cloned().unwrap_or_default();
    let mut formerly: Vec<Value> = Vec::new();
    for place in places(old).into_iter().chain(earlier) {
        if !now.contains(&place) && !formerly.contains(&place) && formerly.len() < FORMERLY_MAX {
            formerly.push(place);
        }
    }
    if !formerly.is_empty() {
        new[FORMERLY] = Value::Array(formerly);
    }
}

/// The ranges addresses of a conflist are given from. Former ones are not among them: they may be another node's by now.
pub(super) fn ranges(list: &Value) -> Vec<Net> {
    let places = places(list).into_iter();
    places.filter_map(|place| parse(place["subnet"].as_str()?)).collect()
}

/// The bridge and range of each range of a conflist.
fn places(list: &Value) -> Vec<Value> {
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut places = Vec::new();
    for plugin in each(&list["plugins"]) {
        for range in each(&plugin["ipam"]["ranges"]).iter().flat_map(each) {
            places.push(json!({ "bridge": plugin["bridge"], "subnet": range["subnet"] }));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and their addresses.
    type Interfaces<'t> = &'t [(&'t str, &'t [&'t str])];

    fn nets(texts: &[&str]) -> Vec<Net> {
        texts.iter().map(|text| parse(text).expect("a network")).collect()
    }

    #[test]
    fn the_bridge_that_has_the_gateway_else_the_first_that_takes_it() {
        let cases: &[(Interfaces, &[&str], &str)] = &[
            (&[], &["10.1.0.0/24"], "cni0"),
            (&[("cni0", &["10.1.0.1/24"])], &["10.1.0.0/24"], "cni0"),
            (&[("cni0", &["10.1.0.1/24"])], &["10.2.0.0/24"], "cni1"),
            (&[("cni0", &["10.1.0.1/16"])], &["10.1.0.0/24"], "cni1"),
            (
                &[("cni0", &["10.1.0.1/24"]), ("cni1", &["10.2.0.1/24"])],
                &["10.3.0.0/24"],
                "cni2",
            ),
            (&[("cni1", &["10.2.0.1/24"])], &["10.2.0.0/24"], "cni1"),
            (&[("cni0", &["fd00::1/64"])], &["fd01::/64"], "cni0"),
            (&[("cni0", &["fd00::1/48"])], &["fd00::/64"], "cni1"),
            (
                &[("cni0", &["10.1.0.1/24", "fd00::1/64"])],
                &["10.1.0.0/24", "fd00::/64"],
                "cni0",
            ),
            (
                &[("cni0", &["10.1.0.1/24", "fd00::1/64"])],
                &["10.2.0.0/24", "fd00::/64"],
                "cni1",
            ),
        ];
        for (present, ranges, expected) in cases {
            let present = present
                .iter()
                .map(|(name, texts)| ((*name).to_owned(), nets(texts)))
                .collect();
            assert_eq!(choose(&present, &nets(ranges)), *expected, "{present:?} {ranges:?}");
        }
    }

    #[test]
    fn a_range_is_what_its_prefix_says() {
        let ranges = nets(&["10.1.2.0/23", "fd00::/64", "0.0.0.0/0"]);
        let is = |addr: &str, range: usize| is_in(&addr.parse().expect("an address"), &ranges[range]);
        assert!(is("10.1.3.255", 0) && !is("10.1.4.0", 0) && !is("fd00::1", 0));
        assert!(is("fd00::1", 1) && is("192.0.2.1", 2));
        assert_eq!(gateway(nets(&["10.1.3.7/23"])[0]), nets(&["10.1.2.1/23"])[0]);
    }

    #[test]
    fn the_hosts_own_addresses_are_seen() {
        let loopback = nets(&["127.0.0.1/8"])[0];
        assert!(present().get("lo").is_some_and(|nets| nets.contains(&loopback)));
    }

    #[test]
    fn what_the_network_was_is_remembered_once() {
        let list = |bridge: &str, subnet: &str| json!({"plugins": [{"type": "bridge", "bridge": bridge, "ipam": {"ranges": [[{"subnet": subnet}]]}}]});
        let mut second = list("cni1", "10.2.0.0/24");
        remember(&mut second, &list("cni0", "10.1.0.0/24"));
        assert_eq!(second["formerly"], json!([{"bridge": "cni0", "subnet": "10.1.0.0/24"}]));
        assert_eq!(ranges(&second), nets(&["10.2.0.0/24"]));
        let mut back = list("cni0", "10.1.0.0/24");
        remember(&mut back, &second);
        assert_eq!(back["formerly"], json!([{"bridge": "cni1", "subnet": "10.2.0.0/24"}]));
        let mut same = list("cni0", "10.1.0.0/24");
        remember(&mut same, &list("cni0", "10.1.0.0/24"));
        assert_eq!(same.get("formerly"), None);
    }
}
