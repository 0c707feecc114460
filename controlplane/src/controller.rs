//! Controllers: pure plans and one harness.
//!
//! [`harness`] does informers, queues, retries, writes; every other module here decides. Controllers are clients: they run as
//! well against a remote API server. In process each has its upstream identity. Nothing here reads a clock or polls.

use client::Clock;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod amount;
mod ask;
pub mod autoscaler;
pub mod bootstrap_token;
pub mod burst;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod discovery;
pub mod disruption;
pub mod endpoint;
pub mod event;
pub mod execute;
pub mod garbage;
pub mod harness;
pub mod history;
pub mod informers;
pub mod job;
pub mod kept;
pub mod legacy_token;
pub mod load_balancer;
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod owner;
pub mod pod;
pub mod pod_gc;
pub mod printed;
pub mod queue;
pub mod replica_set;
pub mod replication_controller;
pub mod resource_claim;
pub mod resource_quota;
pub mod role_aggregation;
pub mod root_ca;
pub mod selection;
pub mod service_account;
pub mod service_cidr;
pub mod signing_request;
pub mod stateful_set;
pub mod taint_eviction;
pub mod ttl;
pub mod ttl_after_finished;
pub mod well_known;
pub mod write;

use crate::metrics::Metrics;
use crate::pki::authority::Authority;
use crate::resource::service::NodePorts;
use event::Recorder;
use harness::{Controller, Environment};
use informers::Informers;
use kept::Kept;
use selection::Selection;

/// Gives each controller, by its name, the client that is it.
pub type ClientFor = Arc<dyn Fn(&str) -> kube::Client + Send + Sync>;

/// Bounds of some controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Ports of nodes that Services have: no other Service is balanced to one of them.
    pub node_ports: NodePorts,
    /// Addresses of one subset of Endpoints that are mirrored.
    pub mirrored_addresses: usize,
    /// How large nodes' podCIDRs are.
    pub node_blocks: node_ipam::BlockSizes,
    /// Terminated pods that may stay; all of them if it is 0.
    pub terminated_pods: usize,
}

impl Default for Options {
    /// Upstream's.
    fn default() -> Self {
        Self {
            node_ports: NodePorts::default(),
            mirrored_addresses: 1000,
            node_blocks: node_ipam::BlockSizes::default(),
            terminated_pods: pod_gc::TERMINATED,
        }
    }
}

/// What the controllers need from their process.
#[derive(Clone)]
pub struct ControllerContext {
    /// What all of them read; whoever else in the process reads the same shares it ([`read`]).
    pub informers: Informers,
    /// A client with the identity of the controller of that service account name.
    pub client_for: ClientFor,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Seed of jitter and ties.
    pub seed: u64,
    /// Range that node podCIDRs are cut from; `None` leaves nodes without.
    pub cluster_cidr: Option<String>,
    /// CA bundle for `kube-root-ca.crt`. The newest, when its file changes.
    pub root_ca_pem: tokio::sync::watch::Receiver<String>,
    /// Signs approved certificate requests; `None` leaves them to somebody else.
    pub authority: Option<Arc<Authority>>,
    /// Signs tokens for Secrets; `None` leaves those to somebody else.
    pub sign: Option<legacy_token::Sign>,
    /// Which controllers run.
    pub selection: Selection,
    /// How fast nodes that fell silent lose their pods.
    pub rates: node_lifecycle::Rates,
    /// Bounds of some of them.
    pub options: Options,
    /// Where work queues are counted.
    pub metrics: Arc<Metrics>,
    /// Ends all controllers.
    pub shutdown: CancellationToken,
}

/// The name of the client that is the whole program rather than one controller: upstream's token controller is that.
pub const PROGRAM: &str = "kube-controller-manager";

/// Who the shared informers are: an identity that may list and watch everything, upstream and here.
const READER: &str = garbage::NAME;

/// Starts the informers that all parts of a process share, of the clients that `client_for` makes; of pods that much is kept.
pub fn read(client_for: &(dyn Fn(&str) -> kube::Client + Send + Sync), seed: u64, kept: Kept) -> Informers {
    Informers::spawn(&client_for(READER), seed, kept)
}

/// Starts the controllers that are on. The set ends when `shutdown` is cancelled.
pub fn spawn_all(context: ControllerContext) -> JoinSet<()> {
    let informers = context.informers.clone();
    for controller in context.selection.off() {
        tracing::info!(controller, "this controller is off, as --controllers says");
    }
    let mut starter = Starter {
        context,
        set: JoinSet::new(),
    };
    starter.start_deployments(&informers);
    starter.start_sets(&informers);
    starter.start_batch(&informers);
    starter.start_namespaces(&informers);
    starter.start_nodes(&informers);
    starter.start_certificates(&informers);
    starter.start_tokens(&informers);
    starter.start_endpoints(&informers);
    starter.start_device_claims(&informers);
    starter.start_quotas(&informers);
    starter.start_garbage(informers);
    starter.set
}

struct Starter {
    context: ControllerContext,
    set: JoinSet<()>,
}

impl Starter {
    fn environment(&self, controller: &'static str, account: &'static str) -> Environment {
        let client = (self.context.client_for)(account);
        let component = selection::component(controller, account);
        Environment {
            recorder: Recorder::spawn(client.clone(), self.context.clock.clone(), component),
            client,
            informers: self.context.informers.clone(),
            clock: self.context.clock.clone(),
            metrics: self.context.metrics.queue(account),
            shutdown: self.context.shutdown.clone(),
        }
    }

    fn start_deployments(&mut self, informers: &Informers) {
        let of = || informers.clone();
        self.start("replicaset-controller", replica_set::ReplicaSets { informers: of() });
        self.start("deployment-controller", deployment::Deployments { informers: of() });
    }

    fn start_sets(&mut self, informers: &Informers) {
        let of = || informers.clone();
        let replication = replication_controller::ReplicationControllers { informers: of() };
        self.start("replicationcontroller-controller", replication);
        let daemons = daemon_set::DaemonSets {
            informers: of(),
            backoffs: Mutex::default(),
        };
        self.start("daemonset-controller", daemons);
        self.start("statefulset-controller", stateful_set::StatefulSets { informers: of() });
        let disruptions = disruption::Disruptions {
            informers: of(),
            scales: disruption::scale::Scales::default(),
            failing: Mutex::default(),
        };
        self.start("disruption-controller", disruptions);
        let stale = disruption::StaleDisruptions { informers: of() };
        self.start("disruption-controller", stale);
        let autoscalers = autoscaler::Autoscalers::new(of(), self.context.clock.clone());
        self.start("horizontal-pod-autoscaler-controller", autoscalers);
    }

    fn start_batch(&mut self, informers: &Informers) {
        let of = || informers.clone();
        let jobs = job::Jobs {
            informers: of(),
            memories: Mutex::default(),
            planned: Mutex::default(),
        };
        self.start("job-controller", jobs);
        self.start("job-controller", job::orphan::Orphans { informers: of() });
        let cron_jobs = cron_job::CronJobs {
            informers: of(),
            clock: self.context.clock.clone(),
            replaced: Mutex::default(),
        };
        self.start("cronjob-controller", cron_jobs);
        self.start("cronjob-controller", cron_job::history::History { informers: of() });
        let finished = ttl_after_finished::TtlAfterFinished { informers: of() };
        self.start("ttl-after-finished-controller", finished);
    }

    fn start_namespaces(&mut self, informers: &Informers) {
        let of = || informers.clone();
        let accounts = service_account::ServiceAccounts { informers: of() };
        self.start("serviceaccount-controller", accounts);
        let pem = self.context.root_ca_pem.clone();
        let root_cas = root_ca::RootCas { informers: of(), pem };
        self.start("root-ca-certificate-publisher-controller", root_cas);
        self.run("namespace-controller", namespace::NAME, namespace::run);
    }

    fn start_nodes(&mut self, informers: &Informers) {
        let of = || informers.clone();
        let text = self.context.cluster_cidr.clone().unwrap_or_default();
        let ranges = node_ipam::Range::parse_list(&text, self.context.options.node_blocks).unwrap_or_default();
        if ranges.is_empty() && !text.is_empty() {
            tracing::error!(text, "cluster CIDR is not a range: nodes get no podCIDR");
        }
        let ipam = node_ipam::NodeIpam {
            informers: of(),
            ranges,
        };
        self.start("node-ipam-controller", ipam);
        let lifecycle = node_lifecycle::NodeLifecycle {
            informers: of(),
            rates: self.context.rates,
            heard: Arc::default(),
            limits: Mutex::default(),
            census: Arc::default(),
            draining: Mutex::default(),
        };
        self.start("node-lifecycle-controller", lifecycle);
        let ttl = ttl::Ttl {
            informers: of(),
            size: Arc::default(),
        };
        self.start("ttl-controller", ttl);
        self.start(
            "taint-eviction-controller",
            taint_eviction::TaintEviction {
                informers: of(),
                leaving: Mutex::default(),
            },
        );
    }

    fn start_certificates(&mut self, informers: &Informers) {
        let of = || informers.clone();
        let approving = "certificatesigningrequest-approving-controller";
        self.run(approving, signing_request::NAME, signing_request::approve::run);
        let cleaning = signing_request::clean::Cleaning { informers: of() };
        self.start("certificatesigningrequest-cleaner-controller", cleaning);
        if let Some(authority) = self.context.authority.clone() {
            let signing = signing_request::sign::Signing {
                informers: of(),
                authority,
            };
            self.start("certificatesigningrequest-signing-controller", signing);
        }
    }

    fn start_tokens(&mut self, informers: &Informers) {
        let of = || informers.clone();
        let cleaner = bootstrap_token::clean::TokenCleaner { informers: of() };
        self.start("token-cleaner-controller", cleaner);
        let signer = bootstrap_token::sign::BootstrapSigner { informers: of() };
        self.start("bootstrap-signer-controller", signer);
        if let Some(sign) = self.context.sign.clone() {
            let pem = self.context.root_ca_pem.clone();
            let tokens = legacy_token::fill::Tokens::new(of(), pem, sign);
            self.start("serviceaccount-token-controller", tokens);
        }
        let unused = legacy_token::clean::Unused::new(of(), Arc::clone(&self.context.clock));
        self.start("legacy-serviceaccount-token-cleaner-controller", unused);
        let sums = role_aggregation::RoleAggregation { informers: of() };
        self.start("clusterrole-aggregation-controller", sums);
    }

    fn start_endpoints(&mut self, informers: &Informers) {
        let of = || informers.clone();
        let slices = endpoint::slice::EndpointSlices {
            informers: of(),
            hinted: Mutex::default(),
            triggers: endpoint::trigger::Triggers::default(),
        };
        self.start("endpointslice-controller", slices);
        let endpoints = endpoint::legacy::LegacyEndpoints {
            informers: of(),
            triggers: endpoint::trigger::Triggers::default(),
        };
        self.start("endpoints-controller", endpoints);
        let mirror = endpoint::mirror::Mirror {
            informers: of(),
            most: self.context.options.mirrored_addresses,
            skipped: self.context.metrics.mirroring_skipped(),
        };
        self.start("endpointslice-mirroring-controller", mirror);
        let ranges = service_cidr::ServiceCidrs {
            informers: of(),
            used: Mutex::default(),
        };
        self.start("service-cidr-controller", ranges);
        let balancers = load_balancer::LoadBalancers {
            informers: of(),
            rivals: Arc::default(),
            node_ports: self.context.options.node_ports,
        };
        self.start("service-lb-controller", balancers);
    }

    fn start_device_claims(&mut self, informers: &Informers) {
        let of = || informers.clone();
        self.start("resourceclaim-controller", resource_claim::pods::PodClaims::new(of()));
        let used = resource_claim::claims::UsedClaims {
            informers: of(),
            gone: Mutex::default(),
            freed: Mutex::default(),
        };
        self.start("resourceclaim-controller", used);
    }

    fn start_quotas(&mut self, informers: &Informers) {
        let quotas = resource_quota::ResourceQuotas {
            informers: informers.clone(),
            clock: Arc::clone(&self.context.clock),
            numbers: resource_quota::number::Numbers::default(),
        };
        self.start("resourcequota-controller", quotas);
    }

    fn start_garbage(&mut self, informers: Informers) {
        let pods = pod_gc::PodGc {
            informers,
            missing: Arc::default(),
            terminated: self.context.options.terminated_pods,
            clock: Arc::clone(&self.context.clock),
            counted: Mutex::default(),
        };
        self.start("pod-garbage-collector-controller", pods);
        self.run("garbage-collector-controller", garbage::NAME, garbage::run);
    }

    /// Starts a controller if the one of that name, upstream's, is on.
    fn start<C: Controller>(&mut self, name: &'static str, controller: C) {
        self.run(name, C::NAME, |environment| harness::run(controller, environment));
    }

    /// As [`Starter::start`], for one that runs itself; `account` is its service account.
    fn run<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        account: &'static str,
        run: impl FnOnce(Environment) -> F,
    ) {
        debug_assert!(
            selection::is_known(name),
            "{name} is missing among the controllers there are"
        );
        if self.context.selection.has(name) {
            let environment = self.environment(name, account);
            self.set.spawn(run(environment));
        }
    }
}

#[cfg(test)]
mod tests;
