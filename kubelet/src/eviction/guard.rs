//! Watches what is left of the node and ends pods, one at a time, before it runs out (kubelet contract §10).
//!
//! A turn: look at everything, judge by the rules ([`super::pressure`]), tell what runs short, and if something is due free what nobody
//! uses, then end the first pod ([`super::rank`]). Between turns memory alone is looked at, the oftener the less is left. While a pod
//! that was ended is being cleaned up no other is, for 30 seconds at most; a hard threshold does not wait for a pod that goes for a soft one.

use super::grip::Grip;
use super::message;
use super::pressure::{self, Remembered, Signals};
use super::rank::{self, Candidate, PodUse};
use super::reclaim::Reclaim;
use super::sight::{DISKS_DEADLINE, Sight};
use super::threshold::{Condition, Disks, Rules, Signal, Starved, Threshold};
use super::{GRACE_SECONDS, Killer};
use crate::events::Severity;
use crate::host::machine::Roots;
use crate::id::PodUid;
use crate::parts::Parts;
use crate::pod::state::Cause;
use crate::pod::view::PodSnapshot;
use crate::pod::worker::Kill;
use crate::pod_object;
use crate::reason;
use client::beat;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The longest pause between two turns.
const PERIOD: Duration = Duration::from_secs(10);
/// How long is waited for the cleanup of a pod that was ended, and how often it is looked at meanwhile.
const CLEANUP_MAX: Duration = Duration::from_secs(30);
const CLEANUP_LOOK: Duration = Duration::from_secs(1);
/// When what is left of a pod that goes for memory or processes is killed without the runtime, which may lack them itself: as soon as a stop has
/// its least grace ([`crate::pod::grace::STOP_SECONDS_MIN`]). The kernel does not wait longer.
const FORCE: Duration = Duration::from_secs(2);
/// How long is waited until it takes no more memory: the kernel may look first for what it could give back.
const RESTRAIN_MAX: Duration = Duration::from_secs(1);
/// How long freeing what nobody uses may take before a pod goes all the same.
const RECLAIM_MAX: Duration = Duration::from_secs(120);
/// How long the disks may take to tell what that gave: they may just be giving it. Since when they do not tell, until a pod goes all the
/// same.
const FREED_DEADLINE: Duration = Duration::from_secs(10);
const BLIND_MAX: Duration = Duration::from_secs(60);

/// For how long after the start a pod does not go for a disk where images may, once the pods that are here have been delivered.
const IMAGES_PATIENCE: Duration = Duration::from_secs(60);

/// A pod that was ended, until it is cleaned up.
struct Waiting {
    uid: PodUid,
    until: Instant,
    /// Whether it goes as fast as it can.
    hurried: bool,
    /// When it is killed without the runtime.
    force: Option<Instant>,
}

/// Guards the node.
pub struct Guard {
    parts: Arc<Parts>,
    rules: Rules,
    killer: Killer,
    reclaim: Arc<dyn Reclaim>,
    sight: Sight,
    begun: Instant,
    remembered: Remembered,
    /// What was last left of memory.
    memory: Signals,
    waiting: Option<Waiting>,
    grip: Grip,
    /// What frees disks now, dead containers or images or both: it goes on though nobody waits for it.
    freeing: JoinSet<()>,
    freed: (bool, bool),
    /// Since when it is not known what freeing gave.
    blind: Option<Instant>,
}

impl Guard {
    /// A guard that tells `killer` whom to end, and reads `/proc` where `roots` says. Must be made inside a tokio runtime.
    pub fn new(parts: Arc<Parts>, rules: Rules, killer: Killer, reclaim: Arc<dyn Reclaim>, roots: Roots) -> Self {
        Self {
            sight: Sight::new(parts.clone(), roots),
            parts,
            rules: rules.without_containers(),
            killer,
            reclaim,
            begun: Instant::now(),
            remembered: Remembered::default(),
            memory: Signals::new(),
            waiting: None,
            grip: Grip::default(),
            freeing: JoinSet::new(),
            freed: (false, false),
            blind: None,
        }
    }

    /// Guards until shut down; without thresholds there is nothing to guard.
    pub async fn run(mut self, shutdown: CancellationToken) {
        if self.rules.thresholds.is_empty() {
            return;
        }
        self.sight.listen();
        let guarding = async {
            loop {
                let next = self.turn().await;
                self.rest(next).await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = guarding => {}
        }
    }

    /// The rules as they are on this node's disks. Those that follow from where layers are come last: places stay as they are.
    fn thresholds(&self) -> Vec<Threshold> {
        match self.sight.disks() {
            Some(disks) => self.rules.of_disks(disks),
            None => self.rules.thresholds.clone(),
        }
    }

    /// Waits for the next turn: until then, or until memory falls below a threshold.
    async fn rest(&mut self, until: Instant) {
        let thresholds = self.thresholds();
        loop {
            self.sight.memory().rest(&thresholds, &self.memory, until).await;
            if Instant::now() >= until {
                return;
            }
            self.memory = self.sight.memory().look().await;
            self.grip.follow(pressure::least_above(&thresholds, &self.memory));
            if pressure::is_news(&thresholds, &self.memory, &self.remembered) {
                return;
            }
        }
    }

    /// Looks, tells, and ends a pod if one must go; returns when to look again.
    async fn turn(&mut self) -> Instant {
        self.force().await;
        let pods = self.parts.pods.list();
        self.killer.forget_gone(&pods);
        let signals = self.sight.signals(DISKS_DEADLINE).await;
        let seen = Instant::now();
        let thresholds = self.thresholds();
        let elapsed = self.begun.elapsed();
        let mut verdict = pressure::judge(
            &thresholds,
            self.rules.transition,
            &signals,
            &mut self.remembered,
            elapsed,
        );
        self.memory = signals.clone();
        self.grip.follow(pressure::least_above(&thresholds, &signals));
        self.parts.pressure.send_if_modified(|told| {
            let news = *told != verdict.conditions;
            told.clone_from(&verdict.conditions);
            news
        });
        let mut next = beat::within(PERIOD);
        if let Some(wake) = verdict.wake {
            next = next.min(self.begun + wake);
        }
        self.stop_waiting();
        let of_disk = |threshold: &Threshold| threshold.signal.condition() == Condition::Disk;
        let is_of_disk = verdict.due.iter().any(of_disk);
        if signals.contains_key(&Signal::NodeFsAvailable) && !is_of_disk {
            // Enough was freed, or is free by itself: what comes next is of another time.
            self.blind = None;
        }
        if self.sight.disks().is_none() {
            // Whose files are on the disk that runs short is not known either.
            if is_of_disk {
                tracing::warn!("the runtime does not tell where images are: nothing is done about disks");
            }
            verdict.due.retain(|threshold| !of_disk(threshold));
        }
        if let Some(threshold) = verdict.due.first()
            && self.may_end(threshold)
        {
            let falls = self.memory_falls(threshold, &thresholds, &signals);
            let act = self.act(threshold, &verdict.due, &signals, seen);
            tokio::select! {
                biased;
                () = act => {}
                () = falls => return Instant::now(),
            }
        }
        if let Some(waiting) = &self.waiting {
            next = next.min(Instant::now() + CLEANUP_LOOK);
            next = waiting.force.map_or(next, |force| next.min(force));
        }
        next
    }

    /// Kills what is left of the pod that was ended last, if its time is over.
    async fn force(&mut self) {
        let Some(waiting) = &mut self.waiting else { return };
        if waiting.force.take_if(|at| *at <= Instant::now()).is_none() {
            return;
        }
        let left = self.parts.pods.by_uid(&waiting.uid);
        if left.is_none_or(|snapshot| !snapshot.active || snapshot.ended) {
            return;
        }
        tracing::info!(pod = %waiting.uid, "the runtime has not ended the pod yet: its processes are killed");
        if let Err(error) = self.parts.cgroups.kill_pod(&waiting.uid).await {
            tracing::warn!(pod = %waiting.uid, %error, "what is left of the pod cannot be killed");
        }
    }

    /// Forgets the pod that was ended last once it is cleaned up, or takes too long.
    fn stop_waiting(&mut self) {
        let view = &self.parts.pods;
        self.waiting = self.waiting.take().filter(|waiting| {
            let there = view.by_uid(&waiting.uid).is_some_and(|snapshot| snapshot.active);
            there && Instant::now() < waiting.until
        });
    }

    fn may_end(&self, threshold: &Threshold) -> bool {
        let in_the_way = |waiting: &Waiting| waiting.hurried || !threshold.is_hard();
        !self.waiting.as_ref().is_some_and(in_the_way)
    }

    /// Waits until memory runs short while something is done about a threshold: of disks that may take minutes, which memory may not have.
    /// What is done about memory goes on to its end.
    fn memory_falls(
        &self,
        acted_on: &Threshold,
        thresholds: &[Threshold],
        signals: &Signals,
    ) -> impl Future<Output = ()> + use<> {
        let of_memory = acted_on.signal.starved() == Starved::Memory;
        let (memory, thresholds) = (self.sight.memory().clone(), thresholds.to_vec());
        let (signals, remembered) = (signals.clone(), self.remembered.clone());
        async move {
            if of_memory {
                return std::future::pending().await;
            }
            memory.falls(&thresholds, signals, &remembered).await;
            tracing::info!("memory runs short: what is done about disks waits");
        }
    }

    /// Frees what nobody uses; if that is not enough, ends the pod that is first.
    async fn act(&mut self, threshold: &Threshold, due: &[Threshold], signals: &Signals, seen: Instant) {
        let starved = threshold.signal.starved();
        let (recorder, node) = (&self.parts.recorder, &self.parts.context.node_name);
        let message = format!("Attempting to reclaim {}", starved.as_str());
        recorder.node(node, Severity::Warning, reason::event::EVICTION_THRESHOLD_MET, message);
        let disks = self.sight.disks().unwrap_or_default();
        let (containers, images) = freed(threshold.signal, disks);
        let withheld = images && !self.reclaim.may_delete_images();
        if self.free(containers, images && !withheld).await && self.is_enough(threshold, due).await {
            return;
        }
        if withheld && self.begun.elapsed() < IMAGES_PATIENCE {
            tracing::info!("it is not known yet which images are needed: no pod goes before those that are not");
            return;
        }
        let Some(reading) = signals.get(&threshold.signal) else {
            return;
        };
        let pods = self.candidates(threshold);
        let restrained = match threshold.is_hard() && starved == Starved::Memory {
            true => self.restrain(&pods, threshold.signal, disks).await,
            false => None,
        };
        let Some(uses) = self.sight.uses(&pods, threshold.signal, disks).await else {
            let resource = starved.as_str();
            tracing::warn!(
                resource,
                "the runtime does not tell what pods use: none is chosen by chance"
            );
            return;
        };
        let mut candidates = paired(&pods, uses);
        let first = match &restrained {
            Some(uid) => candidates
                .iter()
                .find(|candidate| pod_object::uid(candidate.pod) == *uid),
            None => rank::choose(&mut candidates, threshold.signal, disks),
        };
        let Some(first) = first else {
            tracing::error!(
                resource = starved.as_str(),
                "the node runs short, and there is no pod to end"
            );
            return;
        };
        for threshold in due {
            let age = seen.elapsed();
            self.parts
                .metrics
                .pods
                .eviction_stats_age(threshold.signal.as_str(), age);
        }
        let uid = pod_object::uid(first.pod);
        let (message, annotations) = message::of(threshold, *reading, first);
        let own = pod_object::spec(first.pod).termination_grace_period_seconds;
        let grace_seconds = pressure::grace_seconds(&self.rules, threshold, own);
        tracing::info!(pod = %uid, message, "ending a pod for the node's sake");
        let cause = Cause::Failed {
            reason: reason::pod::EVICTED.to_owned(),
            message,
        };
        let kill = Kill {
            cause,
            grace_seconds,
            annotations,
        };
        self.killer.kill(uid.clone(), kill);
        self.parts.metrics.pods.evicted(threshold.signal.as_str());
        let now = Instant::now();
        let hurried = grace_seconds.is_some_and(|grace| grace <= GRACE_SECONDS);
        self.waiting = Some(Waiting {
            uid,
            until: now + CLEANUP_MAX,
            hurried,
            force: (hurried && is_forced(starved)).then(|| now + FORCE),
        });
    }

    /// Keeps the pod that is first from taking more memory, before anybody is asked anything: what else there is to do may wait for memory.
    /// Tells who that is; nobody if the kernel does not tell what each pod has.
    async fn restrain(&self, pods: &[Arc<PodSnapshot>], signal: Signal, disks: Disks) -> Option<PodUid> {
        let uses = self.sight.memory_at_a_glance(pods).await;
        if uses.iter().any(Option::is_none) {
            return None;
        }
        let mut candidates = paired(pods, uses);
        let uid = pod_object::uid(rank::choose(&mut candidates, signal, disks)?.pod);
        let restrained = tokio::time::timeout(RESTRAIN_MAX, self.parts.cgroups.restrain_pod(&uid)).await;
        if let Ok(Err(error)) = restrained {
            tracing::warn!(pod = %uid, %error, "the pod cannot be kept from taking more memory");
        }
        Some(uid)
    }

    /// The pods that have something and may be ended, or ended sooner.
    fn candidates(&self, threshold: &Threshold) -> Vec<Arc<PodSnapshot>> {
        let mut pods = self.parts.pods.list();
        pods.retain(|snapshot| {
            let uid = pod_object::uid(&snapshot.pod);
            let done = match threshold.is_hard() {
                true => self.killer.is_hurried(&uid),
                false => self.killer.has(&uid) || snapshot.life.ending,
            };
            snapshot.active && !snapshot.ended && !snapshot.observed.is_empty() && !done
        });
        pods
    }

    /// Frees what nobody uses on the file system that runs short; whether there was anything to try. What is being freed already is waited
    /// for: begun anew each time that memory comes first, an image that takes long would never go.
    async fn free(&mut self, containers: bool, images: bool) -> bool {
        let wanted = (containers, images);
        if wanted == (false, false) {
            return false;
        }
        // What ended while nobody waited for it was of another time.
        while self.freeing.try_join_next().is_some() {}
        let freeing = async {
            let begun = !self.freeing.is_empty() && self.freed == wanted;
            while self.freeing.join_next().await.is_some() {}
            if !begun {
                self.freed = wanted;
                self.freeing.spawn(free(self.reclaim.clone(), wanted));
                while self.freeing.join_next().await.is_some() {}
            }
        };
        if tokio::time::timeout(RECLAIM_MAX, freeing).await.is_err() {
            tracing::warn!("removing what nobody uses takes too long, a pod goes meanwhile");
        }
        true
    }

    /// Whether no pod has to go after something was freed: it was enough, for whatever else is due, too, as upstream looks at all, or is not
    /// known yet.
    async fn is_enough(&mut self, threshold: &Threshold, due: &[Threshold]) -> bool {
        let resource = threshold.signal.starved().as_str();
        let left = self.sight.signals(FREED_DEADLINE).await;
        if !left.contains_key(&threshold.signal) {
            let since = *self.blind.get_or_insert_with(Instant::now);
            tracing::warn!(resource, "what is left after freeing cannot be read");
            return since.elapsed() < BLIND_MAX;
        }
        self.blind = None;
        let is_met = |due: &Threshold| {
            let reading = left.get(&due.signal);
            reading.is_some_and(|reading| pressure::is_met(due, *reading, true))
        };
        let enough = !due.iter().any(is_met);
        if enough {
            tracing::info!(resource, "enough was freed without ending a pod");
        }
        enough
    }
}

async fn free(reclaim: Arc<dyn Reclaim>, (containers, images): (bool, bool)) {
    if containers && let Err(error) = reclaim.delete_all_unused_containers().await {
        tracing::warn!(%error, "dead containers are not removed");
    }
    if images && let Err(error) = reclaim.delete_unused_images().await {
        tracing::warn!(%error, "unused images are not removed");
    }
}

fn paired(pods: &[Arc<PodSnapshot>], uses: Vec<Option<PodUse>>) -> Vec<Candidate<'_>> {
    let paired = pods.iter().zip(uses);
    paired
        .map(|(snapshot, used)| Candidate {
            pod: &snapshot.pod,
            used,
        })
        .collect()
}

/// Whether a pod that goes for this may be in the way of its own end: whoever ends it needs memory, and processes, too.
fn is_forced(starved: Starved) -> bool {
    matches!(starved, Starved::Memory | Starved::Pids)
}

/// Whether dead containers and unused images are on the file system that runs short.
fn freed(signal: Signal, disks: Disks) -> (bool, bool) {
    if !matches!(signal.starved(), Starved::EphemeralStorage | Starved::Inodes) {
        return (false, false);
    }
    let of_node = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
    let of_images = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    match (disks.images_apart, disks.layers_apart) {
        (false, _) => (true, true),
        (true, false) => (!of_node, !of_node),
        (true, true) => (!of_images, of_images),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wiring;
