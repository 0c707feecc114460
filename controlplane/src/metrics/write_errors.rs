//! Writes that a store did not do, by reason. Upstream counts what etcd refuses (`etcd_request_errors_total`) and has no other store.
//!
//! Owns the counters.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// A write that was not done, or is not known to be.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Unwritten {
    /// `create`, `update` or `delete`.
    pub operation: &'static str,
    /// API group, empty for core.
    pub group: String,
    /// Plural name; empty for what is not of one resource.
    pub resource: String,
    /// `full`, `read_only`, `refused`, `unavailable`, `unknown` (it may have been done) or `failed`.
    pub reason: &'static str,
}

/// See the module.
#[derive(Debug, Default)]
pub struct WriteErrors(Family<Unwritten, Counter>);

impl WriteErrors {
    /// One more.
    pub fn count(&self, unwritten: &Unwritten) {
        self.0.get_or_create(unwritten).inc();
    }

    /// Adds what there is to `registry`, for one answer.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "skiff_storage_write_errors",
            "Writes that the store refused or failed to do, for each operation, object type and reason",
            self.0.clone(),
        );
    }
}
