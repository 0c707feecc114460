//! Cluster DNS: one responder per node, at the cluster's DNS address itself. Owns that address on its node, the index of the
//! cluster's names, and what resolvers said of all others. Never asks the API server (informers do), never decides what a Service is.
//!
//! | module | owns |
//! |---|---|
//! | [`wire`] | messages, pure |
//! | [`index`] | what names and addresses there are, pure; changed object by object |
//! | [`answer`] | from a question to an answer, pure: the specification 1.1.0 |
//! | [`autopath`] | the search path answered in one question, pure |
//! | [`cache`], [`fair`], [`resolvers`] | what is kept of others' answers, who gets how many under overload, who is asked; pure |
//! | [`clients`] | who counts as one, pure |
//! | `forward` | asking resolvers: once for all who wait, each attempt from a port of its own |
//! | `serve` | UDP and TCP |
//! | `follow` | informers to index |
//! | `care` | that link, rules and resolvers stay as they should be |
//! | [`interface`] | the link with the addresses, and the rules that keep connection tracking off |
//! | [`metrics`] | counters under CoreDNS's names |
//!
//! What answers runs on one thread of its own with a runtime of its own (informers run where they were started, and what asks the kernel
//! about links on a second one): index and cache are not locked, the counters alone are shared with who reads them, and a flood of
//! questions costs one core beside what the kernel spends on its packets. (Whoever started it is asked now and then whose addresses the
//! node knows, and with autopath for a source's search path, for names that are not there: its locks are short.)
//! Whoever reaches the address is answered, and under overload those who ask most are cut first ([`fair`]): the node and its pods, and who is routed
//! through the node, as with any Service.
//!
//! The wire format is by hand: a program that reads one message and writes two records with hickory-proto 0.26
//! (`default-features = false`) is 290 kB larger than one that does not, and allocates for each name. All of this crate adds 273 kB to a
//! program with an API client and informers. An answer of a service's addresses allocates nothing once its buffers have grown; SOA (and
//! so every name that is not there), SRV, PTR and CNAME do. hickory-proto is what the tests compare with.
//! `examples/load.rs` measures: 280,000 answers for a second of the thread's processor time, 9 MB with 10,000 Services of 3 endpoints.
//!
//! Not here: stale answers while resolvers are away.

use client::informer::Informer;
use clients::Clients;
use index::{Index, Shape};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use netlink::cidr::Cidr;
use resolvers::{PORT, Stubs, Wrong};
use serve::Server;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};
use tokio_util::sync::CancellationToken;
use wire::Name;

pub mod answer;
pub mod autopath;
pub mod cache;
mod care;
pub mod clients;
pub mod fair;
mod follow;
mod forward;
pub mod index;
pub mod interface;
pub mod metrics;
pub mod resolvers;
mod serve;
pub mod wire;

pub use autopath::{SearchPath, SearchPaths};
pub use clients::KnownSources;
pub use forward::Bounds as ForwardBounds;
pub use index::PodNames;
pub use interface::remove;
pub use metrics::Metrics;
pub use resolvers::StubDomain;
pub use serve::tcp::Bounds as StreamBounds;

/// A thread's stack, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// Where names come from.
#[derive(Clone)]
pub struct Sources {
    /// All Services.
    pub services: Informer<Service>,
    /// All EndpointSlices.
    pub slices: Informer<EndpointSlice>,
    /// All Namespaces.
    pub namespaces: Informer<Namespace>,
    /// All Pods; wanted for [`PodNames::Verified`] alone.
    pub pods: Option<Informer<Pod>>,
    /// Who knows the search paths of sources; without, every question of a search is answered for itself.
    pub search: Option<SearchPaths>,
    /// Who knows the node's pods by their addresses; without, each address counts as a client ([`clients`]).
    pub known: Option<KnownSources>,
}

/// What may be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's domain: `clusterDomain`.
    pub zone: String,
    /// Where we are reached: `clusterDNS`, of both families if the cluster has both.
    pub addresses: Vec<IpAddr>,
    /// The port; anything but 53 is for tests.
    pub port: u16,
    /// Whether the addresses are put on a link of ours, and the rules made; without it they are somebody else's to make.
    pub interface: bool,
    /// The file that names the node's resolvers: `resolvConf`.
    pub resolv_conf: PathBuf,
    /// Domains others know.
    pub stub_domains: Vec<StubDomain>,
    /// What names pods have by their addresses.
    pub pods: PodNames,
    /// The cluster's ranges of pods, and of Services where they are known. An address in them that has no name is answered so; of
    /// others only a Service's own are answered, whatever endpoints claim, and the rest is asked of resolvers. Without ranges every
    /// address that something of the cluster claims is answered.
    pub ranges: Vec<Cidr>,
    /// How long answers of the cluster hold, in seconds: 5, and 3600 at most (CoreDNS's bounds).
    pub ttl: u32,
    /// The largest answer by UDP, in bytes, however much the client takes: 1232, what passes everywhere whole (DNS flag day 2020).
    pub datagram_bytes: u16,
    /// What the kernel may hold of questions that wait on one address, in bytes: 4 MiB, so that a thread that gets no processor for some
    /// milliseconds loses none. (Linux' 208 KiB are less than 300 questions.)
    pub waiting_bytes: usize,
    /// What bounds the asking of resolvers, and the cache.
    pub forward: ForwardBounds,
    /// What bounds connections.
    pub streams: StreamBounds,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            zone: "cluster.local".to_owned(),
            addresses: Vec::new(),
            port: PORT,
            interface: true,
            resolv_conf: "/etc/resolv.conf".into(),
            stub_domains: Vec::new(),
            pods: PodNames::default(),
            ranges: Vec::new(),
            ttl: 5,
            datagram_bytes: 1232,
            waiting_bytes: 4 << 20,
            forward: ForwardBounds::default(),
            streams: StreamBounds::default(),
        }
    }
}

/// Why there is no DNS on this node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings that cannot be followed.
    #[error("cluster DNS: {0}")]
    Setting(String),
    /// The link or the rules.
    #[error(transparent)]
    Interface(#[from] interface::Error),
    /// An address is taken, or not this node's.
    #[error("cluster DNS: listening on {address} ({protocol})")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `UDP` or `TCP`.
        protocol: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No thread or runtime.
    #[error("cluster DNS: starting its thread")]
    Thread(#[source] io::Error),
    /// A bug.
    #[error("cluster DNS: its thread panicked")]
    Panicked,
}

/// Settings that were found good.
struct Checked {
    shape: Shape,
    stubs: Stubs,
    own: Vec<SocketAddr>,
}

impl Settings {
    fn check(&self, has_pods: bool) -> Result<Checked, Error> {
        let wrong = |text: String| Err(Error::Setting(text));
        let zone = Name::parse(&self.zone).map(|zone| zone.lower());
        // Room for the longest names below it: `_port._proto.service.namespace.svc`.
        let Some(zone) = zone.filter(|zone| (2..=100).contains(&zone.wire().len())) else {
            return wrong(format!(
                "clusterDomain {:?} is no domain of at most 98 bytes",
                self.zone
            ));
        };
        if self.addresses.is_empty() {
            return wrong("clusterDNS names no address to listen on".to_owned());
        }
        if let Some(address) = self.addresses.iter().find(|a| a.is_unspecified() || a.is_multicast()) {
            return wrong(format!("clusterDNS {address} is no address of one host"));
        }
        if !(1..=3600).contains(&self.ttl) {
            return wrong(format!("ttl {} is not between 1 and 3600 seconds", self.ttl));
        }
        if !(512..=4096).contains(&self.datagram_bytes) {
            return wrong(format!(
                "largest datagram {} is not between 512 and 4096 bytes",
                self.datagram_bytes
            ));
        }
        if self.pods == PodNames::Verified && !has_pods {
            return wrong("pods \"verified\" needs to know all pods".to_owned());
        }
        if self.interface && self.port != PORT {
            return wrong(format!("the rules are for port {PORT}, not {}", self.port));
        }
        let own: Vec<SocketAddr> = self
            .addresses
            .iter()
            .map(|ip| SocketAddr::new(*ip, self.port))
            .collect();
        let stubs = Stubs::new(&self.stub_domains, &zone, &own).map_err(|wrong| {
            let words: Vec<String> = wrong.iter().map(Wrong::to_string).collect();
            Error::Setting(words.join("; "))
        })?;
        let shape = Shape {
            zone,
            pods: self.pods,
            ttl: self.ttl,
            addresses: self.addresses.clone(),
            ranges: self.ranges.clone(),
        };
        Ok(Checked { shape, stubs, own })
    }
}

/// Answers until `stop`, or says why it cannot. The link and the rules stay (see [`remove`]): a kubelet that restarts finds them. The
/// thread belongs to the network namespace of the thread that first polls this.
pub async fn run(
    sources: Sources,
    settings: Settings,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let checked = settings.check(sources.pods.is_some())?;
    let (tell, told) = oneshot::channel();
    // Who drops this future stops the thread, too.
    let stop = stop.child_token();
    let _guard = stop.clone().drop_guard();
    let body = move || {
        let outcome = on_thread(sources, &settings, checked, metrics, stop);
        let _ = tell.send(outcome);
    };
    let thread = std::thread::Builder::new()
        .name("dns".to_owned())
        .stack_size(STACK_BYTES);
    thread.spawn(body).map_err(Error::Thread)?;
    told.await.unwrap_or(Err(Error::Panicked))
}

fn on_thread(
    sources: Sources,
    settings: &Settings,
    checked: Checked,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> Result<(), Error> {
    // One more thread, in the namespace of this one, for what must not hold this one up.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .thread_name("dns-link")
        .thread_stack_size(STACK_BYTES)
        .build();
    let runtime = runtime.map_err(Error::Thread)?;
    until_ended(runtime, serve_all(sources, settings, checked, metrics, stop))
}

/// Runs what does not leave this thread. What its other thread still waits for when it has ended, as a kernel that does not answer, is
/// not waited for: that thread ends by itself.
fn until_ended<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let ended = LocalSet::new().block_on(&runtime, work);
    runtime.shutdown_background();
    ended
}

async fn serve_all(
    sources: Sources,
    settings: &Settings,
    checked: Checked,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let mut interface = interface::Keeper::new(settings.addresses.clone());
    if settings.interface {
        interface.ensure()?;
    }
    metrics.name_zone(&checked.shape.zone.to_string());
    let path = settings.resolv_conf.clone();
    let forwarder = forward::Forwarder::new(
        settings.forward,
        checked.own.clone(),
        path,
        checked.stubs,
        metrics.clone(),
    );
    let clients = Clients::new(settings.addresses.clone(), sources.known.clone());
    let server = Rc::new(Server::new(
        Index::new(checked.shape),
        forwarder,
        metrics.clone(),
        settings.datagram_bytes,
        (sources.search.clone(), clients),
    ));
    let mut tasks = JoinSet::new();
    for address in checked.own {
        let fail = |protocol| {
            move |source| Error::Listen {
                address,
                protocol,
                source,
            }
        };
        let socket = serve::udp::bind(address, settings.waiting_bytes)
            .await
            .map_err(fail("UDP"))?;
        let listener = TcpListener::bind(address).await.map_err(fail("TCP"))?;
        tasks.spawn_local(serve::udp::serve(server.clone(), Rc::new(socket)));
        tasks.spawn_local(serve::tcp::serve(server.clone(), listener, settings.streams));
    }
    tasks.spawn_local(follow::follow(server.clone(), sources));
    tasks.spawn_local(care::look_after(server));
    if settings.interface {
        let interface = Mutex::new(interface);
        let ensure: care::Ensure = Arc::new(move || interface.lock().unwrap_or_else(PoisonError::into_inner).ensure());
        tasks.spawn_local(care::keep(ensure, care::LOOK));
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        // They never end by themselves.
        _ = tasks.join_next() => {
            metrics.panic();
            Err(Error::Panicked)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::mpsc::unbounded_channel;

    #[test]
    fn the_end_waits_for_no_kernel() {
        let (begin, mut begun) = unbounded_channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (end, ended) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        until_ended(runtime, async move {
            tokio::task::spawn_blocking(move || {
                let _ = begin.send(());
                // Longer than anything here takes.
                let _ = end.send(released.recv_timeout(Duration::from_secs(10)).is_ok());
            });
            begun.recv().await.unwrap();
        });
        // What it waits for comes only now.
        release.send(()).unwrap();
        assert_eq!(ended.recv(), Ok(true), "it was waited for");
    }
}
