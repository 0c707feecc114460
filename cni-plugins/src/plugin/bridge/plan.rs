//! What the addresses of a result mean for a bridge (contract §2.2, step 7). Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::config::Config;
use crate::protocol::result::{CniResult, Route};
use netlink::cidr::{self, Cidr};

/// Position of the container's interface in the result.
const CONTAINER: i64 = 2;

/// Points every address to the container's interface and fills in gateways and default routes. Returns the addresses the
/// bridge has to carry.
pub fn complete(result: &mut CniResult, config: &Config) -> Vec<Cidr> {
    let mut gateways = Vec::new();
    let mut default_done = [false, false];
    for ip in &mut result.ips {
        ip.interface = Some(CONTAINER);
        if config.is_gateway && ip.gateway.is_none() {
            ip.gateway = Some(cidr::next(&ip.address.network().addr));
        }
        let family = usize::from(ip.address.is_v4());
        if config.is_default_gateway && !default_done[family] {
            default_done[family] = true;
            let everything = default_network(ip.address.is_v4());
            if !result.routes.iter().any(|route| route.dst == everything) {
                result.routes.push(Route::new(everything, ip.gateway));
            }
        }
        if let (true, Some(gateway)) = (config.is_gateway, ip.gateway) {
            gateways.push(Cidr {
                addr: gateway,
                prefix: ip.address.prefix,
            });
        }
    }
    gateways
}

fn default_network(v4: bool) -> Cidr {
    let addr: IpAddr = if v4 {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    Cidr { addr, prefix: 0 }
}

/// What to do about an address the bridge should carry, given those it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressAction {
    /// It is there.
    Nothing,
    /// Add it.
    Add,
    /// Another one is in the way.
    Conflict(Cidr),
}

/// Another IPv4 address is always in the way, another IPv6 address only if the networks overlap.
pub fn bridge_address(present: &[Cidr], wanted: Cidr) -> AddressAction {
    if present.contains(&wanted) {
        return AddressAction::Nothing;
    }
    let in_the_way = |cidr: &&Cidr| cidr.is_v4() == wanted.is_v4() && (wanted.is_v4() || cidr.overlaps(&wanted));
    match present.iter().find(in_the_way) {
        Some(other) => AddressAction::Conflict(*other),
        None => AddressAction::Add,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::result::IpConfig;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).unwrap()
    }

    fn result(ips: &[&str], routes: &[(&str, Option<&str>)]) -> CniResult {
        CniResult {
            ips: ips
                .iter()
                .map(|ip| IpConfig {
                    interface: None,
                    address: cidr(ip),
                    gateway: None,
                })
                .collect(),
            routes: routes
                .iter()
                .map(|(dst, gw)| Route::new(cidr(dst), gw.map(|gw| gw.parse().unwrap())))
                .collect(),
            ..CniResult::default()
        }
    }

    #[test]
    fn gateways_and_default_routes_per_family() {
        let config = Config {
            is_gateway: true,
            is_default_gateway: true,
            ..Config::default()
        };
        let mut dual = result(&["10.1.2.9/24", "10.1.3.9/24", "fd00::9/64"], &[]);
        let gateways: Vec<String> = complete(&mut dual, &config).iter().map(ToString::to_string).collect();
        assert_eq!(gateways, ["10.1.2.1/24", "10.1.3.1/24", "fd00::1/64"]);
        let routes: Vec<String> = dual
            .routes
            .iter()
            .map(|route| format!("{} {}", route.dst, route.gw.unwrap()))
            .collect();
        assert_eq!(routes, ["0.0.0.0/0 10.1.2.1", "::/0 fd00::1"]);
        assert!(dual.ips.iter().all(|ip| ip.interface == Some(2)));
    }

    #[test]
    fn an_existing_default_route_stays_alone() {
        let config = Config {
            is_gateway: true,
            is_default_gateway: true,
            ..Config::default()
        };
        let mut one = result(&["10.1.2.9/24"], &[("0.0.0.0/0", None)]);
        complete(&mut one, &config);
        assert_eq!(one.routes.len(), 1);
        let mut none = result(&["10.1.2.9/24"], &[]);
        assert!(complete(&mut none, &Config::default()).is_empty());
        assert_eq!((none.ips[0].gateway, none.routes.len()), (None, 0));
    }

    #[test]
    fn addresses_in_the_way() {
        let check = |present: &[&str], wanted: &str| {
            let present: Vec<Cidr> = present.iter().map(|text| cidr(text)).collect();
            bridge_address(&present, cidr(wanted))
        };
        assert_eq!(check(&[], "10.0.0.1/24"), AddressAction::Add);
        assert_eq!(check(&["10.0.0.1/24"], "10.0.0.1/24"), AddressAction::Nothing);
        assert_eq!(
            check(&["10.0.0.1/16"], "10.0.0.1/24"),
            AddressAction::Conflict(cidr("10.0.0.1/16"))
        );
        assert_eq!(
            check(&["10.9.0.1/24"], "10.0.0.1/24"),
            AddressAction::Conflict(cidr("10.9.0.1/24"))
        );
        assert_eq!(check(&["fd01::1/64"], "fd00::1/64"), AddressAction::Add);
        assert_eq!(
            check(&["fd00::2/64"], "fd00::1/64"),
            AddressAction::Conflict(cidr("fd00::2/64"))
        );
        assert_eq!(check(&["10.0.0.1/24"], "fd00::1/64"), AddressAction::Add);
    }
}
