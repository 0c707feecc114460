//! KubeletConfiguration (kubelet.config.k8s.io/v1beta1) as written: every field optional, nothing resolved. Pure.

mod inert;

use super::gates;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";
/// Of `memoryThrottlingFactor`.
pub(super) const DEFAULT_FACTOR: f64 = 0.9;

/// The fields that have an effect; `None` is "not written". Names and meanings are upstream's (kubelet contract §1).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct KubeletConfiguration {
    pub enable_server: Option<bool>,
    pub static_pod_path: Option<String>,
    #[serde(rename = "staticPodURL")]
    pub static_pod_url: Option<String>,
    #[serde(rename = "staticPodURLHeader")]
    pub static_pod_url_header: Option<BTreeMap<String, Vec<String>>>,
    pub file_check_frequency: Option<String>,
    pub http_check_frequency: Option<String>,
    pub address: Option<String>,
    pub port: Option<i64>,
    pub read_only_port: Option<i64>,
    pub healthz_port: Option<i64>,
    pub healthz_bind_address: Option<String>,
    pub tls_cert_file: Option<String>,
    pub tls_private_key_file: Option<String>,
    pub tls_min_version: Option<String>,
    pub tls_cipher_suites: Option<Vec<String>>,
    pub tls_curve_preferences: Option<Vec<i64>>,
    pub enable_debugging_handlers: Option<bool>,
    pub enable_profiling_handler: Option<bool>,
    pub enable_debug_flags_handler: Option<bool>,
    pub enable_system_log_handler: Option<bool>,
    pub enable_system_log_query: Option<bool>,
    pub rotate_certificates: Option<bool>,
    #[serde(rename = "serverTLSBootstrap")]
    pub server_tls_bootstrap: Option<bool>,
    pub authentication: Authentication,
    pub authorization: Authorization,
    pub sync_frequency: Option<String>,
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: Option<i64>,
    pub registry_burst: Option<i64>,
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: Option<i64>,
    pub event_burst: Option<i64>,
    pub oom_score_adj: Option<i64>,
    pub cluster_domain: Option<String>,
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Option<Vec<String>>,
    pub streaming_connection_idle_timeout: Option<String>,
    pub node_status_update_frequency: Option<String>,
    pub node_status_report_frequency: Option<String>,
    pub node_lease_duration_seconds: Option<i64>,
    pub node_status_max_images: Option<i64>,
    pub cgroup_root: Option<String>,
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: Option<bool>,
    pub cgroup_driver: Option<String>,
    #[serde(rename = "failCgroupV1")]
    pub fail_cgroup_v1: Option<bool>,
    pub fail_swap_on: Option<bool>,
    pub protect_kernel_defaults: Option<bool>,
    pub local_storage_capacity_isolation: Option<bool>,
    pub cpu_manager_policy: Option<String>,
    pub cpu_manager_policy_options: Option<BTreeMap<String, String>>,
    pub cpu_manager_reconcile_period: Option<String>,
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: Option<String>,
    pub memory_manager_policy: Option<String>,
    pub reserved_memory: Option<Vec<MemoryReservation>>,
    pub topology_manager_policy: Option<String>,
    pub topology_manager_policy_options: Option<BTreeMap<String, String>>,
    pub topology_manager_scope: Option<String>,
    /// What `featureGates` say of the options of CPUs.
    #[serde(skip)]
    pub pinning: gates::Pinning,
    /// What `featureGates` say of stop signals.
    #[serde(skip)]
    pub stop_signals: bool,
    /// What `featureGates` say of volumes that the file system counts itself.
    #[serde(skip)]
    pub fs_quotas: bool,
    /// What `featureGates` say of asking for one stream of a log.
    #[serde(skip)]
    pub log_streams: bool,
    /// `featureGates` keep service account tokens from credential provider plugins.
    #[serde(skip)]
    pub no_provider_tokens: bool,
    pub max_open_files: Option<i64>,
    pub allowed_unsafe_sysctls: Option<Vec<String>>,
    pub runtime_request_timeout: Option<String>,
    pub max_pods: Option<i64>,
    pub pods_per_core: Option<i64>,
    pub pod_pids_limit: Option<i64>,
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<String>,
    pub resolv_conf: Option<String>,
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: Option<bool>,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: Option<String>,
    pub serialize_image_pulls: Option<bool>,
    pub image_pull_credentials_verification_policy: Option<String>,
    pub preloaded_images_verification_allowlist: Option<Vec<String>>,
    pub max_parallel_image_pulls: Option<i64>,
    pub enforce_node_allocatable: Option<Vec<String>>,
    pub eviction_hard: Option<BTreeMap<String, String>>,
    pub eviction_soft: Option<BTreeMap<String, String>>,
    pub eviction_soft_grace_period: Option<BTreeMap<String, String>>,
    pub eviction_minimum_reclaim: Option<BTreeMap<String, String>>,
    pub eviction_pressure_transition_period: Option<String>,
    pub eviction_max_pod_grace_period: Option<i64>,
    pub merge_default_eviction_settings: Option<bool>,
    pub system_reserved: Option<BTreeMap<String, String>>,
    pub kube_reserved: Option<BTreeMap<String, String>>,
    pub system_reserved_cgroup: Option<String>,
    pub kube_reserved_cgroup: Option<String>,
    pub system_cgroups: Option<String>,
    pub kubelet_cgroups: Option<String>,
    pub memory_throttling_factor: Option<f64>,
    pub memory_reservation_policy: Option<String>,
    pub memory_swap: MemorySwap,
    pub qos_reserved: Option<BTreeMap<String, String>>,
    /// What `featureGates` say of memory.
    #[serde(skip)]
    pub memory: gates::Memory,
    pub pod_logs_dir: Option<String>,
    pub seccomp_default: Option<bool>,
    pub container_log_max_files: Option<i64>,
    pub container_log_max_size: Option<String>,
    pub container_log_max_workers: Option<i64>,
    pub container_log_monitor_interval: Option<String>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: Option<i64>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: Option<i64>,
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: Option<String>,
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: Option<String>,
    pub container_runtime_endpoint: Option<String>,
    pub image_service_endpoint: Option<String>,
    pub crash_loop_back_off: CrashLoopBackOff,
    pub user_namespaces: UserNamespaces,
    pub shutdown_grace_period: Option<String>,
    pub shutdown_grace_period_critical_pods: Option<String>,
    pub shutdown_grace_period_by_pod_priority: Option<Vec<ShutdownGracePeriodByPodPriority>>,
    /// What `featureGates` say of graceful shutdown, and of that by priority.
    #[serde(skip)]
    pub no_graceful_shutdown: bool,
    #[serde(skip)]
    pub no_shutdown_by_priority: bool,
    #[serde(rename = "singleProcessOOMKill")]
    pub single_process_oom_kill: Option<bool>,
    pub register_node: Option<bool>,
    pub register_with_taints: Option<Vec<Taint>>,
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
    pub logging: LoggingConfiguration,
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

/// Reads fields; also those of them, with those within them, that nobody knows.
fn read(fields: Map<String, Value>) -> (Result<KubeletConfiguration, serde_json::Error>, BTreeSet<String>) {
    let mut unknown = BTreeSet::new();
    // As a map and nothing else: a tree could be a list, and reading all fields from one is much code that is never run.
    let fields = MapDeserializer::new(fields.into_iter());
    let read = serde_ignored::deserialize(fields, |path| {
        unknown.insert(path.to_string().replace(".?", ""));
    });
    (read, unknown)
}

/// Decodes the tree. Every unknown field, every field of a wrong type and every value that cannot be is a mistake of its own;
/// fields that ask for what this kubelet does not do come back as names to warn about.
pub(super) fn decode(tree: &Map<String, Value>) -> Decoded {
    let mut mistakes = Vec::new();
    let mut inert = Vec::new();
    let mut sound = Map::new();
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
        let one = std::iter::once((field.clone(), value.clone())).collect_ordered();
        let (decoded, unknown) = read(one);
        mistakes.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
        match decoded {
            Err(error) => mistakes.push(format!("{field}: {error}")),
            Ok(_) if unknown.is_empty() => {
                sound.insert(field.clone(), value.clone());
            }
            Ok(_) => {}
        }
    }
    mistakes.extend(inert::mistakes_between(tree));
    if let Some(Value::Object(gates)) = tree.get("featureGates") {
        mistakes.extend(gates::mistakes(gates));
    }
    let mut config = read(sound).0.unwrap_or_else(|error| {
        mistakes.push(error.to_string());
        KubeletConfiguration::default()
    });
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
        let mistakes = read("prot: 1\nport: x\nauthentication: {x509: {clientCaFile: /ca}}\nmaxPods: [1]\n")
            .expect_err("mistakes");
        assert_eq!(mistakes.len(), 4, "{mistakes:?}");
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
