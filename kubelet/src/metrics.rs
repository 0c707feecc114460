//! Metrics of one kubelet, under upstream's names, labels and buckets (kubelet contract §13). Nothing is process-global: the
//! parts that do something have the piece that counts it.
//!
//! Owns the registry and its text. Never decides anything, and holds no series that strangers can make.

mod counts;
mod devices;
mod dra;
mod features;
mod health;
mod http;
mod labels;
mod node;
mod pinning;
mod plugins;
mod pods;
mod probes;
mod process;
mod providers;
mod requests;
mod resizes;
mod runtime;
mod text;
mod volumes;

pub use devices::{DeviceMetrics, PodResourcesCall, PodResourcesMetrics};
pub use dra::DraMetrics;
pub use features::{Gates, features};
pub use health::HealthMetrics;
pub use http::{Begun, Port};
pub use node::NodeMetrics;
pub use pinning::PinningMetrics;
pub use plugins::PluginMetrics;
pub use pods::{Ended, PodMetrics, Start, Work};
pub use probes::{ProbeMetrics, ProbeResult, Probed};
pub use process::process;
pub use providers::ProviderMetrics;
pub use requests::RequestMetrics;
pub use resizes::ResizeMetrics;
pub use runtime::RuntimeMetrics;
pub use volumes::{VolumeMetrics, VolumeOperation};

use crate::pod::view::PodView;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::sync::{Arc, OnceLock};

/// The metrics of one kubelet. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    http: http::Requests,
    /// Calls of the runtime.
    pub runtime: RuntimeMetrics,
    /// What becomes of pods.
    pub pods: PodMetrics,
    /// What becomes of resizes.
    pub resizes: ResizeMetrics,
    /// What containers have to themselves.
    pub pinning: PinningMetrics,
    /// What becomes of resource claims.
    pub dra: DraMetrics,
    /// Device plugins.
    pub devices: DeviceMetrics,
    /// Plugins by their sockets.
    pub plugins: PluginMetrics,
    /// What is asked of the PodResources API.
    pub pod_resources: PodResourcesMetrics,
    /// What becomes of volumes.
    pub volumes: VolumeMetrics,
    /// How probes go.
    pub probes: ProbeMetrics,
    /// What health checks say.
    pub health: HealthMetrics,
    /// Credential provider plugins.
    pub providers: ProviderMetrics,
    /// The node and this process on it.
    pub node: NodeMetrics,
    /// The responder of cluster DNS, once it runs here.
    pub dns: Arc<OnceLock<Arc<dns::Metrics>>>,
}

impl Metrics {
    /// Those of a kubelet of this node, nothing counted yet.
    pub fn new(node: &str) -> Self {
        Self::with_requests(node, &RequestMetrics::default())
    }

    /// As [`Metrics::new`], with the requests to the API server that others count.
    pub fn with_requests(node: &str, requests: &RequestMetrics) -> Self {
        let mut registry = Registry::default();
        requests.register(&mut registry);
        let http = http::Requests::register(&mut registry);
        let runtime = RuntimeMetrics::register(&mut registry);
        let pods = PodMetrics::register(&mut registry);
        let resizes = ResizeMetrics::register(&mut registry);
        let pinning = PinningMetrics::register(&mut registry);
        let dra = DraMetrics::register(&mut registry);
        let devices = DeviceMetrics::register(&mut registry);
        let plugins = PluginMetrics::register(&mut registry);
        let pod_resources = PodResourcesMetrics::register(&mut registry);
        let volumes = VolumeMetrics::register(&mut registry);
        let providers = ProviderMetrics::register(&mut registry);
        let node = NodeMetrics::register(&mut registry, node);
        Self {
            registry: Arc::new(registry),
            http,
            runtime,
            pods,
            resizes,
            pinning,
            dra,
            devices,
            plugins,
            pod_resources,
            volumes,
            probes: ProbeMetrics::new(),
            health: HealthMetrics::new(),
            providers,
            node,
            dns: Arc::default(),
        }
    }

    /// Counts a request that begins; it is under way until what comes back is dropped.
    pub fn http_request(&self, port: Port, method: &str, path: &str) -> Begun {
        self.http.begin(port, method, path)
    }

    /// All metrics as Prometheus' classic text, pods counted now.
    pub fn text(&self, pods: &PodView) -> String {
        let pods = pods.list();
        self.pods.count(&pods);
        self.volumes.count(&pods);
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        let mut text = text::classic(&text);
        if let Some(dns) = self.dns.get() {
            dns.render(&mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests;
