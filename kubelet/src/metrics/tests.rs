//! The page against the contract's list of names.

use super::*;
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn names_are_upstreams() {
    let metrics = Metrics::new("node-a");
    let text = metrics.text(&PodView::default());
    let build = text.lines().find(|line| line.starts_with("kubernetes_build_info{"));
    for label in ["git_commit", "git_tree_state", "build_date", "go_version", "compiler"] {
        assert!(
            build.is_some_and(|line| line.contains(&format!("{label}=\""))),
            "{label}"
        );
    }
    for line in ["kubelet_running_pods 0", "kubelet_node_name{node=\"node-a\"} 1"] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// Every name of the contract's §13, but those of volumes.
const PRESENT: &[&str] = &[
    "certificate_manager_client_ttl_seconds",
    "certificate_manager_server_ttl_seconds",
    "active_pods",
    "admission_rejections_total",
    "cgroup_manager_duration_seconds",
    "cgroup_version",
    "credential_provider_config_info",
    "credential_provider_plugin_duration",
    "credential_provider_plugin_errors_total",
    "desired_pods",
    "evictions",
    "http_inflight_requests",
    "http_requests_duration_seconds",
    "http_requests_total",
    "image_pull_duration_seconds",
    "lifecycle_handler_http_fallbacks_total",
    "mirror_pods",
    "node_name",
    "node_startup_duration_seconds",
    "node_startup_post_registration_duration_seconds",
    "node_startup_pre_kubelet_duration_seconds",
    "node_startup_pre_registration_duration_seconds",
    "node_startup_registration_duration_seconds",
    "orphaned_runtime_pods_total",
    "pleg_discard_events",
    "pleg_last_seen_seconds",
    "pleg_pod_relist_duration_seconds",
    "pleg_relist_duration_seconds",
    "pleg_relist_interval_seconds",
    "pod_in_progress_resizes",
    "pod_pending_resizes",
    "pod_start_duration_seconds",
    "pod_start_sli_duration_seconds",
    "pod_start_total_duration_seconds",
    "pod_status_sync_duration_seconds",
    "pod_worker_start_duration_seconds",
    "restarted_pods_total",
    "run_podsandbox_duration_seconds",
    "run_podsandbox_errors_total",
    "running_containers",
    "running_pods",
    "runtime_operations_duration_seconds",
    "runtime_operations_errors_total",
    "runtime_operations_total",
    "started_containers_errors_total",
    "started_containers_total",
    "started_pods_errors_total",
    "started_pods_total",
    "started_user_namespaced_pods_errors_total",
    "started_user_namespaced_pods_total",
    "working_pods",
];

/// What of the contract's list is absent, and what it waits for.
const ABSENT: &[(&str, &str)] = &[
    ("container_aligned_compute_resources_count", "topology manager"),
    ("container_aligned_compute_resources_failure_count", "topology manager"),
    ("container_requested_resizes_total", "not counted yet"),
    ("cpu_manager_allocation_per_numa", "cpu manager"),
    ("cpu_manager_exclusive_cpu_allocation_count", "cpu manager"),
    ("cpu_manager_pinning_errors_total", "cpu manager"),
    ("cpu_manager_pinning_requests_total", "cpu manager"),
    ("cpu_manager_shared_pool_size_millicores", "cpu manager"),
    (
        "cri_losing_support",
        "told in the log: the runtime's version is not judged",
    ),
    ("device_plugin_alloc_duration_seconds", "device plugins"),
    ("device_plugin_registration_total", "device plugins"),
    ("eviction_stats_age_seconds", "eviction"),
    ("first_network_pod_start_sli_duration_seconds", "not told apart"),
    ("graceful_shutdown_end_time_seconds", "graceful shutdown"),
    ("graceful_shutdown_start_time_seconds", "graceful shutdown"),
    ("image_garbage_collected_total", "image collection"),
    ("image_volume_mounted_errors_total", "image volumes"),
    ("image_volume_mounted_succeed_total", "image volumes"),
    ("image_volume_requested_total", "image volumes"),
    ("memory_manager_pinning_errors_total", "memory manager"),
    ("memory_manager_pinning_requests_total", "memory manager"),
    ("pod_deferred_accepted_resizes_total", "not counted yet"),
    ("pod_infeasible_resizes_total", "not counted yet"),
    ("pod_resize_duration_milliseconds", "not counted yet"),
    ("pod_resources_endpoint_requests_total", "pod resources"),
    (
        "pod_worker_duration_seconds",
        "a turn of a worker waits for nothing, so it has no duration of upstream's kind",
    ),
    ("preemptions", "preemption"),
    ("terminated_containers_total", "not counted yet"),
    ("topology_manager_admission_duration_ms", "topology manager"),
    ("topology_manager_admission_errors_total", "topology manager"),
    ("topology_manager_admission_requests_total", "topology manager"),
];

/// Counts everything once, as a busy node does.
fn busy(metrics: &Metrics) {
    let second = Duration::from_secs(1);
    metrics.runtime.call("version", second, false);
    metrics.runtime.sandbox("", true, second, false);
    metrics.runtime.pulled(1, second);
    metrics.providers.configured("sha256:0");
    metrics.providers.ran("ecr", second, false);
    let pods = &metrics.pods;
    pods.runs(Start {
        since_created: Some(second),
        ..Start::default()
    });
    pods.admitted(1);
    pods.rejected("OutOfcpu");
    pods.worker_started(second);
    pods.restarted(true);
    pods.orphaned();
    pods.container_started(crate::pod_object::Kind::Regular, Some("CreateContainerError"));
    pods.hook_fell_back();
    pods.evicted("emptydirfs.limit");
    pods.status_written(second);
    pods.relisted(second, Some(second), Some(1.0));
    pods.looked(second);
    pods.cgroup("create", second);
    drop(metrics.http_request(Port::ReadWrite, "GET", "/pods"));
}

#[tokio::test(start_paused = true)]
async fn a_busy_node_has_every_metric_that_is_not_named_as_absent() {
    let metrics = Metrics::new("node-a");
    busy(&metrics);
    let text = metrics.text(&PodView::default());
    let declared: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let sampled = |name: &str| {
        let is_its = |line: &&str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ', '_']))
        };
        text.lines().any(|line| is_its(&line))
    };
    for name in PRESENT {
        let name = format!("kubelet_{name}");
        assert!(declared.contains(name.as_str()) && sampled(&name), "{name} in {text}");
    }
    for (name, why) in ABSENT {
        let name = format!("kubelet_{name}");
        assert!(
            !declared.contains(name.as_str()),
            "{name} is there, so it waits no longer for {why}"
        );
    }
    for name in declared.iter().filter_map(|name| name.strip_prefix("kubelet_")) {
        let known =
            PRESENT.contains(&name) || ["containers_per_pod_count", "managed_ephemeral_containers"].contains(&name);
        assert!(known, "{name} is in no list");
    }
}

#[tokio::test(start_paused = true)]
async fn labels_are_upstreams() {
    let metrics = Metrics::new("node-a");
    busy(&metrics);
    let text = metrics.text(&PodView::default());
    for line in [
        r#"kubelet_runtime_operations_total{operation_type="version"} 1"#,
        r#"kubelet_runtime_operations_errors_total{operation_type="version"} 1"#,
        r#"kubelet_runtime_operations_duration_seconds_bucket{le="0.0125",operation_type="version"} 0"#,
        r#"kubelet_run_podsandbox_errors_total{runtime_handler=""} 1"#,
        r#"kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"} 1"#,
        r#"kubelet_credential_provider_plugin_errors_total{plugin_name="ecr"} 1"#,
        r#"kubelet_credential_provider_plugin_duration_count{plugin_name="ecr"} 1"#,
        r#"kubelet_credential_provider_config_info{hash="sha256:0"} 1"#,
        r#"kubelet_admission_rejections_total{reason="OutOfcpu"} 1"#,
        r#"kubelet_started_containers_errors_total{container_type="container",code="CreateContainerError"} 1"#,
        r#"kubelet_working_pods{lifecycle="sync",config="desired",static=""} 0"#,
        r#"kubelet_desired_pods{static="true"} 0"#,
        r#"kubelet_restarted_pods_total{static="true"} 1"#,
        r#"kubelet_evictions{eviction_signal="emptydirfs.limit"} 1"#,
        "kubelet_pleg_discard_events 0",
        "kubelet_certificate_manager_client_ttl_seconds +Inf",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
}
