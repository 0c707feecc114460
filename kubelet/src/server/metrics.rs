//! `/metrics/resource`: what the node, pods and containers use, with the time of each sample; and what `/metrics` has of single
//! containers.

use super::Server;
use super::summary::told_where_needed;
use crate::runtime::ContainerUsage;
use crate::stats::Depth;
use crate::stats::container::{running, sum};
use crate::stats::logs::LogUse;
use crate::stats::numbers::Numbers;
use crate::stats::sampler::{Look, PodLook};
use std::fmt::Write;

/// A family of samples.
struct Family {
    name: &'static str,
    kind: &'static str,
    /// How its description begins.
    mark: &'static str,
    help: &'static str,
    lines: String,
}

impl Family {
    fn stable(name: &'static str, kind: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind,
            mark: "STABLE",
            help,
            lines: String::new(),
        }
    }

    fn alpha(name: &'static str, help: &'static str) -> Self {
        let mark = "ALPHA";
        let family = Self::stable(name, "gauge", help);
        Self { mark, ..family }
    }

    fn add(&mut self, labels: &str, value: Option<f64>, at_ms: i64) {
        if let Some(value) = value {
            let _ = writeln!(self.lines, "{}{labels} {value} {at_ms}", self.name);
        }
    }

    fn write(&self, out: &mut String) {
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
        let _ = write!(out, "# HELP {name} [{mark}] {help}\n# TYPE {name} {kind}\n{lines}");
    }
}

/// A label's value in its quotes. The format knows these three escapes alone; pods name their interfaces as they like.
pub(super) fn label(value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    format!("\"{value}\"")
}

fn seconds(nanos: Option<u64>) -> Option<f64> {
    nanos.map(|nanos| nanos as f64 / 1e9)
}

fn bytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64)
}

/// CPU time, working set and swap of the node, of pods or of containers.
struct Usage {
    cpu: Family,
    memory: Family,
    swap: Family,
}

impl Usage {
    fn add(&mut self, labels: &str, numbers: &Numbers, at_ms: i64) {
        self.cpu.add(labels, seconds(numbers.cpu.total_nanos), at_ms);
        self.memory.add(labels, bytes(numbers.memory.working_set), at_ms);
        self.swap.add(labels, bytes(numbers.memory.swap), at_ms);
    }
}

/// Prometheus text of CPU and memory.
pub(super) async fn resource(server: &Server) -> String {
    let parts = &server.parts;
    let look = parts.stats.look(parts, Depth::Load).await;
    let told = told_where_needed(server, &look).await;
    page(&look, &told)
}

fn page(look: &Look, told: &Option<Vec<ContainerUsage>>) -> String {
    let at_ms = look.at.as_millisecond();
    let mut node = Usage {
        cpu: Family::stable(
            "node_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the node in core-seconds",
        ),
        memory: Family::stable(
            "node_memory_working_set_bytes",
            "gauge",
            "Current working set of the node in bytes",
        ),
        swap: Family::alpha(
            "node_swap_usage_bytes",
            "Current swap usage of the node in bytes. Reported only on non-windows systems",
        ),
    };
    node.add("", &look.node.numbers, at_ms);
    let mut out = String::new();
    for family in containers(look, told) {
        family.write(&mut out);
    }
    for family in [node.cpu, node.memory, node.swap].iter().chain(&pods(look, told)) {
        family.write(&mut out);
    }
    let failed = i32::from(look.failed || told.is_none());
    for (name, mark) in [("resource_scrape_error", "STABLE"), ("scrape_error", "ALPHA")] {
        let help = "1 if there was an error while getting container metrics, 0 otherwise";
        let _ = write!(
            out,
            "# HELP {name} [{mark}] {help}\n# TYPE {name} gauge\n{name} {failed}\n"
        );
    }
    out
}

/// Prometheus text of what containers' logs take, as `/metrics` has it.
pub(super) fn logs(uses: &[LogUse]) -> String {
    let mut family = Family::alpha(
        "kubelet_container_log_filesystem_used_bytes",
        "Bytes used by the container's logs on the filesystem.",
    );
    for log in uses {
        let [container, namespace, pod, uid] = [&log.container, &log.namespace, &log.pod, &log.uid].map(|it| label(it));
        let of = format!("container={container},namespace={namespace},pod={pod},uid={uid}");
        let _ = writeln!(family.lines, "{}{{{of}}} {}", family.name, log.bytes);
    }
    let mut out = String::new();
    family.write(&mut out);
    out
}

/// `namespace="shop",pod="web"`.
fn of_pod(pod: &PodLook) -> String {
    let meta = &pod.snapshot.pod.metadata;
    let of = |text: &Option<String>| label(text.as_deref().unwrap_or_default());
    format!("namespace={},pod={}", of(&meta.namespace), of(&meta.name))
}

fn containers(look: &Look, told: &Option<Vec<ContainerUsage>>) -> [Family; 5] {
    let mut usage = Usage {
        cpu: Family::stable(
            "container_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the container in core-seconds",
        ),
        memory: Family::stable(
            "container_memory_working_set_bytes",
            "gauge",
            "Current working set of the container in bytes",
        ),
        swap: Family::alpha(
            "container_swap_usage_bytes",
            "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        ),
    };
    let mut start = Family::stable(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
    );
    let mut swap_limit = Family::alpha(
        "container_swap_limit_bytes",
        "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
    );
    for pod in &look.pods {
        let of_pod = of_pod(pod);
        for container in running(pod, told) {
            let labels = format!("{{container={},{of_pod}}}", label(&container.observed.name));
            let (numbers, _) = container.numbers();
            let at_ms = container.at(look.at).as_millisecond();
            usage.add(&labels, &numbers, at_ms);
            swap_limit.add(&labels, bytes(numbers.limits.swap), at_ms);
            let started = container.observed.started_at.unwrap_or(container.observed.created_at);
            start.add(&labels, Some(started.as_millisecond() as f64 / 1e3), at_ms);
        }
    }
    [usage.cpu, usage.memory, start, usage.swap, swap_limit]
}

fn pods(look: &Look, told: &Option<Vec<ContainerUsage>>) -> [Family; 3] {
    let mut usage = Usage {
        cpu: Family::stable(
            "pod_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the pod in core-seconds",
        ),
        memory: Family::stable(
            "pod_memory_working_set_bytes",
            "gauge",
            "Current working set of the pod in bytes",
        ),
        swap: Family::alpha(
            "pod_swap_usage_bytes",
            "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        ),
    };
    for pod in &look.pods {
        let labels = format!("{{{}}}", of_pod(pod));
        match &pod.own {
            Some(own) => usage.add(&labels, &own.numbers, look.at.as_millisecond()),
            None => usage.add(&labels, &sum(&running(pod, told)).0, look.at.as_millisecond()),
        }
    }
    [usage.cpu, usage.memory, usage.swap]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_told_by_container_and_nothing_without_any() {
        let log = LogUse {
            uid: "u-1".into(),
            namespace: "shop".into(),
            pod: "web".into(),
            container: "c".into(),
            bytes: 4096,
        };
        assert_eq!(
            logs(&[log]),
            "# HELP kubelet_container_log_filesystem_used_bytes [ALPHA] Bytes used by the container's logs on the filesystem.\n\
             # TYPE kubelet_container_log_filesystem_used_bytes gauge\n\
             kubelet_container_log_filesystem_used_bytes{container=\"c\",namespace=\"shop\",pod=\"web\",uid=\"u-1\"} 4096\n"
        );
        assert_eq!(logs(&[]), "");
    }

    #[test]
    fn labels_have_the_three_escapes_of_the_format_and_no_others() {
        assert_eq!(label("eth0"), "\"eth0\"");
        assert_eq!(label("a\u{1}'\u{e9}\t"), "\"a\u{1}'\u{e9}\t\"");
        assert_eq!(label("a\\\"\n"), r#""a\\\"\n""#);
    }
}
