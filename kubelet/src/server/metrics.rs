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
    /// How its description begins; nothing on the page of cAdvisor, which has no levels.
    mark: &'static str,
    help: &'static str,
    lines: String,
}

impl Family {
    pub(super) fn new(name: &'static str, kind: &'static str, help: &'static str) -> Self {
        let lines = String::new();
        Self {
            name,
            kind,
            mark: "",
            help,
            lines,
        }
    }

    fn stable(name: &'static str, kind: &'static str, help: &'static str) -> Self {
        let mark = "[STABLE] ";
        let family = Self::new(name, kind, help);
        Self { mark, ..family }
    }

    fn alpha(name: &'static str, kind: &'static str, help: &'static str) -> Self {
        let mark = "[ALPHA] ";
        let family = Self::new(name, kind, help);
        Self { mark, ..family }
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
            mark,
            help,
            lines,
        } = self;
        // A family of which nothing is known is not declared, as upstream's.
        if lines.is_empty() {
            return;
        }
        let _ = write!(out, "# HELP {name} {mark}{help}\n# TYPE {name} {kind}\n{lines}");
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
    let mut node_cpu = Family::stable(
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
    );
    node_cpu.add("", seconds(load.cpu_nanos), now);
    let mut node_memory = Family::stable(
        "node_memory_working_set_bytes",
        "gauge",
        "Current working set of the node in bytes",
    );
    node_memory.add("", bytes(load.memory_used), now);
    let mut node_swap = Family::alpha(
        "node_swap_usage_bytes",
        "gauge",
        "Current swap usage of the node in bytes. Reported only on non-windows systems",
    );
    node_swap.add("", bytes(load.swap_used), now);
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
        .chain([&node_cpu, &node_memory, &node_swap])
        .chain(&pod_families)
    {
        family.write(&mut out);
    }
    for (name, mark) in [("resource_scrape_error", "STABLE"), ("scrape_error", "ALPHA")] {
        let help = "1 if there was an error while getting container metrics, 0 otherwise";
        let _ = write!(
            out,
            "# HELP {name} [{mark}] {help}\n# TYPE {name} gauge\n{name} {failed}\n"
        );
    }
    out
}

async fn containers(server: &Server, active: &BTreeMap<PodUid, Arc<PodSnapshot>>) -> ([Family; 5], bool) {
    let mut cpu = Family::stable(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
    );
    let mut memory = Family::stable(
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set of the container in bytes",
    );
    let mut start = Family::stable(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
    );
    let mut swap = Family::alpha(
        "container_swap_usage_bytes",
        "gauge",
        "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
    );
    let mut swap_limit = Family::alpha(
        "container_swap_limit_bytes",
        "gauge",
        "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
    );
    let Ok(usages) = server.parts.runtime.list_container_stats().await else {
        return ([cpu, memory, start, swap, swap_limit], true);
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
        swap.add(&labels, bytes(usage.swap), at);
        let limit = usage
            .swap
            .zip(usage.swap_left)
            .map(|(used, left)| used.saturating_add(left));
        swap_limit.add(&labels, bytes(limit), at);
        let started = snapshot
            .observed
            .newest(&usage.name)
            .and_then(|container| container.started_at);
        start.add(&labels, started.map(|at| at.as_millisecond() as f64 / 1e3), at);
    }
    ([cpu, memory, start, swap, swap_limit], false)
}

async fn pods(server: &Server, active: &BTreeMap<PodUid, Arc<PodSnapshot>>, now: i64) -> ([Family; 3], bool) {
    let mut cpu = Family::stable(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
    );
    let mut memory = Family::stable(
        "pod_memory_working_set_bytes",
        "gauge",
        "Current working set of the pod in bytes",
    );
    let mut swap = Family::alpha(
        "pod_swap_usage_bytes",
        "gauge",
        "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
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
        swap.add(&labels, bytes(usage.swap), now);
    }
    ([cpu, memory, swap], failed)
}
