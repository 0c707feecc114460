//! What credential provider plugins cost (kubelet contract §13).

use super::labels::{Counters, DEFAULT_BUCKETS, Histograms, Numbers, counters, histograms, label, numbers};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Counts runs of plugins. Cheap to clone.
#[derive(Clone)]
pub struct ProviderMetrics {
    durations: Histograms,
    errors: Counters,
    configuration: Numbers,
}

impl ProviderMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let r = registry;
        Self {
            durations: histograms(
                r,
                "kubelet_credential_provider_plugin_duration",
                "Time that runs of credential provider plugins took in seconds, by plugin",
                DEFAULT_BUCKETS,
            ),
            errors: counters(
                r,
                "kubelet_credential_provider_plugin_errors",
                "Runs of credential provider plugins that failed, by plugin",
            ),
            configuration: numbers(
                r,
                "kubelet_credential_provider_config_info",
                "The configuration of credential provider plugins, by its hash",
            ),
        }
    }

    /// Counts a run of a plugin and how it ended. Names are those of the configuration.
    pub fn ran(&self, plugin: &str, took: Duration, worked: bool) {
        let of = label("plugin_name", plugin.to_owned());
        self.durations.get_or_create(&of).observe(took.as_secs_f64());
        let errors = self.errors.get_or_create(&of);
        if !worked {
            errors.inc();
        }
    }

    /// Says which configuration is in use.
    pub fn configured(&self, hash: &str) {
        self.configuration
            .get_or_create(&label("hash", hash.to_owned()))
            .set(1.0);
    }
}
