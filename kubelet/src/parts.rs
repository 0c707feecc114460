//! The parts a kubelet is made of: made here, once, and held here. Whoever works with them has the one [`Parts`] of its kubelet
//! and no copies of its own.
//!
//! Owns how the parts are put together from what a kubelet is given ([`Dependencies`]). Runs nothing: that is
//! [`crate::kubelet`]'s, and what only one piece needs (the executor's permits, the server's keys) is that piece's.

#[cfg(any(test, feature = "test-util"))]
pub mod testing;

use crate::admission::description::Describer;
use crate::admission::sysctl;
use crate::allocation::checkpoint::Checkpoint;
use crate::autonomy::{self, Kept, Useless};
use crate::cgroup::Cgroups;
use crate::collect::{self, Garbage};
use crate::container_log;
use crate::device::Devices;
use crate::dra::{self, Dra};
use crate::events::{Recorder, Severity, Sink};
use crate::eviction;
use crate::heartbeat::Heartbeat;
use crate::host::Mounter;
use crate::host::machine::Roots;
use crate::image;
use crate::metrics::{Metrics, RequestMetrics};
use crate::node_shutdown::logind::Logind;
use crate::node_shutdown::{Periods, Phase};
use crate::objects::Objects;
use crate::pinning::Pinning;
use crate::pod::spec::NodeContext;
use crate::pod::view::PodView;
use crate::rate::Rate;
use crate::reason::event;
use crate::runtime::metered::Metered;
use crate::runtime::pleg::Pleg;
use crate::runtime::{Runtime, RuntimeStatus};
use crate::server::Health;
use crate::source::StaticSources;
use crate::stats::{Sampler, Trees};
use crate::user_namespace::IdPool;
use crate::volume::{Projects, VolumeSettings, Volumes};
use client::Clock;
use policy::gate::Gate;
use proto::api::resources::ResourceList;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a kubelet is given: the world outside of it and what is true of its node.
pub struct Dependencies {
    /// The API server; without one the kubelet runs static pods alone.
    pub client: Option<kube::Client>,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// The kernel's mounts.
    pub mounter: Arc<dyn Mounter>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Pod cgroups.
    pub cgroups: Cgroups,
    /// The node's facts.
    pub context: NodeContext,
    /// Tells that the machine goes down.
    pub logind: Arc<dyn Logind>,
    /// The node as it is described: as this kubelet would do it, until the API server tells more.
    pub described: Describer,
    /// Who has CPUs and memory alone.
    pub pinning: Pinning,
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
    /// Whether pods are held to their limits on local storage.
    pub local_storage: bool,
    /// The node's ids that pods with users of their own may have.
    pub ids: IdPool,
    /// Which volumes the file system counts itself.
    pub projects: Projects,
    /// Where static pods come from.
    pub statics: StaticSources,
    /// Whether pods are kept on disk, to start without an API server.
    pub autonomy: bool,
    /// When pods must go because the node runs short.
    pub eviction: eviction::threshold::Rules,
    /// How long pods may take to end before the machine goes down; without any it is not watched for.
    pub shutdown: Periods,
    /// Where the machine tells how much of everything is left.
    pub machine: Roots,
    /// Where the runtime listens, to tell what it uses itself.
    pub runtime_socket: Option<PathBuf>,
    /// The cgroup of the system's processes, if they have one (`systemCgroups`).
    pub system_cgroup: Option<String>,
    /// The kernel's log, if it is to be read.
    pub kernel_log: Option<PathBuf>,
    /// Whether the machine has swap.
    pub swap: bool,
    /// Counts what the client asks of the API server.
    pub requests: RequestMetrics,
    /// What may stay of dead containers and unused images.
    pub collect: collect::Rules,
    /// Whether plugins can register, and others ask what pods have of the node: all by sockets beneath the root directory.
    pub sockets: bool,
    /// How long containers' logs may become, and how many of them stay.
    pub container_logs: container_log::Rules,
    /// Whether network policies are enforced, so that pods wait for theirs.
    pub policies: bool,
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
            local_storage: true,
            ids: IdPool::default(),
            projects: Projects::default(),
            statics: StaticSources::default(),
            autonomy: false,
            eviction: eviction::threshold::Rules::default(),
            shutdown: Periods::default(),
            machine: Roots::default(),
            runtime_socket: None,
            system_cgroup: None,
            kernel_log: None,
            swap: false,
            requests: RequestMetrics::default(),
            collect: collect::Rules::default(),
            sockets: false,
            container_logs: container_log::Rules::default(),
            policies: false,
        }
    }
}

/// The parts of one kubelet. Each holds its own state; this only says which belong together.
pub struct Parts {
    /// The API server, if there is one.
    pub client: Option<kube::Client>,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Seed of every random choice.
    pub seed: u64,
    /// The node's facts.
    pub context: NodeContext,
    /// What is kept of them and of the pods, with node autonomy.
    pub kept: Option<Arc<Kept>>,
    /// What was kept by an earlier kubelet can be neither used nor removed: this one must not run, for it would come back.
    pub unkept: Option<Useless>,
    /// ConfigMaps, Secrets, services, tokens.
    pub objects: Arc<Objects>,
    /// Volumes.
    pub volumes: Volumes,
    /// Pod cgroups.
    pub cgroups: Cgroups,
    /// Tells users what happens.
    pub recorder: Recorder,
    /// Observes the runtime's pods.
    pub pleg: Pleg,
    /// The pods as their workers publish them.
    pub pods: PodView,
    /// The runtime's status as it was last asked.
    pub runtime_status: watch::Sender<RuntimeStatus>,
    /// What the node runs short of; [`eviction::guard`] alone says so.
    pub pressure: watch::Sender<eviction::Conditions>,
    /// Whether the machine is going down; [`crate::node_shutdown::Shutdown`] alone says so.
    pub phase: watch::Sender<Phase>,
    /// Tells that it does.
    pub logind: Arc<dyn Logind>,
    /// What of dead containers and sandboxes is to go: [`crate::collect`] says so, the pods' workers do it.
    pub garbage: watch::Sender<Arc<Garbage>>,
    /// The node as it is described: what new pods are judged by.
    pub described: Describer,
    /// What is counted.
    pub metrics: Metrics,
    /// What the node and its pods use.
    pub stats: Sampler,
    /// The sign of life of the loop over pods.
    pub heartbeat: Heartbeat,
    /// What pods were given, as the next kubelet will read it.
    pub allocated: Checkpoint,
    /// What they run with, likewise.
    pub actuated: Checkpoint,
    /// Who has CPUs and memory alone, likewise.
    pub pinning: Pinning,
    /// The claims that are prepared here, likewise.
    pub dra: Arc<Dra>,
    /// Devices that plugins offer, and who has them, likewise.
    pub devices: Devices,
    /// Where pods wait for their network policies; nothing where none are enforced.
    pub gate: Option<Gate>,
    /// The MTU pods are to have, in bytes, where the network between nodes says so.
    pub pod_mtu: watch::Sender<Option<u32>>,
}

impl Parts {
    /// What tells whether this kubelet is well.
    pub fn health(&self) -> Health {
        Health {
            heartbeat: self.heartbeat.clone(),
            metrics: self.metrics.health.clone(),
        }
    }

    /// Makes the parts, and what sends the events they tell. Must be called inside a tokio runtime: the API server's services
    /// are watched from here on, nothing else happens yet.
    pub fn new(given: Dependencies) -> (Arc<Self>, Sink, Settings) {
        let Dependencies {
            client,
            runtime,
            clock,
            mounter,
            seed,
            cgroups,
            context,
            logind,
            described,
            pinning,
            settings,
        } = given;
        let node = &context.node_name;
        let metrics = Metrics::with_requests(node, &settings.requests);
        let runtime: Arc<dyn Runtime> = Arc::new(Metered::new(runtime, metrics.runtime.clone()));
        let (recorder, sink) = Recorder::new(clock.clone(), node, client.clone(), settings.events, seed);
        let (kept, unkept) = match settings.autonomy && client.is_some() {
            true => keep(&context, &recorder),
            false => (None, discard(&context)),
        };
        let objects = Objects::new(client.clone(), clock.clone(), seed).with_kept(kept.clone());
        let objects = Arc::new(objects);
        let of_node = VolumeSettings {
            root_dir: context.root_dir.clone(),
            host_ips: context.host_ips.clone(),
            allocatable: context.allocatable,
            ids: settings.ids,
            projects: settings.projects.clone(),
            metrics: metrics.volumes.clone(),
        };
        let of_claims = dra::Given {
            client: client.clone(),
            node: context.node_name.clone(),
            metrics: metrics.dra.clone(),
        };
        let dra = Arc::new(Dra::open(&context.root_dir, of_claims));
        let checkpoint = |name: &str| Checkpoint::open(context.root_dir.join(name));
        let parts = Self {
            allocated: checkpoint("allocated_pods_state"),
            actuated: checkpoint("actuated_pods_state"),
            volumes: Volumes::new(of_node, mounter, objects.clone(), clock.clone()),
            pleg: Pleg::new(
                runtime.clone(),
                settings.sweep_every,
                clock.clone(),
                metrics.pods.clone(),
            ),
            heartbeat: Heartbeat::new(settings.sync_frequency),
            pods: PodView::default(),
            runtime_status: watch::Sender::new(RuntimeStatus::default()),
            pressure: watch::Sender::default(),
            phase: watch::Sender::new(Phase::at_start(&settings.shutdown)),
            logind,
            garbage: watch::Sender::new(Arc::default()),
            stats: Sampler::new(
                settings.machine.clone(),
                Trees::of(&cgroups),
                context.cgroups.clone(),
                settings.runtime_socket.clone(),
                settings.system_cgroup.clone(),
            ),
            described,
            pinning,
            dra,
            devices: Devices::open(context.root_dir.join("device-plugins"), metrics.devices.clone()),
            gate: settings.policies.then(Gate::new),
            pod_mtu: watch::Sender::default(),
            metrics,
            client,
            runtime,
            clock,
            seed,
            context,
            kept,
            unkept,
            objects,
            cgroups,
            recorder,
        };
        (Arc::new(parts), sink, settings)
    }
}

/// Opens what is kept. Without it pods run all the same, and it is told.
fn keep(context: &NodeContext, recorder: &Recorder) -> (Option<Arc<Kept>>, Option<Useless>) {
    match Kept::open(&context.root_dir, &context.node_name, recorder.clone()) {
        Ok(kept) => (Some(Arc::new(kept)), None),
        Err(useless @ Useless::Stays(_)) => (None, Some(useless)),
        Err(useless @ Useless::Disk(_)) => {
            tracing::error!(%useless, "pods will not start again without an API server");
            let (node, message) = (&context.node_name, useless.to_string());
            recorder.node(node, Severity::Warning, event::NODE_AUTONOMY, message);
            (None, None)
        }
    }
}

/// Removes what an earlier kubelet kept: this one does not keep it current.
fn discard(context: &NodeContext) -> Option<Useless> {
    match autonomy::discard(&context.root_dir) {
        Ok(true) => {
            tracing::info!("node autonomy is off: what an earlier kubelet kept of pods is removed");
            None
        }
        Ok(false) => None,
        Err(useless) => Some(useless),
    }
}
