//! Controllers: pure plans and one harness.
//!
//! [`harness`] does informers, queues, retries, writes; every other module here decides. Controllers are clients: they run as
//! well against a remote API server. In process each has its upstream identity. Nothing here reads a clock or polls.

use client::Clock;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod amount;
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
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod owner;
pub mod pod;
pub mod pod_gc;
pub mod queue;
pub mod replica_set;
pub mod replication_controller;
pub mod root_ca;
pub mod service_account;
pub mod signing_request;
pub mod stateful_set;
pub mod taint_eviction;
pub mod ttl_after_finished;
pub mod well_known;
pub mod write;

use crate::metrics::Metrics;
use crate::pki::authority::Authority;
use event::Recorder;
use harness::{Controller, Environment};
use informers::Informers;

/// What the controllers need from their process.
#[derive(Clone)]
pub struct ControllerContext {
    /// What all of them read; whoever else in the process reads the same shares it ([`read`]).
    pub informers: Informers,
    /// A client with the identity of the controller of that service account name.
    pub client_for: Arc<dyn Fn(&str) -> kube::Client + Send + Sync>,
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
    /// Where work queues are counted.
    pub metrics: Arc<Metrics>,
    /// Ends all controllers.
    pub shutdown: CancellationToken,
}

/// Who the shared informers are: an identity that may list and watch everything, upstream and here.
const READER: &str = garbage::NAME;

/// Starts the informers that all parts of a process share, of the clients that `client_for` makes.
pub fn read(client_for: &(dyn Fn(&str) -> kube::Client + Send + Sync), seed: u64) -> Informers {
    Informers::spawn(&client_for(READER), seed)
}

/// Starts every controller. The set ends when `shutdown` is cancelled.
pub fn spawn_all(context: ControllerContext) -> JoinSet<()> {
    let informers = context.informers.clone();
    let mut starter = Starter {
        context,
        set: JoinSet::new(),
    };
    starter.start(replica_set::ReplicaSets {
        informers: informers.clone(),
    });
    starter.start(deployment::Deployments {
        informers: informers.clone(),
    });
    starter.start_sets(&informers);
    starter.start(service_account::ServiceAccounts {
        informers: informers.clone(),
    });
    starter.start_batch(&informers);
    let pem = starter.context.root_ca_pem.clone();
    starter.start(root_ca::RootCas {
        informers: informers.clone(),
        pem,
    });
    starter.start_nodes(&informers);
    starter.start_certificates(&informers);
    starter.start(endpoint::slice::EndpointSlices {
        informers: informers.clone(),
    });
    starter.start(endpoint::legacy::LegacyEndpoints {
        informers: informers.clone(),
    });
    starter.start(pod_gc::PodGc {
        informers,
        missing: Arc::default(),
        terminated: pod_gc::TERMINATED,
        counted: Mutex::default(),
    });
    let environment = starter.environment(namespace::NAME);
    starter.set.spawn(namespace::run(environment));
    let environment = starter.environment(garbage::NAME);
    starter.set.spawn(garbage::run(environment));
    starter.set
}

struct Starter {
    context: ControllerContext,
    set: JoinSet<()>,
}

impl Starter {
    fn environment(&self, name: &'static str) -> Environment {
        let client = (self.context.client_for)(name);
        Environment {
            recorder: Recorder::spawn(client.clone(), self.context.clock.clone(), name),
            client,
            informers: self.context.informers.clone(),
            clock: self.context.clock.clone(),
            metrics: self.context.metrics.queue(name),
            shutdown: self.context.shutdown.clone(),
        }
    }

    fn start_sets(&mut self, informers: &Informers) {
        self.start(replication_controller::ReplicationControllers {
            informers: informers.clone(),
        });
        self.start(daemon_set::DaemonSets {
            informers: informers.clone(),
            backoffs: Mutex::default(),
        });
        self.start(stateful_set::StatefulSets {
            informers: informers.clone(),
        });
        self.start(disruption::Disruptions {
            informers: informers.clone(),
            scales: disruption::scale::Scales::default(),
            failing: Mutex::default(),
        });
        self.start(disruption::StaleDisruptions {
            informers: informers.clone(),
        });
        let clock = self.context.clock.clone();
        self.start(autoscaler::Autoscalers::new(informers.clone(), clock));
    }

    fn start_batch(&mut self, informers: &Informers) {
        self.start(job::Jobs {
            informers: informers.clone(),
            memories: Mutex::default(),
        });
        self.start(job::orphan::Orphans {
            informers: informers.clone(),
        });
        self.start(cron_job::CronJobs {
            informers: informers.clone(),
            clock: self.context.clock.clone(),
            replaced: Mutex::default(),
        });
        self.start(ttl_after_finished::TtlAfterFinished {
            informers: informers.clone(),
        });
    }

    fn start_nodes(&mut self, informers: &Informers) {
        let text = self.context.cluster_cidr.clone().unwrap_or_default();
        let ranges = node_ipam::Range::parse_list(&text).unwrap_or_default();
        if ranges.is_empty() && !text.is_empty() {
            tracing::error!(text, "cluster CIDR is not a range: nodes get no podCIDR");
        }
        self.start(node_ipam::NodeIpam {
            informers: informers.clone(),
            ranges,
        });
        self.start(node_lifecycle::NodeLifecycle {
            informers: informers.clone(),
            heard: Mutex::default(),
            limits: Mutex::default(),
            census: Arc::default(),
        });
        self.start(taint_eviction::TaintEviction {
            informers: informers.clone(),
        });
    }

    fn start_certificates(&mut self, informers: &Informers) {
        let environment = self.environment(signing_request::NAME);
        self.set.spawn(signing_request::approve::run(environment));
        self.start(signing_request::clean::Cleaning {
            informers: informers.clone(),
        });
        self.start(bootstrap_token::clean::TokenCleaner {
            informers: informers.clone(),
        });
        self.start(bootstrap_token::sign::BootstrapSigner {
            informers: informers.clone(),
        });
        if let Some(authority) = self.context.authority.clone() {
            self.start(signing_request::sign::Signing {
                informers: informers.clone(),
                authority,
            });
        }
    }

    fn start<C: Controller>(&mut self, controller: C) {
        let environment = self.environment(C::NAME);
        self.set.spawn(harness::run(controller, environment));
    }
}

#[cfg(test)]
mod tests;
