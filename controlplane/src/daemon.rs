//! The composition root: builds store, API server, controllers and scheduler, runs them until told to stop, drains.
//!
//! Owns the order of things and no logic of theirs. What belongs to the machine (clock, names, /proc) comes in through [`Host`].

use crate::apiserver::admission::Admission;
use crate::apiserver::audit::policy::Policy;
use crate::apiserver::audit::{Audit, AuditLog, LogOptions};
use crate::apiserver::authn::service_account::Tokens;
use crate::apiserver::authn::token_file::TokenFile;
use crate::apiserver::authn::{Authn, AuthnParts};
use crate::apiserver::authz::Authz;
use crate::apiserver::handler_chain::HandlerChain;
use crate::apiserver::kubelet_proxy::KubeletProxy;
use crate::apiserver::unstored::UnstoredEndpoints;
use crate::apiserver::unstored::health::Health;
use crate::apiserver::usage::{self, Usage};
use crate::apiserver::{ApiServer, Parts, service};
use crate::backup;
use crate::bootstrap::{self, BootstrapError, Facts};
use crate::config::{AuditConfig, Config};
use crate::metrics::write_errors::WriteErrors;
use crate::migrate;
use crate::pki::reload::WatchedFiles;
use crate::pki::{self, Pki, PkiError, files, tls};
use crate::resource::service::{AllocateError, CLUSTER_DNS, Ranges};
use crate::resource::stored::resource_of;
use crate::scheduler;
use crate::scheduler::config::SchedulerConfig;
use crate::scheduler::config::policy::Policy as SchedulerPolicy;
use crate::schema::{self, Media};
use crate::store::readable::Readable;
use crate::store::told::Told;
use crate::store::{Store, StoreError};
use client::Clock;
use clients::Clients;
use prometheus_client::registry::Registry;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod alone;
mod clients;
mod encryption;
mod stores;

/// How long parts may take to end after the signal.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// Why the daemon could not start; each text names the thing.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Certificates or keys.
    #[error(transparent)]
    Pki(PkiError),
    /// The store under the data directory.
    #[error(transparent)]
    Store(StoreError),
    /// The store on etcd.
    #[error(transparent)]
    Etcd(etcd::OpenError),
    /// The address and port to serve on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// A file given by flag.
    #[error("--{flag} {path}: {why}")]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The service account keys.
    #[error("{0}")]
    Tokens(String),
    /// The range of Service addresses.
    #[error("--service-cluster-ip-range: {0}")]
    Range(String),
    /// The kubeconfig that parts without an API server are told.
    #[error("--kubeconfig")]
    Connect(#[source] client::connect::ConnectError),
    /// Leader election.
    #[error("{0}")]
    Election(String),
    /// Nobody says which CA namespaces are to be told.
    #[error("--root-ca-file is needed: {path} has no certificate-authority")]
    NoRootCa {
        /// The kubeconfig.
        path: PathBuf,
    },
    /// The first objects.
    #[error("cannot make the cluster's first objects")]
    Bootstrap(#[source] BootstrapError),
}

/// What belongs to the machine the daemon runs on.
#[derive(Clone)]
pub struct Host {
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Seed of everything random that others may predict.
    pub seed: u64,
    /// The machine's name.
    pub hostname: String,
    /// The address others reach the machine at, where the flags give none.
    pub address: IpAddr,
    /// Where /proc is.
    pub proc: PathBuf,
}

/// A started control plane.
pub struct Daemon {
    server: ApiServer,
    health: Health,
    tasks: JoinSet<()>,
    shutdown: CancellationToken,
    /// Where `admin.kubeconfig` stands.
    pub admin_kubeconfig: PathBuf,
    /// The URL of the API server on this machine.
    pub url: String,
}

impl Daemon {
    /// Starts everything; on return the API server is ready and every part runs.
    ///
    /// # Errors
    /// See [`DaemonError`]; nothing keeps running after one.
    pub async fn start(config: &Config, host: Host) -> Result<Self, DaemonError> {
        files::make_private_dir(&config.data_dir).map_err(DaemonError::Pki)?;
        // First, because it keeps a second process off the data directory.
        let stores::Opened {
            store,
            snapshots,
            metrics,
            over,
            sizes,
        } = stores::open(config).await?;
        let address = config.listen();
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| DaemonError::Listen { address, source })?;
        let mut daemon = Self::assemble(config, host, store, Some(listener)).await?;
        if let Some((sizes, metrics)) = sizes.zip(metrics.clone()) {
            let shutdown = daemon.shutdown.clone();
            daemon.tasks.spawn(stores::follow_sizes(sizes, metrics, shutdown));
        }
        if let Some(metrics) = metrics {
            let register = move |registry: &mut Registry| metrics.register(registry);
            daemon.server.metrics().add(Box::new(register));
        }
        if let Some(over) = over {
            daemon.tasks.spawn(stores::end_with(over, daemon.shutdown.clone()));
        }
        if let Some(snapshots) = snapshots {
            let cluster = pki::fingerprint(&config.data_dir).map_err(DaemonError::Pki)?;
            let (directory, shutdown) = (config.data_dir.join("store"), daemon.shutdown.clone());
            let moving =
                migrate::giving::serve(directory.clone(), snapshots.again(), cluster.clone(), shutdown.clone());
            daemon.tasks.spawn(moving);
            daemon
                .tasks
                .spawn(backup::socket::serve(directory, snapshots, cluster, shutdown));
        }
        Ok(daemon)
    }

    /// As [`Daemon::start`], over a store that is there and without a port: reached through [`Daemon::server`] alone. For
    /// simulations, where the same store outlives several control planes.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub async fn embed(config: &Config, host: Host, store: Arc<dyn Store>) -> Result<Self, DaemonError> {
        files::make_private_dir(&config.data_dir).map_err(DaemonError::Pki)?;
        Self::assemble(config, host, store, None).await
    }

    async fn assemble(
        config: &Config,
        host: Host,
        store: Arc<dyn Store>,
        listener: Option<TcpListener>,
    ) -> Result<Self, DaemonError> {
        let advertise = advertised(config, &host);
        let clients_watched = WatchedFiles::new(client_ca_paths(config));
        let serving_watched = WatchedFiles::new(serving_paths(config).into());
        let scheduler = scheduler_config(config, store.is_shared())?;
        let pki = pki::ensure(config, advertise, &host.hostname, host.clock.now()).map_err(DaemonError::Pki)?;
        let tls = tls::server_config(&pki.serving, &serving_paths(config)[0]).map_err(DaemonError::Pki)?;
        let health = Health::default();
        let own = SocketAddr::new(advertise, config.secure_port);
        let name = bootstrap::identity::name(&host.hostname, own);
        let (store, encryption) = encryption::around(config, &name, store).await?;
        // Around what deciphers: upstream encrypts what it has written in protobuf. What came from etcd may still be that.
        let store: Arc<dyn Store> = Arc::new(Readable::over(store, read_protobuf));
        let write_errors = Arc::<WriteErrors>::default();
        let store: Arc<dyn Store> = Arc::new(Told::over(store, Arc::clone(&write_errors), Box::new(resource_of())));
        let handler_chain = handler_chain(config, &host, &pki, advertise, health.clone())?;
        let authn = Arc::clone(&handler_chain.authn);
        let tokens = Arc::clone(&handler_chain.unstored.tokens);
        let uses = authn.take_legacy_uses();
        let usage = handler_chain.unstored.usage.clone();
        let parts = Parts {
            store,
            clock: Arc::clone(&host.clock),
            seed: host.seed,
            gate: Arc::new(handler_chain),
        };
        let server = ApiServer::new(parts).await.map_err(DaemonError::Store)?;
        let facts = Facts {
            cluster_ip: config.service_cidr.nth(1).unwrap_or(config.service_cidr.network()),
            service_ranges: config.service_cidr.iter().map(ToString::to_string).collect(),
            cluster_dns: config
                .service_cidr
                .nth(CLUSTER_DNS)
                .filter(|_| config.cluster_dns_service),
            advertise,
            port: config.secure_port,
            client_ca_pem: pki.ca_pem.clone(),
        };
        bootstrap::run(&server, &facts).await.map_err(DaemonError::Bootstrap)?;
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        server.metrics().add(encryption.metrics());
        server
            .metrics()
            .add(Box::new(move |registry: &mut Registry| write_errors.register(registry)));
        encryption.spawn(&mut tasks, &health, &shutdown);
        if let Some(usage) = usage {
            usage::publish(&server);
            tasks.spawn(usage::scraper::run(server.clone(), usage, shutdown.clone()));
        }
        let (newest_ca, ca) = tokio::sync::watch::channel(pki.ca_pem.clone());
        if let Some(listener) = listener {
            let (newest, tls) = tokio::sync::watch::channel(Arc::new(tls));
            let [cert, key] = serving_paths(config);
            let read = move || tls::server_config(&pki::read_identity(&cert, &key)?, &cert).map(Arc::new);
            let take = move |new| drop(newest.send_replace(new));
            tasks.spawn(serving_watched.follow(read, take, shutdown.clone()));
            let (paths, more) = (client_ca_paths(config), config.identity.client_ca_file.clone());
            let read = move || {
                let pem = files::read(&paths[0])?;
                let trust = tls::client_trust(&pem, more.as_deref())?;
                Ok((pem, trust))
            };
            let take = move |(pem, trust)| {
                authn.trust(trust);
                newest_ca.send_replace(pem);
            };
            tasks.spawn(clients_watched.follow(read, take, shutdown.clone()));
            tasks.spawn(service::serve(listener, tls, server.clone(), shutdown.clone()));
        }
        tasks.spawn(bootstrap::keep_service(
            server.clone(),
            facts,
            ca.clone(),
            shutdown.clone(),
        ));
        tasks.spawn(bootstrap::flow_control::keep(server.clone(), shutdown.clone()));
        tasks.spawn(bootstrap::legacy_tokens::keep(server.clone(), uses, shutdown.clone()));
        let ranges = service_ranges(config)?;
        tasks.spawn(bootstrap::addresses::keep(server.clone(), ranges, shutdown.clone()));
        if server.store().is_shared() {
            let hostname = host.hostname.clone();
            tasks.spawn(bootstrap::ports::keep(server.clone(), shutdown.clone()));
            tasks.spawn(bootstrap::identity::keep(
                server.clone(),
                hostname,
                own,
                shutdown.clone(),
            ));
        }
        let clients = Clients {
            config: config.clone(),
            scheduler,
            host,
            authority: Arc::clone(&pki.authority),
            tokens,
            root_ca_pem: ca,
            server: server.clone(),
        };
        clients.spawn(&mut tasks, &shutdown)?;
        health.set_started();
        Ok(Self {
            server,
            health,
            tasks,
            shutdown,
            admin_kubeconfig: pki.admin_kubeconfig,
            url: pki::local_url(config),
        })
    }

    /// The API server, for those who live in the same process.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Waits until a part ends by itself, which none should.
    pub async fn failed(&mut self) {
        if let Some(Err(error)) = self.tasks.join_next().await {
            tracing::error!(%error, "a part of the control plane ended");
        }
    }

    /// Stops everything: `/readyz` turns false, requests in flight end, then the rest, within a deadline.
    pub async fn stop(mut self) {
        self.health.set_stopping();
        self.shutdown.cancel();
        let drained = tokio::time::timeout(DRAIN_DEADLINE, async {
            while self.tasks.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            tracing::warn!(parts = self.tasks.len(), "parts did not end in time");
            self.tasks.shutdown().await;
        }
    }
}

/// A value as upstream's API server writes it.
fn read_protobuf(bytes: &[u8]) -> Result<serde_json::Value, String> {
    schema::parse(bytes, Media::Protobuf)
}

/// The address others reach the API server at.
fn advertised(config: &Config, host: &Host) -> IpAddr {
    config.advertise_address.unwrap_or({
        if config.bind_address.is_unspecified() {
            host.address
        } else {
            config.bind_address
        }
    })
}

/// The serving certificate and its key.
fn serving_paths(config: &Config) -> [PathBuf; 2] {
    match &config.identity.tls_files {
        Some((cert, key)) => [cert.clone(), key.clone()],
        None => ["apiserver.crt", "apiserver.key"].map(|name| config.data_dir.join("pki").join(name)),
    }
}

/// Our CA, then the file with more whose client certificates are accepted.
fn client_ca_paths(config: &Config) -> Vec<PathBuf> {
    let own = config.data_dir.join("pki/ca.crt");
    std::iter::once(own)
        .chain(config.identity.client_ca_file.clone())
        .collect()
}

/// What Services get addresses of.
fn service_ranges(config: &Config) -> Result<Ranges, DaemonError> {
    let ranges = config.service_cidr.to_string().parse();
    ranges.map_err(|error: AllocateError| DaemonError::Range(error.to_string()))
}

/// The chain around storage that the configuration asks for; also what a cluster without a socket (the simulation) uses.
///
/// # Errors
/// Names the file or key that cannot be used.
pub fn handler_chain(
    config: &Config,
    host: &Host,
    pki: &Pki,
    advertise: IpAddr,
    health: Health,
) -> Result<HandlerChain, DaemonError> {
    let identity = &config.identity;
    let tokens = Tokens::new(
        &pki.service_account_key_pem,
        &pki.service_account_public_pem,
        identity.issuers.clone(),
        identity.audiences.clone(),
    );
    let tokens = Arc::new(tokens.map_err(DaemonError::Tokens)?);
    let trust = tls::client_trust(&pki.ca_pem, identity.client_ca_file.as_deref()).map_err(DaemonError::Pki)?;
    let authn = Arc::new(Authn::new(AuthnParts {
        client_certificates: Some(trust),
        token_file: token_file(identity.token_auth_file.as_deref())?,
        tokens: Arc::clone(&tokens),
        anonymous: identity.anonymous,
        clock: Arc::clone(&host.clock),
    }));
    let authz = Arc::new(match identity.node_authorizer {
        true => Authz::with_nodes(&bootstrap::policy::node_role()),
        false => Authz::default(),
    });
    let services = service_ranges(config)?;
    let client_path = config.data_dir.join("pki/apiserver-kubelet-client.crt");
    let kubelet_ca = identity.kubelet_ca_file.as_deref();
    let kubelet_tls = tls::kubelet_client_config(&pki.kubelet_client, kubelet_ca, &client_path);
    let proxy = KubeletProxy::new(kubelet_tls.map_err(DaemonError::Pki)?);
    let usage = config.metrics_api.then(|| Arc::new(Usage::new(proxy.usage_of_nodes())));
    Ok(HandlerChain {
        admission: Admission::new(Arc::clone(&authz), services, config.admission, host.seed),
        unstored: UnstoredEndpoints {
            authn: Arc::clone(&authn),
            authz: Arc::clone(&authz),
            tokens,
            health,
            url: format!("https://{}", SocketAddr::new(advertise, config.secure_port)),
            proc: host.proc.clone(),
            usage,
        },
        proxy,
        authn,
        authz,
        audit: config.audit.as_ref().map(|audit| audit_log(audit, host)).transpose()?,
    })
}

fn audit_log(config: &AuditConfig, host: &Host) -> Result<Arc<Audit>, DaemonError> {
    let wrong = |flag, path: &Path, why: String| DaemonError::File {
        flag,
        path: path.to_owned(),
        why,
    };
    let policy_file = &config.policy_file;
    let policy = std::fs::read_to_string(policy_file).map_err(|error| error.to_string());
    let policy = policy.and_then(|text| Policy::parse(&text));
    let policy = policy.map_err(|why| wrong("audit-policy-file", policy_file, why))?;
    let path = config.log_path.clone();
    let options = LogOptions {
        path: path.clone(),
        max_size_mb: config.max_size_mb,
        max_backups: config.max_backups,
        max_age_days: config.max_age_days,
    };
    let log = AuditLog::open(options, Arc::clone(&host.clock));
    let shown = path.unwrap_or_else(|| PathBuf::from("-"));
    let log = log.map_err(|error| wrong("audit-log-path", &shown, error.to_string()))?;
    Ok(Audit::new(policy, log, Arc::clone(&host.clock)))
}

fn token_file(path: Option<&Path>) -> Result<TokenFile, DaemonError> {
    let Some(path) = path else {
        return Ok(TokenFile::default());
    };
    let wrong = |why: String| DaemonError::File {
        flag: "token-auth-file",
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    TokenFile::parse(&text).map_err(wrong)
}

/// What the scheduler is told by its files. `is_shared`: whether others may run beside it.
fn scheduler_config(config: &Config, is_shared: bool) -> Result<SchedulerConfig, DaemonError> {
    let (flag, path, parse): (_, _, fn(&str) -> _) = match (&config.scheduler_file, &config.scheduler_policy_file) {
        (Some(path), _) => ("config", path, SchedulerConfig::parse),
        (None, Some(path)) => ("policy-config-file", path, read_policy),
        (None, None) => return Ok(SchedulerConfig::default()),
    };
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let read = text.and_then(|text| parse(&text));
    let field = "leaderElection.leaderElect";
    let read = read.and_then(
        |read| match (config.components.apiserver, is_shared, read.election.is_on) {
            (true, false, Some(true)) => Err(format!(
                "{field}: a scheduler in the API server's process is the only one; run it apart"
            )),
            (true, true, Some(false)) => Err(format!(
                "{field}: must be true where several control planes share a store"
            )),
            _ => Ok(read),
        },
    );
    let read = read.and_then(|read| scheduler::callers(&read.extenders).map(|_| read));
    read.map_err(|why| DaemonError::File {
        flag,
        path: path.clone(),
        why,
    })
}

/// Reads a policy, and tells what of it does nothing.
fn read_policy(text: &str) -> Result<SchedulerConfig, String> {
    let policy = SchedulerPolicy::parse(text)?;
    for warning in policy.warnings {
        tracing::warn!("--policy-config-file: {warning}");
    }
    Ok(policy.config)
}

#[cfg(test)]
mod tests;
