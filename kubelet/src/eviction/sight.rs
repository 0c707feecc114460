//! What is left of everything on this node, and what pods use of it: read from `/proc`, the file systems, pods' cgroups and, of
//! containers, the runtime.

use super::decide::is_on_disk;
use super::earlier::{self, COUNT_FAIR, Earlier, GLANCE, Time};
use super::hung::Hung;
use super::measure::{Measurer, Places};
use super::notice::Notices;
use super::pressure::{self, LOOK_MIN, LOOK_MIN_TOLD, Reading, Remembered, Signals};
use super::rank::{self, ContainerUse, PodUse};
use super::threshold::{Disks, Signal, Starved, Threshold};
use crate::host::load;
use crate::host::machine::{self, Disk, Roots};
use crate::host::usage::TreeUsage;
use crate::host::{FileWork, WorkError};
use crate::id::PodUid;
use crate::parts::Parts;
use crate::pod::view::PodSnapshot;
use crate::pod_object;
use crate::runtime::ContainerUsage;
use client::beat;
use client::ordered::CollectOrdered;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the runtime may take to tell what containers use, and a cgroup what is in it: when memory is short it may take forever.
const STATS_DEADLINE: Duration = Duration::from_secs(1);
/// How long it may take to tell what they wrote into their layers: it looks at disks that are full and busy, and there is more time.
const LAYERS_DEADLINE: Duration = Duration::from_secs(10);
/// For how long all pods' files together are counted for a moment each, and in all.
const GLANCES_DEADLINE: Duration = Duration::from_secs(10);
const COUNTS_DEADLINE: Duration = Duration::from_secs(30);
/// So many counts that hang, while none ends, are a disk that stands still: the others would hang, too.
const HANGS_MAX: usize = 10;
/// How long the file systems may take to tell what is left of them: what memory lacks is looked at after them.
pub(super) const DISKS_DEADLINE: Duration = Duration::from_secs(2);
/// How often it is asked where images are until that is known.
const PLACES_RETRY: Duration = Duration::from_secs(10);

/// Looks at memory alone: cheap, and while something else is looked at or done. Clones share what hangs, and the kernel's notices.
#[derive(Clone)]
pub(super) struct MemorySight {
    parts: Arc<Parts>,
    roots: Roots,
    looks: FileWork,
    notices: Arc<Notices>,
}

impl MemorySight {
    /// What is left of it.
    pub(super) async fn look(&self) -> Signals {
        let roots = self.roots.clone();
        let read = self.looks.run("memory", move || load::memory(&roots)).await;
        let mut signals = Signals::new();
        if let Ok(Some((capacity, working_set))) = read {
            signals.insert(Signal::MemoryAvailable, left(capacity, working_set));
        }
        if let Some(limit) = self.parts.cgroups.memory_limit()
            && let Ok(Ok(usage)) = tokio::time::timeout(STATS_DEADLINE, self.parts.cgroups.usage(None)).await
            && let Some(working_set) = usage.working_set
        {
            signals.insert(Signal::AllocatableMemoryAvailable, left(limit, working_set));
        }
        signals
    }

    /// Waits until it is to be looked at again, no longer than `until`: the less is left of it the sooner, and sooner when the kernel gives
    /// notice.
    pub(super) async fn rest(&self, thresholds: &[Threshold], signals: &Signals, until: Instant) {
        let mut pause = pressure::next_look(thresholds, signals);
        if self.notices.are_told() {
            pause = pause.max(LOOK_MIN_TOLD);
        }
        self.rest_for(pause, until).await;
    }

    async fn rest_for(&self, pause: Duration, until: Instant) {
        let now = Instant::now();
        // However often the kernel gives notice: what reads files fills a limit all the time, and is short of nothing.
        let limit = now + pause.clamp(LOOK_MIN, LOOK_MIN_TOLD);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(until.min(beat::within(pause))) => {}
            () = self.notices.next(now + LOOK_MIN, limit) => {}
        }
    }

    /// Waits until it falls below a hard threshold of which nothing is `remembered`; `signals` are of the look before. A soft one has its
    /// grace, which is counted with the next look at everything.
    pub(super) async fn falls(self, thresholds: &[Threshold], mut signals: Signals, remembered: &Remembered) {
        while !pressure::is_urgent_news(thresholds, &signals, remembered) {
            let pause = pressure::next_look(thresholds, &signals);
            self.rest_for(pause, Instant::now() + pause).await;
            signals = self.look().await;
        }
    }
}

/// Looks at the node.
pub(super) struct Sight {
    parts: Arc<Parts>,
    roots: Roots,
    memory: MemorySight,
    measurer: Measurer,
    places: Option<Places>,
    asked: Option<Instant>,
    /// What containers had in their layers, bytes and inodes, when the runtime last told; of pods that may have to go.
    layers: BTreeMap<PodUid, BTreeMap<String, (u64, u64)>>,
    earlier: Earlier,
    hung: Hung,
}

impl Sight {
    pub(super) fn new(parts: Arc<Parts>, roots: Roots) -> Self {
        let measurer = Measurer::new(parts.clone(), COUNTS_DEADLINE);
        let memory = MemorySight {
            parts: parts.clone(),
            roots: roots.clone(),
            looks: measurer.looks.clone(),
            notices: Arc::default(),
        };
        Self {
            parts,
            roots,
            memory,
            measurer,
            places: None,
            asked: None,
            layers: BTreeMap::new(),
            earlier: Earlier::default(),
            hung: Hung::default(),
        }
    }

    /// Has the kernel give notice when memory runs short. Must be called inside a tokio runtime.
    pub(super) fn listen(&mut self) {
        let limit_events = self.parts.cgroups.limit_events();
        self.memory.notices = Arc::new(Notices::open(&self.roots, limit_events.as_deref()));
    }

    /// Which file systems are one, once that is known.
    pub(super) fn disks(&self) -> Option<Disks> {
        self.places.as_ref().map(|places| places.disks)
    }

    /// Who looks at memory alone.
    pub(super) fn memory(&self) -> &MemorySight {
        &self.memory
    }

    /// What is left of everything; of disks, if they tell in time.
    pub(super) async fn signals(&mut self, disks: Duration) -> Signals {
        self.find_places().await;
        let mut signals = self.memory.look().await;
        let (roots, root) = (self.roots.clone(), self.parts.context.root_dir.clone());
        // A disk that hangs is no reason not to look at memory, at processes and at the other disk.
        let places = self.places.as_ref();
        let of_images = places.map(|places| places.images.clone().unwrap_or_else(|| root.clone()));
        let node = self.disk("node disk", Some(root), disks);
        let images = self.disk("image disk", of_images, disks);
        let tasks = self.measurer.look("tasks", move || load::tasks(&roots));
        let (node, images, tasks) = tokio::join!(node, images, tasks);
        if let Some(node) = node {
            put_disk(&mut signals, (Signal::NodeFsAvailable, Signal::NodeFsInodesFree), node);
        }
        if let Some(images) = images {
            let of_images = (Signal::ImageFsAvailable, Signal::ImageFsInodesFree);
            put_disk(&mut signals, of_images, images);
        }
        let are_images = self.disks().map(Disks::layers_are_images);
        let layers = are_images.and_then(|are_images| if are_images { images } else { node });
        if let Some(layers) = layers {
            let of_layers = (Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree);
            put_disk(&mut signals, of_layers, layers);
        }
        if let Ok(Some((most, running))) = tasks {
            signals.insert(Signal::PidAvailable, left(most, running));
        }
        signals
    }

    /// What is left of the file system of a path, if there is one and it tells in time.
    async fn disk(&self, name: &'static str, path: Option<PathBuf>, deadline: Duration) -> Option<Disk> {
        let path = path?;
        let read = self.measurer.look(name, move || machine::disk(&path));
        let read = tokio::time::timeout(deadline, read).await;
        if !matches!(read, Ok(Ok(_))) {
            tracing::warn!("the {name} cannot be looked at");
        }
        read.ok()?.ok()
    }

    async fn find_places(&mut self) {
        if self.places.is_some() || self.asked.is_some_and(|at| at.elapsed() < PLACES_RETRY) {
            return;
        }
        self.asked = Some(Instant::now());
        self.places = tokio::time::timeout(STATS_DEADLINE, self.measurer.places())
            .await
            .unwrap_or_default();
    }

    /// What pods use of what runs short, in their order; nothing if they cannot be told apart.
    pub(super) async fn uses(
        &mut self,
        pods: &[Arc<PodSnapshot>],
        signal: Signal,
        disks: Disks,
    ) -> Option<Vec<Option<PodUse>>> {
        match signal.starved() {
            Starved::Memory => {
                let told = tokio::time::timeout(STATS_DEADLINE, self.measurer.containers()).await;
                Some(self.running(pods, &told.ok().flatten().unwrap_or_default(), true).await)
            }
            Starved::Pids => Some(self.running(pods, &[], false).await),
            Starved::EphemeralStorage | Starved::Inodes => self.on_disk(pods, rank::is_of_layers(signal, disks)).await,
        }
    }

    /// What pods use of memory, by the kernel alone: a runtime may need memory to answer.
    pub(super) async fn memory_at_a_glance(&self, pods: &[Arc<PodSnapshot>]) -> Vec<Option<PodUse>> {
        self.running(pods, &[], true).await
    }

    /// Memory or processes. What the kernel does not tell of a pod the runtime may have told.
    async fn running(
        &self,
        pods: &[Arc<PodSnapshot>],
        told: &[ContainerUsage],
        of_memory: bool,
    ) -> Vec<Option<PodUse>> {
        let until = Instant::now() + COUNTS_DEADLINE;
        let mut uses = Vec::with_capacity(pods.len());
        for snapshot in pods {
            let mut used = match Instant::now() < until {
                true => self.of_cgroup(snapshot).await,
                false => PodUse::default(),
            };
            let uid = pod_object::uid(&snapshot.pod);
            for usage in told.iter().filter(|usage| usage.pod.as_ref() == Some(&uid)) {
                let container: &mut ContainerUse = used.containers.entry(usage.name.clone()).or_default();
                container.memory = usage.working_set;
            }
            if used.memory.is_none() {
                let all = used.containers.values().filter_map(|container| container.memory);
                used.memory = all.reduce(u64::saturating_add);
            }
            let is_known = match of_memory {
                true => used.memory.is_some(),
                false => used.processes.is_some(),
            };
            uses.push(is_known.then_some(used));
        }
        uses
    }

    /// Layers and files. Nothing if layers alone count, and the runtime never told of those.
    async fn on_disk(&mut self, pods: &[Arc<PodSnapshot>], layers_alone: bool) -> Option<Vec<Option<PodUse>>> {
        let told = tokio::time::timeout(LAYERS_DEADLINE, self.measurer.containers()).await;
        let told = told.ok().flatten();
        if told.is_none() {
            tracing::warn!("what is in containers' layers is not told by the runtime: what it told last counts");
        }
        let is_told = told.is_some();
        self.remember(pods, told.unwrap_or_default());
        if layers_alone && !is_told && self.layers.is_empty() {
            return None;
        }
        let mut uses = self.files(pods).await;
        for (used, snapshot) in uses.iter_mut().zip(pods) {
            let layers = self.layers.get(&pod_object::uid(&snapshot.pod)).into_iter().flatten();
            for (name, layer) in layers {
                let container = used.containers.entry(name.clone()).or_default();
                container.layer = Some(*layer);
                container.logs.get_or_insert_default();
            }
        }
        Some(uses.into_iter().map(Some).collect())
    }

    /// Keeps what was told of the layers of these pods' containers, and what was told before of those of which nothing is told now.
    fn remember(&mut self, pods: &[Arc<PodSnapshot>], told: Vec<ContainerUsage>) {
        let mut known = std::mem::take(&mut self.layers);
        for snapshot in pods {
            let uid = pod_object::uid(&snapshot.pod);
            if let Some(layers) = known.remove(&uid) {
                self.layers.insert(uid.clone(), layers);
            }
            for usage in told.iter().filter(|usage| usage.pod.as_ref() == Some(&uid)) {
                if let Some(layer) = usage.layer {
                    let layers = self.layers.entry(uid.clone()).or_default();
                    layers.insert(usage.name.clone(), layer);
                }
            }
        }
    }

    /// Counts files: everybody's for a moment at first, so that nobody with many keeps others from being counted; then those of who had
    /// more, as many as can have their fair time, the others at a later pass. Who is not counted to the end has more than is told, and at
    /// least what was last counted. A count that hangs has its time while it does: nobody waits for it.
    async fn files(&mut self, pods: &[Arc<PodSnapshot>]) -> Vec<PodUse> {
        let begun = Instant::now();
        let uids: Vec<PodUid> = pods.iter().map(|snapshot| pod_object::uid(&snapshot.pod)).collect();
        let mut uses: Vec<(PodUse, Time)> = pods.iter().map(|_| (uncounted(), Time::None)).collect();
        self.hung.keep(&uids.iter().cloned().collect_ordered());
        let (mut left, mut hanging, mut ended) = (Vec::new(), 0, false);
        for place in self.earlier.glances(&uids) {
            let (Some(snapshot), Some((used, time))) = (pods.get(place), uses.get_mut(place)) else {
                continue;
            };
            if begun.elapsed() >= GLANCES_DEADLINE || (hanging >= HANGS_MAX && !ended) {
                left.push(place);
                continue;
            }
            match self.count(snapshot, GLANCE).await {
                Some(counted) => {
                    (*used, *time) = (counted, Time::Moment);
                    left.extend(used.files().incomplete.then_some(place));
                    ended = true;
                }
                None => {
                    let uid = pod_object::uid(&snapshot.pod);
                    let is_long = self.hung.is_long(&uid, Instant::now());
                    *time = if is_long { Time::Fair } else { Time::Moment };
                    hanging += 1;
                }
            }
        }
        if hanging > 0 && !ended {
            tracing::warn!("no count of pods' files ends: what was counted last decides who goes");
            left.clear();
        }
        let mut turns = self.earlier.turns(&uids, left).into_iter();
        while let Some(share) = earlier::share(COUNTS_DEADLINE.saturating_sub(begun.elapsed()), turns.len()) {
            let Some(place) = turns.next() else { break };
            if let (Some(snapshot), Some((used, time))) = (pods.get(place), uses.get_mut(place)) {
                *time = if share >= COUNT_FAIR { Time::Fair } else { Time::Moment };
                if let Some(counted) = self.count(snapshot, share).await {
                    *used = counted;
                }
            }
        }
        let counts = uids.into_iter().zip(uses);
        let counts = counts.map(|(uid, (used, time))| (uid, used, time));
        self.with_earlier(counts.collect())
    }

    /// Adds what is known from earlier counts to each, which has the time it had.
    fn with_earlier(&mut self, counts: Vec<(PodUid, PodUse, Time)>) -> Vec<PodUse> {
        let uses = self.earlier.complete_all(counts);
        let (some, never) = (
            uses.iter().filter(|used| used.files().incomplete).count(),
            uses.iter().filter(|used| used.files().uncountable).count(),
        );
        if some > 0 {
            tracing::warn!(
                pods = some,
                uncountable = never,
                "not all files of some pods are counted: what is known of them counts, and those that cannot be counted go first"
            );
        }
        uses
    }

    async fn of_cgroup(&self, snapshot: &PodSnapshot) -> PodUse {
        let usage = self.parts.cgroups.usage(Some((*snapshot.pod).clone()));
        let usage = tokio::time::timeout(STATS_DEADLINE, usage).await;
        let usage = usage.ok().and_then(Result::ok).unwrap_or_default();
        PodUse {
            memory: usage.working_set,
            processes: usage.processes,
            ..PodUse::default()
        }
    }

    /// One pod's files; nothing if that fails or hangs.
    async fn count(&mut self, snapshot: &PodSnapshot, deadline: Duration) -> Option<PodUse> {
        let uid = pod_object::uid(&snapshot.pod);
        let counted = match self.measurer.hangs(&uid) {
            true => Err(WorkError::Overdue),
            false => {
                let paths = self.measurer.paths(&snapshot.pod, is_on_disk, true);
                self.measurer.count(&uid, paths, deadline).await
            }
        };
        let counted = match counted {
            Ok(counted) => counted,
            Err(error) => {
                tracing::debug!(pod = %uid, %error, "a pod's files cannot be counted");
                if self.hung.hangs(&uid, Instant::now()) {
                    self.measurer.tell_hang(&snapshot.pod);
                }
                return None;
            }
        };
        if self.hung.ended(&uid, Instant::now()) {
            tracing::info!(pod = %uid, "the pod's files can be counted again");
        }
        let mut used = PodUse {
            // Its hosts file and termination messages: containers may write to them as much as they like.
            volumes: counted.files,
            ..PodUse::default()
        };
        for usage in counted.volumes.values() {
            used.volumes.add(*usage);
        }
        for (name, logs) in counted.logs {
            used.containers.entry(name).or_default().logs = Some(logs);
        }
        Some(used)
    }
}

/// A pod of whose files nothing is known.
fn uncounted() -> PodUse {
    let volumes = TreeUsage {
        incomplete: true,
        ..TreeUsage::default()
    };
    PodUse {
        volumes,
        ..PodUse::default()
    }
}

fn left(capacity: i64, used: u64) -> Reading {
    let used = i64::try_from(used).unwrap_or(i64::MAX);
    Reading {
        available: capacity.saturating_sub(used).max(0),
        capacity,
    }
}

/// A file system without a size says nothing, and one without inodes nothing of those.
fn put_disk(signals: &mut Signals, (bytes, inodes): (Signal, Signal), disk: Disk) {
    for (signal, available, capacity) in [
        (bytes, disk.available, disk.capacity),
        (inodes, disk.inodes_free, disk.inodes),
    ] {
        if capacity > 0 {
            signals.insert(signal, Reading { available, capacity });
        }
    }
}

#[cfg(test)]
mod tests;
