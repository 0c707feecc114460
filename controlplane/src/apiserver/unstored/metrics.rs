//! `/metrics`: what the process uses and what the store holds, read when asked.

use super::root;
use crate::apiserver::ApiServer;
use crate::resource::Name;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::path::Path;

/// Content type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StorageLabels {
    /// `deployments.apps`.
    resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct InflightLabels {
    request_kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResourceLabels {
    group: Name,
    resource: Name,
}

/// The metrics as OpenMetrics text.
pub(super) fn render(server: &ApiServer, proc: &Path) -> String {
    let mut metrics = Registry::default();
    register_build(&mut metrics);
    register_objects(server, &mut metrics);
    server.metrics().register(&mut metrics);
    server.gate().register(server.reader(), &mut metrics);
    server
        .flow()
        .register(metrics.sub_registry_with_prefix("apiserver_flowcontrol"));
    let inflight = Family::<InflightLabels, Gauge>::default();
    let (reads, writes) = server.inflight();
    for (request_kind, count) in [("readOnly", reads), ("mutating", writes)] {
        let labels = InflightLabels { request_kind };
        inflight.get_or_create(&labels).set(whole(count));
    }
    metrics.register(
        "apiserver_current_inflight_requests",
        "Number of currently used inflight request limit of this apiserver per request kind",
        inflight,
    );
    register_process(&mut metrics, proc);
    text(&metrics)
}

/// The metrics of a process without an API server.
pub(crate) fn render_part(own: &crate::metrics::Metrics, proc: &Path) -> String {
    let mut metrics = Registry::default();
    register_build(&mut metrics);
    own.register(&mut metrics);
    register_process(&mut metrics, proc);
    text(&metrics)
}

fn register_build(metrics: &mut Registry) {
    let build = vec![
        ("major", root::MAJOR.to_owned()),
        ("minor", root::MINOR.to_owned()),
        ("git_version", root::git_version()),
    ];
    metrics.register("kubernetes_build", "What is running", Info::new(build));
}

fn register_process(metrics: &mut Registry, proc: &Path) {
    if let Some(usage) = usage(proc) {
        let resident = Gauge::<i64>::default();
        resident.set(usage.resident_bytes);
        metrics.register(
            "process_resident_memory_bytes",
            "Resident memory size in bytes",
            resident,
        );
        let cpu = ConstCounter::new(usage.cpu_seconds);
        metrics.register(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds",
            cpu,
        );
    }
    if let Ok(own) = tokio::runtime::Handle::try_current() {
        let tasks = Gauge::<i64>::default();
        tasks.set(whole(own.metrics().num_alive_tasks()));
        metrics.register("process_tasks", "Asynchronous tasks that have not ended", tasks);
    }
}

fn text(metrics: &Registry) -> String {
    let mut text = String::new();
    if prometheus_client::encoding::text::encode(&mut text, metrics).is_err() {
        tracing::error!("metrics cannot be written to memory");
    }
    text
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Objects by resource, under upstream's present name and the one it had before.
fn register_objects(server: &ApiServer, metrics: &mut Registry) {
    let objects = Family::<ResourceLabels, Gauge>::default();
    let stored = Family::<StorageLabels, Gauge>::default();
    for kind in server.registry().kinds().filter(|kind| kind.is_stored()) {
        let count = whole(server.reader().count(&kind.group, &kind.plural));
        let labels = ResourceLabels {
            group: kind.group.clone(),
            resource: kind.plural.clone(),
        };
        objects.get_or_create(&labels).set(count);
        let resource = match &*kind.group {
            "" => kind.plural.to_string(),
            group => format!("{}.{group}", kind.plural),
        };
        stored.get_or_create(&StorageLabels { resource }).set(count);
    }
    metrics.register(
        "apiserver_resource_objects",
        "Number of stored objects by resource",
        objects,
    );
    metrics.register(
        "apiserver_storage_objects",
        "Number of stored objects at the time of last check split by kind",
        stored,
    );
}

struct Usage {
    resident_bytes: i64,
    cpu_seconds: f64,
}

/// Reads `self/stat` under the given /proc.
fn usage(proc: &Path) -> Option<Usage> {
    let stat = std::fs::read_to_string(proc.join("self/stat")).ok()?;
    // The name in parentheses may hold anything; fields are counted after it (field 3 is the first).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    /// Linux reports process times in hundredths of a second to user space on every architecture.
    const TICKS_PER_SECOND: f64 = 100.0;
    const PAGE_BYTES: i64 = 4096;
    let ticks = number(14)? + number(15)?;
    Some(Usage {
        resident_bytes: number(24)? * PAGE_BYTES,
        cpu_seconds: ticks as f64 / TICKS_PER_SECOND,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_past_an_odd_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("self")).unwrap();
        let fields: Vec<String> = (3..=52).map(|field: u32| field.to_string()).collect();
        let stat = format!("1 (a ) b) {}", fields.join(" "));
        std::fs::write(dir.path().join("self/stat"), stat).unwrap();
        let usage = usage(dir.path()).unwrap();
        assert_eq!(usage.resident_bytes, 24 * 4096);
        assert!((usage.cpu_seconds - 0.29).abs() < 1e-9);
    }
}
