//! From a configuration to a running kubelet on this machine: checks the host, takes the ports, connects, builds every part and
//! runs them until told to stop.
//!
//! Owns no rule of its own beyond "what must be true before we start"; pods are [`crate::kubelet`]'s, the node is
//! [`crate::node`]'s.

mod capabilities;
mod cgroups;
mod credentials;
mod host;
mod kernel;
mod lock;
mod runtime;
mod watchdog;

use self::runtime::Found;
use crate::admission::description::Describer;
use crate::admission::sysctl;
use crate::certificate::CertificateError;
use crate::certificate::credentials::CredentialError;
use crate::certificate::rotation::Expired;
use crate::cgroup::{CgroupError, CgroupNaming};
use crate::cluster_network;
use crate::collect;
use crate::config::Config;
use crate::events::Severity;
use crate::host::KernelMounter;
use crate::host::addresses::HostIps;
use crate::host::machine::{Machine, Roots};
use crate::image;
use crate::kubelet::{Kubelet, KubeletError};
use crate::log::LogLevel;
use crate::metrics::{Gates, RequestMetrics};
use crate::network::Shape;
use crate::node::{self, Facts, NodeReporter, allocatable};
use crate::node_shutdown::logind::{self, SystemBus};
use crate::parts::{Dependencies, Parts, Settings};
use crate::pinning::{OpenError, Pinning, topology::sysfs};
use crate::pod::spec::NodeContext;
use crate::rate::Rate;
use crate::reason::event;
use crate::runtime::{Runtime, RuntimeError};
use crate::server::{
    Auth, BindError, Certificates, Server, ServerSettings, bind, serve_health, serve_read_only, serve_tls,
};
use crate::user_namespace::{IdPool, PoolError};
use client::SystemClock;
use futures::FutureExt;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Held locked in the root directory while a kubelet runs.
const LOCK_FILE: &str = ".kubelet.lock";
/// Where the kernel tells of processes it ended for want of memory.
const KERNEL_LOG: &str = "/dev/kmsg";
/// The node's own hosts file.
const ETC_HOSTS: &str = "/etc/hosts";
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";
/// How long parts may take to end.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);
/// How often everything in the runtime is listed in case an event was lost.
const SWEEP_EVERY: Duration = Duration::from_secs(45);
const SANDBOXES_AT_ONCE: usize = 16;
/// What "no bound on parallel pulls" means in practice.
const PULLS_MAX: usize = 64;

/// Why a kubelet did not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// A cgroup v1 host and `failCgroupV1`.
    #[error(
        "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release: set failCgroupV1 to false to run all the same"
    )]
    CgroupV1,
    /// Swap and `failSwapOn`.
    #[error("running with swap on is not supported, please disable swap or set --fail-swap-on flag to false")]
    SwapOn,
    /// Kernel flags and `protectKernelDefaults`.
    #[error("protectKernelDefaults: {}", .0.join(", "))]
    KernelFlags(Vec<String>),
    /// A webhook is to be asked, and there is no `--kubeconfig` that says where it is.
    #[error("no client provided, cannot use webhook {0}: give --kubeconfig, or configure another {0}")]
    NoWebhook(&'static str),
    /// Kubeconfig or client certificate are of no use.
    #[error("client credentials")]
    Credentials(#[source] CredentialError),
    /// The client certificate expired and could not be renewed.
    #[error(transparent)]
    Expired(Expired),
    /// A port is taken.
    #[error(transparent)]
    Port(#[from] BindError),
    /// The serving certificate.
    #[error("serving certificate")]
    Certificate(#[from] CertificateError),
    /// The runtime endpoint is malformed.
    #[error("containerRuntimeEndpoint")]
    Endpoint(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The runtime does not answer.
    #[error("validate service connection: validate CRI v1 runtime API for endpoint \"unix://{endpoint}\"")]
    Runtime {
        /// Its socket.
        endpoint: PathBuf,
        /// Why.
        source: RuntimeError,
    },
    /// The credential provider plugins.
    #[error("Failed to register CRI auth plugins")]
    CredentialProviders(#[source] image::provider::SetupError),
    /// The ids set aside for pods with users of their own.
    #[error("create user namespace manager: kubelet mappings")]
    Ids(#[source] PoolError),
    /// More is reserved than there is.
    #[error("invalid Node Allocatable configuration. {}", .0.join(" "))]
    Reserved(Vec<String>),
    /// The cgroup tree.
    #[error("pod cgroups")]
    Cgroups(#[source] CgroupError),
    /// `--lock-file` cannot be locked or watched.
    #[error("unable to acquire file lock on {path}")]
    LockFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The root directory could not be made or locked.
    #[error("root directory {path}")]
    RootDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another kubelet runs on the root directory.
    #[error("root directory {path} is in use by another kubelet")]
    RootDirInUse {
        /// The directory.
        path: PathBuf,
    },
    /// Who has CPUs and memory alone.
    #[error("Failed to start ContainerManager")]
    Pinning(#[source] OpenError),
    /// The kubelet proper.
    #[error("start the kubelet")]
    Kubelet(#[source] KubeletError),
}

/// Takes the root directory for this process: two kubelets on one would each end the other's pods.
fn lock_root(path: &Path) -> Result<Flock<File>, BootError> {
    let failed = |source| BootError::RootDir {
        path: path.to_owned(),
        source,
    };
    std::fs::create_dir_all(path).map_err(failed)?;
    let file = File::create(path.join(LOCK_FILE)).map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => BootError::RootDirInUse { path: path.to_owned() },
        errno => failed(errno.into()),
    })
}

/// Takes `--lock-file`, if there is one; `false` if told to stop before it was free.
async fn lock_file(config: &Config, stop: &CancellationToken) -> Result<(bool, Option<Flock<File>>), BootError> {
    let Some(path) = &config.paths.lock_file else {
        return Ok((true, None));
    };
    let failed = |source| BootError::LockFile {
        path: path.clone(),
        source,
    };
    let held = lock::acquire(path, stop).await.map_err(failed)?;
    if config.exit_on_lock_contention && held.is_some() {
        lock::yield_on_contention(path, stop.clone()).map_err(failed)?;
    }
    Ok((held.is_some(), held))
}

/// Sockets taken before anything else is touched, so that a second kubelet harms nothing.
struct Sockets {
    server: Option<TcpListener>,
    health: Option<TcpListener>,
    read_only: Option<TcpListener>,
}

async fn sockets(config: &Config) -> Result<Sockets, BootError> {
    let server = match config.server.enabled {
        true => Some(
            bind(
                config.server.address,
                config.server.port,
                "address and port of the kubelet's server",
            )
            .await?,
        ),
        false => None,
    };
    let health = match config.server.healthz {
        Some((address, port)) => Some(bind(address, port, "healthzBindAddress and healthzPort").await?),
        None => None,
    };
    let read_only = match config.server.read_only_port {
        Some(port) => Some(bind(config.server.address, port, "readOnlyPort").await?),
        None => None,
    };
    Ok(Sockets {
        server,
        health,
        read_only,
    })
}

/// Without an API server the configuration alone says which addresses pods get.
async fn standalone_network(config: &Config, runtime: &dyn Runtime) {
    let cidrs: Vec<String> = config.node.pod_cidr.iter().cloned().collect();
    if cidrs.is_empty() {
        return;
    }
    if let Err(error) = node::apply_network(config, runtime, &cidrs, Shape::default()).await {
        let error = &error as &dyn std::error::Error;
        tracing::error!(error, "network configuration not written");
    }
}

fn context(config: &Config, facts: &Facts, host_ips: HostIps, naming: CgroupNaming, cgroup_v2: bool) -> NodeContext {
    NodeContext {
        node_name: facts.name.clone(),
        host_ips,
        root_dir: config.paths.root_dir.clone(),
        pod_logs_dir: config.paths.pod_logs_dir.clone(),
        cluster_domain: config.dns.cluster_domain.clone(),
        cluster_dns: config.dns.cluster_dns.clone(),
        resolv_conf: config.dns.resolv_conf.clone(),
        hosts_path: PathBuf::from(ETC_HOSTS),
        allocatable: allocatable(config, facts),
        memory_capacity: facts.machine.memory,
        cgroups: naming,
        cgroup_v2,
        cpu_cfs_quota: config.cgroups.cpu_cfs_quota,
        cpu_cfs_period_us: config.cgroups.cpu_cfs_period_us,
        huge_page_sizes: host::huge_page_sizes(facts),
        seccomp_default: config.pods.seccomp_default,
        single_process_oom_kill: config.pods.single_process_oom_kill.unwrap_or(!cgroup_v2),
        memory_qos: cgroups::memory_qos(config, facts, cgroup_v2),
        swap: cgroups::swap(config, facts, cgroup_v2),
        master_service_namespace: "default".to_owned(),
        stop_signals: config.stop_signals,
        selinux: host::has_selinux(&Roots::default()),
        thermal_paths: facts.machine.thermal_paths.clone(),
    }
}

fn settings(
    config: &Config,
    facts: &Facts,
    ids: IdPool,
    (providers, requests): (image::provider::Setup, RequestMetrics),
    sandbox_image: Option<String>,
) -> Settings {
    Settings {
        crash_backoff_max: config.pods.crash_backoff_max,
        events: Rate {
            per_second: config.pods.event_qps,
            burst: config.pods.event_burst,
        },
        images: image::Rules {
            rate: Rate {
                per_second: config.runtime.pull_qps,
                burst: config.runtime.pull_burst,
            },
            parallel_max: config.runtime.parallel_pulls.unwrap_or(PULLS_MAX),
            verification: config.runtime.image_verification.clone(),
            logins: host::registry_logins(&config.paths.root_dir),
            providers,
        },
        parallel_sandboxes: SANDBOXES_AT_ONCE,
        sweep_every: SWEEP_EVERY,
        sync_frequency: config.pods.sync_frequency,
        allocatable: host::admissible(config, facts),
        sysctls: sysctl::Rules::new(config.pods.allowed_unsafe_sysctls.clone(), &facts.machine.kernel),
        local_storage: config.local_storage,
        apparmor: host::has_apparmor(&Roots::default()),
        ids,
        projects: host::projects(config),
        statics: config.statics.clone(),
        autonomy: config.autonomy,
        eviction: config.eviction.clone(),
        shutdown: config.shutdown.clone(),
        machine: Roots::default(),
        runtime_socket: Some(config.runtime.socket.clone()),
        system_cgroup: config.cgroups.own.system.clone(),
        kernel_log: Some(PathBuf::from(KERNEL_LOG)),
        swap: Machine::swap_is_on(&Roots::default()),
        requests,
        collect: collect::Rules {
            containers: config.dead_containers,
            images: config.image_collection,
            sandbox_image,
        },
        container_logs: config.container_logs.clone(),
        policies: config.cluster_network.policies,
        sockets: true,
    }
}

fn server_settings(config: &Config, certificates: &Certificates, level: LogLevel) -> ServerSettings {
    ServerSettings {
        handlers: config.server.handlers,
        stream_idle: config.server.stream_idle,
        configuration: config.effective.clone(),
        roots: Roots::default(),
        certificates: certificates.clone(),
        level,
        flags: config.flags.clone(),
        gates: Gates {
            no_quota: config.pinning.no_quota,
            fs_quotas: config.pods.fs_quotas,
            memory_qos: config.cgroups.memory_throttling.is_some(),
            qos_reserved: config.cgroups.qos_reserved_percent.is_some(),
            stop_signals: config.stop_signals,
            provider_tokens: config.provider_tokens,
            graceful_shutdown: config.graceful_shutdown,
            shutdown_by_priority: config.shutdown_by_priority,
        },
    }
}

/// Everything built, nothing running yet.
struct Built {
    kubelet: Kubelet,
    reporter: Option<NodeReporter>,
    server: Arc<Server>,
}

fn build(
    config: &Arc<Config>,
    facts: &Facts,
    host_ips: &HostIps,
    (client, reviews, requests): (Option<&kube::Client>, Option<kube::Client>, RequestMetrics),
    found: &Found,
    providers: image::provider::Setup,
    of_server: ServerSettings,
) -> Result<Built, BootError> {
    let cgroup_v2 = host::is_cgroup_v2(CGROUP_MOUNT);
    // First of all: what does not fit harms nothing then.
    let machine = || {
        let found = sysfs::read(&Roots::default().sys)?;
        Ok(found.or_memory(host::bytes(facts.machine.memory), || host::huge_pages(facts)))
    };
    let kept = node::memory_kept(config, facts);
    let pinning = Pinning::open(&config.paths.root_dir, &config.pinning, kept, machine).map_err(BootError::Pinning)?;
    let (pod_cgroups, naming) = cgroups::open(config, facts, found.driver)?;
    cgroups::tell(config, facts, cgroup_v2);
    let pods_max = node::max_pods(config, &facts.machine);
    let ids = host::ids(&Roots::default(), config.pods.ids_per_pod, pods_max).map_err(BootError::Ids)?;
    let mut described = node::own_description(&config.node, facts);
    described.known = client.is_none();
    let kubelet = Kubelet::new(Dependencies {
        client: client.cloned(),
        runtime: found.runtime.clone(),
        clock: Arc::new(SystemClock),
        mounter: Arc::new(KernelMounter),
        seed: host::seed(),
        cgroups: pod_cgroups,
        context: context(config, facts, host_ips.clone(), naming, cgroup_v2),
        logind: Arc::new(SystemBus::new(logind::SOCKET, logind::SETTINGS).kept_by_systemd()),
        described: Describer::new(described),
        pinning,
        settings: settings(config, facts, ids, (providers, requests), found.sandbox_image.clone()),
    });
    let reporter =
        client.map(|client| NodeReporter::new(kubelet.parts(), client.clone(), config.clone(), facts.clone()));
    let auth = Auth::new(&config.server, reviews, &facts.name);
    Ok(Built {
        server: Server::new(kubelet.parts(), auth, of_server),
        kubelet,
        reporter,
    })
}

/// What must be true of the machine.
fn check_host(config: &Config, roots: &Roots) -> Result<(), BootError> {
    if config.fail_cgroup_v1 && !host::is_cgroup_v2(CGROUP_MOUNT) {
        return Err(BootError::CgroupV1);
    }
    if config.fail_swap_on && Machine::swap_is_on(roots) {
        return Err(BootError::SwapOn);
    }
    if config.protect_kernel_defaults {
        let mistakes = kernel::mistakes(roots);
        if !mistakes.is_empty() {
            return Err(BootError::KernelFlags(mistakes));
        }
    }
    Ok(())
}

/// Tells on the node that its cgroups are of the version that goes.
fn tell_of_cgroups(parts: &Parts) {
    parts.metrics.node.cgroups(parts.context.cgroup_v2);
    if !parts.context.cgroup_v2 {
        let message = "cgroup v1 detected. cgroup v1 support is unsupported and will be removed in a future release. \
                       Please migrate to cgroup v2.";
        let (recorder, node) = (&parts.recorder, &parts.context.node_name);
        recorder.node(node, Severity::Warning, event::CGROUP_V1, message);
    }
}

async fn drain(mut tasks: JoinSet<()>) {
    let drained = tokio::time::timeout(DRAIN_DEADLINE, async { while tasks.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!("some parts did not end in time");
    }
}

/// Runs a kubelet on this machine until `stop`, logging as `level` says; pods keep running when it ends.
pub async fn run(config: Config, level: LogLevel, stop: CancellationToken) -> Result<(), BootError> {
    let roots = Roots::default();
    check_host(&config, &roots)?;
    capabilities::tell();
    let providers = host::credential_providers(&config)?;
    let (proceed, _lock) = lock_file(&config, &stop).await?;
    if !proceed {
        return Ok(());
    }
    let _root = lock_root(&config.paths.root_dir)?;
    let sockets = sockets(&config).await?;
    let facts = host::facts(&config, &roots);
    let over = node::over_reserved(&config, &facts);
    if !over.is_empty() {
        return Err(BootError::Reserved(over));
    }
    let mut tasks = JoinSet::new();
    let host_ips = host::ips(&config, &facts, &mut tasks, &stop);
    let known = credentials::find(&config, &facts, &host_ips, Arc::new(SystemClock), host::seed()).await?;
    host::protect_from_oom(config.oom_score_adj);
    host::allow_open_files(config.max_open_files);
    let found = runtime::find(&config).await?;
    let config = Arc::new(config);
    // Before anything asks the API server: until there is a certificate every question is refused.
    let (client, reviews, requests) = (known.client.clone(), known.reviews.clone(), known.requests.clone());
    let kept = known.keep(&mut tasks, &stop).await?;
    let built = build(
        &config,
        &facts,
        &host_ips,
        (client.as_ref(), reviews, requests),
        &found,
        providers,
        server_settings(&config, &kept.certificates, level),
    )?;
    if let Some(gatherer) = cgroups::gatherer(&config)? {
        tasks.spawn(gatherer.keep(stop.clone()).boxed());
    }
    let parts = built.kubelet.parts();
    tell_of_cgroups(&parts);
    found.tell(&parts);
    match built.reporter {
        Some(reporter) => drop(tasks.spawn(reporter.run(stop.clone()).boxed())),
        None => standalone_network(&config, &*found.runtime).await,
    }
    cluster_network::start(&parts, &config, &mut tasks, &stop);
    if let Some(listener) = sockets.read_only {
        tasks.spawn(serve_read_only(listener, built.server.clone(), stop.clone()).boxed());
    }
    if let Some(listener) = sockets.server {
        tasks.spawn(serve_tls(listener, kept.tls.clone(), built.server, stop.clone()).boxed());
    }
    if let Some(listener) = sockets.health {
        tasks.spawn(serve_health(listener, parts.health(), stop.clone()).boxed());
    }
    watchdog::ready();
    if let Some(period) = watchdog::period() {
        tasks.spawn(watchdog::keep(period, parts.heartbeat.clone(), stop.clone()).boxed());
    }
    tracing::info!(node = facts.name, "kubelet started");
    let ended = built.kubelet.run(stop.clone()).await.map_err(BootError::Kubelet);
    stop.cancel();
    drain(tasks).await;
    match kept.given_up() {
        Some(expired) => Err(BootError::Expired(expired)),
        None => ended,
    }
}
