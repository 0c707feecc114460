//! From the API's objects to ports and endpoints. What cannot be served is left out and named, never guessed.

use client::ordered::Arrange;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint as ApiEndpoint, EndpointSlice};
use netlink::cidr::Cidr;

use super::{Endpoint, Flaws, PortName, Protocol, ServiceName, ServicePort};

/// Mark what another proxy serves, and what no proxy does: upstream's follows no Service and no slice with one of these labels
/// (contract controlplane.md §13).
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const ADDRESSES: &str = "endpoints.addresses";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The API's default of `sessionAffinityConfig.clientIP.timeoutSeconds`.
const AFFINITY_SECONDS: u32 = 10_800;
/// The API's bound of it: one day.
const AFFINITY_SECONDS_MAX: u32 = 86_400;
/// How much of one Service is served, where the API sets no bound: addresses of each of its lists; source ranges of each family; fronts, which
/// are its ports times its addresses; elements for source ranges, which are its ports times balancers' addresses times ranges.
const ADDRESSES_MAX: usize = 256;
const SOURCE_RANGES_MAX: usize = 1_000;
const FRONTS_MAX: usize = 10_000;
const ALLOWED_MAX: usize = 100_000;
/// What stands before an IPv4 address that is written as IPv6.
const MAPPED_BITS: u8 = 96;

/// What a Service says to the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Its ports; none for a Service the proxy does not serve.
    pub ports: Vec<ServicePort>,
    /// What is not used.
    pub left_out: Flaws,
}

/// Reads a Service. Headless ones (by their address or by their label), those of type ExternalName and those of another proxy have no ports
/// here.
pub fn read_service(service: &Service) -> Read {
    let Some(spec) = &service.spec else {
        return Read::default();
    };
    let foreign = service.metadata.labels.as_ref().is_some_and(is_foreign);
    let by_name = spec.type_.as_deref() == Some("ExternalName");
    let mut left_out = Flaws::default();
    let cluster_ips = cluster_ips(spec, &mut left_out);
    if foreign || by_name || cluster_ips.is_empty() {
        return Read {
            ports: Vec::new(),
            left_out,
        };
    }
    let shared = Shared::read(service, spec, cluster_ips, &mut left_out);
    let ports_max = shared.ports_max();
    let mut ports: Vec<ServicePort> = Vec::new();
    for port in spec.ports.iter().flatten() {
        let protocol = port.protocol.as_deref().unwrap_or_default();
        let (Some(protocol), Some(number)) = (Protocol::read(protocol), port_number(port.port)) else {
            let value = format!("{}/{protocol}", port.port);
            left_out.add("spec.ports", &value, "no port of a protocol that is served");
            continue;
        };
        if ports.len() == ports_max {
            let value = format!("{number}/{}", protocol.name());
            left_out.add(
                "spec.ports",
                &value,
                "too many ports for a Service with so many addresses",
            );
            continue;
        }
        let node_port = port.node_port.and_then(port_number).unwrap_or(0);
        ports.push(shared.port(port.name.clone().unwrap_or_default(), protocol, number, node_port));
    }
    Read { ports, left_out }
}

/// What all ports of a Service have in common.
struct Shared {
    template: ServicePort,
    balanced: Balanced,
}

/// Which ports the addresses of the load balancer are for.
#[derive(Default)]
struct Balanced {
    /// Addresses that are for all ports: of entries which name none.
    whole: BTreeSet<IpAddr>,
    /// Ports that are named with an address, and have no error.
    named: BTreeSet<(IpAddr, Protocol, u16)>,
}

impl Shared {
    fn read(service: &Service, spec: &ServiceSpec, cluster_ips: Vec<IpAddr>, left_out: &mut Flaws) -> Self {
        let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
        let external_ips = addresses("spec.externalIPs", spec.external_ips.iter().flatten(), left_out);
        let external_local = spec.external_traffic_policy.as_deref() == Some("Local")
            && (matches!(kind, "NodePort" | "LoadBalancer") || !external_ips.is_empty());
        let health = match kind {
            "LoadBalancer" if external_local => spec.health_check_node_port.and_then(port_number).unwrap_or(0),
            _ => 0,
        };
        let (load_balancer_ips, balanced) = load_balancer(service, left_out);
        let template = ServicePort {
            name: PortName {
                namespace: service.metadata.namespace.clone().unwrap_or_default(),
                service: service.metadata.name.clone().unwrap_or_default(),
                port: String::new(),
                protocol: Protocol::Tcp,
            },
            cluster_ips,
            port: 0,
            node_port: 0,
            external_ips: shared(external_ips),
            load_balancer_ips,
            source_ranges: source_ranges(spec, left_out),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local,
            affinity_seconds: affinity_seconds(spec),
            health_check_node_port: health,
        };
        Self { template, balanced }
    }

    /// How many ports are served.
    fn ports_max(&self) -> usize {
        let of = &self.template;
        let balancer = of.load_balancer_ips.len();
        // And the NodePort.
        let fronts = of.cluster_ips.len() + of.external_ips.len() + balancer + 1;
        let allowed = of.source_ranges.as_ref().map_or(0, |ranges| ranges.len() * balancer);
        (FRONTS_MAX / fronts).min(ALLOWED_MAX / allowed.max(1)).max(1)
    }

    fn port(&self, name: String, protocol: Protocol, port: u16, node_port: u16) -> ServicePort {
        let mut made = self.template.clone();
        made.name.port = name;
        made.name.protocol = protocol;
        made.port = port;
        made.node_port = node_port;
        let is_led = |ip: &IpAddr| self.balanced.leads(*ip, protocol, port);
        if !made.load_balancer_ips.iter().all(is_led) {
            let led = made.load_balancer_ips.iter().copied().filter(is_led);
            made.load_balancer_ips = shared(led.collect());
        }
        made
    }
}

fn port_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number != 0)
}

fn affinity_seconds(spec: &ServiceSpec) -> u32 {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return 0;
    }
    let config = spec.session_affinity_config.as_ref();
    let seconds = config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
    seconds.unwrap_or(AFFINITY_SECONDS).clamp(1, AFFINITY_SECONDS_MAX)
}

fn cluster_ips(spec: &ServiceSpec, left_out: &mut Flaws) -> Vec<IpAddr> {
    let list = spec.cluster_ips.as_ref().filter(|list| !list.is_empty());
    let texts = list.into_iter().flatten().chain(spec.cluster_ip.iter());
    let texts = texts.filter(|text| !text.is_empty() && *text != "None");
    let mut found: Vec<IpAddr> = Vec::new();
    for address in addresses("spec.clusterIPs", texts, left_out) {
        if !found.iter().any(|other| other.is_ipv4() == address.is_ipv4()) {
            found.push(address);
        }
    }
    found
}

impl Balanced {
    fn leads(&self, ip: IpAddr, protocol: Protocol, port: u16) -> bool {
        self.whole.contains(&ip) || self.named.contains(&(ip, protocol, port))
    }
}

/// The load balancer's addresses, and which ports they are for. Whoever gave the address says in `ingress[].ports` what for: a port
/// that the Service's author adds later may be another Service's there, and is not led before it stands in that list.
fn load_balancer(service: &Service, left_out: &mut Flaws) -> (Arc<[IpAddr]>, Balanced) {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_ref()).into_iter().flatten();
    let vip = ingress.filter(|ingress| ingress.ip_mode.as_deref().unwrap_or("VIP") == "VIP");
    let (mut texts, mut balanced) = (Vec::new(), Balanced::default());
    for ingress in vip {
        let Some(text) = ingress.ip.as_ref().filter(|text| !text.is_empty()) else {
            continue;
        };
        texts.push(text);
        let Ok(ip) = text.parse() else { continue };
        match ingress.ports.as_deref() {
            None | Some([]) => drop(balanced.whole.insert(ip)),
            Some(ports) => balanced.named.extend(
                ports
                    .iter()
                    .filter(|port| port.error.is_none())
                    .filter_map(|port| Some((ip, Protocol::read(&port.protocol)?, port_number(port.port)?))),
            ),
        }
    }
    let ips = addresses("status.loadBalancer.ingress.ip", texts.into_iter(), left_out);
    (shared(ips), balanced)
}

/// Nearly every list is empty, and all empty ones are one.
fn shared(list: Vec<IpAddr>) -> Arc<[IpAddr]> {
    if list.is_empty() { Arc::default() } else { list.into() }
}

/// Ranges may have white space around them: the API lets it pass. What is left out lets nobody in; so does a list of nothing else, and so does
/// what is left out of a family that has nothing else, for a family of which nothing was written is open. The bound is each family's: a
/// family of which nothing is left would be open, too.
fn source_ranges(spec: &ServiceSpec, left_out: &mut Flaws) -> Option<Arc<[Cidr]>> {
    const FIELD: &str = "spec.loadBalancerSourceRanges";
    let texts = spec.load_balancer_source_ranges.as_ref()?;
    if texts.is_empty() {
        return None;
    }
    // Of IPv6, of IPv4.
    let (mut found, mut of_family, mut is_unread) = (Vec::new(), [0; 2], [false; 2]);
    for text in texts {
        let Some(range) = source_range(text.trim()) else {
            left_out.add(FIELD, text, "no network");
            // Of IPv4 written as IPv6 it cannot be told.
            let is_v6 = text.contains(':');
            is_unread[0] |= is_v6;
            is_unread[1] |= !is_v6 || text.contains('.');
            continue;
        };
        let count = &mut of_family[usize::from(range.is_v4())];
        if *count == SOURCE_RANGES_MAX {
            left_out.add(FIELD, text, "more ranges than are served");
            continue;
        }
        *count += 1;
        found.push(range);
    }
    if !found.is_empty() {
        let nobody = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)].map(Cidr::host);
        let is_lost = |family: &usize| is_unread[*family] && of_family[*family] == 0;
        found.extend([0, 1].into_iter().filter(is_lost).map(|family| nobody[family]));
    }
    found.arrange();
    found.dedup();
    Some(found.into())
}

/// The network a source range is. The API takes what Go took once and upstream's proxy takes still: numbers with leading zeros (decimal
/// ones), and IPv4 written as IPv6.
fn source_range(text: &str) -> Option<Cidr> {
    let plain = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let (addr, prefix) = text.split_once('/')?;
    let addr = match addr.contains(':') {
        true => addr.to_owned(),
        false => addr.split('.').map(plain).collect::<Vec<_>>().join("."),
    };
    let network = Cidr::parse(&format!("{addr}/{}", plain(prefix))).ok()?.network();
    match network.addr {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            // Such a network has all of these bits in its prefix.
            Some(v4) => Cidr::new(v4.into(), network.prefix.checked_sub(MAPPED_BITS)?),
            None => Some(network),
        },
        IpAddr::V4(_) => Some(network),
    }
}

/// The usable addresses of a field, each once.
fn addresses<'a>(field: &'static str, texts: impl Iterator<Item = &'a String>, left_out: &mut Flaws) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for text in texts {
        match usable(text) {
            Ok(address) if found.contains(&address) => {}
            Ok(_) if found.len() == ADDRESSES_MAX => left_out.add(field, text, "more addresses than are served"),
            Ok(address) => found.push(address),
            Err(reason) => left_out.add(field, text, reason),
        }
    }
    found
}

/// An address traffic may be taken for or sent to. The API refuses the others in most places, not in all.
fn usable(text: &str) -> Result<IpAddr, &'static str> {
    let address: IpAddr = text.parse().map_err(|_| "no IP address")?;
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    match address {
        _ if address.is_unspecified() => Err("an unspecified address"),
        _ if address.is_loopback() => Err("a loopback address"),
        _ if address.is_multicast() => Err("a multicast address"),
        _ if link_local => Err("a link-local, broadcast or mapped address"),
        _ => Ok(address),
    }
}

/// What an EndpointSlice says to the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSlice {
    /// The Service; `None` when the slice is nobody's, or another proxy's.
    pub service: Option<ServiceName>,
    /// Endpoints, each once however many ports there are; their own port is 0.
    pub endpoints: Vec<Endpoint>,
    /// Name, protocol and number of the ports each of them has.
    pub ports: Vec<(String, Protocol, u16)>,
    /// What is not used.
    pub left_out: Flaws,
}

/// Reads a slice as node `node_name` sees it.
pub fn read_slice(slice: &EndpointSlice, node_name: &str) -> ReadSlice {
    let (mut endpoints, mut ports) = (Vec::new(), Vec::new());
    let (service, left_out) = walk(
        slice,
        &mut |ip, endpoint| endpoints.push(make(ip, endpoint, node_name)),
        &mut |name, protocol, number| ports.push((name.to_owned(), protocol, number)),
    );
    ReadSlice {
        service,
        endpoints,
        ports,
        left_out,
    }
}

/// Whose a slice is, and what of it is not used: as [`read_slice`], without making the endpoints.
pub fn look_at_slice(slice: &EndpointSlice) -> (Option<ServiceName>, Flaws) {
    walk(slice, &mut |_, _| {}, &mut |_, _, _| {})
}

/// Goes over the endpoints and the ports of a slice that are used.
fn walk(
    slice: &EndpointSlice,
    on_endpoint: &mut dyn FnMut(IpAddr, &ApiEndpoint),
    on_port: &mut dyn FnMut(&str, Protocol, u16),
) -> (Option<ServiceName>, Flaws) {
    let mut left_out = Flaws::default();
    let v4 = slice.address_type == "IPv4";
    let service = service_of(slice).filter(|_| v4 || slice.address_type == "IPv6");
    if service.is_none() {
        return (service, left_out);
    }
    for endpoint in slice.endpoints.iter().flatten() {
        // All addresses of an endpoint are one and the same; the first counts.
        let text = endpoint.addresses.first().map_or("", String::as_str);
        match usable(text) {
            Ok(address) if address.is_ipv4() == v4 => on_endpoint(address, endpoint),
            Ok(_) => left_out.add(ADDRESSES, text, "an address of another family than the slice's"),
            Err(reason) => left_out.add(ADDRESSES, text, reason),
        }
    }
    for port in slice.ports.iter().flatten() {
        let name = port.name.as_deref().unwrap_or_default();
        let protocol = Protocol::read(port.protocol.as_deref().unwrap_or_default());
        match (protocol, port.port.and_then(port_number)) {
            (Some(protocol), Some(number)) => on_port(name, protocol, number),
            _ => left_out.add("ports", name, "no port of a protocol that is served"),
        }
    }
    (service, left_out)
}

fn is_foreign(labels: &BTreeMap<String, String>) -> bool {
    [PROXY_NAME, HEADLESS].iter().any(|label| labels.contains_key(*label))
}

fn service_of(slice: &EndpointSlice) -> Option<ServiceName> {
    let labels = slice.metadata.labels.as_ref()?;
    let name = labels
        .get(SERVICE_NAME)
        .filter(|name| !name.is_empty() && !is_foreign(labels))?;
    Some(ServiceName::new(
        slice.metadata.namespace.clone().unwrap_or_default(),
        name.clone(),
    ))
}

fn make(ip: IpAddr, endpoint: &ApiEndpoint, node_name: &str) -> Endpoint {
    let conditions = endpoint.conditions.as_ref();
    let ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
    let hints = endpoint.hints.as_ref();
    let zones = hints.and_then(|hints| hints.for_zones.as_ref()).into_iter().flatten();
    let nodes = hints.and_then(|hints| hints.for_nodes.as_ref()).into_iter().flatten();
    Endpoint {
        address: SocketAddr::new(ip, 0),
        ready,
        // The API: nil is to be read as true, whatever `ready` says.
        serving: conditions.and_then(|conditions| conditions.serving).unwrap_or(true),
        terminating: conditions
            .and_then(|conditions| conditions.terminating)
            .unwrap_or(false),
        local: !node_name.is_empty() && endpoint.node_name.as_deref() == Some(node_name),
        zone_hints: zones.map(|zone| zone.name.clone()).collect(),
        node_hints: nodes.map(|node| node.name.clone()).collect(),
    }
}
