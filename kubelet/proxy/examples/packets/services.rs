//! Services by their number, and the kernel's rules of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use proxy::apply::Kernel;
use proxy::choose::{Here, choose};
use proxy::diff::Delta;
use proxy::ledger::{Changes, Deltas, Ledger};
use proxy::model::{Endpoint, PortName, Protocol, Served, ServiceName, ServicePort};
use proxy::rules::Writer;
use proxy::settings::Settings;

use crate::Outcome;

const PORT: u16 = 80;

/// Endpoints that are there: ports of one address.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) address: IpAddr,
    pub(crate) first_port: u16,
}

impl Target {
    /// The ClusterIP and port of a Service.
    pub(crate) fn front(number: u32) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::from(0x0a60_0000 + number), PORT))
    }
}

/// A Service and its state.
pub(crate) type Change = (ServiceName, Option<Arc<[Served]>>);

/// A Service's only port.
fn port(number: u32, protocol: Protocol) -> ServicePort {
    ServicePort {
        name: PortName {
            namespace: "default".into(),
            service: format!("service-{number}"),
            port: "main".into(),
            protocol,
        },
        cluster_ips: vec![Target::front(number).ip()],
        port: PORT,
        node_port: 0,
        external_ips: Arc::default(),
        load_balancer_ips: Arc::default(),
        source_ranges: None,
        internal_local: false,
        external_local: false,
        affinity_seconds: 0,
        health_check_node_port: 0,
    }
}

/// A Service with so many endpoints, which are `here` or nowhere.
pub(crate) fn service(number: u32, endpoints: u32, shift: u32, here: Option<Target>) -> Change {
    let address = |each: u32| match here {
        Some(target) => SocketAddr::new(target.address, target.first_port + each as u16),
        None => SocketAddr::from((Ipv4Addr::from(0x0a80_0000 + number * 4 + each + shift), 8080)),
    };
    let list: Vec<Endpoint> = (0..endpoints)
        .map(|each| Endpoint {
            address: address(each),
            ready: true,
            serving: true,
            terminating: false,
            local: false,
            zone_hints: Vec::new(),
            node_hints: Vec::new(),
        })
        .collect();
    // Where packets are sent to it is UDP: what answers needs no second packet.
    let protocol = if here.is_some() { Protocol::Udp } else { Protocol::Tcp };
    let served = choose(port(number, protocol), list.iter(), Here { node: "n", zone: "" });
    let name = ServiceName::new("default", format!("service-{number}"));
    (name, Some(Arc::from([served])))
}

/// What a proxy has in the kernel, in the namespace of the thread that wrote it.
pub(crate) struct Rules {
    kernel: Kernel,
    ledger: Ledger,
    settings: Settings,
}

fn with(deltas: Deltas, settings: &Settings) -> Vec<(Writer<'_>, Delta)> {
    let each = deltas.into_iter();
    each.map(|(v4, delta)| (Writer { v4, settings }, delta)).collect()
}

impl Rules {
    /// Writes all of these, as a process that has just started.
    pub(crate) fn write(all: Vec<Change>) -> Outcome<Self> {
        let settings = Settings::default();
        let mut rules = Self {
            kernel: Kernel::open()?,
            ledger: Ledger::new(&settings),
            settings,
        };
        let deltas = rules.ledger.enter(Changes::from_iter(all), &rules.settings);
        rules.kernel.replace(with(deltas, &rules.settings))?;
        Ok(rules)
    }

    /// Brings one change in.
    pub(crate) fn change(&mut self, change: Change) -> Outcome<()> {
        let deltas = self.ledger.enter(Changes::from([change]), &self.settings);
        match self.kernel.change(&with(deltas, &self.settings))? {
            true => Ok(()),
            false => Err("somebody else wrote".into()),
        }
    }
}
