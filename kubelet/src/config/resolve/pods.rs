//! Paths, the runtime, pods and what their resolver files are made from.

use super::{Reader, images};
use crate::admission::sysctl;
use crate::config::{DnsConfig, Flags, KubeletConfiguration, Paths, PodConfig, RuntimeConfig};
use crate::user_namespace::IDS_UNIT;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const ROOT_DIR: &str = "/var/lib/kubelet";
const CERT_DIR: &str = "/var/lib/kubelet/pki";
const POD_LOGS_DIR: &str = "/var/log/pods";
const CNI_CONF_DIR: &str = "/etc/cni/net.d";
const CNI_BIN_DIR: &str = "/opt/cni/bin";
const RESOLV_CONF: &str = "/etc/resolv.conf";
const OPEN_FILES: i64 = 1_000_000;
const RUNTIME_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

fn path(text: Option<&str>, default: &str) -> PathBuf {
    PathBuf::from(text.filter(|t| !t.is_empty()).unwrap_or(default))
}

pub(super) fn paths(written: &KubeletConfiguration, flags: &Flags) -> Paths {
    let root_dir = path(flags.text("root-dir"), ROOT_DIR);
    Paths {
        kubeconfig: flags.text("kubeconfig").filter(|p| !p.is_empty()).map(PathBuf::from),
        bootstrap_kubeconfig: flags
            .text("bootstrap-kubeconfig")
            .filter(|p| !p.is_empty())
            .map(PathBuf::from),
        cert_dir: path(flags.text("cert-dir"), CERT_DIR),
        pod_logs_dir: path(written.pod_logs_dir.as_deref(), POD_LOGS_DIR),
        lock_file: flags.text("lock-file").filter(|p| !p.is_empty()).map(PathBuf::from),
        cni_conf_dir: path(flags.text("cni-conf-dir"), CNI_CONF_DIR),
        cni_bin_dir: path(flags.text("cni-bin-dir"), CNI_BIN_DIR),
        cni_plugins: flags.text("cni-plugins").map(PathBuf::from),
        root_dir,
    }
}

fn socket(reader: &mut Reader, field: &str, endpoint: &str) -> PathBuf {
    match endpoint.split_once("://") {
        Some(("unix", path)) => PathBuf::from(path),
        None if endpoint.starts_with('/') => PathBuf::from(endpoint),
        _ => {
            reader.wrong(field, format!("{endpoint:?} is not of the form unix:///path"));
            PathBuf::new()
        }
    }
}

pub(super) fn open_files(reader: &mut Reader, written: &KubeletConfiguration) -> u64 {
    // Zero is the unset value of upstream's file (its defaults, v1beta1), not a kubelet that may open nothing.
    let asked = written.max_open_files.filter(|files| *files != 0);
    let files = reader.range("maxOpenFiles", asked, OPEN_FILES, 0, i64::MAX);
    u64::try_from(files).unwrap_or_default()
}

/// `allowedUnsafeSysctls`: names of the kernel, with dots or slashes, perhaps with `*` at the end.
fn unsafe_sysctls(reader: &mut Reader, written: &KubeletConfiguration) -> Vec<String> {
    let names = written.allowed_unsafe_sysctls.clone().unwrap_or_default();
    for name in &names {
        if let Some(why) = sysctl::pattern_mistake(name) {
            reader.wrong("allowedUnsafeSysctls", why);
        }
    }
    names
}

pub(super) fn runtime(reader: &mut Reader, written: &KubeletConfiguration, flags: &Flags) -> RuntimeConfig {
    let endpoint = written
        .container_runtime_endpoint
        .as_deref()
        .filter(|e| !e.is_empty())
        .unwrap_or(RUNTIME_ENDPOINT);
    let socket = socket(reader, "containerRuntimeEndpoint", endpoint);
    let images = written.image_service_endpoint.as_deref().filter(|e| !e.is_empty());
    let image_socket = images.map(|endpoint| self::socket(reader, "imageServiceEndpoint", endpoint));
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
        image_socket: image_socket.filter(|images| *images != socket),
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
        image_verification: images::verification(reader, written),
        credential_providers: images::credential_providers(written, flags),
        pull_qps: reader.count("registryPullQPS", written.registry_pull_qps, 5),
        pull_burst: reader.count("registryBurst", written.registry_burst, 10),
    }
}

pub(super) fn pods(reader: &mut Reader, written: &KubeletConfiguration, flags: &Flags) -> PodConfig {
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
        allowed_unsafe_sysctls: unsafe_sysctls(reader, written),
        single_process_oom_kill: written.single_process_oom_kill,
        ids_per_pod: ids_per_pod(reader, written),
        fs_quotas: written.fs_quotas,
    }
}

/// `userNamespaces.idsPerPod`, whose rules are upstream's.
fn ids_per_pod(reader: &mut Reader, written: &KubeletConfiguration) -> u32 {
    let field = "userNamespaces.idsPerPod";
    let asked = written.user_namespaces.ids_per_pod.unwrap_or(i64::from(IDS_UNIT));
    match u32::try_from(asked) {
        Ok(ids) if ids < IDS_UNIT => reader.wrong(field, format!("{ids} must not be less than {IDS_UNIT}")),
        Ok(ids) if !ids.is_multiple_of(IDS_UNIT) => {
            reader.wrong(field, format!("{ids} must be a multiple of {IDS_UNIT}"));
        }
        Ok(ids) => return ids,
        Err(_) => reader.wrong(field, format!("{asked} must be between {IDS_UNIT} and {}", u32::MAX)),
    }
    IDS_UNIT
}

pub(super) fn dns(reader: &mut Reader, written: &KubeletConfiguration) -> DnsConfig {
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
