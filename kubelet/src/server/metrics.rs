//! `/metrics/resource`: what the node, pods and containers use, with the time of each sample.

use super::Server;
use crate::host::load::Load;
use crate::id::PodUid;
use crate::pod::view::PodSnapshot;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// A family of samples.
pub(super) struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    lines: String,
}

impl Family {
    pub(super) fn new(name: &'static str, kind: &'static str, help: &'static str) -> Self {
        let lines = String::new();
        Self {
            name,
            kind,
            help,
            lines,
        }
    }

    pub(super) fn add(&mut self, labels: &str, value: Option<f64>, at_ms: i64) {
        if let Some(value) = value {
            let _ = writeln!(self.lines, "{}{labels} {value} {at_ms}", self.name);
        }
    }

    /// Adds a sample of the moment it is read at.
    pub(super) fn add_now(&mut self, labels: &str, value: f64) {
        let _ = writeln!(self.lines, "{}{labels} {value}", self.name);
    }

    pub(super) fn write(&self, out: &mut String) {
        let Self {
            name,
            kind,
            help,
            lines,
        } = self;
        let _ = write!(out, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}\n{lines}");
    }
}

fn seconds(nanos: Option<u64>) -> Option<f64> {
    nanos.map(|nanos| nanos as f64 / 1e9)
}

fn bytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64)
}

/// Prometheus text of CPU and memory.
pub(super) async fn resource(server: &Server) -> String {
    let now = server.parts.clock.now().as_millisecond();
    let roots = server.settings.roots.clone();
    let load = client::blocking::spawn(move || Load::read(&roots))
        .await
        .unwrap_or_default();
    let mut node_cpu = Family::new(
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
    );
    node_cpu.add("", seconds(load.cpu_nanos), now);
    let mut node_memory = Family::new(
        "node_memory_working_set_bytes",
        "gauge",
        "Current working set of the node in bytes",
    );
    node_memory.add("", bytes(load.memory_used), now);
    let active = server.parts.pods.list().into_iter().filter(|snapshot| snapshot.active);
    let active: BTreeMap<PodUid, Arc<PodSnapshot>> = active
        .map(|snapshot| (snapshot.observed.uid.clone(), snapshot))
        .collect();
    let (container_families, containers_failed) = containers(server, &active).await;
    let (pod_families, pods_failed) = pods(server, &active, now).await;
    let failed = i32::from(containers_failed || pods_failed);
    let mut out = String::new();
    for family in container_families
        .iter()
        .chain([&node_cpu, &node_memory])
        .chain(&pod_families)
    {
        family.write(&mut out);
    }
    for name in ["resource_scrape_error", "scrape_error"] {
        let help = "1 if there was an error while getting container metrics, 0 otherwise";
        let _ = write!(
            out,
            "# HELP {name} [STABLE] {help}\n# TYPE {name} gauge\n{name} {failed}\n"
        );
    }
    out
}

async fn containers(server: &Server, active: &BTreeMap<PodUid, Arc<PodSnapshot>>) -> ([Family; 3], bool) {
    let mut cpu = Family::new(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
    );
    let mut memory = Family::new(
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set of the container in bytes",
    );
    let mut start = Family::new(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
    );
    let Ok(usages) = server.parts.runtime.list_container_stats().await else {
        return ([cpu, memory, start], true);
    };
    for usage in &usages {
        let Some(snapshot) = usage.pod.as_ref().and_then(|uid| active.get(uid)) else {
            continue;
        };
        let meta = &snapshot.pod.metadata;
        let labels = format!(
            "{{container={:?},namespace={:?},pod={:?}}}",
            usage.name,
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        );
        let at = usage.at_nanos / 1_000_000;
        cpu.add(&labels, seconds(usage.cpu_nanos), at);
        memory.add(&labels, bytes(usage.working_set), at);
        let started = snapshot
            .observed
            .newest(&usage.name)
            .and_then(|container| container.started_at);
        start.add(&labels, started.map(|at| at.as_millisecond() as f64 / 1e3), at);
    }
    ([cpu, memory, start], false)
}

async fn pods(server: &Server, active: &BTreeMap<PodUid, Arc<PodSnapshot>>, now: i64) -> ([Family; 2], bool) {
    let mut cpu = Family::new(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
    );
    let mut memory = Family::new(
        "pod_memory_working_set_bytes",
        "gauge",
        "Current working set of the pod in bytes",
    );
    let mut failed = false;
    for snapshot in active.values() {
        let meta = &snapshot.pod.metadata;
        let labels = format!(
            "{{namespace={:?},pod={:?}}}",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        );
        let Ok(usage) = server.parts.cgroups.usage(Some((*snapshot.pod).clone())).await else {
            failed = true;
            continue;
        };
        cpu.add(&labels, seconds(usage.cpu_nanos), now);
        memory.add(&labels, bytes(usage.working_set), now);
    }
    ([cpu, memory], failed)
}
