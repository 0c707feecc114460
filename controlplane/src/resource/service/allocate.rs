//! Giving Services their addresses and node ports. Which are taken is the caller's knowledge, and so is that two callers
//! do not choose at once. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::pair_addresses;
use crate::resource::field::{at, default_text, default_to, int, list, list_mut, set, text};
use crate::resource::field_error::FieldError;

/// A range of Service addresses: a CIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    base: IpAddr,
    prefix: u8,
}

/// Why no address can be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The text is not a CIDR.
    #[error("{0} is not a CIDR")]
    NotCidr(String),
    /// Every address of the range is taken.
    #[error("range is full")]
    Full,
    /// The address asked for is not in the range.
    #[error("the provided IP ({0}) is not in the valid range")]
    OutOfRange(IpAddr),
    /// The address asked for is taken.
    #[error("provided IP is already allocated")]
    Taken(IpAddr),
}

impl AllocateError {
    /// The error as a client of the API sees it (422 on `spec.clusterIPs`).
    pub fn field_error(&self, service: &Value) -> FieldError {
        let asked = at(service, &["spec", "clusterIPs"]).clone();
        let detail = match self {
            Self::Full | Self::NotCidr(_) => format!("failed to allocate IP: {self}"),
            Self::OutOfRange(ip) | Self::Taken(ip) => format!("failed to allocate IP {ip}: {self}"),
        };
        FieldError::invalid("spec.clusterIPs", asked, detail)
    }
}

impl std::str::FromStr for Range {
    type Err = AllocateError;

    fn from_str(text: &str) -> Result<Self, AllocateError> {
        let bad = || AllocateError::NotCidr(text.to_owned());
        if !crate::resource::node::is_cidr(text) {
            return Err(bad());
        }
        let (base, prefix) = text.split_once('/').ok_or_else(bad)?;
        let (base, prefix) = (base.parse().map_err(|_| bad())?, prefix.parse().map_err(|_| bad())?);
        Ok(Self { base, prefix })
    }
}

impl Range {
    fn bits(ip: IpAddr) -> u128 {
        match ip {
            IpAddr::V4(ip) => u128::from(u32::from(ip)),
            IpAddr::V6(ip) => u128::from(ip),
        }
    }

    fn width(self) -> u8 {
        if self.base.is_ipv4() { 32 } else { 128 }
    }

    /// The number of addresses, capped at 2^16 as upstream caps large ranges.
    fn size(self) -> u128 {
        1 << u32::from(self.width() - self.prefix).min(16)
    }

    fn first(self) -> u128 {
        let host = self.width() - self.prefix;
        let mask = if host == 128 { 0 } else { u128::MAX << host };
        Self::bits(self.base) & mask
    }

    fn ip(self, bits: u128) -> IpAddr {
        match self.base {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(bits).unwrap_or(u32::MAX))),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(bits)),
        }
    }

    /// The usable address at `offset` (1 is the first, which the `kubernetes` Service has).
    pub fn nth(self, offset: u128) -> Option<IpAddr> {
        (offset > 0 && offset < self.size()).then(|| self.ip(self.first() + offset))
    }

    /// Whether the address may be given out: in the range, and neither its network nor (for IPv4) its broadcast address.
    pub fn contains(self, ip: IpAddr) -> bool {
        let last_usable = self.size() - u128::from(self.base.is_ipv4() && self.size() > 2);
        ip.is_ipv4() == self.base.is_ipv4()
            && Self::bits(ip)
                .checked_sub(self.first())
                .is_some_and(|offset| offset > 0 && offset < last_usable)
    }

    /// A free address, looked for from `start` (any number; a random one spreads them) in the upper part of the range
    /// first, so that small addresses stay for those who choose their own.
    fn free(self, used: &BTreeSet<IpAddr>, start: u64) -> Option<IpAddr> {
        let size = self.size();
        let reserved = (size / 16).clamp(16, 256).min(size);
        let (upper, lower) = (reserved..size, 1..reserved);
        [upper, lower].into_iter().find_map(|part| {
            let length = part.end.checked_sub(part.start).filter(|length| *length > 0)?;
            let shift = u128::from(start) % length;
            (0..length)
                .map(|i| self.ip(self.first() + part.start + (i + shift) % length))
                .find(|ip| self.contains(*ip) && !used.contains(ip))
        })
    }
}

/// Gives a Service its address: fills in `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` where the type has
/// them. `used` are the addresses of all other Services, `start` is any number (random for spreading). Returns the address
/// taken from the range, `None` if the Service has none (headless, ExternalName).
pub fn allocate(
    range: Range,
    used: &BTreeSet<IpAddr>,
    start: u64,
    service: &mut Value,
) -> Result<Option<IpAddr>, AllocateError> {
    if text(service, &["spec", "type"]) == "ExternalName" {
        return Ok(None);
    }
    pair_addresses(service);
    let family = if range.base.is_ipv4() { "IPv4" } else { "IPv6" };
    let Some(spec) = service.get_mut("spec") else {
        return Ok(None);
    };
    default_to(spec, "ipFamilies", json!([family]));
    default_text(spec, "ipFamilyPolicy", "SingleStack");
    let asked = text(service, &["spec", "clusterIP"]);
    if asked == "None" {
        return Ok(None);
    }
    let ip = if asked.is_empty() {
        range.free(used, start).ok_or(AllocateError::Full)?
    } else if let Ok(ip) = asked.parse::<IpAddr>() {
        if !range.contains(ip) {
            return Err(AllocateError::OutOfRange(ip));
        }
        if used.contains(&ip) {
            return Err(AllocateError::Taken(ip));
        }
        ip
    } else {
        // Not an address: validation says so.
        return Ok(None);
    };
    set(service, &["spec", "clusterIP"], ip.to_string());
    set(service, &["spec", "clusterIPs"], vec![ip.to_string()]);
    Ok(Some(ip))
}

/// The range of node ports: the first, and how many.
const NODE_PORTS: (u16, u16) = (30_000, 2_768);

/// Gives every port of a Service of type NodePort or LoadBalancer a node port: those asked for are checked, the others get a
/// free one of 30000-32767. `used` are the node ports of all other Services.
///
/// One node port may serve several protocols of one Service, as upstream: in a new Service ports of one number share it (53/TCP
/// and 53/UDP), in an update any may. That no protocol has one node port twice is validated with the other fields.
pub fn allocate_node_ports(
    used: &BTreeSet<u16>,
    start: u64,
    is_new: bool,
    service: &mut Value,
) -> Result<(), FieldError> {
    let kind = text(service, &["spec", "type"]);
    if !matches!(kind, "NodePort" | "LoadBalancer") {
        return Ok(());
    }
    // Ports asked for count also where no others are to be allocated.
    let fills = kind == "NodePort" || at(service, &["spec", "allocateLoadBalancerNodePorts"]) != &Value::Bool(false);
    let mut used = used.clone();
    let shared = take_asked(&mut used, is_new, service)?;
    if fills {
        fill_free(&mut used, shared, is_new, start, service)
    } else {
        Ok(())
    }
}

/// Takes the node ports that are asked for. Gives the node port of each port number that shares one.
fn take_asked(used: &mut BTreeSet<u16>, is_new: bool, service: &Value) -> Result<BTreeMap<i64, u16>, FieldError> {
    let (first, count) = NODE_PORTS;
    let (mut shared, mut own) = (BTreeMap::new(), BTreeSet::new());
    for (i, port) in list(service, &["spec", "ports"]).iter().enumerate() {
        let path = format!("spec.ports[{i}].nodePort");
        let asked = int(port, &["nodePort"]).unwrap_or(0);
        if asked == 0 {
            continue;
        }
        let number = u16::try_from(asked).ok();
        let Some(number) = number.filter(|port| (first..first + count).contains(port)) else {
            let range = format!("The range of valid ports is {first}-{}", first + count - 1);
            let detail = format!("provided port is not in the valid range. {range}");
            return Err(FieldError::invalid(path, asked, detail));
        };
        let of_port = int(port, &["port"]).unwrap_or(0);
        let may_share = match is_new {
            true => shared.get(&of_port) == Some(&number),
            false => own.contains(&number),
        };
        if !may_share && !used.insert(number) {
            return Err(FieldError::invalid(path, asked, "provided port is already allocated"));
        }
        own.insert(number);
        if is_new {
            shared.entry(of_port).or_insert(number);
        }
    }
    Ok(shared)
}

/// Gives node ports to the ports that have none.
fn fill_free(
    used: &mut BTreeSet<u16>,
    mut shared: BTreeMap<i64, u16>,
    is_new: bool,
    start: u64,
    service: &mut Value,
) -> Result<(), FieldError> {
    let (first, count) = NODE_PORTS;
    let shift = u16::try_from(start % u64::from(count)).unwrap_or(0);
    for (i, port) in list_mut(service, &["spec", "ports"]).into_iter().flatten().enumerate() {
        if int(port, &["nodePort"]).unwrap_or(0) != 0 {
            continue;
        }
        let number = int(port, &["port"]).unwrap_or(0);
        if let Some(same) = shared.get(&number) {
            set(port, &["nodePort"], *same);
            continue;
        }
        let free = (0..count)
            .map(|i| first + (i + shift) % count)
            .find(|port| !used.contains(port))
            .ok_or_else(|| {
                let path = format!("spec.ports[{i}].nodePort");
                FieldError::invalid(path, 0, "failed to allocate a nodePort: range is full")
            })?;
        used.insert(free);
        if is_new {
            shared.insert(number, free);
        }
        set(port, &["nodePort"], free);
    }
    Ok(())
}

/// Every node port and address a Service holds.
pub fn held(service: &Value) -> (BTreeSet<IpAddr>, BTreeSet<u16>) {
    let ips = list(service, &["spec", "clusterIPs"])
        .iter()
        .chain([at(service, &["spec", "clusterIP"])]);
    let ips = ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect();
    let ports = list(service, &["spec", "ports"]).iter();
    let ports = ports
        .filter_map(|port| u16::try_from(int(port, &["nodePort"])?).ok())
        .filter(|port| *port != 0);
    (ips, ports.collect())
}
