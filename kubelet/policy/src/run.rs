//! The one loop: policies, pods, namespaces and this node's own pods in, batches to the kernel out.
//!
//! While there is no policy, the kernel holds nothing of ours, and nothing is watched but policies. With the first one, the
//! cluster's pods and namespaces are listed, and only when all of it is known the table is put there whole. They are followed for
//! some time after the last one has gone ([`Settings::keep_period`]): whoever makes and deletes policies in a loop has no lists
//! made by it. While there are policies each
//! turn takes all that changed and brings the difference to the kernel in one batch. Whatever goes wrong with that (a refusal
//! because somebody else removed things, lost answers), the next turn puts everything there anew; what the kernel holds stays
//! in force until then.

use std::collections::BTreeSet;
use std::time::Duration;

use client::informer::{Change as News, Subscription};
use client::{Backoff, Informer};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::decide;
use crate::gate::Gate;
use crate::keep::Keeper;
use crate::kernel::{Error, Kernel};
use crate::last::Last;
use crate::settings::{Notice, Observer, Settings};
use crate::spec::Flaw;
use crate::strain::Strain;
use crate::world::{Overfull, World};

/// Where the cluster is read. Pods and namespaces are asked for when the first policy is there, and let go with the last.
pub struct Sources {
    /// All policies.
    pub policies: Informer<NetworkPolicy>,
    /// All pods of the cluster, or a handle on them.
    pub pods: Box<dyn Fn() -> Informer<Pod> + Send>,
    /// All namespaces, or a handle on them.
    pub namespaces: Box<dyn Fn() -> Informer<Namespace> + Send>,
}

/// What is watched while there are policies. The informers live as long as their handles.
struct Watched {
    pods: Subscription<Pod>,
    namespaces: Subscription<Namespace>,
    _handles: (Informer<Pod>, Informer<Namespace>),
}

/// Why a turn begins.
enum Event {
    Policies(Vec<News<NetworkPolicy>>),
    Pods(Vec<News<Pod>>),
    Namespaces(Vec<News<Namespace>>),
    Gate,
    Time,
    Stop,
}

struct Loop {
    sources: Sources,
    settings: Settings,
    gate: Gate,
    observer: Observer,
    policies: Subscription<NetworkPolicy>,
    watched: Option<Watched>,
    /// Whether the kernel is to hold anything: there are policies, and the cluster is known.
    is_enforcing: bool,
    /// When to let go of what is watched, as there are no policies.
    let_go_at: Option<Instant>,
    world: World,
    keeper: Keeper,
    /// Taken while it works.
    kernel: Option<Kernel>,
    /// Whether the kernel holds what we think.
    is_told: bool,
    /// Whether the node's bridges may have changed.
    is_to_look: bool,
    /// The gate's revision that is in `world`.
    taken: u64,
    follows_sctp: bool,
    backoff: Backoff,
    strain: Strain,
    wake_at: Option<Instant>,
}

/// Enforces the cluster's policies on this node's pods until `stop`. What stands in the kernel then stays: see [`remove`].
///
/// # Errors
/// It cannot begin: nf_tables, or the namespace, is not there.
pub async fn run(
    sources: Sources,
    settings: Settings,
    gate: Gate,
    observer: Observer,
    stop: CancellationToken,
) -> Result<(), Error> {
    let (namespace, ranges) = (settings.netns.clone(), settings.pod_cidrs.clone());
    let opened = client::blocking::spawn(move || open(namespace.as_deref(), ranges)).await;
    let (kernel, follows_sctp, is_holding) = opened.unwrap_or(Err(Error::Panicked))?;
    gate.hold(is_holding);
    let mut all = Loop {
        policies: sources.policies.subscribe(),
        sources,
        keeper: Keeper::new(settings.last.clone()),
        settings,
        gate,
        observer,
        watched: None,
        is_enforcing: false,
        let_go_at: None,
        world: World::new(),
        kernel: Some(kernel),
        is_told: false,
        is_to_look: false,
        taken: 0,
        follows_sctp,
        backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 0),
        strain: Strain::default(),
        wake_at: None,
    };
    all.run(&stop).await;
    Ok(())
}

/// Takes everything of ours out of the kernel.
///
/// # Errors
/// The kernel cannot be reached, or refused.
pub async fn remove(settings: &Settings) -> Result<(), Error> {
    let namespace = settings.netns.clone();
    let removed = client::blocking::spawn(move || Kernel::open(namespace.as_deref(), Vec::new())?.remove()).await;
    removed.unwrap_or(Err(Error::Panicked))
}

/// Connects; tells whether SCTP is followed, and whether a table of an earlier run stands.
fn open(namespace: Option<&str>, ranges: Vec<netlink::cidr::Cidr>) -> Result<(Kernel, bool, bool), Error> {
    let mut kernel = Kernel::open(namespace, ranges)?;
    let follows_sctp = kernel.follows_sctp()?;
    let is_holding = kernel.is_intact()?;
    Ok((kernel, follows_sctp, is_holding))
}

impl Loop {
    async fn run(&mut self, stop: &CancellationToken) {
        let policies = self.sources.policies.clone();
        if stop.run_until_cancelled(policies.synced()).await.is_none() {
            return;
        }
        let first = self.policies.take();
        self.take(Event::Policies(first)).await;
        loop {
            if stop.run_until_cancelled(self.watch_what_is_needed()).await.is_none() {
                return;
            }
            self.turn().await;
            let event = self.next(stop).await;
            if matches!(event, Event::Stop) {
                return;
            }
            self.take(event).await;
        }
    }

    /// Begins to follow the cluster when there is a policy, and waits until it is known; ends it some time after the last.
    async fn watch_what_is_needed(&mut self) {
        let has_policies = self.world.has_policies();
        if !has_policies {
            if self.watched.is_some() {
                let at = *self
                    .let_go_at
                    .get_or_insert_with(|| Instant::now() + self.settings.keep_period);
                if at <= Instant::now() {
                    self.watched = None;
                    self.let_go_at = None;
                    // Letting go of a whole cluster takes its time, too.
                    let world = std::mem::take(&mut self.world);
                    client::blocking::spawn(move || drop(world));
                }
            }
        } else if self.watched.is_none() {
            self.gate.open(false);
            let handles = ((self.sources.pods)(), (self.sources.namespaces)());
            handles.0.synced().await;
            handles.1.synced().await;
            self.watched = Some(Watched {
                pods: handles.0.subscribe(),
                namespaces: handles.1.subscribe(),
                _handles: handles,
            });
            self.take_watched().await;
            self.take_local(true).await;
        } else if !self.is_enforcing {
            self.let_go_at = None;
            self.take_watched().await;
        }
        if self.is_enforcing != has_policies {
            self.is_enforcing = has_policies;
            self.is_told = false;
        }
    }

    /// Takes what of the cluster's news is there already.
    async fn take_watched(&mut self) {
        let Some(watched) = &mut self.watched else { return };
        let (namespaces, pods) = (watched.namespaces.take(), watched.pods.take());
        self.take(Event::Namespaces(namespaces)).await;
        self.take(Event::Pods(pods)).await;
    }

    async fn next(&mut self, stop: &CancellationToken) -> Event {
        let at = self.wake_at;
        let wake = async {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let cluster = async {
            match &mut self.watched {
                None => std::future::pending().await,
                Some(watched) => tokio::select! {
                    biased;
                    // The rarer first, so that it does not wait for ever.
                    news = watched.namespaces.next() => Event::Namespaces(news),
                    news = watched.pods.next() => Event::Pods(news),
                },
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Event::Stop,
            () = self.gate.news() => Event::Gate,
            news = self.policies.next() => Event::Policies(news),
            event = cluster => event,
            () = wake => Event::Time,
        }
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Policies(news) => {
                let follows_sctp = self.follows_sctp;
                let flawed = self
                    .decide(move |world| decide::take_policies(world, news, follows_sctp))
                    .await;
                flawed.iter().for_each(|notice| (self.observer)(notice));
            }
            Event::Pods(news) => {
                let node = self.settings.node_name.clone();
                self.decide(move |world| decide::take_pods(world, &news, &node)).await;
            }
            Event::Namespaces(news) => self.decide(move |world| decide::take_namespaces(world, news)).await,
            // A new pod may have come with a new bridge.
            Event::Gate | Event::Time => self.is_to_look = true,
            Event::Stop => {}
        }
    }

    async fn decide<T: Send + 'static>(&mut self, work: impl FnOnce(&mut World) -> T + Send + 'static) -> T {
        decide::aside(&mut self.world, work).await
    }

    fn tell_overfull(&self, overfull: BTreeSet<Overfull>) {
        for over in overfull {
            if let Some(object) = self.sources.policies.get_key(&over.policy) {
                let (field, text) = ("spec".to_owned(), over.text());
                (self.observer)(&decide::flawed(&over.policy, &object, &Flaw { field, text }));
            }
        }
    }

    async fn take_local(&mut self, all: bool) {
        let (revision, changes) = if all { self.gate.all() } else { self.gate.take() };
        self.taken = revision;
        // Where nothing is watched the gate alone keeps them; all are taken when it is.
        if self.watched.is_some() && !changes.is_empty() {
            let tell = |world: &mut World| {
                changes
                    .into_iter()
                    .for_each(|(id, facts)| world.set_local_pod(id, facts))
            };
            self.decide(tell).await;
        }
    }

    /// Brings what is known to the kernel.
    async fn turn(&mut self) {
        self.take_local(false).await;
        let is_active = self.is_enforcing;
        // Whenever the machine stops, what is kept says so where rules may have stood: policies are kept before the first of
        // them holds, their absence after the last has gone.
        if is_active {
            self.keep().await;
        }
        let outcome = self.tell_kernel().await;
        // Where it has no room, who has most has less then, rather than nobody anything new.
        self.strain.after(&outcome, Instant::now(), &mut self.world);
        self.wake_at = match &outcome {
            Ok(()) => {
                self.backoff.reset();
                if !is_active {
                    self.keep().await;
                }
                self.gate.reach(self.taken, is_active);
                let look_at = is_active.then(|| Instant::now() + self.settings.look_period);
                let others = [self.let_go_at, self.keeper.again_at()];
                look_at.or(others.into_iter().flatten().min())
            }
            Err(error) => {
                self.is_told = false;
                let text = describe(error);
                tracing::warn!(
                    error = text,
                    "network policies could not be brought into the kernel, retrying"
                );
                (self.observer)(&Notice::Failed(text));
                Some(Instant::now() + self.backoff.fail())
            }
        };
    }

    async fn tell_kernel(&mut self) -> Result<(), Error> {
        if !self.is_enforcing {
            if !self.is_told {
                self.with_kernel(Kernel::remove).await?;
                self.kernel = None;
                self.is_told = true;
            }
            return Ok(());
        }
        // Asked before anything is changed, for every change of ours is one of the rule set too.
        if self.is_told && !self.with_kernel(Kernel::is_intact).await? {
            tracing::warn!("the rules of network policies were removed by somebody else, making them anew");
            (self.observer)(&Notice::Rebuilt);
            self.is_told = false;
        }
        if self.is_told {
            let decided = self.decide(|world| (world.take_change(), world.take_overfull()));
            let (change, overfull) = decided.await;
            self.tell_overfull(overfull);
            let is_to_look = std::mem::take(&mut self.is_to_look);
            self.is_told = false;
            self.with_kernel(move |kernel| {
                if is_to_look {
                    kernel.look_at_bridges()?;
                }
                if change.is_empty() {
                    Ok(())
                } else {
                    kernel.apply(&change)
                }
            })
            .await?;
        } else {
            let decided = self.decide(|world| (world.whole(), world.take_overfull()));
            let (whole, overfull) = decided.await;
            self.tell_overfull(overfull);
            self.with_kernel(move |kernel| kernel.replace(&whole)).await?;
        }
        self.is_told = true;
        Ok(())
    }

    /// Keeps for the next start what there is.
    async fn keep(&mut self) {
        let ranges = self.settings.pod_cidrs.clone();
        let has_policies = self.is_enforcing;
        self.keeper.keep(Last { ranges, has_policies }).await;
    }

    /// Works with the kernel where that holds up nobody. After an error a new connection is made: old answers may be under
    /// way on the old one.
    async fn with_kernel<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Kernel) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let kept = self.kernel.take();
        let (namespace, ranges) = (self.settings.netns.clone(), self.settings.pod_cidrs.clone());
        let done = client::blocking::spawn(move || {
            let mut kernel = match kept {
                Some(kernel) => kernel,
                None => Kernel::open(namespace.as_deref(), ranges)?,
            };
            work(&mut kernel).map(|result| (result, kernel))
        });
        let (result, kernel) = done.await.unwrap_or(Err(Error::Panicked))?;
        self.kernel = Some(kernel);
        Ok(result)
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
