//! Metrics registry of one kubelet, under upstream's names. Nothing is process-global.

mod http;

pub use http::{Begun, Port};

use crate::config::VERSION;
use crate::pod::view::PodView;
use crate::runtime::observed::ContainerState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicI64;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    git_version: String,
    platform: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    container_state: String,
}

type Number = Gauge<i64, AtomicI64>;

/// The metrics of one kubelet.
pub struct Metrics {
    registry: Registry,
    http: http::Requests,
    running_pods: Number,
    desired_pods: Number,
    running_containers: Family<StateLabel, Number>,
}

impl Metrics {
    /// An empty registry for this node.
    pub fn new(node: &str) -> Self {
        let mut registry = Registry::default();
        let http = http::Requests::register(&mut registry);
        let (running_pods, desired_pods) = (Number::default(), Number::default());
        let running_containers = Family::<StateLabel, Number>::default();
        let names = Family::<NodeLabel, Number>::default();
        let builds = Family::<BuildLabels, Number>::default();
        registry.register(
            "kubelet_running_pods",
            "Number of pods that have a running pod sandbox",
            running_pods.clone(),
        );
        registry.register(
            "kubelet_desired_pods",
            "The number of pods the kubelet is being instructed to run",
            desired_pods.clone(),
        );
        registry.register(
            "kubelet_running_containers",
            "Number of containers currently running",
            running_containers.clone(),
        );
        registry.register(
            "kubelet_node_name",
            "The node's name. The count is always 1.",
            names.clone(),
        );
        registry.register(
            "kubernetes_build_info",
            "A metric with a constant '1' value",
            builds.clone(),
        );
        names.get_or_create(&NodeLabel { node: node.to_owned() }).set(1);
        let build = BuildLabels {
            git_version: VERSION.to_owned(),
            platform: "linux".to_owned(),
        };
        builds.get_or_create(&build).set(1);
        Self {
            registry,
            http,
            running_pods,
            desired_pods,
            running_containers,
        }
    }

    /// Counts a request that begins; it is under way until what comes back is dropped.
    pub fn http_request(&self, port: Port, method: &str, path: &str) -> Begun {
        self.http.begin(port, method, path)
    }

    /// All metrics as Prometheus text, pods counted now.
    pub fn text(&self, pods: &PodView) -> String {
        let all = pods.list();
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let running = all
            .iter()
            .filter(|s| s.observed.sandboxes.iter().any(|b| b.ready))
            .count();
        self.running_pods.set(count(running));
        self.desired_pods.set(count(all.iter().filter(|s| s.active).count()));
        for (state, name) in [
            (ContainerState::Created, "created"),
            (ContainerState::Running, "running"),
            (ContainerState::Exited, "exited"),
            (ContainerState::Unknown, "unknown"),
        ] {
            let containers = all
                .iter()
                .flat_map(|s| &s.observed.containers)
                .filter(|c| c.state == state)
                .count();
            let label = StateLabel {
                container_state: name.to_owned(),
            };
            self.running_containers.get_or_create(&label).set(count(containers));
        }
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams() {
        let metrics = Metrics::new("node-a");
        let text = metrics.text(&PodView::default());
        for line in ["kubelet_running_pods 0", "kubelet_node_name{node=\"node-a\"} 1"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
