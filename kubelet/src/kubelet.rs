//! Composition root: builds a kubelet from its injected parts and runs it. Owns no pod logic.
//!
//! A kubelet is a value: many live in one process, each with its own runtime, clock, directories and seed.

mod network;
#[cfg(test)]
mod static_tests;
#[cfg(test)]
pub(crate) mod testing;

use crate::admission::Ledger;
use crate::admission::decide::Node;
use crate::admission::description::Description;
use crate::admission::sysctl;
use crate::api_status::StatusWriter;
use crate::cgroup::{CgroupError, Cgroups};
use crate::events::{Recorder, Sink};
use crate::heartbeat::Heartbeat;
use crate::host::FileWork;
use crate::image::records::Records;
use crate::image::{self, Images};
use crate::objects::Objects;
use crate::pod::backoff::Bounds;
use crate::pod::execute::{Executor, RuntimeLoad};
use crate::pod::mirror;
use crate::pod::spec::NodeContext;
use crate::pod::view::PodView;
use crate::pod::worker::{Network, Shared};
use crate::pod::workers::Workers;
use crate::probe::prober;
use crate::rate::Rate;
use crate::runtime::pleg::{Pleg, Sweeps};
use crate::runtime::{Runtime, RuntimeStatus};
use crate::source::{Pods, Sources, StaticSources};
use crate::volume::{VolumeError, Volumes};
use client::Clock;
use proto::api::resources::ResourceList;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The wait between tries to reach the runtime at start.
const RUNTIME_RETRY: Duration = Duration::from_millis(500);
/// How long tasks may take to end once the kubelet is told to stop.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);

/// How long is waited for logs and for files of the node.
const FILES_DEADLINE: Duration = Duration::from_secs(60);

/// What a kubelet is made of.
pub struct Dependencies {
    /// The API server; without one the kubelet runs static pods alone.
    pub client: Option<kube::Client>,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Seed of every random choice.
    pub seed: u64,
    /// ConfigMaps, Secrets, services, tokens.
    pub objects: Arc<Objects>,
    /// Volumes.
    pub volumes: Volumes,
    /// Pod cgroups.
    pub cgroups: Cgroups,
    /// The node's facts.
    pub context: Arc<NodeContext>,
    /// The node's object as it is described: what new pods are judged by.
    pub node: Description,
    /// Bounds and periods.
    pub settings: Settings,
}

/// Bounds and periods of a kubelet.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest crash back-off (`crashLoopBackOff.maxContainerRestartPeriod`).
    pub crash_backoff_max: Duration,
    /// How fast events are written.
    pub events: Rate,
    /// How images are pulled and who may use them.
    pub images: image::Rules,
    /// Sandboxes being started at a time.
    pub parallel_sandboxes: usize,
    /// How often everything in the runtime is listed, in case an event was lost.
    pub sweep_every: Duration,
    /// `syncFrequency`: twice as long, but at least five minutes, and the loop over pods counts as stuck.
    pub sync_frequency: Duration,
    /// What pods can be admitted to; a resource that is not listed is not judged.
    pub allocatable: ResourceList,
    /// Which sysctls pods may set.
    pub sysctls: sysctl::Rules,
    /// Whether the kernel enforces AppArmor profiles.
    pub apparmor: bool,
    /// Where static pods come from.
    pub statics: StaticSources,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            crash_backoff_max: Duration::from_secs(300),
            events: Rate::default(),
            images: image::Rules::default(),
            parallel_sandboxes: 16,
            sweep_every: Duration::from_secs(45),
            sync_frequency: Duration::from_secs(60),
            allocatable: ResourceList::new(),
            sysctls: sysctl::Rules::default(),
            apparmor: false,
            statics: StaticSources::default(),
        }
    }
}

/// Why a kubelet cannot run.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The data directories cannot be made.
    #[error("set up the kubelet's directories")]
    Directories(#[source] VolumeError),
    /// The cgroups cannot be made.
    #[error("set up pod cgroups")]
    Cgroups(#[source] CgroupError),
}

/// A kubelet.
pub struct Kubelet {
    parts: Dependencies,
    recorder: Recorder,
    sink: Sink,
    view: PodView,
    pleg: Pleg,
    status: watch::Sender<RuntimeStatus>,
    heartbeat: Heartbeat,
}

impl Kubelet {
    /// Puts a kubelet together; nothing happens before [`Kubelet::run`].
    pub fn new(parts: Dependencies) -> Self {
        let (clock, client) = (parts.clock.clone(), parts.client.clone());
        let rate = parts.settings.events;
        let (recorder, sink) = Recorder::new(clock, &parts.context.node_name, client, rate, parts.seed);
        let pleg = Pleg::new(parts.runtime.clone(), parts.settings.sweep_every);
        let status = watch::Sender::new(RuntimeStatus::default());
        let heartbeat = Heartbeat::new(parts.settings.sync_frequency);
        Self {
            heartbeat,
            parts,
            recorder,
            sink,
            view: PodView::default(),
            pleg,
            status,
        }
    }

    /// The pods as their workers publish them.
    pub fn pods(&self) -> PodView {
        self.view.clone()
    }

    /// The event recorder.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The runtime's status as it was last asked.
    pub fn runtime_status(&self) -> watch::Receiver<RuntimeStatus> {
        self.status.subscribe()
    }

    /// How looking at everything in the runtime goes.
    pub fn sweeps(&self) -> watch::Receiver<Sweeps> {
        self.pleg.sweeps()
    }

    /// The sign of life of the loop over pods.
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.clone()
    }

    /// Runs until shut down. Pods go on; the next kubelet takes them over.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), KubeletError> {
        self.parts.volumes.setup().await.map_err(KubeletError::Directories)?;
        self.parts.cgroups.setup().await.map_err(KubeletError::Cgroups)?;
        let Some(runtime_name) = self.reach_runtime(&shutdown).await else {
            return Ok(());
        };
        let statuses = StatusWriter::default();
        let (pods, desired) = watch::channel(Pods::default());
        let (network, network_seen) = watch::channel(Network::default());
        let shared = self.shared(runtime_name, statuses.clone(), network_seen, shutdown.clone());
        let node = Node {
            name: self.parts.context.node_name.clone(),
            allocatable: self.parts.settings.allocatable.clone(),
            sysctls: self.parts.settings.sysctls.clone(),
            apparmor: self.parts.settings.apparmor,
        };
        let workers = Workers::new(shared, Ledger::new(node), desired.clone(), self.parts.node.clone());

        let mut tasks = JoinSet::new();
        tasks.spawn(self.pleg.clone().run(shutdown.clone()));
        tasks.spawn(network::run(
            self.parts.runtime.clone(),
            network,
            self.status.clone(),
            shutdown.clone(),
        ));
        if let Some(client) = self.parts.client.clone() {
            tasks.spawn(statuses.run(client.clone(), desired.clone(), shutdown.clone()));
            let mirrors = mirror::MirrorPods {
                client,
                node: self.parts.context.node_name.clone(),
                pods: desired,
                view: self.view.clone(),
                seed: self.parts.seed,
            };
            tasks.spawn(mirrors.run(shutdown.clone()));
        }
        tasks.spawn(self.sources().run(pods, shutdown.clone()));
        tasks.spawn(workers.run());
        let sink = tokio::spawn(self.sink.run());

        shutdown.cancelled().await;
        let drained = tokio::time::timeout(DRAIN_DEADLINE, async { while tasks.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!("some tasks did not end in time");
        }
        sink.abort();
        Ok(())
    }

    fn sources(&self) -> Sources {
        Sources {
            client: self.parts.client.clone(),
            node: self.parts.context.node_name.clone(),
            statics: self.parts.settings.statics.clone(),
            seed: self.parts.seed,
            clock: self.parts.clock.clone(),
            recorder: self.recorder.clone(),
        }
    }

    /// Waits until the runtime answers and it is known which pods it has something of; nothing if shut down before.
    async fn reach_runtime(&self, shutdown: &CancellationToken) -> Option<String> {
        loop {
            self.heartbeat.beat();
            let reached = async {
                let version = self.parts.runtime.version().await?;
                self.pleg.begin().await?;
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
        let parts = &self.parts;
        let images = Images::new(
            parts.runtime.clone(),
            parts.objects.clone(),
            self.recorder.clone(),
            Records::new(&parts.context.root_dir, parts.clock.clone()),
            parts.settings.images.clone(),
        );
        let executor = Executor {
            runtime: parts.runtime.clone(),
            pleg: self.pleg.clone(),
            images,
            volumes: parts.volumes.clone(),
            cgroups: parts.cgroups.clone(),
            objects: parts.objects.clone(),
            context: parts.context.clone(),
            recorder: self.recorder.clone(),
            clock: parts.clock.clone(),
            runtime_load: RuntimeLoad::default(),
            files: FileWork::new(FILES_DEADLINE),
            sandbox_permits: Arc::new(Semaphore::new(parts.settings.parallel_sandboxes.max(1))),
        };
        let probing = prober::ProbeContext {
            runtime: parts.runtime.clone(),
            recorder: self.recorder.clone(),
            clock: parts.clock.clone(),
            kubelet_start: parts.clock.now(),
            host_ips: parts.context.host_ips.clone(),
        };
        Shared {
            executor: Arc::new(executor),
            probing,
            statuses,
            view: self.view.clone(),
            network,
            runtime_name,
            heartbeat: self.heartbeat.clone(),
            crash: Bounds::crash_loop(parts.settings.crash_backoff_max),
            shutdown,
        }
    }
}
