//! The scheduler: queue, cluster, cycle, plugins, binding.
//!
//! One task owns the queue and the cluster. It takes in changes, runs cycles (pure, in [`cycle`]) and starts bindings and
//! evictions, which run beside it; a decided pod is counted on its node at once, so the next cycle sees it before the API does.

use crate::held::{Node, Pod};
use crate::metrics::Metrics;
use crate::turn::{self, TURN};
use client::Clock;
use client::informer::Change;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

mod attempt;
pub mod bind;
pub mod cluster;
pub mod config;
pub mod constraint;
pub mod cycle;
pub mod event;
pub mod extender;
pub mod judged;
pub mod plugin;
pub mod pod;
pub mod profile;
pub mod queue;
pub mod recorder;
pub mod sources;
pub mod spread;
pub mod term;
#[cfg(test)]
mod testing;
pub mod workload;

use attempt::Sampler;
use bind::{Binder, Bound};
use cluster::{Cluster, NodeChange, Waited};
use config::SchedulerConfig;
use cycle::Search;
use event::{Event, Hints, label};
use extender::call::Caller;
use plugin::Plugin;
use pod::PodInfo;
use profile::Profile;
use queue::PodQueue;
use recorder::Recorder;
use sources::Sources;

/// The name pods ask for by default, and the component events come from.
pub const NAME: &str = "default-scheduler";
/// Bindings and status writes under way at once: those that wait together are stored together.
const IN_FLIGHT: usize = 256;
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
    /// The machine's name, for events.
    pub host: String,
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
    tokio::select! {
        biased;
        () = context.shutdown.cancelled() => return,
        () = informers.synced() => {}
    }
    let profiles = context.config.profiles;
    let recorder = |name: &str| Recorder::spawn(context.client.clone(), context.clock.clone(), name, &context.host);
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
        sampler: Sampler::new(context.seed),
        is_sampled: false,
        metrics: context.metrics,
        binder: Binder::new(context.client, context.clock, recorders),
        flights: JoinSet::new(),
        extenders: callers(&context.config.extenders).unwrap_or_else(|error| {
            // They were checked when the configuration was read; a file may have gone since.
            tracing::error!(error, "an extender cannot be asked: nothing is scheduled");
            Vec::new()
        }),
    };
    if scheduler.extenders.len() != context.config.extenders.len() {
        return;
    }
    loop {
        let (namespaces, nodes, pods) = (namespace_changes.take(), node_changes.take(), pod_changes.take());
        turn::each(namespaces, TURN, |c| scheduler.namespace_changed(c)).await;
        // Nodes first: a pod may be assigned to a node that appeared before it.
        turn::each(nodes, TURN, |c| scheduler.hear_node(c)).await;
        turn::each(pods, TURN, |c| scheduler.hear_pod(c)).await;
        while let Some(done) = scheduler.flights.try_join_next() {
            scheduler.landed(done.ok());
        }
        let busy = tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            busy = scheduler.cycles(TURN) => busy,
        };
        scheduler.tell_entries();
        if busy {
            tokio::task::yield_now().await;
            continue;
        }
        scheduler.tell_sizes();
        let due = scheduler.due();
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            Some(done) = scheduler.flights.join_next() => scheduler.landed(done.ok()),
            changes = pod_changes.next() => turn::each(changes, TURN, |c| scheduler.hear_pod(c)).await,
            changes = node_changes.next() => turn::each(changes, TURN, |c| scheduler.hear_node(c)).await,
            changes = namespace_changes.next() => {
                turn::each(changes, TURN, |c| scheduler.namespace_changed(c)).await;
            }
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
    sampler: Sampler,
    /// Whether the plugins of the cycle that runs are timed one by one.
    is_sampled: bool,
    binder: Binder,
    flights: JoinSet<Bound>,
    metrics: Arc<Metrics>,
    extenders: Vec<Arc<Caller>>,
}

/// Connections to extenders.
///
/// # Errors
/// Which one cannot be made, and why.
pub fn callers(extenders: &[extender::Extender]) -> Result<Vec<Arc<Caller>>, String> {
    let each = extenders.iter().enumerate().map(|(index, extender)| {
        let made = Caller::new(extender.clone()).map(Arc::new);
        made.map_err(|why| format!("extenders[{index}].{why}"))
    });
    each.collect()
}

/// Whether the pod holds resources of its node.
fn is_counted(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

fn profile_of<'p>(profiles: &'p [Profile], name: &str) -> Option<&'p Profile> {
    profiles.iter().find(|profile| profile.name == name)
}

/// Who may be helped by an event: what is known after it.
type Known<'k> = (&'k Cluster, &'k [Profile]);

/// Pods that the event may help get another cycle.
fn wake(queue: &mut PodQueue, known: Known<'_>, event: &Event<'_>) {
    wake_by(queue, known, (label::of(event), event));
}

/// As [`wake`], of an event that has a name of its own.
fn wake_by(queue: &mut PodQueue, (cluster, profiles): Known<'_>, (name, event): (&'static str, &Event<'_>)) {
    let hints = Hints::new(cluster, event);
    queue.wake(Instant::now(), (name, event.concerns()), |pod, refused| {
        let profile = profile_of(profiles, pod.scheduler());
        profile.is_some_and(|profile| hints.may_help(profile, pod, refused))
    });
}

impl Scheduler {
    /// When there is something to do of which nobody tells. While no cycle may begin that is never: whatever lands is told of, and what is
    /// overdue by then would be so at once, again and again.
    fn due(&self) -> Option<Instant> {
        let may_begin = self.flights.len() < IN_FLIGHT;
        may_begin.then(|| self.queue.next_due()).flatten()
    }

    fn tell_entries(&mut self) {
        for (queue, event, pods) in self.queue.entered() {
            self.metrics.scheduling.entered(queue, event, pods);
        }
    }

    /// Asked whenever there is nothing to do, which may be once a binding: nothing is gone through for it.
    fn tell_sizes(&self) {
        for (queue, pods) in self.queue.waiting() {
            self.metrics.pending(queue, pods);
        }
        for (plugin, profile, pods) in self.queue.blamed() {
            self.metrics.scheduling.blamed(plugin.name(), profile, pods);
        }
        let (nodes, pods) = self.cluster.sizes();
        for (kind, number) in [("nodes", nodes), ("pods", pods), ("assumed_pods", self.queue.decided())] {
            self.metrics.cached(kind, number);
        }
    }

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
            let event = Event::Namespace(&change.key.name);
            wake(&mut self.queue, (&self.cluster, &self.profiles), &event);
        }
    }

    fn hear_node(&mut self, change: Change<Node>) {
        let (what, began) = (
            label::node(change.old.as_deref(), change.new.as_deref()),
            Instant::now(),
        );
        self.node_changed(change, what);
        self.metrics.scheduling.handled(what, began.elapsed());
    }

    fn hear_pod(&mut self, change: Change<Pod>) {
        let (what, began) = (label::pod(change.old.as_deref(), change.new.as_deref()), Instant::now());
        self.pod_changed(change);
        self.metrics.scheduling.handled(what, began.elapsed());
    }

    fn node_changed(&mut self, change: Change<Node>, what: &'static str) {
        let name = &change.key.name;
        let before = match &change.new {
            Some(node) => match self.cluster.set_node(node) {
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
        wake_by(&mut self.queue, (&self.cluster, &self.profiles), (what, &event));
    }

    /// Counts the pod on the node from now on.
    fn place(&mut self, pod: Arc<PodInfo>, node: &str) {
        // Somebody else's hand may have bound it elsewhere than was decided.
        if self.cluster.node_of(&pod.uid).is_some_and(|old| old.name != node) {
            self.free(&pod.uid);
        }
        let before = self.cluster.pod(&pod.uid).cloned();
        let waited = self.cluster.place(Arc::clone(&pod), node);
        self.gave_up(waited);
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
        wake(&mut self.queue, (&self.cluster, &self.profiles), &event);
    }

    fn free(&mut self, uid: &str) {
        if let Some((pod, node)) = self.cluster.remove_pod(uid) {
            self.left(&pod, &node);
        }
    }

    /// The pod is on the node no more, to those who come to it.
    fn left(&mut self, pod: &PodInfo, node: &str) {
        let event = Event::Pod {
            before: Some(pod),
            after: None,
            node: self.cluster.node(node),
        };
        wake(&mut self.queue, (&self.cluster, &self.profiles), &event);
    }

    /// The pod waits for room on that node.
    fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        let waited = self.cluster.nominate(pod, node);
        self.gave_up(waited);
    }

    /// The pod waits for room on no node any more.
    fn renounce(&mut self, uid: &str) {
        let waited = self.cluster.nominated.remove(uid);
        self.gave_up(waited);
    }

    /// Whoever had to leave the room to one that waited for it may have it.
    fn gave_up(&mut self, waited: Option<Waited>) {
        if let Some((pod, node)) = waited {
            self.left(&pod, &node);
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
            None => {
                self.skip(change.old.as_deref(), &pod);
                self.forget(&uid);
            }
        }
    }

    /// Tells once that nobody looks for a node for a pod that goes: it may stay for long, by its finalizers. (Upstream tells it when such a pod
    /// would have its turn, which one that waits behind its gates never has.)
    fn skip(&self, old: Option<&Pod>, pod: &Arc<Pod>) {
        let goes = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        if !goes(pod) || old.is_some_and(goes) || !is_counted(pod) {
            return;
        }
        let info = self.cluster.describe(Arc::clone(pod));
        if profile_of(&self.profiles, info.scheduler()).is_some() && !plugin::scheduling_gates::holds_back(&info) {
            self.binder.skip(&info);
        }
    }

    fn unassigned(&mut self, old: Option<&Pod>, pod: Arc<Pod>) {
        let info = Arc::new(self.cluster.describe(pod));
        let before = old.and_then(|old| old.status.as_ref()?.nominated_node_name.as_deref());
        self.hear_nomination(&info, before.unwrap_or_default());
        let (profile, began) = (info.scheduler().to_owned(), Instant::now());
        if let Some(said) = self.queue.put(info, began) {
            let (scheduling, took) = (&self.metrics.scheduling, began.elapsed());
            scheduling.asked(("PreEnqueue", said), &profile, took);
            if self.sampler.is_one() {
                scheduling.ran((Plugin::SchedulingGates.name(), "PreEnqueue", said), took);
            }
        }
    }

    /// What the API says of the node that the pod waits for; it said `before` until now. What was decided meanwhile is newer than that.
    fn hear_nomination(&mut self, pod: &Arc<PodInfo>, before: &str) {
        let known = self.cluster.nominated.node_of(&pod.uid).map(str::to_owned);
        match (pod.nominated(), known) {
            (said, Some(known)) if said == before => self.nominate(Arc::clone(pod), &known),
            (said, None) if said == before => {}
            ("", Some(known)) if known != before => self.nominate(Arc::clone(pod), &known),
            ("", _) => self.renounce(&pod.uid),
            (node, _) if self.cluster.pod(&pod.uid).is_none() => self.nominate(Arc::clone(pod), node),
            _ => {}
        }
    }

    fn assigned(&mut self, pod: Arc<Pod>, uid: &str, node: &str) {
        if !is_counted(&pod) {
            self.renounce(uid);
            self.free(uid);
            return;
        }
        let known = self.cluster.pod(uid);
        if known.is_some_and(|known| known.is_as(&pod)) {
            self.cluster.renew(uid, pod);
            return;
        }
        // What was assumed says so already, but that it has its node.
        self.place(Arc::new(self.cluster.describe(pod)), node);
    }
}

#[cfg(test)]
mod tests;
