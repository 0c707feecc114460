//! Keeps one certificate fresh: asks for it when there is none and again in the last third of its life, for ever.
//!
//! Owns when; what is asked and how is [`super::request`]'s, where it is kept [`super::store`]'s. Readers follow a `watch`.

use super::CertificateError;
use super::request::{RequestError, Wanted, obtain};
use super::store::{Pair, Store};
use crate::host::addresses::HostIps;
use client::backoff::Seeded;
use client::{Backoff, Clock, beat};
use jiff::Timestamp;
use rcgen::KeyPair;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long one request is waited for.
const PATIENCE: Duration = Duration::from_secs(900);
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(32);
/// Longest sleep without looking at the clock: it may be set, or the machine may sleep.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// How often an expired certificate is looked at, and how long one is suffered.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const EXIT_AFTER: Duration = Duration::from_secs(300);

/// Why a turn brought no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// It could not be had.
    #[error("ask for a certificate")]
    Request(#[from] RequestError),
    /// It could not be kept.
    #[error("keep the certificate")]
    Store(#[from] CertificateError),
}

impl RotationError {
    /// Whether the API server was there to answer.
    fn was_heard(&self) -> bool {
        match self {
            Self::Request(RequestError::Call { source, .. }) => matches!(**source, kube::Error::Api(_)),
            Self::Request(RequestError::Deadline(_)) => false,
            _ => true,
        }
    }
}

/// Whom to ask.
#[derive(Clone)]
pub struct Clients {
    /// With the certificate there is.
    pub own: kube::Client,
    /// While there is none.
    pub bootstrap: Option<kube::Client>,
}

/// The keeper of one certificate.
pub struct Rotation {
    /// What is wanted.
    pub wanted: Wanted,
    /// The addresses a serving certificate has to name, where they can change.
    pub host_ips: Option<HostIps>,
    /// Where it is kept.
    pub store: Store,
    /// Whom to ask.
    pub clients: Clients,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Seed of the moment of renewal.
    pub seed: u64,
    /// The newest pair.
    pub current: watch::Sender<Option<Arc<Pair>>>,
    /// Whether the API server answered the last request.
    pub server_is_there: watch::Sender<bool>,
}

/// The moment a certificate is renewed: between 70 and 90 % of its life.
pub fn deadline(pair: &Pair, seed: u64) -> Timestamp {
    let life = pair.not_after.as_second() - pair.not_before.as_second();
    let end = u64::try_from(pair.not_after.as_second()).unwrap_or(0);
    let share = i64::try_from(700 + Seeded::new(seed ^ end).below(201)).unwrap_or(800);
    let second = pair.not_before.as_second() + life.saturating_mul(share) / 1000;
    Timestamp::from_second(second).unwrap_or(pair.not_after)
}

/// How long until the next request. One that does not speak for all that is wanted is asked for again at once.
fn wait(current: Option<&Pair>, wanted: &Wanted, seed: u64, now: Timestamp) -> Duration {
    let speaks = |pair: &&Pair| {
        wanted
            .serving
            .as_ref()
            .is_none_or(|(ips, names)| pair.names(ips, names))
    };
    let Some(pair) = current.filter(speaks) else {
        return Duration::ZERO;
    };
    Duration::try_from(deadline(pair, seed).duration_since(now)).unwrap_or(Duration::ZERO)
}

/// Waits until the addresses change, for ever if they cannot.
async fn moved(host_ips: &mut Option<HostIps>) {
    match host_ips {
        Some(ips) => ips.changed().await,
        None => std::future::pending().await,
    }
}

impl Rotation {
    /// Runs until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = self.turns() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn turns(&mut self) {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY, self.seed);
        let mut host_ips = self.host_ips.clone();
        loop {
            if let (Some((ips, _)), Some(now)) = (&mut self.wanted.serving, &host_ips) {
                *ips = now.current().to_vec();
            }
            let current = self.current.borrow().clone();
            let left = wait(current.as_deref(), &self.wanted, self.seed, self.clock.now());
            if !left.is_zero() {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
                    () = moved(&mut host_ips) => {}
                }
                continue;
            }
            let renewed = tokio::select! {
                biased;
                renewed = self.renew(current.as_deref()) => renewed,
                // A certificate for the old address would be of no use.
                () = moved(&mut host_ips) => continue,
            };
            self.server_is_there
                .send_replace(renewed.as_ref().err().is_none_or(RotationError::was_heard));
            match renewed {
                Ok(pair) => {
                    tracing::info!(until = %pair.not_after, path = %self.store.current_path().display(), "certificate renewed");
                    self.current.send_replace(Some(Arc::new(pair)));
                    backoff.reset();
                }
                Err(error) => {
                    let delay = backoff.fail();
                    let error = anyhow::Error::new(error);
                    tracing::warn!(
                        error = format!("{error:#}"),
                        ?delay,
                        "certificate not renewed, retrying"
                    );
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    async fn renew(&self, current: Option<&Pair>) -> Result<Pair, RotationError> {
        let valid = current.is_some_and(|pair| pair.not_after > self.clock.now());
        let client = match &self.clients.bootstrap {
            Some(bootstrap) if !valid => bootstrap,
            _ => &self.clients.own,
        };
        let key = KeyPair::generate().map_err(RequestError::from)?;
        let chain = obtain(client, &self.wanted, &key, None, PATIENCE).await?;
        Ok(self.store.update(&chain, &key.serialize_pem(), self.clock.now())?)
    }
}

/// The client certificate is gone for good: only a new start with fresh bootstrap credentials can help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it has been {since_seconds} s since a valid client certificate was found and the API server is responsive: exiting"
)]
pub struct Expired {
    /// How long there has been none.
    pub since_seconds: i64,
}

/// Ends with an error when there has been no valid certificate for five minutes although the API server answers.
pub async fn watch_expiry(
    current: watch::Receiver<Option<Arc<Pair>>>,
    server_is_there: watch::Receiver<bool>,
    clock: Arc<dyn Clock>,
) -> Expired {
    let mut last_valid = clock.now();
    loop {
        beat::wait(CHECK_EVERY).await;
        let now = clock.now();
        if current.borrow().as_ref().is_some_and(|pair| pair.not_after > now) {
            last_valid = now;
        }
        let since_seconds = now.as_second() - last_valid.as_second();
        if since_seconds <= EXIT_AFTER.as_secs().cast_signed() {
            continue;
        }
        if *server_is_there.borrow() {
            return Expired { since_seconds };
        }
        tracing::warn!(
            since_seconds,
            "no valid client certificate, and the API server does not answer; a restart may be necessary to retrieve new \
             initial credentials"
        );
    }
}

#[cfg(test)]
mod tests;
