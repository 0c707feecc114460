//! `/metrics/resource`: what pods use, with the time of each sample.

use crate::cgroup::Cgroups;
use crate::pod::view::PodView;
use jiff::Timestamp;
use std::fmt::Write;

/// Prometheus text of the node's and the pods' CPU and memory.
pub(super) async fn resource(pods: &PodView, cgroups: &Cgroups, now: Timestamp) -> String {
    let at = now.as_millisecond();
    let mut cpu = String::new();
    let mut memory = String::new();
    let mut failed = 0;
    for snapshot in pods.list().iter().filter(|s| s.active) {
        let meta = &snapshot.pod.metadata;
        let labels = format!(
            "{{namespace={:?},pod={:?}}}",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        );
        let Ok(usage) = cgroups.usage(Some((*snapshot.pod).clone())).await else {
            failed = 1;
            continue;
        };
        if let Some(nanos) = usage.cpu_nanos {
            let _ = writeln!(cpu, "pod_cpu_usage_seconds_total{labels} {} {at}", nanos as f64 / 1e9);
        }
        if let Some(bytes) = usage.working_set {
            let _ = writeln!(memory, "pod_memory_working_set_bytes{labels} {bytes} {at}");
        }
    }
    format!(
        "# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds\n\
         # TYPE pod_cpu_usage_seconds_total counter\n{cpu}\
         # HELP pod_memory_working_set_bytes [STABLE] Current working set of the pod in bytes\n\
         # TYPE pod_memory_working_set_bytes gauge\n{memory}\
         # HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise\n\
         # TYPE resource_scrape_error gauge\nresource_scrape_error {failed}\n"
    )
}
