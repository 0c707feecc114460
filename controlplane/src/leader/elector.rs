//! One candidate's life: waits for the Lease, works while it renews it, gives it back.
//!
//! Owns the only requests for its Lease. Work is given up whole (dropped) when the Lease cannot be renewed in time or turns out to be another's;
//! at a clean end it is told to end first, and only then the Lease is released.

use super::decide::{Act, Observation, Times, decide, released, written};
use super::fence::Fence;
use crate::controller::event::Recorder;
use crate::controller::write::EventText;
use client::Clock;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::{ObjectMeta, PostParams, WatchEvent, WatchParams};
use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// What is elected for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who this candidate is: no other process may ever have the same.
    pub identity: String,
    /// The times.
    pub times: Times,
}

/// How a candidate's life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was told to end.
    Stopped,
    /// It led, and could not go on: everything it did has ended.
    Lost,
    /// Its work ended by itself, which it should not.
    Failed,
}

/// A candidate.
pub struct Elector {
    election: Election,
    api: Api<Lease>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    fence: Fence,
    status: Gauge,
    origin: Instant,
    seen: Observation,
    /// The Lease as it was last written or read.
    lease: Option<Lease>,
}

/// A watch of one Lease.
type Changes = BoxStream<'static, kube::Result<WatchEvent<Lease>>>;

/// What came of one try.
enum Tried {
    /// It is ours, since a write that began then.
    Ours(Instant),
    /// It is another's, until then (of the own clock) at least.
    Others(Duration),
    /// Nobody knows.
    Failed(String),
}

impl Elector {
    /// A candidate whose requests go by `client`. `fence` is what its work's writes ask, `status` says 1 while it leads.
    pub fn new(
        election: Election,
        client: kube::Client,
        clock: Arc<dyn Clock>,
        recorder: Recorder,
        fence: Fence,
        status: Gauge,
    ) -> Self {
        status.set(0);
        Self {
            api: Api::namespaced(client, &election.namespace),
            election,
            clock,
            recorder,
            fence,
            status,
            origin: Instant::now(),
            seen: Observation::default(),
            lease: None,
        }
    }

    /// Waits to lead, does the work, and ends with it or when `shutdown` says so. The work gets `drain` to end by itself then.
    pub async fn run<F>(mut self, work: F, drain: Duration, shutdown: CancellationToken) -> Outcome
    where
        F: FnOnce(CancellationToken) -> JoinSet<()>,
    {
        let led_since = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Outcome::Stopped,
            began = self.acquire() => began,
        };
        self.began(led_since);
        let working = CancellationToken::new();
        let mut tasks = work(working.clone());
        let outcome = tokio::select! {
            biased;
            () = self.renew(led_since) => Outcome::Lost,
            () = shutdown.cancelled() => Outcome::Stopped,
            Some(_) = tasks.join_next() => Outcome::Failed,
        };
        working.cancel();
        if outcome != Outcome::Lost {
            let ended = timeout(drain, async { while tasks.join_next().await.is_some() {} });
            if ended.await.is_err() {
                tracing::warn!(lease = self.election.name, "work did not end in time and is given up");
            }
        }
        tasks.shutdown().await;
        self.fence.close();
        self.status.set(0);
        self.tell("stopped leading");
        if outcome != Outcome::Lost {
            self.release().await;
        }
        outcome
    }

    fn began(&self, at: Instant) {
        self.fence.extend(at + self.election.times.renew);
        self.status.set(1);
        tracing::info!(lease = self.election.name, identity = self.election.identity, "leading");
        self.tell("became leader");
    }

    fn tell(&self, what: &str) {
        let metadata = self
            .lease
            .as_ref()
            .map(|lease| lease.metadata.clone())
            .unwrap_or_default();
        self.recorder.record(EventText {
            regarding: ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                name: Some(self.election.name.clone()),
                namespace: Some(self.election.namespace.clone()),
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                field_path: None,
            },
            kind: "Normal",
            reason: "LeaderElection",
            message: format!("{} {what}", self.election.identity),
        });
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Waits until the Lease is ours; tells when the write that made it so began.
    async fn acquire(&mut self) -> Instant {
        let mut told = String::new();
        let mut changes = None;
        loop {
            let next = Instant::now() + self.election.times.retry;
            let wake = match self.attempt(self.election.times.renew / 2).await {
                Tried::Ours(began) => return began,
                Tried::Others(until) => {
                    if told != self.seen.holder() {
                        self.seen.holder().clone_into(&mut told);
                        tracing::info!(lease = self.election.name, holder = told, "waiting for the lease");
                    }
                    next.min(self.origin + until)
                }
                Tried::Failed(error) => {
                    tracing::warn!(lease = self.election.name, error, "the lease cannot be read or written");
                    next
                }
            };
            self.wait_for_change(&mut changes, wake).await;
        }
    }

    /// Waits until `wake`, or until the Lease changes, if it can be watched: what was renewed is then seen when it is, and not a try
    /// later, by which the next leader would begin later, too.
    async fn wait_for_change(&self, changes: &mut Option<Changes>, wake: Instant) {
        if changes.is_none() {
            *changes = timeout_at(wake, self.watch()).await.ok().flatten();
        }
        let told = match changes {
            Some(changes) => timeout_at(wake, changes.next()).await,
            None => Ok(None),
        };
        // An end, an error and a refusal are not asked about again before the next try.
        if !matches!(
            told,
            Ok(Some(Ok(WatchEvent::Modified(_)
                | WatchEvent::Added(_)
                | WatchEvent::Deleted(_))))
                | Err(_)
        ) {
            *changes = None;
            sleep_until(wake).await;
        }
    }

    async fn watch(&self) -> Option<Changes> {
        let since = self.lease.as_ref()?.metadata.resource_version.clone()?;
        let name = format!("metadata.name={}", self.election.name);
        let params = WatchParams::default().fields(&name).disable_bookmarks();
        let changes = self.api.watch(&params, &since).await.ok()?;
        Some(changes.boxed())
    }

    /// Renews until that is not possible any more.
    async fn renew(&mut self, mut since: Instant) {
        let times = self.election.times;
        loop {
            sleep_until((Instant::now() + times.retry).min(since + times.renew)).await;
            let left = (since + times.renew).saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::error!(lease = self.election.name, "the lease was not renewed in time");
                return;
            }
            match self.attempt(left.min(times.renew / 2)).await {
                Tried::Ours(began) => {
                    since = began;
                    self.fence.extend(began + times.renew);
                }
                Tried::Others(_) => {
                    tracing::error!(
                        lease = self.election.name,
                        holder = self.seen.holder(),
                        "the lease is another's"
                    );
                    return;
                }
                Tried::Failed(error) => {
                    tracing::warn!(lease = self.election.name, error, "the lease could not be renewed");
                }
            }
        }
    }

    async fn attempt(&mut self, deadline: Duration) -> Tried {
        match timeout(deadline, self.try_once()).await {
            Ok(Ok(tried)) => tried,
            Ok(Err(error)) => {
                // What was there is not known any more: it is read before the next write.
                self.lease = None;
                Tried::Failed(error.to_string())
            }
            Err(_) => {
                self.lease = None;
                Tried::Failed("deadline exceeded".to_owned())
            }
        }
    }

    /// Writes, if that is called for; where somebody else wrote first, what is there now decides.
    async fn try_once(&mut self) -> Result<Tried, kube::Error> {
        let is_known = self.lease.is_some() && self.seen.holder() == self.election.identity;
        if !is_known {
            self.read().await?;
        }
        match self.write().await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                self.read().await?;
                self.write().await
            }
            tried => tried,
        }
    }

    async fn read(&mut self) -> Result<(), kube::Error> {
        let lease = self.api.get_opt(&self.election.name).await?;
        self.saw(lease);
        Ok(())
    }

    /// Writes what follows from what was seen.
    async fn write(&mut self) -> Result<Tried, kube::Error> {
        let act = decide(&self.seen, &self.election.identity, self.now());
        if let Act::Wait(until) = act {
            return Ok(Tried::Others(until));
        }
        let wall = self.clock.now();
        let spec = written(act, &self.seen, &self.election.identity, &self.election.times, wall);
        let began = Instant::now();
        let lease = self.put(spec.unwrap_or_default()).await?;
        self.saw(Some(lease));
        Ok(Tried::Ours(began))
    }

    fn saw(&mut self, lease: Option<Lease>) {
        let spec = lease.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        self.seen.see(spec, self.now());
        self.lease = lease;
    }

    /// Writes over exactly what was seen, or makes what was not there.
    async fn put(&self, spec: LeaseSpec) -> Result<Lease, kube::Error> {
        let params = PostParams::default();
        match &self.lease {
            Some(lease) => {
                let mut new = lease.clone();
                new.metadata.managed_fields = None;
                new.spec = Some(spec);
                self.api.replace(&self.election.name, &params, &new).await
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.election.name.clone()),
                    namespace: Some(self.election.namespace.clone()),
                    ..ObjectMeta::default()
                };
                let new = Lease {
                    metadata,
                    spec: Some(spec),
                };
                self.api.create(&params, &new).await
            }
        }
    }

    /// Gives the Lease back, so that the next need not wait. Nothing is lost if that fails: it ends by itself.
    async fn release(&mut self) {
        match timeout(self.election.times.renew / 2, self.give_back()).await {
            Ok(Ok(())) => tracing::info!(lease = self.election.name, "the lease is released"),
            Ok(Err(error)) => tracing::warn!(lease = self.election.name, %error, "the lease is not released"),
            Err(_) => tracing::warn!(lease = self.election.name, "the lease is not released in time"),
        }
    }

    /// The end may have come in the middle of a renewal, of which nobody knows whether it was written: then what is there now decides.
    async fn give_back(&mut self) -> Result<(), kube::Error> {
        loop {
            if self.lease.is_none() {
                self.read().await?;
            }
            let own = self.seen.holder() == self.election.identity;
            let Some(old) = self.seen.spec().filter(|_| own) else {
                return Ok(());
            };
            match self.put(released(old, self.clock.now())).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => self.lease = None,
                done => return done.map(drop),
            }
        }
    }
}
