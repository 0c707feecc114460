use super::*;

#[test]
fn bounds_are_upstreams() {
    let sync = sync_bounds();
    assert_eq!((sync.len(), sync[0], sync[14]), (15, 0.001, 16.384));
    let programming = programming_bounds();
    assert_eq!(programming.len(), 81);
    assert_eq!(programming[..5], [0.0, 0.25, 0.5, 1.0, 2.0]);
    assert_eq!(programming[61..63], [59.0, 60.0]);
    assert_eq!(
        programming[73..],
        [115.0, 120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0]
    );
}

#[test]
fn what_is_told_is_in_the_text_under_upstreams_names() {
    let at = |seconds: i64, millis: i32| Timestamp::new(seconds, millis * 1_000_000).unwrap();
    let metrics = Metrics::new(&["IPv4", "IPv6"], at(1000, 0));
    let before = metrics.text();
    assert!(
        !before.contains("sync_proxy_rules_duration_seconds") && !before.contains("last_timestamp"),
        "{before}"
    );
    metrics.changed(2, 3, &[at(999, 0), at(1000, 700)]);
    metrics.queued(at(1000, 500));
    let waiting = metrics.text();
    assert!(
        waiting.contains("kubeproxy_sync_proxy_rules_endpoint_changes_pending 3\n"),
        "{waiting}"
    );
    metrics.synced(Duration::from_millis(3), true, at(1001, 0));
    metrics.synced(Duration::from_millis(1), false, at(1002, 0));
    metrics.failed();
    metrics.swept("IPv6", Duration::from_millis(2), 7);
    metrics.swept("IPv5", Duration::from_millis(2), 7);
    metrics.no_local_endpoints(|family| if family == "IPv4" { (1, 2) } else { (0, 0) });
    metrics.probed(Probe::Livez, 503);
    let text = metrics.text();
    for line in [
        "# HELP kubeproxy_sync_proxy_rules_duration_seconds [ALPHA] SyncProxyRules latency in seconds\n# TYPE kubeproxy_sync_proxy_rules_duration_seconds histogram\n",
        "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.001\"} 1\n",
        "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.004\"} 2\n",
        "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv6\",le=\"+Inf\"} 2\n",
        "kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"} 0.004\n",
        "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1\n",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.001\"} 1\n",
        "kubeproxy_network_programming_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.25\"} 0\n",
        "kubeproxy_network_programming_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.5\"} 1\n",
        "kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"} 1\n",
        "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"} 0\n",
        "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv6\"} 7\n",
        "kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family=\"IPv6\"} 1\n",
        "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0\n",
        "kubeproxy_sync_proxy_rules_endpoint_changes_total 3\n",
        "kubeproxy_sync_proxy_rules_service_changes_total 2\n",
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"} 1000.5\n",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"} 1002\n",
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 1\n",
        "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total{ip_family=\"IPv4\"} 0\n",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=\"IPv4\",traffic_policy=\"external\"} 2\n",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=\"IPv4\",traffic_policy=\"internal\"} 1\n",
        "kubeproxy_proxy_livez_total{code=\"503\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("proxy_healthz_total"), "nobody asked");
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn times_of_changes_are_bounded_until_they_are_written() {
    let (begun, metrics) = (Timestamp::UNIX_EPOCH, Metrics::new(&["IPv4"], Timestamp::UNIX_EPOCH));
    for _ in 0..3 {
        metrics.changed(0, 1, &vec![begun; TRIGGERS_MAX / 2 + 1]);
    }
    assert_eq!(metrics.lock().triggers.len(), TRIGGERS_MAX);
    metrics.synced(Duration::ZERO, false, begun);
    assert!(metrics.lock().triggers.is_empty());
}
