//! Controllers and scheduler beside an API server: its clients, each with its upstream identity, without a socket.
//!
//! Where the store is one process's own, they run as long as it does. Where several control planes share it, each part runs in the
//! process that holds its Lease: the others wait for it, and a process that lost it waits again, while its API server goes on.

use super::{DRAIN_DEADLINE, DaemonError, Host};
use crate::apiserver::ApiServer;
use crate::apiserver::authn::legacy::LegacyClaims;
use crate::apiserver::authn::service_account::Tokens;
use crate::apiserver::user::User;
use crate::config::Config;
use crate::config::components::ElectionConfig;
use crate::controller::event::Recorder;
use crate::controller::informers::Informers;
use crate::controller::kept::Kept;
use crate::controller::legacy_token::{Sign, Subject};
use crate::controller::{self, ClientFor, ControllerContext};
use crate::leader::{Election, Elector, Fence, Outcome};
use crate::pki::authority::Authority;
use crate::scheduler::config::{ElectionWords, SchedulerConfig};
use crate::scheduler::sources::Sources;
use crate::scheduler::{self, SchedulerContext};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Upstream's names, which their Leases have, too.
const SCHEDULER: &str = "kube-scheduler";
const CONTROLLERS: &str = "kube-controller-manager";

/// Pauses before a part that ended by itself is campaigned for again: the first, and the longest. Another process may lead meanwhile.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The pause after a part that ended by itself after so long, if the one before was `last`. One that ran longer than the longest pause
/// begins anew. Pure.
fn pause_after(ran: Duration, last: Option<Duration>) -> Duration {
    match last.filter(|_| ran <= PAUSE.1) {
        Some(last) => (last * 2).min(PAUSE.1),
        None => PAUSE.0,
    }
}

/// What the parts are made of, as often as they begin.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) config: Config,
    pub(super) scheduler: SchedulerConfig,
    pub(super) host: Host,
    pub(super) authority: Arc<Authority>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) root_ca_pem: watch::Receiver<String>,
    pub(super) server: ApiServer,
}

impl Clients {
    /// Starts the parts, or their campaigns.
    ///
    /// # Errors
    /// What the scheduler's file says of elections does not go together.
    pub(super) fn spawn(self, tasks: &mut JoinSet<()>, shutdown: &CancellationToken) -> Result<(), DaemonError> {
        match self.server.store().is_shared() {
            true => self.spawn_campaigns(tasks, shutdown),
            false => {
                self.spawn_alone(tasks, shutdown);
                Ok(())
            }
        }
    }

    fn spawn_alone(&self, tasks: &mut JoinSet<()>, shutdown: &CancellationToken) {
        let client_for = self.client_for(None);
        let parts = self.config.components;
        let kept = Kept::beside(&self.scheduler.extenders);
        let shared = parts
            .controllers
            .then(|| controller::read(&*client_for, self.host.seed, kept));
        if let Some(informers) = shared.clone() {
            let mut controllers = self.controllers(client_for, informers, shutdown.clone());
            tasks.spawn(async move { while controllers.join_next().await.is_some() {} });
        }
        if parts.scheduler {
            let sources = shared.as_ref().map(Sources::from);
            tasks.spawn(scheduler::run(self.scheduler(None, sources, shutdown.clone())));
        }
    }

    fn spawn_campaigns(self, tasks: &mut JoinSet<()>, shutdown: &CancellationToken) -> Result<(), DaemonError> {
        let election = |words: &ElectionWords, part| {
            let resolved = words.resolve(&ElectionWords::default(), part);
            resolved.map_err(DaemonError::Election)
        };
        let parts = self.config.components;
        if parts.controllers {
            let election = election(&ElectionWords::default(), CONTROLLERS)?;
            let make = |own: &Self, fence: &Fence, shutdown| {
                let client_for = own.client_for(Some(fence));
                let informers = controller::read(&*client_for, own.host.seed, Kept::Asked);
                own.controllers(client_for, informers, shutdown)
            };
            tasks.spawn(self.clone().campaign(CONTROLLERS, election, make, shutdown.clone()));
        }
        if parts.scheduler {
            let election = election(&self.scheduler.election, SCHEDULER)?;
            let make = |own: &Self, fence: &Fence, shutdown| {
                let mut set = JoinSet::new();
                set.spawn(scheduler::run(own.scheduler(Some(fence), None, shutdown)));
                set
            };
            tasks.spawn(self.campaign(SCHEDULER, election, make, shutdown.clone()));
        }
        Ok(())
    }

    /// Leads whenever it can, until shutdown. A part that ends by itself, which only a panic makes it do, leaves the API server alone: it is
    /// campaigned for again, after a pause that grows.
    async fn campaign(
        self,
        part: &'static str,
        election: ElectionConfig,
        make: impl Fn(&Self, &Fence, CancellationToken) -> JoinSet<()>,
        shutdown: CancellationToken,
    ) {
        let client = self
            .server
            .client_as(User::named("system:apiserver", &["system:masters"]));
        let recorder = Recorder::spawn(client.clone(), Arc::clone(&self.host.clock), part);
        let mut pause = None;
        loop {
            let led_since = OnceLock::new();
            let fence = Fence::default();
            let who = Election {
                identity: format!("{}_{}", self.host.hostname, uuid::Uuid::new_v4()),
                namespace: election.namespace.clone(),
                name: election.name.clone(),
                times: election.times,
            };
            let elector = Elector::new(
                who,
                client.clone(),
                Arc::clone(&self.host.clock),
                recorder.clone(),
                fence.clone(),
                self.server.metrics().leading(&election.name),
            );
            let work = |shutdown| {
                let _ = led_since.set(Instant::now());
                make(&self, &fence, shutdown)
            };
            match elector.run(work, DRAIN_DEADLINE / 2, shutdown.clone()).await {
                Outcome::Lost => tracing::error!(part, "leaderelection lost; waiting to lead again"),
                Outcome::Stopped => return,
                Outcome::Failed => {
                    let wait = pause_after(led_since.get().map_or(Duration::ZERO, Instant::elapsed), pause);
                    tracing::error!(part, ?wait, "ended by itself; it campaigns again after a pause");
                    pause = Some(wait);
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return,
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }

    /// Clients by controllers' names; with a fence, their writes end with the leader's time.
    fn client_for(&self, fence: Option<&Fence>) -> ClientFor {
        let (server, fence) = (self.server.clone(), fence.cloned());
        Arc::new(move |name: &str| {
            let client = server.client_as(match name {
                controller::PROGRAM => User::named("system:kube-controller-manager", &[]),
                name => User::service_account("kube-system", name),
            });
            match &fence {
                Some(fence) => fence.guard(client),
                None => client,
            }
        })
    }

    fn sign(&self) -> Sign {
        let tokens = Arc::clone(&self.tokens);
        Arc::new(move |subject: &Subject| tokens.sign_legacy(&LegacyClaims::of(subject)))
    }

    fn controllers(&self, client_for: ClientFor, informers: Informers, shutdown: CancellationToken) -> JoinSet<()> {
        controller::spawn_all(ControllerContext {
            informers,
            client_for,
            clock: Arc::clone(&self.host.clock),
            seed: self.host.seed,
            cluster_cidr: Some(self.config.cluster_cidr.to_string()),
            root_ca_pem: self.root_ca_pem.clone(),
            authority: Some(Arc::clone(&self.authority)),
            sign: Some(self.sign()),
            selection: self.config.controllers.selection.clone(),
            rates: self.config.controllers.rates,
            options: self.config.controllers.options,
            metrics: Arc::clone(self.server.metrics()),
            shutdown,
        })
    }

    fn scheduler(
        &self,
        fence: Option<&Fence>,
        sources: Option<Sources>,
        shutdown: CancellationToken,
    ) -> SchedulerContext {
        let client = self.server.client_as(User::named("system:kube-scheduler", &[]));
        SchedulerContext {
            informers: sources.unwrap_or_else(|| {
                let kept = Kept::beside(&self.scheduler.extenders);
                Sources::spawn(&client, self.host.seed, kept)
            }),
            config: self.scheduler.clone(),
            client: match fence {
                Some(fence) => fence.guard(client),
                None => client,
            },
            clock: Arc::clone(&self.host.clock),
            host: self.host.hostname.clone(),
            seed: self.host.seed,
            metrics: Arc::clone(self.server.metrics()),
            shutdown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew_after_long_work() {
        let seconds = Duration::from_secs;
        for (ran, last, pause) in [
            (0, None, 1),
            (0, Some(1), 2),
            (60, Some(2), 4),
            (5, Some(40), 60),
            (5, Some(60), 60),
            (61, Some(60), 1),
        ] {
            assert_eq!(
                pause_after(seconds(ran), last.map(seconds)),
                seconds(pause),
                "{ran} {last:?}"
            );
        }
    }
}
