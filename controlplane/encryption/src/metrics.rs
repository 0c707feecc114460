//! What is counted of values that are written and read, under upstream's names.
//!
//! Owns the counters of one process, whatever configurations come and go meanwhile. Labels are prefixes and codes of ours, and the names of
//! plugins in the configuration. What nothing is configured for is not counted.

mod identified;

use identified::Identified;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Instant;

/// Status of what failed otherwise than in a call of a plugin.
pub(crate) const NO_CALL: &str = "unknown-non-grpc";
/// Status of what succeeded.
pub(crate) const OK: &str = "OK";

/// Which way a value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    FromStorage,
    ToStorage,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::FromStorage => "from_storage",
            Self::ToStorage => "to_storage",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Operation {
    resource: String,
    transformation_type: &'static str,
    transformer_prefix: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Transformation {
    transformation_type: &'static str,
    transformer_prefix: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    provider_name: String,
    method_name: String,
    grpc_status_code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Plugin {
    provider_name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct InvalidKey {
    provider_name: String,
    error: &'static str,
}

/// From 0.1 ms to 52 s, as upstream's.
fn call_durations() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 2.0, 20))
}

/// From 5 us to 84 s, as upstream's.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(5e-6, 2.0, 25))
}

/// See the module.
#[derive(Debug)]
pub struct Metrics {
    operations: Family<Operation, Counter>,
    durations: Family<Transformation, Histogram, fn() -> Histogram>,
    cache_misses: Counter,
    generated: Histogram,
    generation_failures: Counter,
    calls: Family<Call, Histogram, fn() -> Histogram>,
    seeds: Family<Plugin, Gauge>,
    invalid_keys: Family<InvalidKey, Counter>,
    identified: Identified,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            operations: Family::default(),
            durations: Family::new_with_constructor(durations),
            cache_misses: Counter::default(),
            // From 5 us to 41 ms.
            generated: Histogram::new(exponential_buckets(5e-6, 2.0, 14)),
            generation_failures: Counter::default(),
            calls: Family::new_with_constructor(call_durations),
            seeds: Family::default(),
            invalid_keys: Family::default(),
            identified: Identified::default(),
        }
    }
}

impl Metrics {
    /// Of the API server of that name.
    pub fn of(server: &str) -> Self {
        Self {
            identified: Identified::of(server),
            ..Self::default()
        }
    }

    /// A changed configuration holds now, or is left aside.
    pub fn reloaded(&self, is_taken: bool) {
        self.identified.reloaded(is_taken);
    }

    /// A value has been written or read with a plugin's key.
    pub(crate) fn key_used(&self, way: Way, plugin: &str, key_id: &str) {
        self.identified.used(way, plugin, key_id);
    }

    /// A plugin says that it writes with this key.
    pub(crate) fn key_named(&self, plugin: &str, key_id: &str) {
        self.identified.named(plugin, key_id);
    }

    /// A value of a resource that begins with this prefix has been written or read since `began`, or has not, with that status.
    pub(crate) fn transformed(
        &self,
        way: Way,
        (resource, prefix): (&str, &str),
        began: Instant,
        outcome: Result<(), &'static str>,
    ) {
        let (transformation_type, transformer_prefix) = (way.name(), prefix.to_owned());
        let operation = Operation {
            resource: resource.to_owned(),
            transformation_type,
            transformer_prefix: transformer_prefix.clone(),
            status: outcome.err().unwrap_or(OK),
        };
        self.operations.get_or_create(&operation).inc();
        if outcome.is_ok() {
            let transformation = Transformation {
                transformation_type,
                transformer_prefix,
            };
            let took = began.elapsed().as_secs_f64();
            self.durations.get_or_create(&transformation).observe(took);
        }
    }

    /// A plugin has to be asked for what a value was written with.
    pub(crate) fn cache_missed(&self) {
        self.cache_misses.inc();
    }

    /// What values are to be written with has been made since `began`, or has not.
    pub(crate) fn generated(&self, began: Instant, is_made: bool) {
        if is_made {
            self.generated.observe(began.elapsed().as_secs_f64());
        } else {
            self.generation_failures.inc();
        }
    }

    /// A plugin was called by this method since `began`, and answered with that code.
    pub(crate) fn called(&self, plugin: &str, method: &str, began: Instant, code: &'static str) {
        let call = Call {
            provider_name: plugin.to_owned(),
            method_name: format!("/v2.KeyManagementService/{method}"),
            grpc_status_code: code,
        };
        self.calls.get_or_create(&call).observe(began.elapsed().as_secs_f64());
    }

    /// So many seeds of a plugin's are kept.
    pub(crate) fn seeds_kept(&self, plugin: &str, count: usize) {
        let provider_name = plugin.to_owned();
        self.seeds.get_or_create(&Plugin { provider_name }).set(count as i64);
    }

    /// A plugin has named a key that cannot be one.
    pub(crate) fn key_was_invalid(&self, plugin: &str, error: &'static str) {
        let provider_name = plugin.to_owned();
        self.invalid_keys
            .get_or_create(&InvalidKey { provider_name, error })
            .inc();
    }

    /// Adds everything to `registry`, for one answer.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_storage_transformation_operations",
            "Total number of transformations",
            self.operations.clone(),
        );
        registry.register(
            "apiserver_storage_transformation_duration_seconds",
            "Latencies in seconds of value transformation operations",
            self.durations.clone(),
        );
        registry.register(
            "apiserver_storage_envelope_transformation_cache_misses",
            "Total number of cache misses while accessing key decryption key(KEK)",
            self.cache_misses.clone(),
        );
        registry.register(
            "apiserver_storage_data_key_generation_duration_seconds",
            "Latencies in seconds of data encryption key(DEK) generation operations",
            self.generated.clone(),
        );
        registry.register(
            "apiserver_storage_data_key_generation_failures",
            "Total number of failed data encryption key(DEK) generation operations",
            self.generation_failures.clone(),
        );
        registry.register(
            "apiserver_envelope_encryption_kms_operations_latency_seconds",
            "KMS operation duration with gRPC error code status total",
            self.calls.clone(),
        );
        registry.register(
            "apiserver_envelope_encryption_dek_source_cache_size",
            "Number of records in data encryption key (DEK) source cache. On a restart, this value is an approximation of the number of decrypt \
             RPC calls the server will make to the KMS plugin",
            self.seeds.clone(),
        );
        registry.register(
            "apiserver_envelope_encryption_invalid_key_id_from_status",
            "Number of times an invalid keyID is returned by the Status RPC call split by error",
            self.invalid_keys.clone(),
        );
        self.identified.register(registry);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The lines of an answer.
    pub(crate) fn lines(metrics: &Metrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn the_names_are_upstreams() {
        let metrics = Metrics::default();
        let began = Instant::now();
        metrics.transformed(Way::ToStorage, ("secrets", "k8s:enc:aesgcm:v1:"), began, Ok(()));
        metrics.transformed(
            Way::FromStorage,
            ("deployments.apps", "k8s:enc:kms:v2:one:"),
            began,
            Err("Unavailable"),
        );
        metrics.called("one", "Encrypt", began, "Unavailable");
        metrics.seeds_kept("one", 3);
        metrics.key_was_invalid("one", "empty");
        metrics.cache_missed();
        metrics.generated(began, true);
        metrics.generated(began, false);
        let text = lines(&metrics);
        for line in [
            "apiserver_storage_transformation_operations_total{resource=\"secrets\",transformation_type=\"to_storage\",\
             transformer_prefix=\"k8s:enc:aesgcm:v1:\",status=\"OK\"} 1",
            "apiserver_storage_transformation_operations_total{resource=\"deployments.apps\",transformation_type=\"from_storage\",\
             transformer_prefix=\"k8s:enc:kms:v2:one:\",status=\"Unavailable\"} 1",
            "apiserver_storage_transformation_duration_seconds_count{transformation_type=\"to_storage\",\
             transformer_prefix=\"k8s:enc:aesgcm:v1:\"} 1",
            "apiserver_storage_envelope_transformation_cache_misses_total 1",
            "apiserver_storage_data_key_generation_duration_seconds_count 1",
            "apiserver_storage_data_key_generation_failures_total 1",
            "apiserver_envelope_encryption_kms_operations_latency_seconds_count{provider_name=\"one\",\
             method_name=\"/v2.KeyManagementService/Encrypt\",grpc_status_code=\"Unavailable\"} 1",
            "apiserver_envelope_encryption_dek_source_cache_size{provider_name=\"one\"} 3",
            "apiserver_envelope_encryption_invalid_key_id_from_status_total{provider_name=\"one\",error=\"empty\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("duration_seconds_count{transformation_type=\"from_storage\""));
    }
}
