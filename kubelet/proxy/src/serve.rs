//! A whole proxy: the rules, and what is around them — health, metrics, health check ports, stale UDP flows — for one node.
//!
//! Owns the tasks of all of these and ends them together. Runs inside the kubelet as well as in a program of its own; where objects
//! come from and where events go is its caller's.

mod node;
mod ranges;

pub use node::{Facts, settings};

use crate::config::{Config, VERSION};
use crate::conntrack::{Flows, switches};
use crate::health_check;
use crate::healthz::{self, Health, ThisNode, families};
use crate::http::{self, Handler};
use crate::metrics::{self, Metrics, Page};
use crate::model::{ServiceName, Snapshot};
use crate::node_ports;
use crate::notice::{Notice, Observer, Synced};
use crate::others;
use crate::rules::AFFINITY_MAX;
use crate::run::{self, Sources};
use crate::settings::{NodePortAddresses, Settings};
use crate::told::{Tell, Told};
use client::Informer;
use client::ordered::Arrange;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use netlink::cidr::Cidr;
use netlink::socket::{Protocol, Socket};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How long the node may take to appear with its addresses, as upstream has it.
const NODE_MAX: Duration = Duration::from_secs(300);
/// How long a server's address that could not be had is left alone.
const BIND_RETRY: Duration = Duration::from_secs(5);
/// The event of a Service of which not every endpoint is used; upstream knows no bound.
const TOO_MANY_ENDPOINTS: &str = "TooManyEndpoints";
/// The event of a Service that is not served at its addresses from outside; nor here.
const TOO_MANY_ADDRESSES: &str = "TooManyAddresses";
/// The event of a Service with ports of a protocol that the kernel does not follow; upstream leaves this to be found out.
const UNFOLLOWED: &str = "SCTPNotFollowed";
/// The event of a node whose kernel follows no more connections; upstream says nothing.
const FULL: &str = "ConnectionsFull";
/// The event of a node that can hardly remember more clients of Services with session affinity; upstream knows no bound.
const FORGETS: &str = "SessionAffinityFull";
/// The event of a node whose own connections may get node ports; nor here.
const NOT_RESERVED: &str = "NodePortsNotReserved";
/// The event of a node with rules of another proxy; upstream cleans up after its own other modes, and says nothing of others.
const OTHER_RULES: &str = "OtherServiceProxy";
/// Where the kernel tells of IPv6; absent without it.
const IPV6: &str = "/proc/net/if_inet6";

/// What the proxy follows. Informers that others share may hold more than it needs.
#[derive(Clone)]
pub struct Informers {
    /// This node, perhaps among others.
    pub nodes: Informer<Node>,
    /// Services and EndpointSlices of all namespaces.
    pub rules: Sources,
    /// The ranges Services have their addresses from.
    pub service_cidrs: Informer<ServiceCIDR>,
}

/// Why a proxy ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What it must know of its node did not appear.
    #[error("{0}")]
    Node(String),
    /// A server could not listen, and `bindAddressHardFail` says that this matters.
    #[error("{0}")]
    Bind(String),
    /// The rules cannot be kept.
    #[error(transparent)]
    Rules(#[from] run::Error),
}

/// Runs a proxy for the node of that name, in the process's network namespace, until `stop`. Its rules stay.
///
/// # Errors
/// See [`Error`]. Whatever else fails is told and tried again.
pub async fn run(
    config: &Config,
    node_name: &str,
    informers: Informers,
    tell: Tell,
    stop: CancellationToken,
) -> Result<(), Error> {
    let (conntrack, reserve) = (config.conntrack, config.reserve_node_ports.clone());
    let set = move || {
        let failed = switches::set(&conntrack);
        (failed, node_ports::keep(reserve.as_ref()), others::found())
    };
    if let Ok((failed, not_kept, others)) = client::blocking::spawn(set).await {
        failed.iter().for_each(|why| tracing::warn!("{why}"));
        match others {
            Ok(None) => {}
            Ok(Some(note)) => {
                tracing::warn!("{note}");
                tell(of_node(node_name, true, OTHER_RULES, &note));
            }
            Err(why) => tracing::warn!("whether another proxy's rules are on this node is not known: {why}"),
        }
        for why in not_kept {
            tracing::warn!("{why}");
            tell(of_node(node_name, true, NOT_RESERVED, &why));
        }
    }
    let inside = stop.child_token();
    let _ends_the_rest = inside.clone().drop_guard();
    let ipv6 = Path::new(IPV6).exists();
    let around = Around::new(config, families(true, ipv6));
    let (failed, mut failures) = mpsc::channel(1);
    let (nodes, name) = (informers.nodes.clone(), node_name.to_owned());
    let this_node: ThisNode = Arc::new(move || nodes.get("", &name));
    around.serve(config, this_node, &failed, &inside);
    let work = async {
        let facts = facts(config, node_name, &informers.nodes).await?;
        let mut first = settings(config, node_name, &facts, ipv6);
        let mut guard = ranges::Guard::new(node_name, &tell);
        first.service_cidrs = guard.keep(ranges::first(&informers.service_cidrs).await, &first);
        let (decided, known) = watch::channel(first);
        around.follow(&decided, node_name, &tell, &inside);
        tokio::spawn(keep_settings(
            config.clone(),
            node_name.to_owned(),
            (informers.nodes.clone(), informers.service_cidrs.clone()),
            guard,
            decided,
        ));
        tell(of_node(node_name, false, "Starting", ""));
        run::run(
            informers.rules.clone(),
            known,
            vec![around.observer(&tell, node_name)],
            inside.clone(),
        )
        .await?;
        Ok(())
    };
    tokio::select! {
        biased;
        Some((reason, why)) = failures.recv() => {
            tell(of_node(node_name, true, reason, &why));
            Err(Error::Bind(why))
        }
        ended = stop.run_until_cancelled(work) => ended.unwrap_or(Ok(())),
    }
}

fn of_node(name: &str, is_warning: bool, reason: &'static str, note: &str) -> Told {
    Told {
        kind: "Node",
        namespace: String::new(),
        name: name.to_owned(),
        is_warning,
        reason,
        action: "StartKubeProxy",
        note: note.to_owned(),
    }
}

fn of_service(service: &ServiceName, reason: &'static str, note: String) -> Told {
    Told {
        kind: "Service",
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        is_warning: true,
        reason,
        action: "SyncProxyRules",
        note,
    }
}

/// A Service has more endpoints than are used.
fn of_crowded(service: &ServiceName, beyond: usize) -> Told {
    let note =
        format!("{beyond} endpoints of a port get no traffic from this node: so many of one Service are not used");
    of_service(service, TOO_MANY_ENDPOINTS, note)
}

/// A Service is not served at its addresses from outside.
fn of_without(service: &ServiceName, most: usize) -> Told {
    let note = format!(
        "no traffic from this node goes by externalIPs and load balancer addresses of this Service: those of its namespace's Services, times their \
         ports and source ranges, are more than {most}, and older ones come first"
    );
    of_service(service, TOO_MANY_ADDRESSES, note)
}

fn full(connections: u64) -> String {
    format!(
        "the kernel follows {connections} connections and has no room for more: new ones to Services and from pods are dropped \
         (net.netfilter.nf_conntrack_max; conntrack.maxPerCore of the proxy's configuration raises it)"
    )
}

fn forgets(v4: bool, clients: usize) -> String {
    let family = if v4 { "IPv4" } else { "IPv6" };
    format!(
        "{clients} clients of Services with session affinity are remembered ({family}), and {AFFINITY_MAX} of all Services can be: beyond, new \
         ones are served without affinity"
    )
}

/// A Service has ports of SCTP that are not told apart here.
fn of_unfollowed(service: &ServiceName, node: &str) -> Told {
    let note = format!(
        "the kernel of node {node} does not follow SCTP connections (CONFIG_NF_CT_PROTO_SCTP): there the ports of one address are not told \
         apart, and reach their endpoints only where port and targetPort are the same"
    );
    of_service(service, UNFOLLOWED, note)
}

/// What must be known of the node, once it is.
async fn facts(config: &Config, node_name: &str, nodes: &Informer<Node>) -> Result<Facts, Error> {
    let read = || Facts::read(nodes.get("", node_name).as_deref(), node_name, config);
    let known = nodes.wait_until(|_| read().is_ok());
    // Late, what is missing is told by its name.
    let _ = tokio::time::timeout(NODE_MAX, known).await;
    read().map_err(Error::Node)
}

/// Follows the node's addresses, ranges and zone, and the ranges of Services, for as long as somebody wants to know. Ends with the
/// task that uses them.
async fn keep_settings(
    config: Config,
    node_name: String,
    (nodes, service_cidrs): (Informer<Node>, Informer<ServiceCIDR>),
    mut guard: ranges::Guard,
    decided: watch::Sender<Settings>,
) {
    let (mut of_node, mut of_ranges) = (nodes.subscribe(), service_cidrs.subscribe());
    loop {
        tokio::select! {
            biased;
            () = decided.closed() => return,
            _ = of_node.next() => {}
            _ = of_ranges.next() => {}
        }
        // A node that is gone, or has no address any more, leaves what was known: traffic that worked goes on.
        let facts = Facts::read(nodes.get("", &node_name).as_deref(), &node_name, &config).ok();
        let ranges: Option<Vec<Cidr>> = service_cidrs.is_synced().then(|| ranges::known(&service_cidrs));
        decided.send_if_modified(|settings| {
            let mut new = match &facts {
                Some(facts) => node::settings(&config, &node_name, facts, settings.ipv6),
                None => settings.clone(),
            };
            // Not known any more: those that are guarded stay.
            let ranges = ranges.unwrap_or_else(|| settings.service_cidrs.clone());
            new.service_cidrs = guard.keep(ranges, &new);
            let differs = *settings != new;
            if differs {
                tracing::info!(node = node_name, addresses = ?new.node_ips, services = ?new.service_cidrs,
                    "the node or the ranges of Services changed, and the rules with them");
                *settings = new;
            }
            differs
        });
    }
}

/// What is around the rules.
struct Around {
    health: Health,
    metrics: Metrics,
    flows: Flows,
    snapshots: watch::Sender<Arc<Snapshot>>,
}

impl Around {
    fn new(config: &Config, families: &'static [&'static str]) -> Self {
        Self {
            health: Health::new(config.sync_period, families),
            metrics: Metrics::new(families, Timestamp::now()),
            flows: Flows::default(),
            snapshots: watch::Sender::default(),
        }
    }

    /// Begins the servers of the configuration.
    fn serve(&self, config: &Config, node: ThisNode, failed: &Failed, stop: &CancellationToken) {
        let page = Page {
            metrics: self.metrics.clone(),
            config: config.effective.clone(),
            version: VERSION,
        };
        let healthz = healthz::handler(self.health.clone(), node, self.metrics.clone());
        let servers = [
            (
                config.healthz,
                healthz,
                "FailedToStartProxierHealthcheck",
                "healthz server failed",
            ),
            (
                config.metrics,
                metrics::handler(page),
                "FailedToStartMetricServer",
                "starting metrics server failed",
            ),
        ];
        for (address, handler, reason, what) in servers {
            let Some(address) = address else { continue };
            let failed = config.bind_hard_fail.then(|| failed.clone());
            tokio::spawn(server(address, handler, (reason, what), failed, stop.clone()));
        }
    }

    /// Begins what follows the rules.
    fn follow(&self, settings: &watch::Sender<Settings>, node: &str, tell: &Tell, stop: &CancellationToken) {
        let settings = settings.subscribe();
        let needs = health_check::Needs {
            node: node.to_owned(),
            addresses: Arc::new(move || check_addresses(&settings.borrow())),
            health: self.health.clone(),
            tell: tell.clone(),
        };
        tokio::spawn(health_check::run(self.snapshots.subscribe(), needs, stop.clone()));
        tokio::spawn(self.flows.clone().run(self.metrics.clone(), stop.clone()));
    }

    /// What hears of each write.
    fn observer(&self, tell: &Tell, node: &str) -> Observer {
        let (tell, node) = (tell.clone(), node.to_owned());
        let (health, metrics) = (self.health.clone(), self.metrics.clone());
        let (flows, snapshots) = (self.flows.clone(), self.snapshots.clone());
        Arc::new(move |notice: &Notice| match notice {
            Notice::Queued(since) => {
                health.queued(*since);
                metrics.queued(Timestamp::now());
            }
            Notice::Changed(changed) => metrics.changed(changed.services, changed.slices, &changed.triggers),
            Notice::Failed(_) => metrics.failed(),
            Notice::Crowded(service, beyond) => tell(of_crowded(service, *beyond)),
            Notice::Without(service, most) => tell(of_without(service, *most)),
            Notice::Unfollowed(service) => tell(of_unfollowed(service, &node)),
            Notice::Full(connections) => tell(of_node(&node, true, FULL, &full(*connections))),
            Notice::Forgets { v4, clients } => tell(of_node(&node, true, FORGETS, &forgets(*v4, *clients))),
            Notice::Synced(synced) => {
                health.updated(Timestamp::now());
                count(&metrics, synced);
                flows.synced(synced);
                snapshots.send_replace(synced.snapshot.clone());
            }
        })
    }
}

fn count(metrics: &Metrics, synced: &Synced) {
    metrics.synced(synced.duration, synced.full, Timestamp::now());
    metrics.no_local_endpoints(|family| {
        let (mut internal, mut external) = (0, 0);
        for served in synced.snapshot.ports() {
            let choice = served.choice(family == "IPv4");
            let is_bare = choice.has_any && choice.local.is_empty();
            internal += u64::from(is_bare && served.port.internal_local);
            external += u64::from(is_bare && served.port.external_local && served.port.is_external());
        }
        (internal, external)
    });
}

/// Where health check ports listen; none is on every address.
fn check_addresses(settings: &Settings) -> Vec<IpAddr> {
    let ranges = match &settings.node_port_addresses {
        NodePortAddresses::All => return Vec::new(),
        NodePortAddresses::Primary => return settings.node_ips.clone(),
        NodePortAddresses::Networks(ranges) => ranges,
    };
    let listed = Socket::open(Protocol::Route).and_then(|mut socket| socket.all_addresses());
    let mut found: Vec<IpAddr> = match listed {
        Ok(addresses) => addresses.iter().map(|address| address.cidr.addr).collect(),
        Err(error) => {
            tracing::warn!(%error, "Failed to get node ip address matching node port addresses");
            settings.node_ips.clone()
        }
    };
    found.retain(|address| ranges.iter().any(|range| range.contains(address)));
    found.arrange();
    found.dedup();
    found
}

/// Where a server that must not fail tells that it did: the event's reason, and why.
type Failed = mpsc::Sender<(&'static str, String)>;

/// Serves an address, as soon as it can be had.
async fn server(
    address: SocketAddr,
    handler: Handler,
    (reason, what): (&'static str, &'static str),
    failed: Option<Failed>,
    stop: CancellationToken,
) {
    loop {
        let why = match http::bind(address).await {
            Ok(listener) => return http::serve(listener, handler, stop).await,
            Err(why) => format!("{what}: {why}"),
        };
        if let Some(failed) = &failed {
            let _ = failed.send((reason, why)).await;
            return;
        }
        tracing::warn!("{why}");
        if stop.run_until_cancelled(tokio::time::sleep(BIND_RETRY)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
