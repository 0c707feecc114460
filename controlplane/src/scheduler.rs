//! The scheduler: queue, cluster, cycle, plugins, binding.
//!
//! One task owns the queue and the cluster. It takes in changes, runs cycles (pure, in [`cycle`]) and starts bindings and
//! evictions, which run beside it; a decided pod is counted on its node at once, so the next cycle sees it before the API does.

use crate::controller::event::Recorder;
use crate::metrics::Metrics;
use client::Clock;
use client::informer::Change;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::ResourceExt;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub mod bind;
pub mod cluster;
pub mod config;
pub mod constraint;
pub mod cycle;
pub mod event;
pub mod plugin;
pub mod pod;
pub mod profile;
pub mod queue;
pub mod sources;
pub mod spread;
pub mod term;
#[cfg(test)]
mod testing;
pub mod workload;

use bind::{Binder, Bound, Nomination};
use cluster::{Cluster, NodeChange};
use config::SchedulerConfig;
use cycle::{Request, Search, Unplaced};
use event::Event;
use plugin::Plugin;
use plugin::default_preemption::Budget;
use pod::PodInfo;
use profile::Profile;
use queue::{PodQueue, ScheduleFailure};
use sources::Sources;

/// The name pods ask for by default, and the component events come from.
pub const NAME: &str = "default-scheduler";
/// Bindings and status writes under way at once.
const IN_FLIGHT: usize = 128;
/// Cycles between two looks at what changed.
const CYCLES: usize = 64;

/// What the scheduler needs from its process.
pub struct SchedulerContext {
    /// Copies of everything it reads.
    pub informers: Sources,
    /// A client with the scheduler's identity.
    pub client: kube::Client,
    /// Profiles and times.
    pub config: SchedulerConfig,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Seed of ties and jitter.
    pub seed: u64,
    /// Where attempts are counted.
    pub metrics: Arc<Metrics>,
    /// Ends it.
    pub shutdown: CancellationToken,
}

/// Schedules until shutdown.
pub async fn run(context: SchedulerContext) {
    let informers = context.informers;
    informers.synced().await;
    let profiles = context.config.profiles;
    let recorder = |name: &str| Recorder::spawn(context.client.clone(), context.clock.clone(), name.to_owned());
    let recorders = profiles
        .iter()
        .map(|profile| (profile.name.clone(), recorder(&profile.name)))
        .collect();
    let mut pod_changes = informers.pods.subscribe();
    let mut node_changes = informers.nodes.subscribe();
    let mut namespace_changes = informers.namespaces.subscribe();
    let mut scheduler = Scheduler {
        queue: PodQueue::new(context.config.backoff),
        cluster: Cluster::default(),
        profiles,
        informers,
        search: Search::new(context.seed),
        metrics: context.metrics,
        binder: Binder::new(context.client, context.clock, recorders),
        flights: JoinSet::new(),
    };
    loop {
        namespace_changes
            .take()
            .into_iter()
            .for_each(|c| scheduler.namespace_changed(c));
        // Nodes first: a pod may be assigned to a node that appeared before it.
        node_changes.take().into_iter().for_each(|c| scheduler.node_changed(c));
        pod_changes.take().into_iter().for_each(|c| scheduler.pod_changed(c));
        while let Some(done) = scheduler.flights.try_join_next() {
            scheduler.landed(done.ok());
        }
        let busy = scheduler.cycles();
        if context.shutdown.is_cancelled() {
            return;
        }
        if busy {
            tokio::task::yield_now().await;
            continue;
        }
        for (queue, pods) in scheduler.queue.waiting() {
            scheduler.metrics.pending(queue, pods);
        }
        let due = scheduler.queue.next_due();
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            Some(done) = scheduler.flights.join_next() => scheduler.landed(done.ok()),
            changes = pod_changes.next() => changes.into_iter().for_each(|c| scheduler.pod_changed(c)),
            changes = node_changes.next() => changes.into_iter().for_each(|c| scheduler.node_changed(c)),
            changes = namespace_changes.next() => changes.into_iter().for_each(|c| scheduler.namespace_changed(c)),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

struct Scheduler {
    queue: PodQueue,
    cluster: Cluster,
    profiles: Vec<Profile>,
    informers: Sources,
    search: Search,
    binder: Binder,
    flights: JoinSet<Bound>,
    metrics: Arc<Metrics>,
}

/// Whether the pod holds resources of its node.
fn is_counted(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

fn profile_of<'p>(profiles: &'p [Profile], name: &str) -> Option<&'p Profile> {
    profiles.iter().find(|profile| profile.name == name)
}

/// Pods that the event may help get another cycle.
fn wake(queue: &mut PodQueue, profiles: &[Profile], event: &Event<'_>) {
    queue.wake(Instant::now(), event.concerns(), |pod, refused| {
        let profile = profile_of(profiles, pod.scheduler());
        profile.is_some_and(|profile| event::may_help(profile, pod, refused, event))
    });
}

impl Scheduler {
    fn is_ours(&self, pod: &Pod) -> bool {
        let name = pod
            .spec
            .as_ref()
            .and_then(|s| s.scheduler_name.as_deref())
            .unwrap_or(NAME);
        profile_of(&self.profiles, name).is_some() && is_counted(pod) && pod.metadata.deletion_timestamp.is_none()
    }

    fn namespace_changed(&mut self, change: Change<Namespace>) {
        let labels = change.new.map(|namespace| namespace.labels().clone());
        if self.cluster.set_namespace(&change.key.name, labels) {
            wake(&mut self.queue, &self.profiles, &Event::Namespace);
        }
    }

    fn node_changed(&mut self, change: Change<Node>) {
        let name = &change.key.name;
        let before = match change.new {
            Some(node) => match self.cluster.set_node(&node) {
                NodeChange::Nothing => return,
                NodeChange::Added => None,
                NodeChange::Updated(before) => Some(before),
            },
            None => {
                let before = self.cluster.node(name).map(|node| node.labels.clone());
                self.cluster.remove_node(name);
                before
            }
        };
        let event = Event::Node {
            before: before.as_ref(),
            after: self.cluster.node(name).filter(|node| node.present),
        };
        wake(&mut self.queue, &self.profiles, &event);
    }

    /// Counts the pod on the node from now on.
    fn place(&mut self, pod: Arc<PodInfo>, node: &str) {
        // Somebody else's hand may have bound it elsewhere than was decided.
        if self.cluster.node_of(&pod.uid).is_some_and(|old| old.name != node) {
            self.free(&pod.uid);
        }
        let before = self.cluster.pod(&pod.uid).cloned();
        self.cluster.place(Arc::clone(&pod), node);
        // The API mostly confirms what was assumed, which is news to nobody.
        let same = |before: &Arc<PodInfo>| before.kin == pod.kin && before.requests == pod.requests;
        if before.as_ref().is_some_and(same) {
            return;
        }
        let event = Event::Pod {
            before: before.as_deref(),
            after: Some(&pod),
            node: self.cluster.node(node),
        };
        wake(&mut self.queue, &self.profiles, &event);
    }

    fn free(&mut self, uid: &str) {
        if let Some((pod, node)) = self.cluster.remove_pod(uid) {
            let event = Event::Pod {
                before: Some(&pod),
                after: None,
                node: self.cluster.node(&node),
            };
            wake(&mut self.queue, &self.profiles, &event);
        }
    }

    /// The pod waits for room on no node any more.
    fn renounce(&mut self, uid: &str) {
        let node = self.cluster.nominated.remove(uid);
        if let Some(node) = node.and_then(|node| self.cluster.node(&node)) {
            wake(&mut self.queue, &self.profiles, &Event::Renounced(node));
        }
    }

    fn forget(&mut self, uid: &str) {
        self.queue.remove(uid);
        self.renounce(uid);
        self.free(uid);
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        if let Some(old) = &change.old
            && change
                .new
                .as_ref()
                .is_none_or(|new| new.metadata.uid != old.metadata.uid)
        {
            self.forget(&uid(old));
        }
        let Some(pod) = change.new else { return };
        let uid = uid(&pod);
        let assigned = pod
            .spec
            .as_ref()
            .and_then(|s| s.node_name.clone())
            .filter(|n| !n.is_empty());
        match assigned {
            Some(node) => {
                self.queue.remove(&uid);
                self.assigned(pod, &uid, &node);
            }
            None if self.is_ours(&pod) => self.unassigned(change.old.as_deref(), pod),
            None => self.forget(&uid),
        }
    }

    fn unassigned(&mut self, old: Option<&Pod>, pod: Arc<Pod>) {
        let info = Arc::new(PodInfo::new(pod));
        let before = old.and_then(|old| old.status.as_ref()?.nominated_node_name.as_deref());
        match (info.nominated(), before.unwrap_or_default()) {
            ("", "") => {}
            ("", _) => self.renounce(&info.uid),
            (node, _) => {
                // Already counted where it was decided to go: that is newer than what the API says.
                if self.cluster.pod(&info.uid).is_none() {
                    self.cluster.nominate(Arc::clone(&info), node);
                }
            }
        }
        self.queue.put(info, Instant::now());
    }

    fn assigned(&mut self, pod: Arc<Pod>, uid: &str, node: &str) {
        if !is_counted(&pod) {
            self.renounce(uid);
            self.free(uid);
            return;
        }
        let known = self.cluster.pod(uid);
        if known.is_some_and(|known| known.is_as(&pod)) {
            return;
        }
        // What was assumed says so already, but that it has its node.
        let nominated = self.cluster.nominated.node_of(uid).map(str::to_owned);
        self.place(Arc::new(PodInfo::new(pod)), node);
        if let Some(other) = nominated.filter(|nominated| nominated != node)
            && let Some(other) = self.cluster.node(&other)
        {
            wake(&mut self.queue, &self.profiles, &Event::Renounced(other));
        }
    }

    /// Runs some cycles; tells whether more are to be run at once.
    fn cycles(&mut self) -> bool {
        for _ in 0..CYCLES {
            if self.flights.len() >= IN_FLIGHT {
                return false;
            }
            let Some(pod) = self.queue.pop(Instant::now()) else {
                return false;
            };
            self.cycle(pod);
        }
        true
    }

    fn cycle(&mut self, pod: Arc<PodInfo>) {
        let Some(profile) = profile_of(&self.profiles, pod.scheduler()) else {
            return;
        };
        let began = Instant::now();
        let spreads = profile
            .scores
            .iter()
            .any(|(plugin, _)| *plugin == Plugin::PodTopologySpread)
            || profile.filters.contains(&Plugin::PodTopologySpread);
        let owned = match spreads && pod.spread.is_empty() {
            true => workload::selector(&self.informers, &pod),
            false => None,
        };
        let informers = &self.informers;
        let request = Request {
            pod: &pod,
            profile,
            owned: owned.as_ref(),
            budgets: &|| {
                let budgets = informers.budgets.list();
                budgets.iter().filter_map(|budget| Budget::new(budget)).collect()
            },
        };
        let found = self.search.schedule(&mut self.cluster, request);
        let result = if found.is_ok() { "scheduled" } else { "unschedulable" };
        self.metrics.scheduled(&profile.name, result, began.elapsed());
        match found {
            Ok(node) => self.bind(pod, node),
            Err(unplaced) => self.refuse(pod, *unplaced),
        }
    }

    fn bind(&mut self, pod: Arc<PodInfo>, node: String) {
        self.place(pod.clone(), &node);
        let binder = self.binder.clone();
        self.flights.spawn(async move { binder.bind(pod, node).await });
    }

    fn refuse(&mut self, pod: Arc<PodInfo>, unplaced: Unplaced) {
        let Unplaced {
            error,
            preemption,
            renounce,
        } = unplaced;
        tracing::debug!(pod = %pod.key, nodes = error.nodes, "no node fits");
        let (binder, refused, message) = (self.binder.clone(), error.plugins(), error.message());
        if let Some(preemption) = preemption {
            self.metrics.preempted(Some(preemption.victims.len()));
            self.queue.hold(&pod.uid, refused);
            self.cluster.nominate(Arc::clone(&pod), &preemption.node);
            for victim in &preemption.victims {
                self.cluster.doomed.insert(victim.uid.clone());
            }
            for other in &preemption.displaced {
                self.cluster.nominated.remove(&other.uid);
            }
            self.flights
                .spawn(async move { binder.evict(pod, message, preemption).await });
            return;
        }
        if error.post_filter.is_some() {
            self.metrics.preempted(None);
        }
        let waits = self.cluster.nominated.node_of(&pod.uid).is_some() || !pod.nominated().is_empty();
        let nomination = match renounce && waits {
            true => Nomination::Clear,
            false => Nomination::Keep,
        };
        self.queue
            .fail(&pod.uid, ScheduleFailure::Unschedulable(refused), Instant::now());
        if nomination == Nomination::Clear {
            self.renounce(&pod.uid);
        }
        self.flights
            .spawn(async move { binder.refuse(pod, "Unschedulable", message, nomination).await });
    }

    fn landed(&mut self, bound: Option<Bound>) {
        match bound {
            // The informer removes the pod from the queue when it shows the assignment.
            None | Some(Bound::Done) => {}
            Some(Bound::Failed { pod, error }) => {
                tracing::warn!(pod = %pod.key, error, "binding failed");
                // A pod that left the queue meanwhile is gone, or has a node by somebody else's hand.
                if self.queue.contains(&pod.uid) {
                    self.free(&pod.uid);
                    if !pod.nominated().is_empty() {
                        self.cluster.nominate(Arc::clone(&pod), pod.nominated());
                    }
                    self.queue.fail(&pod.uid, ScheduleFailure::Error, Instant::now());
                    let binder = self.binder.clone();
                    self.flights
                        .spawn(async move { binder.refuse(pod, "SchedulerError", error, Nomination::Keep).await });
                }
            }
            Some(Bound::Evicted {
                pod,
                is_nominated,
                kept,
            }) => {
                for (victim, error) in &kept {
                    tracing::warn!(pod = %pod.key, victim, error, "not evicted");
                    self.cluster.doomed.remove(victim);
                }
                if !is_nominated {
                    // What the API does not know nobody would end: the pod waits for what it waited for before.
                    self.renounce(&pod.uid);
                    if self.queue.contains(&pod.uid) && !pod.nominated().is_empty() {
                        self.cluster.nominate(Arc::clone(&pod), pod.nominated());
                    }
                }
                match kept.is_empty() {
                    true => self.queue.release(&pod.uid, Instant::now()),
                    false => self.queue.fail(&pod.uid, ScheduleFailure::Error, Instant::now()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
