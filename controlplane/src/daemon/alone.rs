//! Scheduler and controllers without an API server beside them: clients of one elsewhere, as the kubeconfig says.
//!
//! Each part has its own connection, port and Lease. They send nothing that upstream's API server does not take, and are nobody but whom the
//! kubeconfig (or, of controllers, their service accounts' tokens) makes them. A part that lost its Lease has ended, and the process with it.

mod accounts;
mod endpoints;
mod patience;

use super::{DRAIN_DEADLINE, DaemonError, Host, scheduler_config};
use crate::apiserver::authn::legacy::LegacyClaims;
use crate::config::{AloneConfig, Config, ElectionConfig};
use crate::controller::event::Recorder;
use crate::controller::informers::Informers;
use crate::controller::kept::Kept;
use crate::controller::legacy_token::{Sign, Subject};
use crate::controller::{self, ClientFor, ControllerContext};
use crate::leader::{Election, Elector, Fence, Outcome};
use crate::metrics::Metrics;
use crate::pki::authority::Authority;
use crate::pki::reload::WatchedFiles;
use crate::pki::token_key::TokenKey;
use crate::pki::{self, Identity, PkiError, files, template};
use crate::scheduler::config::{ElectionWords, SchedulerConfig};
use crate::scheduler::sources::Sources;
use crate::scheduler::{self, SchedulerContext};
use accounts::Accounts;
use client::connect;
use endpoints::Endpoints;
use patience::patient;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Upstream's names, which their Leases have, too.
const SCHEDULER: &str = "kube-scheduler";
const CONTROLLERS: &str = "kube-controller-manager";
/// The controller that tells namespaces the CA.
const ROOT_CA: &str = "root-ca-certificate-publisher-controller";

/// The parts that run.
pub struct Alone {
    tasks: JoinSet<&'static str>,
    shutdown: CancellationToken,
    /// The API server's URL.
    pub url: String,
    /// Where health and metrics are served.
    pub ports: Vec<SocketAddr>,
}

/// What the parts share while they are started.
struct Starting<'a> {
    config: &'a Config,
    alone: &'a AloneConfig,
    host: &'a Host,
    kube: kube::Config,
    tls: watch::Receiver<Arc<rustls::ServerConfig>>,
    alive: Alone,
}

/// A part's work, once it may begin.
type Work = Box<dyn FnOnce(CancellationToken) -> JoinSet<()> + Send>;

impl Alone {
    /// Starts the parts that the configuration names. They need not lead, nor the API server answer, when this returns.
    ///
    /// # Errors
    /// A file cannot be used or a port not opened; nothing keeps running after one.
    pub async fn start(config: &Config, alone: &AloneConfig, host: Host) -> Result<Self, DaemonError> {
        let scheduler = scheduler_config(config, true)?;
        let kube = connect::read_kubeconfig(&alone.kubeconfig).await;
        let kube = kube.map_err(DaemonError::Connect)?;
        let watched = config.identity.tls_files.clone();
        let watched = watched.map(|(cert, key)| (WatchedFiles::new(vec![cert.clone(), key.clone()]), cert, key));
        let serving = serving(config, &host)?;
        let path = config.identity.tls_files.as_ref().map(|(cert, _)| cert.as_path());
        let first = endpoints::tls(&serving, path.unwrap_or(Path::new("(made at start)"))).map_err(DaemonError::Pki)?;
        let (newest, tls) = watch::channel(first);
        let mut starting = Starting {
            config,
            alone,
            host: &host,
            alive: Self {
                tasks: JoinSet::new(),
                shutdown: CancellationToken::new(),
                url: kube.cluster_url.to_string(),
                ports: Vec::new(),
            },
            kube,
            tls,
        };
        if config.components.scheduler {
            starting.scheduler(scheduler).await?;
        }
        if config.components.controllers {
            starting.controllers().await?;
        }
        let mut alive = starting.alive;
        let shutdown = alive.shutdown.clone();
        alive.tasks.spawn(async move {
            match watched {
                Some((watched, cert, key)) => {
                    let read = move || endpoints::tls(&pki::read_identity(&cert, &key)?, &cert);
                    watched
                        .follow(read, move |new| drop(newest.send_replace(new)), shutdown)
                        .await;
                }
                // The channel stays open for as long as somebody may ask.
                None => {
                    shutdown.cancelled().await;
                    drop(newest);
                }
            }
            "serving certificate"
        });
        Ok(alive)
    }

    /// Waits until a part ends by itself.
    pub async fn failed(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(part)) => tracing::error!(part, "ended"),
            Some(Err(error)) => tracing::error!(%error, "a part ended"),
            None => {}
        }
    }

    /// Ends the work, then gives Leases back, within a deadline.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        // The work's own deadline, and some time to give the Lease back.
        let drained = tokio::time::timeout(DRAIN_DEADLINE * 2, async {
            while self.tasks.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

/// The certificate that health and metrics are served with: the user's, or one of its own for as long as the process runs.
fn serving(config: &Config, host: &Host) -> Result<Identity, DaemonError> {
    if let Some((cert, key)) = &config.identity.tls_files {
        return pki::read_identity(cert, key).map_err(DaemonError::Pki);
    }
    let names = ["localhost".to_owned(), host.hostname.clone(), "127.0.0.1".to_owned()];
    let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let made = rcgen::generate_simple_self_signed(names).map_err(|source| PkiError::Issue {
        what: "a serving certificate".to_owned(),
        source,
    });
    let made = made.map_err(DaemonError::Pki)?;
    Ok(Identity {
        cert_pem: made.cert.pem(),
        key_pem: made.signing_key.serialize_pem(),
    })
}

impl Starting<'_> {
    /// A client of the part, by that configuration.
    fn client(&self, kube: kube::Config, part: &str) -> Result<kube::Client, DaemonError> {
        let options = connect::Options::new(format!("{part}/{}", crate::apiserver::unstored::git_version()));
        let client = connect::from_config(kube, &options).map_err(DaemonError::Connect)?;
        Ok(patient(client))
    }

    async fn scheduler(&mut self, config: SchedulerConfig) -> Result<(), DaemonError> {
        let client = self.client(self.kube.clone(), SCHEDULER)?;
        let election = self.alone.election.resolve(&config.election, SCHEDULER);
        let election = election.map_err(DaemonError::Election)?;
        let (metrics, fence) = (Arc::new(Metrics::default()), Fence::default());
        let (clock, seed, host) = (Arc::clone(&self.host.clock), self.host.seed, self.host.hostname.clone());
        let (guarded, own, counted) = (fence.guard(client.clone()), client.clone(), Arc::clone(&metrics));
        let work: Work = Box::new(move |shutdown| {
            let mut set = JoinSet::new();
            set.spawn(scheduler::run(SchedulerContext {
                informers: Sources::spawn(&own, seed, Kept::beside(&config.extenders)),
                client: guarded,
                config,
                clock,
                host,
                seed,
                metrics: counted,
                shutdown,
            }));
            set
        });
        let port = self.alone.scheduler_port;
        self.begin(SCHEDULER, client, (port, metrics, fence), election, work)
            .await
    }

    async fn controllers(&mut self) -> Result<(), DaemonError> {
        let client = self.client(self.kube.clone(), CONTROLLERS)?;
        let election = self.alone.election.resolve(&ElectionWords::default(), CONTROLLERS);
        let election = election.map_err(DaemonError::Election)?;
        let (metrics, fence) = (Arc::new(Metrics::default()), Fence::default());
        let client_for = self.client_for(&client, &fence)?;
        let root_ca_pem = self.root_ca()?;
        let authority = match &self.alone.signing_files {
            Some((cert, key)) => Some(Arc::new(Authority::load_files(cert, key).map_err(DaemonError::Pki)?)),
            None => None,
        };
        let sign = self.sign()?;
        let (clock, seed) = (Arc::clone(&self.host.clock), self.host.seed);
        let (own, counted) = (client.clone(), Arc::clone(&metrics));
        let config = self.config;
        let (selection, rates) = (config.controllers.selection.clone(), config.controllers.rates);
        let options = config.controllers.options;
        let cluster_cidr = Some(config.cluster_cidr.to_string());
        let work: Work = Box::new(move |shutdown| {
            controller::spawn_all(ControllerContext {
                informers: Informers::spawn(&own, seed, Kept::Asked),
                client_for,
                clock,
                seed,
                cluster_cidr,
                root_ca_pem,
                authority,
                sign,
                selection,
                rates,
                options,
                metrics: counted,
                shutdown,
            })
        });
        let port = self.alone.controllers_port;
        self.begin(CONTROLLERS, client, (port, metrics, fence), election, work)
            .await
    }

    /// Signs tokens for Secrets by the key that was given. Another key in its file counts from the next start, as upstream.
    fn sign(&self) -> Result<Option<Sign>, DaemonError> {
        let Some(path) = &self.alone.token_key_file else {
            return Ok(None);
        };
        let key = TokenKey::load(path).map_err(DaemonError::Pki)?;
        Ok(Some(Arc::new(move |subject: &Subject| {
            key.sign(&LegacyClaims::of(subject))
        })))
    }

    /// Who controllers are: the kubeconfig's user, or each its own service account.
    fn client_for(&self, client: &kube::Client, fence: &Fence) -> Result<ClientFor, DaemonError> {
        if !self.alone.service_account_credentials {
            let guarded = fence.guard(client.clone());
            return Ok(Arc::new(move |_| guarded.clone()));
        }
        let mut nobody = self.kube.clone();
        nobody.auth_info = kube::config::AuthInfo::default();
        let nobody = self.client(nobody, CONTROLLERS)?;
        let accounts = Accounts::new(client.clone(), nobody);
        let fence = fence.clone();
        let program = client.clone();
        Ok(Arc::new(move |name| {
            fence.guard(match name {
                controller::PROGRAM => program.clone(),
                name => accounts.client(name),
            })
        }))
    }

    /// The CA that namespaces are told: the file's, whenever it changes, or the kubeconfig's.
    fn root_ca(&mut self) -> Result<watch::Receiver<String>, DaemonError> {
        if let Some(path) = self.alone.root_ca_file.clone() {
            let watched = WatchedFiles::new(vec![path.clone()]);
            let pem = files::read(&path).map_err(DaemonError::Pki)?;
            let (newest, pem) = watch::channel(pem);
            let shutdown = self.alive.shutdown.clone();
            let take = move |new| drop(newest.send_replace(new));
            let follow = watched.follow(move || files::read(&path), take, shutdown);
            self.alive.tasks.spawn(async move {
                follow.await;
                "root CA"
            });
            return Ok(pem);
        }
        let ders = self.kube.root_cert.iter().flatten();
        let pem: String = ders.map(|der| template::pem("CERTIFICATE", der)).collect();
        if pem.is_empty() && self.config.controllers.selection.has(ROOT_CA) {
            return Err(DaemonError::NoRootCa {
                path: self.alone.kubeconfig.clone(),
            });
        }
        Ok(watch::channel(pem).1)
    }

    async fn begin(
        &mut self,
        part: &'static str,
        client: kube::Client,
        (port, metrics, fence): (Option<u16>, Arc<Metrics>, Fence),
        election: ElectionConfig,
        work: Work,
    ) -> Result<(), DaemonError> {
        let shutdown = self.alive.shutdown.clone();
        if let Some(port) = port {
            let address = SocketAddr::new(self.config.bind_address, port);
            let listener = TcpListener::bind(address).await;
            let listener = listener.map_err(|source| DaemonError::Listen { address, source })?;
            self.alive.ports.extend(listener.local_addr().ok());
            let endpoints = Endpoints::new(
                Arc::clone(&metrics),
                fence.clone(),
                client.clone(),
                self.host.proc.clone(),
            );
            let (tls, shutdown) = (self.tls.clone(), shutdown.clone());
            self.alive.tasks.spawn(async move {
                endpoints::serve(listener, tls, endpoints, shutdown).await;
                part
            });
        }
        let elected = election.is_on.then(|| {
            let recorder = Recorder::spawn(client.clone(), Arc::clone(&self.host.clock), part);
            let status = metrics.leading(&election.name);
            let who = Election {
                identity: format!("{}_{}", self.host.hostname, uuid::Uuid::new_v4()),
                namespace: election.namespace,
                name: election.name,
                times: election.times,
            };
            Elector::new(
                who,
                client,
                Arc::clone(&self.host.clock),
                recorder,
                fence.clone(),
                status,
            )
        });
        self.alive.tasks.spawn(async move {
            match elected {
                Some(elector) => {
                    if elector.run(work, DRAIN_DEADLINE, shutdown).await == Outcome::Lost {
                        tracing::error!(part, "leaderelection lost");
                    }
                }
                None => {
                    fence.open_for_ever();
                    let mut tasks = work(shutdown);
                    while tasks.join_next().await.is_some() {}
                }
            }
            part
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
