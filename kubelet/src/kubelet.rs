//! Runs a kubelet: what turns its [`Parts`] into tasks, and ends them. Owns no pod logic.
//!
//! A kubelet is a value: many live in one process, each with its own runtime, clock, directories and seed.

mod network;
mod plugins;
mod reserve;
#[cfg(test)]
mod start_tests;
#[cfg(test)]
mod static_tests;
mod tasks;
#[cfg(test)]
pub(crate) mod testing;

use crate::admission::Ledger;
use crate::admission::decide::Node;
use crate::api_status::StatusWriter;
use crate::autonomy::Useless;
use crate::autonomy::keeper::Keeper;
use crate::cgroup::CgroupError;
use crate::collect::{self, Collector};
use crate::container_log::Rotator;
use crate::dra;
use crate::events::{Severity, Sink};
use crate::eviction::Killer;
use crate::eviction::guard::Guard;
use crate::eviction::local_storage::LocalStorage;
use crate::host::FileWork;
use crate::image::Images;
use crate::image::records::Records;
use crate::node_shutdown::Shutdown;
use crate::oom;
use crate::parts::{Dependencies, Parts, Settings};
use crate::pinning::reconcile;
use crate::pod::backoff::Bounds;
use crate::pod::execute::{Executor, RuntimeLoad};
use crate::pod::mirror;
use crate::pod::worker::{Network, Shared};
use crate::pod::workers::Workers;
use crate::pod_resources;
use crate::probe::prober;
use crate::reason::event;
use crate::source::{Pods, Sources};
use crate::volume::VolumeError;
use std::sync::Arc;
use std::time::Duration;
use tasks::Tasks;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// The wait between tries to reach the runtime at start.
const RUNTIME_RETRY: Duration = Duration::from_millis(500);
/// How long tasks may take to end once the kubelet is told to stop.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);

/// How long is waited for logs and for files of the node.
const FILES_DEADLINE: Duration = Duration::from_secs(60);

/// How long the event of a start that failed may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// What is told of a node with swap whose kernel cannot keep a tmpfs out of it.
const SWAPPED: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be \
                       swapped to disk and should no longer be considered secure.";

/// Why a kubelet cannot run.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The data directories cannot be made.
    #[error("set up the kubelet's directories")]
    Directories(#[source] VolumeError),
    /// The cgroups cannot be made.
    #[error("set up pod cgroups")]
    Cgroups(#[source] CgroupError),
    /// What an earlier kubelet kept of pods is neither kept current nor gone: deleted pods would come back with it.
    #[error("pods that were kept stay believable")]
    Autonomy(#[source] Useless),
    /// What an earlier kubelet left of claims cannot be read.
    #[error(transparent)]
    Claims(dra::Useless),
    /// A task without which the node is not looked after.
    #[error("the task of {0} panicked")]
    Panicked(&'static str),
}

/// An error with what led to it.
fn message_of(error: &KubeletError) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        message.push_str(": ");
        message.push_str(&error.to_string());
        source = error.source();
    }
    message
}

/// A kubelet.
pub struct Kubelet {
    parts: Arc<Parts>,
    sink: Sink,
    settings: Settings,
}

impl Kubelet {
    /// Puts a kubelet together. Must be called inside a tokio runtime; no pod is touched before [`Kubelet::run`].
    pub fn new(given: Dependencies) -> Self {
        let (parts, sink, settings) = Parts::new(given);
        Self { parts, sink, settings }
    }

    /// What it is made of, for those beside it: the node's reporter and the server.
    pub fn parts(&self) -> Arc<Parts> {
        self.parts.clone()
    }

    /// Runs until shut down. Pods go on; the next kubelet takes them over.
    ///
    /// # Errors
    /// It cannot be set up, or one of its tasks panicked: it is to be started anew.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), KubeletError> {
        // Its own tasks end with it, whoever ends it.
        let shutdown = shutdown.child_token();
        if let Some(useless) = &self.parts.unkept {
            return Err(KubeletError::Autonomy(useless.clone()));
        }
        if let Some(useless) = self.parts.dra.useless() {
            return Err(KubeletError::Claims(useless.clone()));
        }
        self.tell(event::STARTING, "Starting kubelet.");
        if let Err(error) = self.set_up().await {
            self.warn(event::KUBELET_SETUP_FAILED, message_of(&error));
            // Nothing else is to be told any more.
            let _told = tokio::time::timeout(LAST_WORDS, self.sink.run()).await;
            return Err(error);
        }
        let unheld = reserve::hold(&self.parts, self.parts.cgroups.parts()).await;
        let Some(runtime_name) = self.reach_runtime(&shutdown).await else {
            return Ok(());
        };
        let statuses = StatusWriter::new(self.parts.metrics.pods.clone()).with_kept(self.parts.kept.clone());
        let (pods, desired) = watch::channel(Pods::default());
        let (network, network_seen) = watch::channel(Network::default());
        let shared = self.shared(runtime_name, statuses.clone(), network_seen, shutdown.clone());
        let node = Node {
            name: self.parts.context.node_name.clone(),
            allocatable: self.settings.allocatable.clone(),
            sysctls: self.settings.sysctls.clone(),
            apparmor: self.settings.apparmor,
        };
        let described = self.parts.described.subscribe();
        let killer = Killer::default();
        let images = shared.executor.images.clone();
        let collector = Collector::new(
            self.parts.clone(),
            images.clone(),
            self.settings.collect.clone(),
            collect::by_statvfs(),
            desired.clone(),
        );
        let workers = Workers::new(shared, Ledger::new(node), desired.clone(), killer.clone(), described);

        let (ends, wanted) = (statuses.clone(), desired.clone());
        let desired_too = desired.clone();
        let mut tasks = Tasks::default();
        tasks.spawn("the runtime's events", self.parts.pleg.clone().run(shutdown.clone()));
        let runtime = self.parts.runtime.clone();
        let runtime_status = self.parts.runtime_status.clone();
        let ready = network::run(runtime, network, runtime_status, shutdown.clone());
        tasks.spawn("the runtime's network", ready);
        if let Some(kept) = self.parts.kept.clone() {
            let keeper = Keeper::new(self.parts.clone(), kept, desired.clone());
            tasks.spawn("kept pods", keeper.run(shutdown.clone()));
        }
        if let Some(client) = self.parts.client.clone() {
            tasks.spawn(
                "statuses",
                statuses.run(client.clone(), desired.clone(), shutdown.clone()),
            );
            let mirrors = mirror::MirrorPods {
                parts: self.parts.clone(),
                client,
                pods: desired,
            };
            tasks.spawn("mirror pods", mirrors.run(shutdown.clone()));
        }
        if self.settings.sockets {
            plugins::begin(&mut tasks, &self.parts, desired_too, &shutdown);
        }
        let sources = Sources {
            parts: self.parts.clone(),
            statics: self.settings.statics.clone(),
        };
        tasks.spawn("pod sources", sources.run(pods, shutdown.clone()));
        tasks.spawn("pod workers", workers.run());
        tasks.spawn("image records", images.keep_records(shutdown.clone()));
        if self.settings.local_storage {
            let storage = LocalStorage::new(self.parts.clone(), killer.clone());
            tasks.spawn("local storage", storage.run(shutdown.clone()));
        }
        let (rules, roots) = (self.settings.eviction.clone(), self.settings.machine.clone());
        // Disk is freed before pods have to go for it.
        let reclaim = Arc::new(collector.clone());
        let guard = Guard::new(self.parts.clone(), rules, killer.clone(), reclaim, roots);
        tasks.spawn("eviction", guard.run(shutdown.clone()));
        let periods = self.settings.shutdown.clone();
        let going_down = Shutdown::new(self.parts.clone(), periods, killer, ends, wanted);
        tasks.spawn("node shutdown", going_down.run(shutdown.clone()));
        if let Some(path) = self.settings.kernel_log.clone() {
            tasks.spawn(
                "the kernel's log",
                oom::watch(self.parts.clone(), path, shutdown.clone()),
            );
        }
        if self.parts.pinning.every().is_some() {
            let pinned = reconcile::run(self.parts.clone(), shutdown.clone());
            tasks.spawn("CPU sets", pinned);
        }
        if !unheld.is_empty() {
            let held = reserve::keep_trying(self.parts.clone(), unheld, shutdown.clone());
            tasks.spawn("reservations", held);
        }
        if self.settings.sockets {
            let devices = self.parts.devices.clone();
            tasks.spawn("device plugins", devices.run(shutdown.clone()));
            let served = pod_resources::run(self.parts.clone(), shutdown.clone());
            tasks.spawn("pod resources", served);
        }
        tasks.spawn("collection", collector.run(shutdown.clone()));
        let rotator = Rotator::new(self.parts.clone(), self.settings.container_logs.clone());
        tasks.spawn("log rotation", rotator.run(shutdown.clone()));
        // It tells of the others' last moments, and goes last.
        let mut sink = Tasks::default();
        sink.spawn("events", self.sink.run());

        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            name = tasks.panicked() => Err(KubeletError::Panicked(name)),
            name = sink.panicked() => Err(KubeletError::Panicked(name)),
        };
        shutdown.cancel();
        if tokio::time::timeout(DRAIN_DEADLINE, tasks.ended()).await.is_err() {
            tracing::warn!("some tasks did not end in time");
        }
        ended
    }

    /// Makes the directories and cgroups that pods will be in.
    async fn set_up(&self) -> Result<(), KubeletError> {
        let volumes = &self.parts.volumes;
        volumes.setup().await.map_err(KubeletError::Directories)?;
        if self.settings.swap && !volumes.stay_in_memory().await {
            self.warn(event::POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK, SWAPPED);
        }
        self.parts.cgroups.setup().await.map_err(KubeletError::Cgroups)
    }

    /// Tells something about the node that somebody should look at.
    fn warn(&self, reason: &str, message: impl Into<String>) {
        let (recorder, node) = (&self.parts.recorder, &self.parts.context.node_name);
        recorder.node(node, Severity::Warning, reason, message.into());
    }

    /// Tells something that went well about the node.
    fn tell(&self, reason: &str, message: &str) {
        let (recorder, node) = (&self.parts.recorder, &self.parts.context.node_name);
        recorder.node(node, Severity::Normal, reason, message);
    }

    /// Waits until the runtime answers and it is known which pods it has something of; nothing if shut down before.
    async fn reach_runtime(&self, shutdown: &CancellationToken) -> Option<String> {
        loop {
            self.parts.heartbeat.beat();
            let reached = async {
                let version = self.parts.runtime.version().await?;
                // What it can do decides whether a pod is let in, which is decided once.
                let status = self.parts.runtime.status().await?;
                self.parts.runtime_status.send_replace(status);
                self.parts.pleg.begin().await?;
                Ok::<_, crate::runtime::RuntimeError>(version.name)
            };
            let reached = tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                reached = reached => reached,
            };
            match reached {
                Ok(name) => return Some(name),
                Err(error) => {
                    tracing::warn!(%error, call = error.call, "the container runtime does not answer, trying again")
                }
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(RUNTIME_RETRY) => {}
            }
        }
    }

    fn shared(
        &self,
        runtime_name: String,
        statuses: StatusWriter,
        network: watch::Receiver<Network>,
        shutdown: CancellationToken,
    ) -> Shared {
        let (parts, settings) = (&self.parts, &self.settings);
        let records = Records::new(&parts.context.root_dir, parts.clock.clone());
        let images = Images::new(parts, records, settings.images.clone());
        let executor = Executor {
            parts: parts.clone(),
            images,
            sandbox_permits: Arc::new(Semaphore::new(settings.parallel_sandboxes.max(1))),
            runtime_load: RuntimeLoad::default(),
            files: FileWork::new(FILES_DEADLINE),
        };
        let probing = prober::ProbeContext {
            runtime: parts.runtime.clone(),
            recorder: parts.recorder.clone(),
            clock: parts.clock.clone(),
            kubelet_start: parts.clock.now(),
            host_ips: parts.context.host_ips.clone(),
            metrics: parts.metrics.probes.clone(),
        };
        Shared {
            parts: parts.clone(),
            executor: Arc::new(executor),
            probing,
            statuses,
            network,
            runtime_name,
            crash: Bounds::crash_loop(settings.crash_backoff_max),
            shutdown,
        }
    }
}
