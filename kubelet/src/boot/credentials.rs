//! How this start of the kubelet is known: to the API server, and to those who call it.

use super::BootError;
use crate::certificate::CertificateError;
use crate::certificate::credentials::{self, ClientCertificateRenewal};
use crate::certificate::request::Wanted;
use crate::certificate::rotation::{Clients, Expired, Rotation};
use crate::certificate::serving::{Offered, Serving};
use crate::certificate::store::Store;
use crate::config::{AuthorizationMode, Config};
use crate::host::addresses::HostIps;
use crate::metrics::RequestMetrics;
use crate::node::Facts;
use crate::server::Certificates;
use client::Clock;
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long the start waits for a first client certificate; without one nothing can be asked of the API server yet.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

/// Clients and certificates, found but not kept fresh yet.
pub(super) struct Known {
    /// The API server's client; none in standalone mode.
    pub(super) client: Option<kube::Client>,
    /// The same over connections of its own, for questions that strangers cause.
    pub(super) reviews: Option<kube::Client>,
    /// Counts what they ask.
    pub(super) requests: RequestMetrics,
    keeper: Option<ClientCertificateRenewal>,
    served: Served,
}

/// What the server proves itself with, and what asks the cluster for it if that is configured.
struct Served {
    serving: Serving,
    issuing: Option<Rotation>,
}

/// Clients and certificates, kept fresh by tasks.
pub(super) struct Kept {
    /// What the server is to serve with.
    pub(super) tls: watch::Receiver<Offered>,
    /// What the cluster issued.
    pub(super) certificates: Certificates,
    given_up: Option<oneshot::Receiver<Expired>>,
}

/// Finds out how this kubelet is known.
pub(super) async fn find(
    config: &Config,
    facts: &Facts,
    host_ips: &HostIps,
    clock: Arc<dyn Clock>,
    seed: u64,
) -> Result<Known, BootError> {
    let requests = RequestMetrics::default();
    let (client, reviews, keeper) = match &config.paths.kubeconfig {
        None => {
            check_standalone(config)?;
            (None, None, None)
        }
        Some(kubeconfig) => {
            let (name, observer) = (&facts.name, requests.observer());
            let found = credentials::connect(config, kubeconfig, name, clock.clone(), seed, observer).await;
            let found = found.map_err(BootError::Credentials)?;
            (Some(found.client), Some(found.reviews), found.renewal)
        }
    };
    let served = serving(config, facts, host_ips, client.as_ref(), clock, seed)?;
    Ok(Known {
        client,
        reviews,
        requests,
        keeper,
        served,
    })
}

/// Without an API server no webhook can be asked.
fn check_standalone(config: &Config) -> Result<(), BootError> {
    if config.server.enabled && config.server.token_webhook.is_some() {
        return Err(BootError::NoWebhook("authentication"));
    }
    if config.server.enabled && config.server.authorization != AuthorizationMode::AlwaysAllow {
        return Err(BootError::NoWebhook("authorization"));
    }
    tracing::info!("no kubeconfig: standalone mode, no API client");
    Ok(())
}

impl Known {
    /// Starts what keeps certificates fresh, and waits a little for a first one if there is none.
    pub(super) async fn keep(self, tasks: &mut JoinSet<()>, stop: &CancellationToken) -> Result<Kept, BootError> {
        let mut serving = self.served.serving;
        let (sender, tls) = watch::channel(serving.config()?);
        tasks.spawn(serving.follow(sender, stop.clone()).boxed());
        let mut certificates = Certificates::default();
        if let Some(issuing) = self.served.issuing {
            certificates.server = Some(issuing.current.subscribe());
            tasks.spawn(issuing.run(stop.clone()).boxed());
        }
        let mut given_up = None;
        if let Some(keeper) = self.keeper {
            let mut current = keeper.current();
            certificates.client = Some(current.clone());
            given_up = Some(keep_client(tasks, keeper, stop));
            let first = current.wait_for(Option::is_some);
            if tokio::time::timeout(FIRST_PATIENCE, first).await.is_err() {
                tracing::warn!("no client certificate yet, going on without");
            }
        }
        Ok(Kept {
            tls,
            certificates,
            given_up,
        })
    }
}

impl Kept {
    /// Why the client certificate was given up, if it was.
    pub(super) fn given_up(self) -> Option<Expired> {
        self.given_up?.try_recv().ok()
    }
}

/// Finds the serving certificate: the cluster's (`serverTLSBootstrap`), the configured files, or one of our own.
fn serving(
    config: &Config,
    facts: &Facts,
    host_ips: &HostIps,
    client: Option<&kube::Client>,
    clock: Arc<dyn Clock>,
    seed: u64,
) -> Result<Served, CertificateError> {
    let client_ca = config.server.client_ca.as_deref();
    let plain = |serving| Served { serving, issuing: None };
    match (config.server.tls_bootstrap, client) {
        (true, Some(client)) => return Ok(issued(config, facts, host_ips, client, clock, seed)),
        (true, None) => tracing::warn!("serverTLSBootstrap has no effect without an API server"),
        (false, _) => {}
    }
    let serving = match &config.server.tls_files {
        Some((cert, key)) => Serving::files(cert, key, client_ca),
        None => Serving::self_signed(&config.paths.cert_dir, &facts.name, &facts.ips, client_ca)?,
    };
    Ok(plain(serving.offering(config.server.tls.clone())))
}

fn issued(
    config: &Config,
    facts: &Facts,
    host_ips: &HostIps,
    client: &kube::Client,
    clock: Arc<dyn Clock>,
    seed: u64,
) -> Served {
    let store = Store::server(&config.paths.cert_dir);
    let names = vec![facts.host_name.clone()];
    let stored = store.current().unwrap_or_else(|error| {
        tracing::warn!(
            error = format!("{:#}", anyhow::Error::new(error)),
            "stored serving certificate not used"
        );
        None
    });
    // One for other addresses is asked for again.
    let usable = stored.filter(|pair| pair.not_after > clock.now() && pair.names(&facts.ips, &names));
    let current = watch::Sender::new(usable.map(Arc::new));
    let serving =
        Serving::issued(current.subscribe(), config.server.client_ca.as_deref()).offering(config.server.tls.clone());
    let issuing = Rotation {
        wanted: Wanted {
            node: facts.name.clone(),
            serving: Some((facts.ips.clone(), names)),
        },
        host_ips: Some(host_ips.clone()),
        store,
        clients: Clients {
            own: client.clone(),
            bootstrap: None,
        },
        clock,
        seed,
        current,
        server_is_there: watch::Sender::new(false),
    };
    Served {
        serving,
        issuing: Some(issuing),
    }
}

/// Runs the keeper of the client certificate, and ends the kubelet when it gives up; the reason can be read afterwards.
fn keep_client(
    tasks: &mut JoinSet<()>,
    keeper: ClientCertificateRenewal,
    stop: &CancellationToken,
) -> oneshot::Receiver<Expired> {
    let (give_up, given_up) = oneshot::channel();
    let stop = stop.clone();
    tasks.spawn(
        async move {
            if let Err(expired) = keeper.run(stop.clone()).await {
                // Nobody reads it when the kubelet ends anyway.
                let _ = give_up.send(expired);
                stop.cancel();
            }
        }
        .boxed(),
    );
    given_up
}
