//! The page against the contract's list of names.

use super::*;
use k8s_openapi::api::core::v1::ResourceRequirements;
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

/// Upstream's metrics, by tabs: page, name, type, stability, labels, buckets, and when ours has them.
const LIST: &str = include_str!("../../../tests/metrics.tsv");

/// The rows of a page that are built, but those that are written without the registry, and the responder's: its crate has
/// them against the same list.
fn built(page: &'static str) -> impl Iterator<Item = [&'static str; 7]> {
    let rows = LIST.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        <[&str; 7]>::try_from(fields).expect("seven fields")
    });
    let apart = |name: &str| {
        let starts = ["process_", "coredns_", "skiff_dns_"];
        starts.iter().any(|start| name.starts_with(start))
            || [
                "kubernetes_feature_enabled",
                "kubelet_container_log_filesystem_used_bytes",
            ]
            .contains(&name)
    };
    rows.filter(move |row| row[0] == page && matches!(row[6], "always" | "busy" | "once") && !apart(row[1]))
}

fn cpu() -> ResourceRequirements {
    let resources = serde_json::json!({"requests": {"cpu": "1"}});
    serde_json::from_value(resources).expect("resources")
}

/// Counts everything once, as a busy node does.
fn busy(metrics: &Metrics) {
    let second = Duration::from_secs(1);
    metrics.runtime.call("version", second, false);
    metrics.runtime.sandbox("", true, second, false);
    metrics.runtime.pulled(1, second);
    metrics.runtime.image_collected("space");
    metrics.providers.configured("sha256:0");
    metrics.providers.ran("ecr", second, false);
    let pods = &metrics.pods;
    pods.runs(Start {
        since_created: Some(second),
        own_network: true,
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
    pods.eviction_stats_age("memory.available", second);
    pods.preempted("cpu");
    pods.preempted("example.com/strangers");
    pods.status_written(second);
    pods.relisted(second, Some(second), Some(1.0));
    pods.looked(second);
    pods.worked(Work::Sync, second);
    pods.sleep_cut_short();
    pods.container_ended(Ended {
        kind: crate::pod_object::Kind::Sidecar,
        exit_code: 137,
        reason: "OOMKilled",
    });
    for number in 0..10_000 {
        let reason = format!("reason {number}");
        pods.container_ended(Ended {
            kind: crate::pod_object::Kind::Regular,
            exit_code: 256 + number,
            reason: &reason,
        });
    }
    metrics.node.runtime_is_old();
    metrics.resizes.done(second, true);
    metrics.resizes.infeasible("static_pod");
    metrics.resizes.accepted("pods_removed");
    metrics.resizes.requested(None, Some(&cpu()));
    metrics.dra.handled("PrepareResources", true, second);
    metrics
        .dra
        .called("d", "/v1.DRAPlugin/NodePrepareResources".to_owned(), "OK", second);
    metrics.dra.in_use((1, [("d".to_owned(), 1)].into()));
    let pinning = &metrics.pinning;
    pinning.pinned(true, true);
    pinning.pinned(false, true);
    pinning.shared_pool(3);
    pinning.exclusive(1, [(0, 1)].into_iter());
    pinning.admitted(second);
    pinning.expect(true, true);
    pinning.misaligned();
    metrics.devices.registered("example.com/device");
    let socket = || std::iter::once(std::path::Path::new("/run/d.sock"));
    metrics.plugins.are(socket(), socket());
    metrics.devices.allocated("example.com/device", second);
    for call in [
        PodResourcesCall::List,
        PodResourcesCall::Get,
        PodResourcesCall::Allocatable,
    ] {
        metrics.pod_resources.called("v1", call, true);
    }
    let (mount, plugin) = (VolumeOperation::Mount, "kubernetes.io/empty-dir");
    metrics.volumes.did(mount, plugin, second, true);
    metrics.volumes.images(1, 2, Some(true));
    pods.cgroup("create", second);
    metrics.node.memory_kept(crate::cgroup::Reservation { min: 1, low: 1 });
    drop(metrics.http_request(Port::ReadWrite, "GET", "/pods"));
}

#[tokio::test(start_paused = true)]
async fn a_busy_node_has_every_metric_that_the_list_does_not_name_as_absent() {
    let metrics = Metrics::new("node-a");
    busy(&metrics);
    let text = metrics.text(&PodView::default());
    let mut declared: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for [_, name, kind, stability, labels, buckets, _] in built("/metrics") {
        // Of volumes and requests nothing is counted here: no pods, no client.
        let apart = name.starts_with("rest_client_") || name == "volume_manager_total_volumes";
        let is_there = declared.remove(name);
        assert!(is_there || apart, "{name} in {text}");
        if !is_there {
            continue;
        }
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is no {kind}");
        assert!(
            text.contains(&format!("# HELP {name} [{stability}] ")),
            "{name} is not {stability}"
        );
        let is_its = |line: &&str| {
            let rest = line.strip_prefix(name).unwrap_or("-");
            rest.starts_with(['{', ' ']) || (kind == "histogram" && rest.starts_with("_bucket"))
        };
        let samples: Vec<&str> = text.lines().filter(is_its).collect();
        assert!(apart || !samples.is_empty(), "{name} in {text}");
        let has = |sample: &str| {
            let inner = sample.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
            let pairs = inner.map(|(inner, _)| inner).unwrap_or_default().split("\",");
            let names = pairs
                .filter_map(|pair| pair.split_once('='))
                .map(|(label, _)| label.to_owned());
            names.filter(|label| label != "le").collect::<BTreeSet<String>>()
        };
        let wanted: BTreeSet<String> = labels
            .split(',')
            .filter(|label| *label != "-")
            .map(str::to_owned)
            .collect();
        for sample in &samples {
            assert_eq!(has(sample), wanted, "{sample}");
        }
        let samples = samples.iter().filter(|_| kind == "histogram");
        let bounds: BTreeSet<&str> = samples
            .filter_map(|line| line.split("le=\"").nth(1)?.split('"').next())
            .collect();
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let mut bounds: Vec<f64> = bounds
            .into_iter()
            .filter(|bound| *bound != "+Inf")
            .map(number)
            .collect();
        bounds.sort_by(f64::total_cmp);
        let wanted: Vec<f64> = buckets.split(',').filter(|bound| *bound != "-").map(number).collect();
        assert_eq!(bounds, wanted, "{name}");
    }
    assert!(declared.is_empty(), "upstream has no such metrics: {declared:?}");
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
        r#"kubelet_pod_worker_duration_seconds_count{operation_type="sync"} 1"#,
        r#"kubelet_terminated_containers_total{container_type="init_container",exit_code="137",reason="OOMKilled"} 1"#,
        r#"kubelet_terminated_containers_total{container_type="container",exit_code="-1",reason="Error"} 10000"#,
        r#"kubelet_cri_losing_support{version="1.37.0"} 1"#,
        r#"kubelet_container_requested_resizes_total{resource="cpu",requirement="requests",operation="add"} 1"#,
        r#"kubelet_pod_resize_duration_milliseconds_sum{success="true"} 1000"#,
        r#"storage_operation_duration_seconds_count{volume_plugin="kubernetes.io/empty-dir",operation_name="volume_mount",status="success",migrated="false"} 1"#,
        "kubelet_image_volume_requested_total 1",
        "kubelet_image_volume_mounted_succeed_total 2",
        "kubelet_first_network_pod_start_sli_duration_seconds 1",
        r#"kubelet_evictions{eviction_signal="emptydirfs.limit"} 1"#,
        r#"kubelet_eviction_stats_age_seconds_count{eviction_signal="memory.available"} 1"#,
        r#"kubelet_preemptions{preemption_signal="cpu"} 1"#,
        r#"kubelet_preemptions{preemption_signal="other"} 1"#,
        "kubelet_pleg_discard_events 0",
        "kubelet_certificate_manager_client_ttl_seconds +Inf",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
}
