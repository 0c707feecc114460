//! From what was written to what it means: defaults, ranges, rules between fields (kubelet contract §1). Pure.

mod statics;

use super::duration;
use super::{
    AuthorizationMode, CgroupConfig, Config, DnsConfig, Flags, KubeletConfiguration, NodeConfig, Paths, PodConfig,
    Reserved, RuntimeConfig, ServerConfig,
};
use crate::cgroup::CgroupDriver;
use proto::api::names;
use proto::api::quantity::Quantity;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const ROOT_DIR: &str = "/var/lib/kubelet";
const CERT_DIR: &str = "/var/lib/kubelet/pki";
const POD_LOGS_DIR: &str = "/var/log/pods";
const CNI_CONF_DIR: &str = "/etc/cni/net.d";
const CNI_BIN_DIR: &str = "/opt/cni/bin";
const RESOLV_CONF: &str = "/etc/resolv.conf";
const RUNTIME_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";
/// Labels under kubernetes.io and k8s.io a kubelet may give its own node.
const OWN_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Collects mistakes while values are taken, so that one run reports all of them.
#[derive(Default)]
struct Reader {
    mistakes: Vec<String>,
}

impl Reader {
    fn wrong(&mut self, field: &str, why: impl std::fmt::Display) {
        self.mistakes.push(format!("{field}: {why}"));
    }

    fn time(&mut self, field: &str, text: Option<&str>, default: Duration) -> Duration {
        match text.map(duration::parse) {
            None => default,
            // A zero in the file means the default, as upstream's own defaulting has it.
            Some(Ok(Duration::ZERO)) => default,
            Some(Ok(time)) => time,
            Some(Err(why)) => {
                self.wrong(field, why);
                default
            }
        }
    }

    fn range(&mut self, field: &str, value: Option<i64>, default: i64, min: i64, max: i64) -> i64 {
        match value {
            None => default,
            Some(value) if (min..=max).contains(&value) => value,
            Some(value) => {
                self.wrong(field, format!("{value} must be between {min} and {max}, inclusive"));
                default
            }
        }
    }

    fn port(&mut self, field: &str, value: Option<i64>, default: u16, min: i64) -> u16 {
        let value = self.range(field, value, i64::from(default), min, 65535);
        u16::try_from(value).unwrap_or(default)
    }

    fn count(&mut self, field: &str, value: Option<i64>, default: u32) -> u32 {
        let value = self.range(field, value, i64::from(default), 0, i64::from(i32::MAX));
        u32::try_from(value).unwrap_or(default)
    }

    fn address(&mut self, field: &str, text: Option<&str>, default: &str) -> IpAddr {
        let text = text.filter(|t| !t.is_empty()).unwrap_or(default);
        match text.parse() {
            Ok(address) => address,
            Err(_) => {
                self.wrong(field, format!("{text:?} is not an IP address"));
                IpAddr::from([0, 0, 0, 0])
            }
        }
    }
}

fn path(text: Option<&str>, default: &str) -> PathBuf {
    PathBuf::from(text.filter(|t| !t.is_empty()).unwrap_or(default))
}

fn given(text: Option<&String>) -> Option<PathBuf> {
    text.filter(|t| !t.is_empty()).map(PathBuf::from)
}

/// What flags and file mean together. `from_file` says whether a configuration file was given: without one the older, laxer
/// defaults of the servers hold.
pub fn resolve(written: &KubeletConfiguration, flags: &Flags, from_file: bool) -> Result<Config, Vec<String>> {
    let mut reader = Reader::default();
    let mut warnings = Vec::new();
    if written.read_only_port.is_some_and(|port| port != 0) {
        warnings.push("readOnlyPort has no effect in this kubelet yet: nothing listens there".to_owned());
    }
    let config = Config {
        node: node(&mut reader, written, flags, from_file),
        paths: paths(written, flags),
        rotate_certificates: written.rotate_certificates.unwrap_or(false),
        runtime: runtime(&mut reader, written),
        pods: pods(&mut reader, written, flags),
        statics: statics::read(&mut reader, written),
        cgroups: cgroups(&mut reader, written),
        dns: dns(&mut reader, written),
        server: server(&mut reader, written, from_file),
        verbosity: flags.int("v").unwrap_or(2),
        oom_score_adj: reader.range("oomScoreAdj", written.oom_score_adj, -999, -1000, 1000),
        fail_swap_on: written.fail_swap_on.unwrap_or(true),
        fail_cgroup_v1: written.fail_cgroup_v1.unwrap_or(true),
        warnings,
    };
    if reader.mistakes.is_empty() {
        Ok(config)
    } else {
        Err(reader.mistakes)
    }
}

fn node_labels(reader: &mut Reader, flags: &Flags) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, value) in flags.pairs("node-labels").into_iter().flatten() {
        let value = value.as_str().unwrap_or_default().to_owned();
        let wrong = names::qualified_name_error(key).or_else(|| names::label_value_error(&value));
        if let Some(why) = wrong {
            reader.wrong("--node-labels", format!("{key:?}={value:?}: {why}"));
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let within = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
        let reserved = within("kubernetes.io") || within("k8s.io");
        let allowed =
            OWN_LABELS.contains(&key.as_str()) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
        if reserved && !allowed {
            reader.wrong("--node-labels", format!("unknown 'kubernetes.io' or 'k8s.io' label {key:?}: labels of these domains must be among {}, or begin with kubelet.kubernetes.io or node.kubernetes.io", OWN_LABELS.join(", ")));
        }
        labels.insert(key.clone(), value);
    }
    labels
}

fn node(reader: &mut Reader, written: &KubeletConfiguration, flags: &Flags, from_file: bool) -> NodeConfig {
    let mut ips = Vec::new();
    for text in flags
        .text("node-ip")
        .unwrap_or_default()
        .split(',')
        .filter(|t| !t.is_empty())
    {
        match text.trim().parse() {
            Ok(ip) => ips.push(ip),
            Err(_) => reader.wrong("--node-ip", format!("{text:?} is not an IP address")),
        }
    }
    let name = flags
        .text("hostname-override")
        .map(str::trim)
        .filter(|n| !n.is_empty())
        .map(str::to_lowercase);
    if let Some(why) = name.as_deref().and_then(names::dns1123_subdomain_error) {
        reader.wrong("--hostname-override", why);
    }
    let status_update = reader.time(
        "nodeStatusUpdateFrequency",
        written.node_status_update_frequency.as_deref(),
        Duration::from_secs(10),
    );
    let report_default = match written.node_status_update_frequency {
        Some(_) => status_update,
        None => Duration::from_secs(300),
    };
    let lease = reader.range(
        "nodeLeaseDurationSeconds",
        written.node_lease_duration_seconds.filter(|s| *s != 0),
        40,
        1,
        i64::from(i32::MAX),
    );
    NodeConfig {
        eviction_margin: from_file,
        name,
        ips,
        labels: node_labels(reader, flags),
        taints: written.register_with_taints.clone().unwrap_or_default(),
        register: written.register_node.unwrap_or(true),
        provider_id: written.provider_id.clone().filter(|id| !id.is_empty()),
        max_pods: reader.range("maxPods", written.max_pods, 110, 0, i64::from(i32::MAX)),
        pods_per_core: reader.range("podsPerCore", written.pods_per_core, 0, 0, i64::from(i32::MAX)),
        pod_cidr: written.pod_cidr.clone().filter(|c| !c.is_empty()),
        status_update,
        status_report: reader.time(
            "nodeStatusReportFrequency",
            written.node_status_report_frequency.as_deref(),
            report_default,
        ),
        lease_seconds: i32::try_from(lease).unwrap_or(40),
        max_images: reader.range(
            "nodeStatusMaxImages",
            written.node_status_max_images,
            50,
            -1,
            i64::from(i32::MAX),
        ),
    }
}

fn paths(written: &KubeletConfiguration, flags: &Flags) -> Paths {
    let root_dir = path(flags.text("root-dir"), ROOT_DIR);
    Paths {
        kubeconfig: flags.text("kubeconfig").filter(|p| !p.is_empty()).map(PathBuf::from),
        bootstrap_kubeconfig: flags
            .text("bootstrap-kubeconfig")
            .filter(|p| !p.is_empty())
            .map(PathBuf::from),
        cert_dir: path(flags.text("cert-dir"), CERT_DIR),
        pod_logs_dir: path(written.pod_logs_dir.as_deref(), POD_LOGS_DIR),
        cni_conf_dir: path(flags.text("cni-conf-dir"), CNI_CONF_DIR),
        cni_bin_dir: path(flags.text("cni-bin-dir"), CNI_BIN_DIR),
        root_dir,
    }
}

fn runtime(reader: &mut Reader, written: &KubeletConfiguration) -> RuntimeConfig {
    let endpoint = written
        .container_runtime_endpoint
        .as_deref()
        .filter(|e| !e.is_empty())
        .unwrap_or(RUNTIME_ENDPOINT);
    let socket = match endpoint.split_once("://") {
        Some(("unix", path)) => PathBuf::from(path),
        None if endpoint.starts_with('/') => PathBuf::from(endpoint),
        _ => {
            reader.wrong(
                "containerRuntimeEndpoint",
                format!("{endpoint:?} is not of the form unix:///path"),
            );
            PathBuf::new()
        }
    };
    let parallel = written.max_parallel_image_pulls;
    let wide = parallel.is_some_and(|n| n >= 2);
    let serial = written.serialize_image_pulls.unwrap_or(!wide);
    if serial && wide {
        reader.wrong(
            "maxParallelImagePulls",
            "cannot be larger than 1 unless serializeImagePulls is false",
        );
    }
    let parallel = reader.range("maxParallelImagePulls", parallel, 0, 1, i64::from(i32::MAX));
    RuntimeConfig {
        socket,
        request_timeout: reader.time(
            "runtimeRequestTimeout",
            written.runtime_request_timeout.as_deref(),
            Duration::from_secs(120),
        ),
        parallel_pulls: match (serial, usize::try_from(parallel).unwrap_or(0)) {
            (true, _) => Some(1),
            (false, 0) => None,
            (false, n) => Some(n),
        },
        pull_qps: reader.count("registryPullQPS", written.registry_pull_qps, 5),
        pull_burst: reader.count("registryBurst", written.registry_burst, 10),
    }
}

fn pods(reader: &mut Reader, written: &KubeletConfiguration, flags: &Flags) -> PodConfig {
    let backoff_field = "crashLoopBackOff.maxContainerRestartPeriod";
    let backoff = written.crash_loop_back_off.max_container_restart_period.as_deref();
    let crash_backoff_max = reader.time(backoff_field, backoff, Duration::from_secs(300));
    if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&crash_backoff_max) {
        reader.wrong(backoff_field, "must be between 1s and 300s");
    }
    PodConfig {
        sync_frequency: reader.time(
            "syncFrequency",
            written.sync_frequency.as_deref(),
            Duration::from_secs(60),
        ),
        crash_backoff_max,
        event_qps: reader.count("eventRecordQPS", written.event_record_qps, 50),
        event_burst: reader.count("eventBurst", written.event_burst, 100),
        seccomp_default: flags
            .bool("seccomp-default")
            .or(written.seccomp_default)
            .unwrap_or(false),
        single_process_oom_kill: written.single_process_oom_kill,
    }
}

fn reserved(reader: &mut Reader, field: &str, list: Option<&BTreeMap<String, String>>, total: &mut Reserved) {
    for (name, text) in list.into_iter().flatten() {
        let Ok(amount) = Quantity::parse(text) else {
            reader.wrong(field, format!("{name}: {text:?} is not a quantity"));
            continue;
        };
        if amount.is_negative() {
            reader.wrong(field, format!("{name}: {text:?} must not be negative"));
            continue;
        }
        match name.as_str() {
            "cpu" => total.cpu_milli += amount.milli_value(),
            "memory" => total.memory += amount.value(),
            "ephemeral-storage" => total.ephemeral_storage += amount.value(),
            "pid" => total.pids += amount.value(),
            other => reader.wrong(
                field,
                format!("{other:?} is not one of cpu, memory, ephemeral-storage, pid"),
            ),
        }
    }
}

fn cgroups(reader: &mut Reader, written: &KubeletConfiguration) -> CgroupConfig {
    let driver = match written.cgroup_driver.as_deref().unwrap_or("") {
        "" | "cgroupfs" => CgroupDriver::Cgroupfs,
        "systemd" => CgroupDriver::Systemd,
        other => {
            reader.wrong("cgroupDriver", format!("{other:?} is not one of cgroupfs, systemd"));
            CgroupDriver::Cgroupfs
        }
    };
    let root = written
        .cgroup_root
        .clone()
        .filter(|r| !r.is_empty())
        .unwrap_or_else(|| "/".into());
    if root.split('/').any(|part| part == "..") {
        reader.wrong("cgroupRoot", "must not contain '..'");
    }
    let period = reader.time(
        "cpuCFSQuotaPeriod",
        written.cpu_cfs_quota_period.as_deref(),
        Duration::from_millis(100),
    );
    if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&period) {
        reader.wrong("cpuCFSQuotaPeriod", "must be between 1ms and 1s, inclusive");
    }
    let mut total = Reserved::default();
    reserved(reader, "systemReserved", written.system_reserved.as_ref(), &mut total);
    reserved(reader, "kubeReserved", written.kube_reserved.as_ref(), &mut total);
    let per_qos = written.cgroups_per_qos.unwrap_or(true);
    let enforce = written
        .enforce_node_allocatable
        .clone()
        .unwrap_or_else(|| vec!["pods".into()]);
    for word in &enforce {
        match word.as_str() {
            "pods" | "none" => {}
            "system-reserved" | "kube-reserved" | "system-reserved-compressible" | "kube-reserved-compressible" => {
                reader.wrong(
                    "enforceNodeAllocatable",
                    format!("{word:?} is not supported by this kubelet yet"),
                );
            }
            other => reader.wrong(
                "enforceNodeAllocatable",
                format!("{other:?} is not one of none, pods, system-reserved, kube-reserved"),
            ),
        }
    }
    let enforce_pods = enforce.iter().any(|word| word == "pods");
    if enforce.iter().any(|word| word == "none") && enforce.len() > 1 {
        reader.wrong("enforceNodeAllocatable", "\"none\" must stand alone");
    }
    if enforce_pods && !per_qos && written.enforce_node_allocatable.is_some() {
        reader.wrong(
            "enforceNodeAllocatable",
            "is not supported unless cgroupsPerQOS is true",
        );
    }
    CgroupConfig {
        driver,
        root,
        per_qos,
        cpu_cfs_quota: written.cpu_cfs_quota.unwrap_or(true),
        cpu_cfs_period_us: i64::try_from(period.as_micros()).unwrap_or(100_000),
        pod_pids_limit: written.pod_pids_limit.unwrap_or(-1),
        enforce_pods: enforce_pods && per_qos,
        reserved: total,
    }
}

fn dns(reader: &mut Reader, written: &KubeletConfiguration) -> DnsConfig {
    let cluster_dns = written.cluster_dns.clone().unwrap_or_default();
    for text in &cluster_dns {
        if text.parse::<IpAddr>().is_err() {
            reader.wrong("clusterDNS", format!("{text:?} is not an IP address"));
        }
    }
    DnsConfig {
        cluster_domain: written.cluster_domain.clone().unwrap_or_default(),
        cluster_dns,
        resolv_conf: match written.resolv_conf.as_deref() {
            None => Some(PathBuf::from(RESOLV_CONF)),
            Some("") => None,
            Some(path) => Some(PathBuf::from(path)),
        },
    }
}

fn authorization(reader: &mut Reader, written: &KubeletConfiguration, from_file: bool) -> AuthorizationMode {
    let webhook = &written.authorization.webhook;
    let allowed = reader.time(
        "authorization.webhook.cacheAuthorizedTTL",
        webhook.cache_authorized_ttl.as_deref(),
        Duration::from_secs(300),
    );
    let denied = reader.time(
        "authorization.webhook.cacheUnauthorizedTTL",
        webhook.cache_unauthorized_ttl.as_deref(),
        Duration::from_secs(30),
    );
    let default = if from_file { "Webhook" } else { "AlwaysAllow" };
    match written
        .authorization
        .mode
        .as_deref()
        .filter(|m| !m.is_empty())
        .unwrap_or(default)
    {
        "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
        "Webhook" => AuthorizationMode::Webhook { allowed, denied },
        other => {
            reader.wrong(
                "authorization.mode",
                format!("{other:?} is not one of AlwaysAllow, Webhook"),
            );
            AuthorizationMode::Webhook { allowed, denied }
        }
    }
}

fn server(reader: &mut Reader, written: &KubeletConfiguration, from_file: bool) -> ServerConfig {
    let authentication = &written.authentication;
    let webhook_ttl = reader.time(
        "authentication.webhook.cacheTTL",
        authentication.webhook.cache_ttl.as_deref(),
        Duration::from_secs(120),
    );
    let tls_files = match (
        given(written.tls_cert_file.as_ref()),
        given(written.tls_private_key_file.as_ref()),
    ) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => {
            reader.wrong("tlsCertFile", "must be given together with tlsPrivateKeyFile");
            None
        }
    };
    let healthz_port = reader.port("healthzPort", written.healthz_port, 10248, 0);
    let healthz_address = reader.address(
        "healthzBindAddress",
        written.healthz_bind_address.as_deref(),
        "127.0.0.1",
    );
    ServerConfig {
        enabled: written.enable_server.unwrap_or(true),
        address: reader.address("address", written.address.as_deref(), "0.0.0.0"),
        port: reader.port("port", written.port, 10250, 1),
        healthz: (healthz_port != 0).then_some((healthz_address, healthz_port)),
        tls_files,
        tls_bootstrap: written.server_tls_bootstrap.unwrap_or(false),
        client_ca: given(authentication.x509.client_ca_file.as_ref()),
        anonymous: authentication.anonymous.enabled.unwrap_or(!from_file),
        token_webhook: authentication
            .webhook
            .enabled
            .unwrap_or(from_file)
            .then_some(webhook_ttl),
        authorization: authorization(reader, written, from_file),
        stream_idle: reader.time(
            "streamingConnectionIdleTimeout",
            written.streaming_connection_idle_timeout.as_deref(),
            Duration::from_secs(4 * 3600),
        ),
    }
}

#[cfg(test)]
mod tests;
