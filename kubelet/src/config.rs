//! Flags and KubeletConfiguration, resolved.
//!
//! Two stages: what the user typed ([`Flags`], [`KubeletConfiguration`]) and what that means ([`Config`]), with every default named
//! and every mistake reported at once. Only [`load`] touches the file system.

mod dropin;
pub mod duration;
mod effective;
mod file;
mod flags;
mod gates;
mod resolve;

pub use file::{KubeletConfiguration, MemorySwap};
pub use flags::{Flags, FlagsEnd, parse as parse_flags};
pub use resolve::resolve;

use crate::cgroup::{CgroupDriver, OwnCgroups, ReservedCgroup};
use crate::collect::containers::Limits as DeadContainers;
use crate::collect::images::Rules as ImageCollection;
use crate::container_log;
use crate::eviction::threshold::Rules as EvictionRules;
use crate::image::verification::Policy as ImageVerification;
use crate::log::Logging;
use crate::node_shutdown::Periods;
use crate::pinning;
use crate::source::StaticSources;
use k8s_openapi::api::core::v1::Taint;
use netlink::cidr::Cidr;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The version this kubelet reports.
pub const VERSION: &str = "v1.36.2";

/// Everything a kubelet is told, ready to use.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The node object and how it is kept.
    pub node: NodeConfig,
    /// Files and directories.
    pub paths: Paths,
    /// `rotateCertificates`: the client certificate is kept fresh.
    pub rotate_certificates: bool,
    /// The runtime and what is asked of it.
    pub runtime: RuntimeConfig,
    /// Pods.
    pub pods: PodConfig,
    /// Where static pods come from.
    pub statics: StaticSources,
    /// cgroups and reservations.
    pub cgroups: CgroupConfig,
    /// Which containers have CPUs to themselves.
    pub pinning: pinning::Rules,
    /// When pods must go because the node runs short.
    pub eviction: EvictionRules,
    /// How long pods may take to end before the machine goes down.
    pub shutdown: Periods,
    /// What pods' resolver files are made from.
    pub dns: DnsConfig,
    /// The servers.
    pub server: ServerConfig,
    /// What is logged, and how.
    pub logging: Logging,
    /// `oomScoreAdj` of the kubelet itself.
    pub oom_score_adj: i64,
    /// `--exit-on-lock-contention`.
    pub exit_on_lock_contention: bool,
    /// Refuse to start with swap on.
    pub fail_swap_on: bool,
    /// Refuse to start on a cgroup v1 host.
    pub fail_cgroup_v1: bool,
    /// `protectKernelDefaults`: refuse to start where kernel flags are not as expected.
    pub protect_kernel_defaults: bool,
    /// `localStorageCapacityIsolation`: pods are held to their limits on local storage, and the node tells how much it has.
    pub local_storage: bool,
    /// `--node-autonomy`, a flag of our own: pods and what they need are kept on disk, to start without an API server.
    pub autonomy: bool,
    /// Which parts of the cluster's network run in this kubelet.
    pub cluster_network: ClusterNetwork,
    /// How long containers' logs may become, and how many of them stay.
    pub container_logs: container_log::Rules,
    /// How many dead containers may stay.
    pub dead_containers: DeadContainers,
    /// When unused images go.
    pub image_collection: ImageCollection,
    /// Gate `ContainerStopSignals`: containers are stopped by the signals they ask for.
    pub stop_signals: bool,
    /// Whether credential provider plugins may be given tokens.
    pub provider_tokens: bool,
    /// Gate `GracefulNodeShutdown`.
    pub graceful_shutdown: bool,
    /// Gate `GracefulNodeShutdownBasedOnPodPriority`.
    pub shutdown_by_priority: bool,
    /// `maxOpenFiles`: how many files this process may have open.
    pub max_open_files: u64,
    /// What to tell the user: flags and fields without effect.
    pub warnings: Vec<String>,
    /// The whole KubeletConfiguration, defaults included, as `/configz` shows it.
    pub effective: serde_json::Value,
    /// The flags that were given, as `/flagz` shows them: what may be a secret is masked.
    pub flags: BTreeMap<String, String>,
}

/// Which parts of the cluster's network run in this kubelet: flags of our own, all off by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterNetwork {
    /// `--service-proxy`: Services' addresses lead to their endpoints.
    pub proxy: bool,
    /// `--service-proxy-config`: the KubeProxyConfiguration it goes by, beside what the kubelet knows itself.
    pub proxy_config: Option<PathBuf>,
    /// `--reserve-node-ports`: which of them the kernel does not choose for the node's own connections.
    pub reserve_node_ports: Option<proxy::node_ports::Ports>,
    /// `--cluster-dns-responder`: the addresses of `clusterDNS` are answered on here.
    pub dns: bool,
    /// `--cluster-dns-autopath`: pods' search paths are answered in one question.
    pub autopath: bool,
    /// `--network-policies`: NetworkPolicies hold for this node's pods.
    pub policies: bool,
    /// `--pod-network-backend`: how pods of other nodes are reached.
    pub backend: Option<Backend>,
    /// `--cluster-cidr`: where all pods' addresses are.
    pub ranges: Vec<Cidr>,
}

impl ClusterNetwork {
    /// Whether any part runs.
    pub fn is_any(&self) -> bool {
        self.proxy || self.dns || self.policies || self.backend.is_some()
    }
}

/// How pods of other nodes are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Through VXLAN, also where nodes are not neighbours.
    Vxlan,
    /// By routes to neighbours.
    HostGw,
}

/// The node object and how it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// `--hostname-override`; `None` takes the host name.
    pub name: Option<String>,
    /// `--node-ip`.
    pub ips: Vec<IpAddr>,
    /// `--node-ip` names no address but a family (`::`): the node's own address of IPv6, if it has one.
    pub prefers_v6: bool,
    /// `--cloud-provider=external`: somebody else completes the node, and says what its addresses are.
    pub external_cloud: bool,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `registerWithTaints`.
    pub taints: Vec<Taint>,
    /// `registerNode`.
    pub register: bool,
    /// `providerID`.
    pub provider_id: Option<String>,
    /// `maxPods`.
    pub max_pods: i64,
    /// `podsPerCore`; 0 means no such bound.
    pub pods_per_core: i64,
    /// `podCIDR`: used without an API server only.
    pub pod_cidr: Option<String>,
    /// `nodeStatusUpdateFrequency`.
    pub status_update: Duration,
    /// `nodeStatusReportFrequency`.
    pub status_report: Duration,
    /// `nodeLeaseDurationSeconds`.
    pub lease_seconds: i32,
    /// `nodeStatusMaxImages`; negative means all.
    pub max_images: i64,
}

/// Files and directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--root-dir`.
    pub root_dir: PathBuf,
    /// `--cert-dir`.
    pub cert_dir: PathBuf,
    /// `podLogsDir`.
    pub pod_logs_dir: PathBuf,
    /// `--lock-file`.
    pub lock_file: Option<PathBuf>,
    /// `--cni-conf-dir`.
    pub cni_conf_dir: PathBuf,
    /// `--cni-bin-dir`.
    pub cni_bin_dir: PathBuf,
    /// `--cni-plugins`: the binary to install there; empty installs nothing, absent what lies beside the kubelet.
    pub cni_plugins: Option<PathBuf>,
}

/// The runtime and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Path of the runtime's Unix socket.
    pub socket: PathBuf,
    /// `imageServiceEndpoint`: the socket of whoever has the images, if that is not the runtime.
    pub image_socket: Option<PathBuf>,
    /// `runtimeRequestTimeout`.
    pub request_timeout: Duration,
    /// How many images are pulled at once: 1 with `serializeImagePulls`, `None` without bound.
    pub parallel_pulls: Option<usize>,
    /// `imagePullCredentialsVerificationPolicy` and `preloadedImagesVerificationAllowlist`.
    pub image_verification: ImageVerification,
    /// Plugins that give logins, if there are any.
    pub credential_providers: Option<CredentialProviders>,
    /// `registryPullQPS`; 0 means no bound.
    pub pull_qps: u32,
    /// `registryBurst`.
    pub pull_burst: u32,
}

/// Where credential provider plugins are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialProviders {
    /// `--image-credential-provider-config`: a file, or a directory of files.
    pub config: PathBuf,
    /// `--image-credential-provider-bin-dir`.
    pub directory: PathBuf,
    /// Gate `KubeletServiceAccountTokenForCredentialProviders`: they may be given tokens.
    pub tokens: bool,
}

/// Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodConfig {
    /// `syncFrequency`.
    pub sync_frequency: Duration,
    /// `crashLoopBackOff.maxContainerRestartPeriod`.
    pub crash_backoff_max: Duration,
    /// `eventRecordQPS`; 0 means no bound.
    pub event_qps: u32,
    /// `eventBurst`.
    pub event_burst: u32,
    /// `seccompDefault`.
    pub seccomp_default: bool,
    /// `allowedUnsafeSysctls`: names, or beginnings of names followed by `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// `singleProcessOOMKill`; `None` is the host's default.
    pub single_process_oom_kill: Option<bool>,
    /// `userNamespaces.idsPerPod`: a multiple of 65536.
    pub ids_per_pod: u32,
    /// Gate `LocalStorageCapacityIsolationFSQuotaMonitoring`: volumes are counted by project quotas.
    pub fs_quotas: bool,
}

/// cgroups and reservations.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupConfig {
    /// `cgroupDriver`; the runtime's own answer wins over it.
    pub driver: CgroupDriver,
    /// `cgroupRoot`.
    pub root: String,
    /// `cgroupsPerQOS`.
    pub per_qos: bool,
    /// `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_cfs_period_us: i64,
    /// `podPidsLimit`.
    pub pod_pids_limit: i64,
    /// `enforceNodeAllocatable` contains `pods`.
    pub enforce_pods: bool,
    /// `systemReserved` and `kubeReserved` together.
    pub reserved: Reserved,
    /// The cgroups that `enforceNodeAllocatable` has held to what is reserved for them.
    pub reserved_cgroups: Vec<ReservedCgroup>,
    /// `memoryThrottlingFactor`, with the gate `MemoryQoS`.
    pub memory_throttling: Option<f64>,
    /// `memoryReservationPolicy: TieredReservation`, with that gate.
    pub reserves_memory: bool,
    /// `memorySwap.swapBehavior: LimitedSwap`.
    pub limited_swap: bool,
    /// `qosReserved.memory`, percent, with the gate `QOSReserved`.
    pub qos_reserved_percent: Option<i64>,
    /// `systemCgroups` and `kubeletCgroups`.
    pub own: OwnCgroups,
}

/// What is kept from pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Millicores.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// Processes.
    pub pids: i64,
}

/// What pods' resolver files are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsConfig {
    /// `clusterDomain`.
    pub cluster_domain: String,
    /// `clusterDNS`.
    pub cluster_dns: Vec<String>,
    /// `resolvConf`; `None` when set to the empty string.
    pub resolv_conf: Option<PathBuf>,
}

/// The servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// `enableServer`.
    pub enabled: bool,
    /// `address`.
    pub address: IpAddr,
    /// `port`.
    pub port: u16,
    /// `readOnlyPort`, on `address`; `None` when it is 0.
    pub read_only_port: Option<u16>,
    /// `healthzBindAddress` and `healthzPort`; `None` when the port is 0.
    pub healthz: Option<(IpAddr, u16)>,
    /// `tlsCertFile` and `tlsPrivateKeyFile`.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// What is offered of TLS.
    pub tls: ServingTls,
    /// Which endpoints there are.
    pub handlers: Handlers,
    /// `serverTLSBootstrap`: the cluster issues the serving certificate.
    pub tls_bootstrap: bool,
    /// `authentication.x509.clientCAFile`.
    pub client_ca: Option<PathBuf>,
    /// `authentication.anonymous.enabled`.
    pub anonymous: bool,
    /// `authentication.webhook`: its cache time when enabled.
    pub token_webhook: Option<Duration>,
    /// `authorization`.
    pub authorization: AuthorizationMode,
    /// `streamingConnectionIdleTimeout`.
    pub stream_idle: Duration,
}

/// What the server offers of TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingTls {
    /// `tlsMinVersion` is `VersionTLS13`; nothing older than TLS 1.2 is offered in any case.
    pub tls13_only: bool,
    /// `tlsCipherSuites`, of which those of TLS 1.2 can be chosen; `None` offers all there are.
    pub suites: Option<Vec<rustls::CipherSuite>>,
    /// `tlsCurvePreferences`; `None` offers all there are.
    pub groups: Option<Vec<rustls::NamedGroup>>,
}

/// Endpoints of the server that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handlers {
    /// `enableDebuggingHandlers`: those that run commands and show logs; without it none of the others is there either.
    pub debugging: bool,
    /// `enableProfilingHandler`.
    pub profiling: bool,
    /// `enableDebugFlagsHandler`.
    pub flags: bool,
    /// `enableSystemLogHandler`.
    pub system_log: bool,
    /// `enableSystemLogQuery`: services of the node can be asked for their logs.
    pub system_log_query: bool,
    /// Gate `PodLogsQuerySplitStreams`: one stream of a container's log can be asked for.
    pub log_streams: bool,
}

impl Default for Handlers {
    fn default() -> Self {
        Self {
            debugging: true,
            profiling: true,
            flags: true,
            system_log: true,
            system_log_query: false,
            log_streams: false,
        }
    }
}

/// `authorization.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Whoever is authenticated may do everything.
    AlwaysAllow,
    /// The API server is asked.
    Webhook {
        /// How long a yes is remembered.
        allowed: Duration,
        /// How long a no is remembered.
        denied: Duration,
    },
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("failed to load kubelet config file, path: {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What is written cannot be used: every mistake on a line of its own.
    #[error("{origin}:\n  {}", mistakes.join("\n  "))]
    Mistakes {
        /// Where the mistakes are.
        origin: String,
        /// All of them.
        mistakes: Vec<String>,
    },
}

/// Reads the configuration file the flags name, merges the drop-ins, sets the flags over both and resolves all of it.
pub fn load(flags: &Flags) -> Result<Config, ConfigError> {
    let named = |flag| flags.text(flag).filter(|path| !path.is_empty()).map(PathBuf::from);
    let (path, drop_ins) = (named("config"), named("config-dir"));
    let origin = match (&path, &drop_ins) {
        (Some(path), _) => format!("failed to load kubelet config file, path: {}", path.display()),
        (None, Some(directory)) => format!("failed to merge kubelet configs of {}", directory.display()),
        (None, None) => "invalid configuration".to_owned(),
    };
    let mistakes = |mistakes| ConfigError::Mistakes {
        origin: origin.clone(),
        mistakes,
    };
    let mut tree = match &path {
        None => serde_json::Map::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
                path: path.clone(),
                source,
            })?;
            file::parse(&text).map_err(mistakes)?
        }
    };
    if let Some(directory) = &drop_ins {
        dropin::merge(&mut tree, directory).map_err(|errors| ConfigError::Mistakes {
            origin: format!("failed to merge kubelet configs of {}", directory.display()),
            mistakes: errors.iter().map(dropin::chain).collect(),
        })?;
    }
    set_flags(&mut tree, flags);
    let from_file = path.is_some() || drop_ins.is_some();
    let decoded = file::decode(&tree);
    let resolved = resolve(&decoded.config, flags, from_file);
    let mut config = match (resolved, decoded.mistakes) {
        (Ok(config), found) if found.is_empty() => config,
        (Ok(_), found) => return Err(mistakes(found)),
        (Err(more), found) => {
            return Err(ConfigError::Mistakes {
                origin: match &path {
                    Some(path) => format!("failed to validate kubelet configuration, path: {}", path.display()),
                    None => "failed to validate kubelet configuration".to_owned(),
                },
                mistakes: found.into_iter().chain(more).collect(),
            });
        }
    };
    config.warnings.extend(without_effect(&decoded.inert, &flags.inert));
    config.warnings.extend(resolve::eviction::warnings(&decoded.config));
    config.warnings.extend(resolve::pinning::warnings(&decoded.config));
    config.effective = effective::effective(&tree, from_file);
    Ok(config)
}

/// Flags win over files; of feature gates each one for itself.
fn set_flags(tree: &mut serde_json::Map<String, serde_json::Value>, flags: &Flags) {
    for (field, value) in &flags.fields {
        match (*field, tree.get_mut(*field), value) {
            ("featureGates", Some(serde_json::Value::Object(gates)), serde_json::Value::Object(given)) => {
                gates.extend(given.clone());
            }
            (field, _, value) => file::set(tree, field, value.clone()),
        }
    }
}

/// One warning that names everything this kubelet takes and does nothing with.
fn without_effect(fields: &[String], flags: &[&'static str]) -> Option<String> {
    let flags = flags.iter().map(|name| format!("--{name}"));
    let all: Vec<String> = fields.iter().cloned().chain(flags).collect();
    (!all.is_empty()).then(|| format!("no effect in this kubelet yet: {}", all.join(", ")))
}

#[cfg(test)]
mod tests;
