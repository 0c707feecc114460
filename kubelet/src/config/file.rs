//! KubeletConfiguration (kubelet.config.k8s.io/v1beta1) as written: every field optional, nothing resolved. Pure.

mod inert;

use super::gates;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";
/// Of `memoryThrottlingFactor`.
pub(super) const DEFAULT_FACTOR: f64 = 0.9;

/// Makes the struct, and finds its fields by the names they are written under. What serde's derive makes of a hundred fields is a
/// hundred kilobytes, for at each of them it lets go of what the others hold.
macro_rules! configuration {
    ($(#[$of:meta])* $name:ident { $($written:literal $field:ident: $type:ty,)* } and { $($(#[$about:meta])* $known:ident: $kept:ty,)* }) => {
        $(#[$of])*
        pub struct $name {
            $(pub $field: $type,)*
            $($(#[$about])* pub $known: $kept,)*
        }

        impl $name {
            /// The field of this name.
            fn field(&mut self, written: &str) -> Option<&mut dyn Field> {
                Some(match written {
                    $($written => &mut self.$field,)*
                    _ => return None,
                })
            }
        }
    };
}

configuration! {
    /// The fields that have an effect; `None` is "not written". Names and meanings are upstream's (kubelet contract §1).
    #[derive(Debug, Clone, Default, PartialEq)]
    #[allow(missing_docs)]
    KubeletConfiguration {
        "enableServer" enable_server: Option<bool>,
        "staticPodPath" static_pod_path: Option<String>,
        "staticPodURL" static_pod_url: Option<String>,
        "staticPodURLHeader" static_pod_url_header: Option<BTreeMap<String, Vec<String>>>,
        "fileCheckFrequency" file_check_frequency: Option<String>,
        "httpCheckFrequency" http_check_frequency: Option<String>,
        "address" address: Option<String>,
        "port" port: Option<i64>,
        "readOnlyPort" read_only_port: Option<i64>,
        "healthzPort" healthz_port: Option<i64>,
        "healthzBindAddress" healthz_bind_address: Option<String>,
        "tlsCertFile" tls_cert_file: Option<String>,
        "tlsPrivateKeyFile" tls_private_key_file: Option<String>,
        "tlsMinVersion" tls_min_version: Option<String>,
        "tlsCipherSuites" tls_cipher_suites: Option<Vec<String>>,
        "tlsCurvePreferences" tls_curve_preferences: Option<Vec<i64>>,
        "enableDebuggingHandlers" enable_debugging_handlers: Option<bool>,
        "enableProfilingHandler" enable_profiling_handler: Option<bool>,
        "enableDebugFlagsHandler" enable_debug_flags_handler: Option<bool>,
        "enableSystemLogHandler" enable_system_log_handler: Option<bool>,
        "enableSystemLogQuery" enable_system_log_query: Option<bool>,
        "rotateCertificates" rotate_certificates: Option<bool>,
        "serverTLSBootstrap" server_tls_bootstrap: Option<bool>,
        "authentication" authentication: Authentication,
        "authorization" authorization: Authorization,
        "syncFrequency" sync_frequency: Option<String>,
        "registryPullQPS" registry_pull_qps: Option<i64>,
        "registryBurst" registry_burst: Option<i64>,
        "eventRecordQPS" event_record_qps: Option<i64>,
        "eventBurst" event_burst: Option<i64>,
        "oomScoreAdj" oom_score_adj: Option<i64>,
        "clusterDomain" cluster_domain: Option<String>,
        "clusterDNS" cluster_dns: Option<Vec<String>>,
        "streamingConnectionIdleTimeout" streaming_connection_idle_timeout: Option<String>,
        "nodeStatusUpdateFrequency" node_status_update_frequency: Option<String>,
        "nodeStatusReportFrequency" node_status_report_frequency: Option<String>,
        "nodeLeaseDurationSeconds" node_lease_duration_seconds: Option<i64>,
        "nodeStatusMaxImages" node_status_max_images: Option<i64>,
        "cgroupRoot" cgroup_root: Option<String>,
        "cgroupsPerQOS" cgroups_per_qos: Option<bool>,
        "cgroupDriver" cgroup_driver: Option<String>,
        "failCgroupV1" fail_cgroup_v1: Option<bool>,
        "failSwapOn" fail_swap_on: Option<bool>,
        "protectKernelDefaults" protect_kernel_defaults: Option<bool>,
        "localStorageCapacityIsolation" local_storage_capacity_isolation: Option<bool>,
        "cpuManagerPolicy" cpu_manager_policy: Option<String>,
        "cpuManagerPolicyOptions" cpu_manager_policy_options: Option<BTreeMap<String, String>>,
        "cpuManagerReconcilePeriod" cpu_manager_reconcile_period: Option<String>,
        "reservedSystemCPUs" reserved_system_cpus: Option<String>,
        "memoryManagerPolicy" memory_manager_policy: Option<String>,
        "reservedMemory" reserved_memory: Option<Vec<MemoryReservation>>,
        "topologyManagerPolicy" topology_manager_policy: Option<String>,
        "topologyManagerPolicyOptions" topology_manager_policy_options: Option<BTreeMap<String, String>>,
        "topologyManagerScope" topology_manager_scope: Option<String>,
        "maxOpenFiles" max_open_files: Option<i64>,
        "allowedUnsafeSysctls" allowed_unsafe_sysctls: Option<Vec<String>>,
        "runtimeRequestTimeout" runtime_request_timeout: Option<String>,
        "maxPods" max_pods: Option<i64>,
        "podsPerCore" pods_per_core: Option<i64>,
        "podPidsLimit" pod_pids_limit: Option<i64>,
        "podCIDR" pod_cidr: Option<String>,
        "resolvConf" resolv_conf: Option<String>,
        "cpuCFSQuota" cpu_cfs_quota: Option<bool>,
        "cpuCFSQuotaPeriod" cpu_cfs_quota_period: Option<String>,
        "serializeImagePulls" serialize_image_pulls: Option<bool>,
        "imagePullCredentialsVerificationPolicy" image_pull_credentials_verification_policy: Option<String>,
        "preloadedImagesVerificationAllowlist" preloaded_images_verification_allowlist: Option<Vec<String>>,
        "maxParallelImagePulls" max_parallel_image_pulls: Option<i64>,
        "enforceNodeAllocatable" enforce_node_allocatable: Option<Vec<String>>,
        "evictionHard" eviction_hard: Option<BTreeMap<String, String>>,
        "evictionSoft" eviction_soft: Option<BTreeMap<String, String>>,
        "evictionSoftGracePeriod" eviction_soft_grace_period: Option<BTreeMap<String, String>>,
        "evictionMinimumReclaim" eviction_minimum_reclaim: Option<BTreeMap<String, String>>,
        "evictionPressureTransitionPeriod" eviction_pressure_transition_period: Option<String>,
        "evictionMaxPodGracePeriod" eviction_max_pod_grace_period: Option<i64>,
        "mergeDefaultEvictionSettings" merge_default_eviction_settings: Option<bool>,
        "systemReserved" system_reserved: Option<BTreeMap<String, String>>,
        "kubeReserved" kube_reserved: Option<BTreeMap<String, String>>,
        "systemReservedCgroup" system_reserved_cgroup: Option<String>,
        "kubeReservedCgroup" kube_reserved_cgroup: Option<String>,
        "systemCgroups" system_cgroups: Option<String>,
        "kubeletCgroups" kubelet_cgroups: Option<String>,
        "memoryThrottlingFactor" memory_throttling_factor: Option<f64>,
        "memoryReservationPolicy" memory_reservation_policy: Option<String>,
        "memorySwap" memory_swap: MemorySwap,
        "qosReserved" qos_reserved: Option<BTreeMap<String, String>>,
        "podLogsDir" pod_logs_dir: Option<String>,
        "seccompDefault" seccomp_default: Option<bool>,
        "containerLogMaxFiles" container_log_max_files: Option<i64>,
        "containerLogMaxSize" container_log_max_size: Option<String>,
        "containerLogMaxWorkers" container_log_max_workers: Option<i64>,
        "containerLogMonitorInterval" container_log_monitor_interval: Option<String>,
        "imageGCHighThresholdPercent" image_gc_high_threshold_percent: Option<i64>,
        "imageGCLowThresholdPercent" image_gc_low_threshold_percent: Option<i64>,
        "imageMaximumGCAge" image_maximum_gc_age: Option<String>,
        "imageMinimumGCAge" image_minimum_gc_age: Option<String>,
        "containerRuntimeEndpoint" container_runtime_endpoint: Option<String>,
        "imageServiceEndpoint" image_service_endpoint: Option<String>,
        "crashLoopBackOff" crash_loop_back_off: CrashLoopBackOff,
        "userNamespaces" user_namespaces: UserNamespaces,
        "shutdownGracePeriod" shutdown_grace_period: Option<String>,
        "shutdownGracePeriodCriticalPods" shutdown_grace_period_critical_pods: Option<String>,
        "shutdownGracePeriodByPodPriority" shutdown_grace_period_by_pod_priority: Option<Vec<ShutdownGracePeriodByPodPriority>>,
        "singleProcessOOMKill" single_process_oom_kill: Option<bool>,
        "registerNode" register_node: Option<bool>,
        "registerWithTaints" register_with_taints: Option<Vec<Taint>>,
        "providerID" provider_id: Option<String>,
        "logging" logging: LoggingConfiguration,
    } and {
        /// What `featureGates` say of the options of CPUs.
        pinning: gates::Pinning,
        /// What `featureGates` say of stop signals.
        stop_signals: bool,
        /// What `featureGates` say of volumes that the file system counts itself.
        fs_quotas: bool,
        /// What `featureGates` say of asking for one stream of a log.
        log_streams: bool,
        /// `featureGates` keep service account tokens from credential provider plugins.
        no_provider_tokens: bool,
        /// What `featureGates` say of memory.
        memory: gates::Memory,
        /// What `featureGates` say of graceful shutdown, and of that by priority.
        no_graceful_shutdown: bool,
        no_shutdown_by_priority: bool,
    }
}

/// A field of whatever type.
trait Field {
    /// Becomes `value`, unless something in it is `unknown`: told by paths from the field on.
    fn read(&mut self, value: Value, unknown: &mut BTreeSet<String>) -> Result<(), serde_json::Error>;
}

impl<T: DeserializeOwned> Field for T {
    fn read(&mut self, value: Value, unknown: &mut BTreeSet<String>) -> Result<(), serde_json::Error> {
        let read = serde_ignored::deserialize(value, |path| {
            unknown.insert(path.to_string());
        })?;
        if unknown.is_empty() {
            *self = read;
        }
        Ok(())
    }
}

/// `logging`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct LoggingConfiguration {
    pub format: Option<String>,
    /// Nanoseconds or a duration. Lines are written at once here.
    pub flush_frequency: Value,
    pub verbosity: Option<i64>,
    pub vmodule: Option<Vec<VModule>>,
    pub options: Value,
}

/// An item of `logging.vmodule`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct VModule {
    pub file_pattern: Option<String>,
    pub verbosity: Option<i64>,
}

/// `authentication`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Authentication {
    pub x509: X509,
    pub webhook: AuthenticationWebhook,
    pub anonymous: Anonymous,
}

/// `authentication.x509`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct X509 {
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: Option<String>,
}

/// `authentication.webhook`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct AuthenticationWebhook {
    pub enabled: Option<bool>,
    #[serde(rename = "cacheTTL")]
    pub cache_ttl: Option<String>,
}

/// `authentication.anonymous`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Anonymous {
    pub enabled: Option<bool>,
}

/// `authorization`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Authorization {
    pub mode: Option<String>,
    pub webhook: AuthorizationWebhook,
}

/// `authorization.webhook`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct AuthorizationWebhook {
    #[serde(rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: Option<String>,
    #[serde(rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: Option<String>,
}

/// `crashLoopBackOff`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct CrashLoopBackOff {
    pub max_container_restart_period: Option<String>,
}

/// `memorySwap`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct MemorySwap {
    pub swap_behavior: Option<String>,
}

/// An item of `reservedMemory`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct MemoryReservation {
    pub numa_node: i32,
    pub limits: BTreeMap<String, String>,
}

/// An item of `shutdownGracePeriodByPodPriority`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct ShutdownGracePeriodByPodPriority {
    pub priority: i32,
    pub shutdown_grace_period_seconds: i64,
}

/// `userNamespaces`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct UserNamespaces {
    pub ids_per_pod: Option<i64>,
}

/// Reads the file's text into a tree and checks that it is a KubeletConfiguration.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>, Vec<String>> {
    let tree: Value = serde_saphyr::from_str(text).map_err(|e| vec![format!("invalid YAML: {e}")])?;
    let Value::Object(tree) = tree else {
        return Err(vec!["the file does not hold an object".into()]);
    };
    let mut mistakes = Vec::new();
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match tree.get(field).and_then(Value::as_str) {
            Some(value) if value == expected => {}
            Some(value) => mistakes.push(format!("{field}: {value:?} is not {expected:?}")),
            None => mistakes.push(format!("{field}: must be {expected:?}")),
        }
    }
    if mistakes.is_empty() { Ok(tree) } else { Err(mistakes) }
}

/// Sets a field given by its dotted path.
pub(super) fn set(tree: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            tree.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = tree
                .entry(first.to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// What a tree says.
pub(super) struct Decoded {
    /// The fields that could be read.
    pub(super) config: KubeletConfiguration,
    /// Fields that ask for what this kubelet does not do.
    pub(super) inert: Vec<String>,
    /// What is wrong with the others.
    pub(super) mistakes: Vec<String>,
}

/// Decodes the tree. Every unknown field, every field of a wrong type and every value that cannot be is a mistake of its own;
/// fields that ask for what this kubelet does not do come back as names to warn about.
pub(super) fn decode(tree: &Map<String, Value>) -> Decoded {
    let mut mistakes = Vec::new();
    let mut inert = Vec::new();
    let mut config = KubeletConfiguration::default();
    for (field, value) in tree {
        if field == "apiVersion" || field == "kind" {
            continue;
        }
        if inert::is_inert(field) {
            mistakes.extend(inert::mistake(field, value));
            let rest = (field == "featureGates").then(|| gates::without_effect(value));
            if inert::asks_for_more(field, rest.as_ref().unwrap_or(value)) {
                inert.push(field.clone());
            }
            continue;
        }
        // One field at a time, so that one wrong type does not hide the next.
        let Some(kept) = config.field(field) else {
            mistakes.push(format!("unknown field {field:?}"));
            continue;
        };
        let mut unknown = BTreeSet::new();
        let read = kept.read(value.clone(), &mut unknown);
        mistakes.extend(unknown.iter().map(|path| {
            let path = format!("{field}.{path}").replace(".?", "");
            format!("unknown field {path:?}")
        }));
        mistakes.extend(read.err().map(|error| format!("{field}: {error}")));
    }
    mistakes.extend(inert::mistakes_between(tree));
    if let Some(Value::Object(gates)) = tree.get("featureGates") {
        mistakes.extend(gates::mistakes(gates));
    }
    let gates = tree.get("featureGates").and_then(Value::as_object);
    config.pinning = gates.map(gates::pinning).unwrap_or_default();
    config.memory = gates.map(gates::memory).unwrap_or_default();
    if !config.memory.qos
        && config
            .memory_throttling_factor
            .is_some_and(|factor| factor != DEFAULT_FACTOR)
    {
        inert.push("memoryThrottlingFactor (without feature gate MemoryQoS)".to_owned());
    }
    config.stop_signals = gates.is_some_and(gates::stop_signals);
    config.log_streams = gates.is_some_and(gates::log_streams);
    config.fs_quotas = gates.is_some_and(gates::fs_quotas);
    config.no_graceful_shutdown = gates.is_some_and(|gates| !gates::graceful_shutdown(gates));
    config.no_shutdown_by_priority = gates.is_some_and(|gates| !gates::shutdown_by_priority(gates));
    config.no_provider_tokens = gates.is_some_and(|gates| !gates::provider_tokens(gates));
    Decoded {
        config,
        inert,
        mistakes,
    }
}

#[cfg(test)]
impl KubeletConfiguration {
    /// What a file of these fields says.
    pub(crate) fn of(fields: &Value) -> Self {
        let decoded = decode(fields.as_object().expect("fields"));
        assert_eq!(decoded.mistakes, [""; 0]);
        decoded.config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    fn read(text: &str) -> Result<(KubeletConfiguration, Vec<String>), Vec<String>> {
        let decoded = decode(&parse(&format!("{HEAD}{text}"))?);
        match decoded.mistakes.is_empty() {
            true => Ok((decoded.config, decoded.inert)),
            false => Err(decoded.mistakes),
        }
    }

    #[test]
    fn fields_are_read_and_inert_ones_named() {
        let (config, inert) = read(
            "port: 1\nclusterDNS: [10.0.0.1]\nauthentication:\n  x509:\n    clientCAFile: /ca\n  webhook: {cacheTTL: 1m}\nfailCgroupV1: false\nmemoryThrottlingFactor: 0.5\nkubeAPIQPS: 7\n",
        )
        .expect("sound");
        assert_eq!(config.port, Some(1));
        assert_eq!(config.cluster_dns.as_deref(), Some(&["10.0.0.1".to_owned()][..]));
        assert_eq!(config.authentication.x509.client_ca_file.as_deref(), Some("/ca"));
        assert_eq!(config.fail_cgroup_v1, Some(false));
        assert_eq!(
            inert,
            ["kubeAPIQPS", "memoryThrottlingFactor (without feature gate MemoryQoS)"]
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let mistakes = read("prot: 1\nport: x\nauthentication: {x509: {clientCaFile: /ca}}\nmaxPods: [1]\nshutdownGracePeriodByPodPriority: [{prio: 1}]\n")
            .expect_err("mistakes");
        assert_eq!(mistakes.len(), 5, "{mistakes:?}");
        assert!(
            mistakes.contains(&"unknown field \"shutdownGracePeriodByPodPriority.0.prio\"".to_owned()),
            "{mistakes:?}"
        );
        assert!(mistakes.contains(&"unknown field \"prot\"".to_owned()), "{mistakes:?}");
        assert!(
            mistakes.contains(&"unknown field \"authentication.x509.clientCaFile\"".to_owned()),
            "{mistakes:?}"
        );
        assert!(
            mistakes.iter().any(|m| m.starts_with("port: ")) && mistakes.iter().any(|m| m.starts_with("maxPods: "))
        );
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(
            parse("kind: Pod\n").expect_err("not ours"),
            [
                "apiVersion: must be \"kubelet.config.k8s.io/v1beta1\"",
                "kind: \"Pod\" is not \"KubeletConfiguration\""
            ]
        );
        assert!(parse("a: [").expect_err("broken")[0].starts_with("invalid YAML"));
        assert!(parse("[]").is_err());
    }

    #[test]
    fn flags_set_nested_fields() {
        let mut tree = parse(HEAD).expect("sound");
        set(&mut tree, "authentication.x509.clientCAFile", "/x".into());
        set(&mut tree, "port", 5.into());
        let config = decode(&tree).config;
        assert_eq!(
            (config.port, config.authentication.x509.client_ca_file.as_deref()),
            (Some(5), Some("/x"))
        );
    }
}
