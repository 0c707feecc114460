//! The numbers as scrapers read them: Prometheus' classic format (0.0.4). Pure.

use super::{Histogram, Numbers, programming_bounds, sync_bounds};
use std::fmt::Write;

/// A metric's samples.
enum Samples {
    /// Labels and value.
    Counter(Vec<(String, f64)>),
    Gauge(Vec<(String, f64)>),
    /// Labels and values, with their bounds.
    Histogram(Vec<(String, Histogram)>, Vec<f64>),
}

/// All metrics, in the order of their names, with what upstream says of them.
pub(super) fn render(numbers: &Numbers, families: &[&str]) -> String {
    use Samples::{Counter, Gauge};
    let label = |family: &str| format!("ip_family=\"{family}\"");
    let one = |value: u64| vec![(String::new(), value as f64)];
    let each = |value: f64| families.iter().map(|family| (label(family), value)).collect::<Vec<_>>();
    let set = |value: f64| if value > 0.0 { each(value) } else { Vec::new() };
    let codes = |counts: &std::collections::BTreeMap<u16, u64>| {
        let sample = |(code, count): (&u16, &u64)| (format!("code=\"{code}\""), *count as f64);
        Counter(counts.iter().map(sample).collect())
    };
    let spread = |histogram: &Histogram, bounds| {
        let seen = families.iter().filter(|_| histogram.count > 0);
        Samples::Histogram(seen.map(|family| (label(family), histogram.clone())).collect(), bounds)
    };
    let by_family = |histograms: &[Histogram]| {
        let seen = families
            .iter()
            .zip(histograms)
            .filter(|(_, histogram)| histogram.count > 0);
        seen.map(|(family, histogram)| (label(family), histogram.clone()))
            .collect()
    };
    let deleted = families.iter().zip(&numbers.conntrack_deleted);
    let no_local = families
        .iter()
        .zip(&numbers.no_local)
        .flat_map(|(family, (internal, external))| {
            let sample =
                |policy, count: &u64| (format!("{},traffic_policy=\"{policy}\"", label(family)), *count as f64);
            [sample("external", external), sample("internal", internal)]
        });
    let table = [
        (
            "conntrack_reconciler_deleted_entries_total",
            "Cumulative conntrack flows deleted by conntrack reconciler",
            Counter(deleted.map(|(family, count)| (label(family), *count as f64)).collect()),
        ),
        (
            "conntrack_reconciler_sync_duration_seconds",
            "ReconcileConntrackFlowsLatency latency in seconds",
            Samples::Histogram(by_family(&numbers.conntrack_seconds), sync_bounds()),
        ),
        (
            "network_programming_duration_seconds",
            "In Cluster Network Programming Latency in seconds",
            spread(&numbers.programming_seconds, programming_bounds()),
        ),
        (
            "proxy_healthz_total",
            "Cumulative proxy healthz HTTP status",
            codes(&numbers.healthz),
        ),
        (
            "proxy_livez_total",
            "Cumulative proxy livez HTTP status",
            codes(&numbers.livez),
        ),
        (
            "sync_full_proxy_rules_duration_seconds",
            "SyncProxyRules latency in seconds for full resyncs",
            spread(&numbers.full_seconds, sync_bounds()),
        ),
        (
            "sync_partial_proxy_rules_duration_seconds",
            "SyncProxyRules latency in seconds for partial resyncs",
            spread(&numbers.partial_seconds, sync_bounds()),
        ),
        (
            "sync_proxy_rules_duration_seconds",
            "SyncProxyRules latency in seconds",
            spread(&numbers.sync_seconds, sync_bounds()),
        ),
        (
            "sync_proxy_rules_endpoint_changes_pending",
            "Pending proxy rules Endpoint changes",
            Gauge(one(numbers.endpoint_changes_pending)),
        ),
        (
            "sync_proxy_rules_endpoint_changes_total",
            "Cumulative proxy rules Endpoint changes",
            Counter(one(numbers.endpoint_changes)),
        ),
        (
            "sync_proxy_rules_last_queued_timestamp_seconds",
            "The last time a sync of proxy rules was queued",
            Gauge(set(numbers.last_queued)),
        ),
        (
            "sync_proxy_rules_last_timestamp_seconds",
            "The last time proxy rules were successfully synced",
            Gauge(set(numbers.last_synced)),
        ),
        (
            "sync_proxy_rules_nftables_cleanup_failures_total",
            "Cumulative proxy nftables cleanup failures",
            Counter(each(0.0)),
        ),
        (
            "sync_proxy_rules_nftables_sync_failures_total",
            "Cumulative proxy nftables sync failures",
            Counter(each(numbers.sync_failures as f64)),
        ),
        (
            "sync_proxy_rules_no_local_endpoints_total",
            "Number of services with a Local traffic policy and no endpoints",
            Gauge(no_local.collect()),
        ),
        (
            "sync_proxy_rules_service_changes_pending",
            "Pending proxy rules Service changes",
            Gauge(one(numbers.service_changes_pending)),
        ),
        (
            "sync_proxy_rules_service_changes_total",
            "Cumulative proxy rules Service changes",
            Counter(one(numbers.service_changes)),
        ),
    ];
    let mut out = String::with_capacity(8 << 10);
    for (name, help, samples) in table {
        write(&mut out, &format!("kubeproxy_{name}"), help, &samples);
    }
    out
}

fn write(out: &mut String, name: &str, help: &str, samples: &Samples) {
    let (kind, is_empty) = match samples {
        Samples::Counter(list) => ("counter", list.is_empty()),
        Samples::Gauge(list) => ("gauge", list.is_empty()),
        Samples::Histogram(list, _) => ("histogram", list.is_empty()),
    };
    if is_empty {
        return;
    }
    let _ = write!(out, "# HELP {name} [ALPHA] {help}\n# TYPE {name} {kind}\n");
    match samples {
        Samples::Counter(list) | Samples::Gauge(list) => {
            for (labels, value) in list {
                let _ = match labels.as_str() {
                    "" => writeln!(out, "{name} {value}"),
                    labels => writeln!(out, "{name}{{{labels}}} {value}"),
                };
            }
        }
        Samples::Histogram(list, bounds) => {
            for (labels, histogram) in list {
                for (bound, count) in bounds.iter().zip(&histogram.buckets) {
                    let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
                }
                let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", histogram.count);
                let _ = writeln!(out, "{name}_sum{{{labels}}} {}", histogram.sum);
                let _ = writeln!(out, "{name}_count{{{labels}}} {}", histogram.count);
            }
        }
    }
}
