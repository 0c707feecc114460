//! The scheduler: queue, cluster, cycle, plugins, binding.
//!
//! One task owns the queue and the cluster. It takes in changes, runs cycles (pure, in [`cycle`]) and starts bindings, which
//! run beside it; a decided pod is counted on its node at once, so the next cycle sees it before the API does.

use crate::controller::event::Recorder;
use crate::metrics::Metrics;
use client::informer::{Change, Options};
use client::{Clock, Informer};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{Api, ResourceExt};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub mod bind;
pub mod cluster;
pub mod constraint;
pub mod cycle;
pub mod plugin;
pub mod pod;
pub mod queue;

use bind::{Binder, Bound};
use cluster::{Cluster, NodeChange};
use cycle::{FitError, Search};
use plugin::inter_pod_affinity;
use pod::PodInfo;
use queue::{PodQueue, ScheduleFailure};

/// The profile's name, and the component events come from.
pub const NAME: &str = "default-scheduler";
/// Bindings and status writes under way at once.
const IN_FLIGHT: usize = 128;
/// Cycles between two looks at what changed.
const CYCLES: usize = 64;

/// What the scheduler needs from its process.
pub struct SchedulerContext {
    /// A client with the scheduler's identity.
    pub client: kube::Client,
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
    let options = |seed| Options {
        seed,
        ..Options::default()
    };
    let pods: Informer<Pod> = Informer::spawn(Api::all(context.client.clone()), options(context.seed));
    let nodes: Informer<Node> = Informer::spawn(Api::all(context.client.clone()), options(context.seed ^ 1));
    let namespaces: Informer<Namespace> = Informer::spawn(Api::all(context.client.clone()), options(context.seed ^ 2));
    pods.synced().await;
    nodes.synced().await;
    namespaces.synced().await;
    let recorder = Recorder::spawn(context.client.clone(), context.clock.clone(), NAME);
    let mut scheduler = Scheduler {
        queue: PodQueue::default(),
        cluster: Cluster::default(),
        search: Search::new(context.seed),
        metrics: context.metrics,
        binder: Binder::new(context.client, context.clock, recorder),
        flights: JoinSet::new(),
    };
    let (mut pod_changes, mut node_changes) = (pods.subscribe(), nodes.subscribe());
    let mut namespace_changes = namespaces.subscribe();
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

fn is_ours(pod: &Pod) -> bool {
    let name = pod
        .spec
        .as_ref()
        .and_then(|s| s.scheduler_name.as_deref())
        .unwrap_or(NAME);
    name == NAME && is_counted(pod) && pod.metadata.deletion_timestamp.is_none()
}

impl Scheduler {
    fn namespace_changed(&mut self, change: Change<Namespace>) {
        let labels = change.new.map(|namespace| namespace.labels().clone());
        if self.cluster.set_namespace(&change.key.name, labels) && self.cluster.repelling().next().is_some() {
            self.wake_freed();
        }
    }

    fn node_changed(&mut self, change: Change<Node>) {
        let name = &change.key.name;
        let is_relevant = match change.new {
            Some(node) => self.cluster.set_node(&node) == NodeChange::Relevant,
            None => {
                self.cluster.remove_node(name);
                true
            }
        };
        // What its pods keep others out of may be another domain now, or none.
        match is_relevant && self.cluster.repels_from(name) {
            true => self.wake_freed(),
            false if is_relevant => self.wake(name),
            false => {}
        }
    }

    /// Pods that would fit the node now get another cycle.
    fn wake(&mut self, node: &str) {
        let cluster = &self.cluster;
        let Some(node) = cluster.node(node) else { return };
        let fits = |pod: &PodInfo| {
            constraint::obstacle(pod).is_none()
                && plugin::filter(pod, node).is_ok()
                && inter_pod_affinity::filter(&inter_pod_affinity::closed_to(pod, cluster), node).is_ok()
        };
        self.queue.wake(Instant::now(), fits);
    }

    /// Pods that pods elsewhere may have kept waiting get another cycle.
    fn wake_freed(&mut self) {
        self.queue
            .wake(Instant::now(), |pod| constraint::obstacle(pod).is_none());
    }

    fn free(&mut self, uid: &str) {
        let repelled = self.cluster.pod(uid).is_some_and(|pod| !pod.repelled.is_empty());
        if let Some(node) = self.cluster.remove_pod(uid) {
            match repelled {
                true => self.wake_freed(),
                false => self.wake(&node),
            }
        }
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        if let Some(old) = &change.old
            && change
                .new
                .as_ref()
                .is_none_or(|new| new.metadata.uid != old.metadata.uid)
        {
            self.queue.remove(&uid(old));
            self.free(&uid(old));
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
            None if is_ours(&pod) => self.queue.put(Arc::new(PodInfo::new(pod)), Instant::now()),
            None => {
                self.queue.remove(&uid);
                self.free(&uid);
            }
        }
    }

    fn assigned(&mut self, pod: Arc<Pod>, uid: &str, node: &str) {
        if !is_counted(&pod) {
            self.free(uid);
            return;
        }
        let known = self.cluster.pod(uid);
        if known.is_some_and(|known| known.is_as(&pod)) {
            return;
        }
        let before = known.map(|known| known.requests.clone());
        let info = Arc::new(PodInfo::new(pod));
        let is_resized = before.is_some_and(|before| before != info.requests);
        self.cluster.place(info, node);
        if is_resized {
            self.wake(node);
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
            let began = Instant::now();
            let found = self.search.schedule(&mut self.cluster, &pod);
            let result = if found.is_ok() { "scheduled" } else { "unschedulable" };
            self.metrics.scheduled(result, began.elapsed());
            match found {
                Ok(node) => self.bind(pod, node),
                Err(error) => self.refuse(pod, error),
            }
        }
        true
    }

    fn bind(&mut self, pod: Arc<PodInfo>, node: String) {
        self.cluster.place(pod.clone(), &node);
        let binder = self.binder.clone();
        self.flights.spawn(async move { binder.bind(pod, node).await });
    }

    fn refuse(&mut self, pod: Arc<PodInfo>, error: FitError) {
        self.queue
            .fail(&pod.uid, ScheduleFailure::Unschedulable, Instant::now());
        tracing::debug!(pod = %pod.key, nodes = error.nodes, "no node fits");
        let binder = self.binder.clone();
        self.flights
            .spawn(async move { binder.refuse(pod, "Unschedulable", error.message()).await });
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
                    self.queue.fail(&pod.uid, ScheduleFailure::Error, Instant::now());
                    let binder = self.binder.clone();
                    self.flights
                        .spawn(async move { binder.refuse(pod, "SchedulerError", error).await });
                }
            }
        }
    }
}
