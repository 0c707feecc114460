//! What answers need of Services, EndpointSlices and Pods. Pure.

use crate::wire::Name;
use crate::wire::name::{LABEL_BYTES, label};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::cmp::Ordering;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    fn of(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }

    /// The protocol of a label such as `_tcp`, in small letters.
    pub fn of_label(label: &[u8]) -> Option<Self> {
        match label {
            b"_tcp" => Some(Self::Tcp),
            b"_udp" => Some(Self::Udp),
            b"_sctp" => Some(Self::Sctp),
            _ => None,
        }
    }
}

/// A port that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name, in small letters.
    pub name: Box<[u8]>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

impl Port {
    fn of(name: Option<&str>, protocol: Option<&str>, number: Option<i32>) -> Option<Self> {
        let name = name.filter(|name| !name.is_empty() && name.len() < LABEL_BYTES)?;
        Some(Self {
            name: name.to_ascii_lowercase().into_bytes().into(),
            protocol: Protocol::of(protocol)?,
            number: u16::try_from(number?).ok()?,
        })
    }
}

/// How a service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// By addresses of its own.
    Cluster {
        /// Them.
        addresses: Box<[IpAddr]>,
        /// Its ports that have names.
        ports: Box<[Port]>,
    },
    /// By its endpoints' addresses.
    Headless {
        /// Whether those that are not ready count, too.
        published: bool,
    },
    /// By another name, in wire form.
    External(Box<[u8]>),
}

impl Spec {
    /// What a service is; nothing while it has no address, or a target that is no name.
    pub fn of(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        if spec.type_.as_deref() == Some("ExternalName") {
            let target = Name::parse(spec.external_name.as_deref()?)?;
            return (target.wire().len() > 1).then(|| Self::External(target.wire().into()));
        }
        let one = spec.cluster_ip.iter();
        let texts = match spec.cluster_ips.as_deref() {
            Some([]) | None => one.map(String::as_str).collect(),
            Some(many) => many.iter().map(String::as_str).collect::<Vec<_>>(),
        };
        if texts.contains(&"None") {
            return Some(Self::Headless {
                published: spec.publish_not_ready_addresses == Some(true),
            });
        }
        let addresses: Box<[IpAddr]> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        let ports = spec.ports.as_deref().unwrap_or_default().iter();
        let ports = ports.filter_map(|port| Port::of(port.name.as_deref(), port.protocol.as_deref(), Some(port.port)));
        (!addresses.is_empty()).then(|| Self::Cluster {
            addresses,
            ports: ports.collect(),
        })
    }
}

/// One address behind a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name, in small letters, if it was given one.
    pub hostname: Option<Box<[u8]>>,
    /// Where it is.
    pub address: IpAddr,
    /// Whether it takes traffic.
    pub ready: bool,
}

impl Endpoint {
    /// Its order among the others of a slice.
    fn compare(&self, other: &Self) -> Ordering {
        let own = (self.hostname.as_deref(), self.address);
        own.cmp(&(other.hostname.as_deref(), other.address))
    }
}

/// A slice of a service's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its name.
    pub name: Box<str>,
    /// Its ports that have names.
    pub ports: Box<[Port]>,
    /// Its endpoints, those without a name first, then by name and address.
    pub endpoints: Box<[Endpoint]>,
}

impl Slice {
    /// What a slice holds; nothing of names instead of addresses (`addressType: FQDN`).
    pub fn of(slice: &EndpointSlice) -> Option<Self> {
        if slice.address_type == "FQDN" {
            return None;
        }
        let ports = slice.ports.as_deref().unwrap_or_default().iter();
        let ports = ports.filter_map(|port| Port::of(port.name.as_deref(), port.protocol.as_deref(), port.port));
        let mut endpoints = Vec::new();
        for endpoint in slice.endpoints.iter().flatten() {
            // What does not say is ready.
            let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
            let hostname = endpoint.hostname.as_deref().and_then(label);
            let addresses = endpoint.addresses.iter().filter_map(|text| text.parse().ok());
            endpoints.extend(addresses.map(|address| Endpoint {
                hostname: hostname.as_deref().map(|label| label[1..].into()),
                address,
                ready: ready != Some(false),
            }));
        }
        endpoints.sort_unstable_by(Endpoint::compare);
        Some(Self {
            name: slice.metadata.name.as_deref()?.into(),
            ports: ports.collect(),
            endpoints: endpoints.into(),
        })
    }

    /// Its endpoints that are ready, or all.
    pub fn usable(&self, published: bool) -> impl Iterator<Item = &Endpoint> {
        self.endpoints
            .iter()
            .filter(move |endpoint| published || endpoint.ready)
    }

    /// The addresses of its endpoints that are ready, or of all.
    pub fn addresses(&self, published: bool) -> impl Iterator<Item = IpAddr> {
        self.usable(published).map(|endpoint| endpoint.address)
    }

    /// The same, sorted and each once: a slice may say one address as often as its author likes.
    pub fn distinct(&self, published: bool) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = self.addresses(published).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Its endpoints that were given names, ready or not.
    pub fn given(&self) -> &[Endpoint] {
        let unnamed = self.endpoints.partition_point(|endpoint| endpoint.hostname.is_none());
        &self.endpoints[unnamed..]
    }

    /// The endpoints of this name, in small letters: the one they were given, or for those without their address with dashes.
    pub fn named<'a>(&'a self, name: &'a [u8], published: bool) -> impl Iterator<Item = &'a Endpoint> {
        let unnamed = self.endpoints.partition_point(|endpoint| endpoint.hostname.is_none());
        let (unnamed, named) = self.endpoints.split_at(unnamed);
        let below = |endpoint: &Endpoint, name: &[u8]| endpoint.hostname.as_deref() < Some(name);
        let from = named.partition_point(|endpoint| below(endpoint, name));
        let named = named[from..]
            .iter()
            .take_while(move |endpoint| endpoint.hostname.as_deref() == Some(name));
        let address = undashed(name).filter(|address| *dashed(address) == *name);
        let from = address.map_or(unnamed.len(), |address| {
            unnamed.partition_point(|endpoint| endpoint.address < address)
        });
        let unnamed = unnamed[from..]
            .iter()
            .take_while(move |endpoint| Some(endpoint.address) == address);
        named.chain(unnamed).filter(move |endpoint| published || endpoint.ready)
    }
}

/// An address as a label: dashes in place of dots and colons.
pub fn dashed(address: &IpAddr) -> Label {
    let mut label = Label {
        bytes: [0; LABEL_BYTES],
        length: 0,
    };
    // No address is longer than 45 bytes.
    let _ = write!(label, "{address}");
    for byte in &mut label.bytes {
        if matches!(byte, b'.' | b':') {
            *byte = b'-';
        }
    }
    label
}

/// The address a label says, in any of its spellings: four decimal numbers, or what is an IPv6 address with colons.
pub fn undashed(label: &[u8]) -> Option<IpAddr> {
    if label.len() > 45 || !label.contains(&b'-') {
        return None;
    }
    let text = std::str::from_utf8(label).ok()?;
    let is_v4 = label.iter().filter(|byte| **byte == b'-').count() == 3 && !text.contains("--");
    let with = |mark: u8| {
        let mut bytes = [0; 45];
        bytes[..label.len()].copy_from_slice(label);
        bytes
            .iter_mut()
            .filter(|byte| **byte == b'-')
            .for_each(|byte| *byte = mark);
        bytes
    };
    let bytes = with(if is_v4 { b'.' } else { b':' });
    let text = std::str::from_utf8(&bytes[..label.len()]).ok()?;
    match is_v4 {
        true => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        false => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
    }
}

/// A label on the stack.
#[derive(Clone)]
pub struct Label {
    bytes: [u8; LABEL_BYTES],
    length: usize,
}

impl std::ops::Deref for Label {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Label {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The addresses of a pod that has not ended.
pub(super) fn pod_addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Vec::new();
    }
    let many = status.pod_ips.as_deref().unwrap_or_default();
    let many = many.iter().map(|address| address.ip.as_str());
    let mut addresses: Vec<IpAddr> = many
        .chain(status.pod_ip.as_deref())
        .filter_map(|text| text.parse().ok())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
