//! `/metrics/cadvisor`: what the machine, pods and their containers use, by the names that dashboards know.
//!
//! The cgroups are those upstream's kubelet tells of: the root, that of all pods, those of the classes, of pods and of containers.
//! Only what is measured is told: CPU time, memory, swap, writable layers and interfaces.

use super::Server;
use super::metrics::Family;
use super::summary::traffic_of;
use crate::cgroup::{CgroupDriver, Usage};
use crate::host::load::Load;
use crate::pod::view::PodSnapshot;
use crate::runtime::ContainerUsage;
use crate::runtime::observed::{ContainerState, ObservedContainer};
use proto::api::qos::QosClass;
use std::sync::Arc;

/// The families of the page, each filled as pods are gone through.
struct Page {
    cpu: Family,
    working_set: Family,
    swap: Family,
    memory: Family,
    rss: Family,
    layer: Family,
    started: Family,
    seen: Family,
    traffic: [Family; 4],
}

impl Page {
    fn new() -> Self {
        let counter = |name, help| Family::new(name, "counter", help);
        let gauge = |name, help| Family::new(name, "gauge", help);
        Self {
            cpu: counter("container_cpu_usage_seconds_total", "CPU time used, in seconds"),
            working_set: gauge(
                "container_memory_working_set_bytes",
                "Memory in use that cannot go at once",
            ),
            swap: gauge("container_memory_swap", "Memory in swap, in bytes"),
            memory: gauge("container_memory_usage_bytes", "Memory in use"),
            rss: gauge("container_memory_rss", "Anonymous memory, in bytes"),
            layer: gauge("container_fs_usage_bytes", "Bytes of the writable layer"),
            started: gauge("container_start_time_seconds", "When it started, in seconds since 1970"),
            seen: gauge("container_last_seen", "When it was last seen, in seconds since 1970"),
            traffic: [
                counter("container_network_receive_bytes_total", "Bytes received"),
                counter("container_network_receive_errors_total", "Receptions that failed"),
                counter("container_network_transmit_bytes_total", "Bytes sent"),
                counter("container_network_transmit_errors_total", "Transmissions that failed"),
            ],
        }
    }

    fn pod(&mut self, of: &Labels<'_>, usage: &Usage, now: i64) {
        let number = |number: Option<u64>| number.map(|number| number as f64);
        let cpu = usage.cpu_nanos.map(|nanos| nanos as f64 / 1e9);
        self.cpu.add(&of.with("cpu", "total"), cpu, now);
        self.working_set.add(&of.text(), number(usage.working_set), now);
        self.memory.add(&of.text(), number(usage.memory), now);
        self.swap.add(&of.text(), number(usage.swap), now);
        self.seen.add(&of.text(), Some(now as f64 / 1e3), now);
    }

    fn container(&mut self, of: &Labels<'_>, usage: &ContainerUsage, container: &ObservedContainer) {
        let at = usage.at_nanos / 1_000_000;
        let measured = Usage {
            cpu_nanos: usage.cpu_nanos,
            memory: usage.memory,
            working_set: usage.working_set,
            swap: usage.swap,
            processes: None,
        };
        self.pod(of, &measured, at);
        self.rss.add(&of.text(), usage.rss.map(|bytes| bytes as f64), at);
        let layer = usage.layer.map(|(bytes, _)| bytes as f64);
        self.layer.add(&of.with("device", ""), layer, at);
        let started = container.started_at.map(|at| at.as_millisecond() as f64 / 1e3);
        self.started.add(&of.text(), started, at);
    }

    fn text(&self, failed: bool) -> String {
        let mut out = String::new();
        let own = [
            &self.cpu,
            &self.working_set,
            &self.swap,
            &self.memory,
            &self.rss,
            &self.layer,
            &self.started,
            &self.seen,
        ];
        for family in own.into_iter().chain(&self.traffic) {
            family.write(&mut out);
        }
        let mut errors = Family::new(
            "container_scrape_error",
            "gauge",
            "1 if something could not be measured",
        );
        errors.add_now("", f64::from(u8::from(failed)));
        errors.write(&mut out);
        out
    }
}

/// Whose numbers they are.
struct Labels<'a> {
    /// The pod; none of cgroups that hold several.
    snapshot: Option<&'a PodSnapshot>,
    /// The cgroup's path.
    id: String,
    container: Option<&'a ObservedContainer>,
}

impl Labels<'_> {
    fn text(&self) -> String {
        self.among("")
    }

    /// With one label more.
    fn with(&self, name: &str, value: &str) -> String {
        self.among(&format!("{name}={},", label(value)))
    }

    fn among(&self, more: &str) -> String {
        let meta = self.snapshot.map(|snapshot| &snapshot.pod.metadata);
        let of = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let (container, image, name) = match self.container {
            Some(container) => (container.name.as_str(), container.image.as_str(), container.id.as_str()),
            None => ("", "", ""),
        };
        let (namespace, pod) = (
            of(meta.and_then(|meta| meta.namespace.as_deref())),
            of(meta.and_then(|meta| meta.name.as_deref())),
        );
        let (id, container, image) = (label(&self.id), label(container), label(image));
        let (name, namespace, pod) = (label(name), label(&namespace), label(&pod));
        format!("{{container={container},{more}id={id},image={image},name={name},namespace={namespace},pod={pod}}}")
    }
}

/// A label's value in its quotes. The format knows these three escapes alone; pods name their interfaces as they like.
fn label(value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    format!("\"{value}\"")
}

/// What the machine as a whole uses: its root cgroup does not tell.
fn of_machine(load: Load) -> Usage {
    Usage {
        cpu_nanos: load.cpu_nanos,
        memory: load.memory_used,
        working_set: load.memory_used,
        swap: load.swap_used,
        processes: None,
    }
}

/// Prometheus text of the machine, of all pods and their classes, of pods and containers.
pub(super) async fn page(server: &Server) -> String {
    let parts = &server.parts;
    let naming = &parts.context.cgroups;
    let now = parts.clock.now().as_millisecond();
    let listed = parts.runtime.list_container_stats().await;
    let (mut page, mut failed) = (Page::new(), listed.is_err());
    let usages = listed.unwrap_or_default();
    let active: Vec<Arc<PodSnapshot>> = parts.pods.list().into_iter().filter(|pod| pod.active).collect();
    let whole = |id: String| Labels {
        snapshot: None,
        id,
        container: None,
    };
    let roots = server.settings.roots.clone();
    let load = client::blocking::spawn(move || Load::read(&roots)).await;
    page.pod(&whole("/".to_owned()), &of_machine(load.unwrap_or_default()), now);
    let classes = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
    for class in classes.into_iter().filter(|_| naming.per_qos) {
        // Guaranteed pods are in the cgroup of all pods.
        match parts.cgroups.usage_of_class(class).await {
            Ok(usage) => page.pod(&whole(naming.qos(class)), &usage, now),
            Err(_) => failed = true,
        }
    }
    for snapshot in &active {
        let id = naming.pod(&snapshot.pod);
        let of_pod = Labels {
            snapshot: Some(snapshot),
            id: id.clone(),
            container: None,
        };
        match parts.cgroups.usage(Some((*snapshot.pod).clone())).await {
            Ok(usage) => page.pod(&of_pod, &usage, now),
            Err(_) => failed = true,
        }
        for usage in usages
            .iter()
            .filter(|usage| usage.pod.as_ref() == Some(&snapshot.observed.uid))
        {
            let newest = snapshot.observed.newest(&usage.name);
            let Some(container) = newest.filter(|newest| newest.state == ContainerState::Running) else {
                continue;
            };
            let leaf = match naming.driver {
                CgroupDriver::Cgroupfs => container.id.to_string(),
                CgroupDriver::Systemd => format!("cri-containerd-{}.scope", container.id),
            };
            let of = Labels {
                snapshot: Some(snapshot),
                id: format!("{id}/{leaf}"),
                container: Some(container),
            };
            page.container(&of, usage, container);
        }
        for interface in traffic_of(server, snapshot).await {
            let labels = of_pod.with("interface", &interface.name);
            let numbers = [
                interface.rx_bytes,
                interface.rx_errors,
                interface.tx_bytes,
                interface.tx_errors,
            ];
            for (family, number) in page.traffic.iter_mut().zip(numbers) {
                family.add(&labels, Some(number as f64), now);
            }
        }
    }
    page.text(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_the_three_escapes_of_the_format_and_no_others() {
        assert_eq!(label("eth0"), "\"eth0\"");
        assert_eq!(label("a\u{1}'\u{e9}\t"), "\"a\u{1}'\u{e9}\t\"");
        assert_eq!(label("a\\\"\n"), r#""a\\\"\n""#);
    }
}
