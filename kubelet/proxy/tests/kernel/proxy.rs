//! The rules of a node, written from values: no API, no loop.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proxy::apply::Kernel;
use proxy::choose::{Here, choose};
use proxy::ledger::{Changes, Ledger};
use proxy::model::{Endpoint, PortName, Protocol, Served, ServiceName, ServicePort};
use proxy::rules::Writer;
use proxy::settings::{DetectLocal, Settings};

use crate::net::Namespace;

/// The node's name.
pub(crate) const NODE: &str = "n1";

pub(crate) fn settings() -> Settings {
    let pods = [
        "10.1.1.0/24",
        "10.1.2.0/24",
        "10.1.3.0/24",
        "fd00:1:1::/64",
        "fd00:1:2::/64",
        "fd00:1:3::/64",
    ];
    Settings {
        node_name: NODE.into(),
        node_ips: vec![crate::net::node_v4(0)],
        detect_local: DetectLocal::Networks(pods.map(|text| netlink::cidr::Cidr::parse(text).unwrap()).into()),
        ..Settings::default()
    }
}

pub(crate) fn port(name: &str, protocol: Protocol, cluster_ips: &[&str]) -> ServicePort {
    ServicePort {
        name: PortName {
            namespace: "ns".into(),
            service: name.into(),
            port: String::new(),
            protocol,
        },
        cluster_ips: cluster_ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        port: 80,
        node_port: 0,
        external_ips: [].into(),
        load_balancer_ips: [].into(),
        source_ranges: None,
        internal_local: false,
        external_local: false,
        affinity_seconds: 0,
        health_check_node_port: 0,
    }
}

pub(crate) fn endpoint(ip: IpAddr, local: bool) -> Endpoint {
    Endpoint {
        address: SocketAddr::new(ip, 8080),
        ready: true,
        serving: true,
        terminating: false,
        local,
        zone_hints: Vec::new(),
        node_hints: Vec::new(),
    }
}

pub(crate) fn served(port: ServicePort, endpoints: &[Endpoint]) -> Served {
    choose(port, endpoints.iter(), Here { node: NODE, zone: "" })
}

/// The node's rules.
pub(crate) struct Proxy {
    kernel: Kernel,
    ledger: Ledger,
    settings: Settings,
}

fn changes(ports: &[Served]) -> Changes {
    let mut by_name: BTreeMap<ServiceName, Vec<Served>> = BTreeMap::new();
    for served in ports {
        let name = ServiceName::new(served.port.name.namespace.clone(), served.port.name.service.clone());
        by_name.entry(name).or_default().push(served.clone());
    }
    by_name
        .into_iter()
        .map(|(name, ports)| (name, Some(Arc::from(ports))))
        .collect()
}

impl Proxy {
    /// Writes everything anew, as a process that has just started does.
    pub(crate) fn start(node: &Namespace, settings: Settings, ports: &[Served]) -> Self {
        let mut kernel = node.inside(|| Kernel::open().unwrap());
        let mut ledger = Ledger::new(&settings);
        let deltas = ledger.enter(changes(ports), &settings);
        let of = |(v4, delta)| {
            (
                Writer {
                    v4,
                    settings: &settings,
                },
                delta,
            )
        };
        kernel.replace(deltas.into_iter().map(of).collect()).unwrap();
        Self {
            kernel,
            ledger,
            settings,
        }
    }

    /// Brings changes in.
    pub(crate) fn change(&mut self, ports: &[Served]) -> bool {
        let deltas = self.ledger.enter(changes(ports), &self.settings);
        let settings = &self.settings;
        let of = |(v4, delta)| (Writer { v4, settings }, delta);
        self.kernel
            .change(&deltas.into_iter().map(of).collect::<Vec<_>>())
            .unwrap()
    }

    /// How many clients are remembered, of IPv4 and of IPv6.
    pub(crate) fn clients(&mut self) -> [usize; 2] {
        [true, false].map(|v4| self.kernel.clients(v4).unwrap())
    }

    pub(crate) fn is_intact(&mut self) -> bool {
        self.kernel.is_intact().unwrap()
    }
}
