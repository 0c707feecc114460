//! What is asked of a store elsewhere, and how large the one here is, under upstream's names.
//!
//! Owns the counters. The size of a file is read when somebody asks, that of a store elsewhere is what was told last.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upstream's buckets of `etcd_request_duration_seconds`, in seconds.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Upstream's buckets of `etcd_lease_object_counts`.
const LEASE_BUCKETS: [f64; 7] = [10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0];
/// Bytes of a block as the kernel counts them.
const BLOCK: u64 = 512;

/// A request as it is counted.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Asked {
    /// `create`, `update`, `delete`, `get` or `list`.
    pub operation: &'static str,
    /// API group, empty for core.
    pub group: String,
    /// Plural name; empty for what is not of one resource.
    pub resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Cluster {
    storage_cluster_id: &'static str,
}

fn durations() -> Histogram {
    Histogram::new(BUCKETS)
}

/// See the module.
#[derive(Debug)]
pub struct Storage {
    requests: Family<Asked, Counter>,
    errors: Family<Asked, Counter>,
    durations: Family<Asked, Histogram, fn() -> Histogram>,
    leases: Histogram,
    /// The embedded store's.
    file: Option<PathBuf>,
    /// In bytes, of a store elsewhere; 0 before anybody has told.
    size: AtomicU64,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(durations),
            leases: Histogram::new(LEASE_BUCKETS),
            file: None,
            size: AtomicU64::new(0),
        }
    }
}

impl Storage {
    /// Of a store whose data are in this file.
    pub fn in_file(file: PathBuf) -> Self {
        Self {
            file: Some(file),
            ..Self::default()
        }
    }

    /// Counts a request and how long it took; `is_answered` unless it failed.
    pub fn asked(&self, asked: &Asked, took: Duration, is_answered: bool) {
        self.requests.get_or_create(asked).inc();
        self.durations.get_or_create(asked).observe(took.as_secs_f64());
        if !is_answered {
            self.errors.get_or_create(asked).inc();
        }
    }

    /// Nothing more is written with a lease, and so many values were.
    pub fn lease_is_over(&self, values: u32) {
        self.leases.observe(f64::from(values));
    }

    /// The store elsewhere is so large, in bytes.
    pub fn is_large(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Relaxed);
    }

    /// The size in bytes, if it is known, and whose it is.
    fn size(&self) -> (Option<u64>, &'static str) {
        match &self.file {
            Some(file) => {
                let found = std::fs::metadata(file).ok();
                (found.map(|found| found.blocks().saturating_mul(BLOCK)), "embedded")
            }
            None => (
                Some(self.size.load(Ordering::Relaxed)).filter(|size| *size > 0),
                "etcd-0",
            ),
        }
    }

    /// Adds what there is to `registry`, for one answer.
    pub fn register(&self, registry: &mut Registry) {
        let size = Family::<Cluster, Gauge>::default();
        let (bytes, storage_cluster_id) = self.size();
        if let Some(bytes) = bytes {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            size.get_or_create(&Cluster { storage_cluster_id }).set(bytes);
        }
        registry.register(
            "apiserver_storage_size_bytes",
            "Size of the storage database file physically allocated in bytes",
            size,
        );
        if self.file.is_some() {
            return;
        }
        registry.register(
            "etcd_requests",
            "Etcd request counts for each operation and object type",
            self.requests.clone(),
        );
        registry.register(
            "etcd_request_errors",
            "Etcd failed request counts for each operation and object type",
            self.errors.clone(),
        );
        registry.register(
            "etcd_request_duration_seconds",
            "Etcd request latency in seconds for each operation and object type",
            self.durations.clone(),
        );
        registry.register(
            "etcd_lease_object_counts",
            "Number of objects attached to a single etcd lease",
            self.leases.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_embedded_has_a_size_and_is_no_etcd() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 64 << 10]).unwrap();
        // Its place is chosen then.
        file.as_file().sync_all().unwrap();
        let text = |storage: &Storage| {
            let mut registry = Registry::default();
            storage.register(&mut registry);
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        let found = std::fs::metadata(file.path()).unwrap().blocks() * BLOCK;
        let embedded = text(&Storage::in_file(file.path().to_owned()));
        let line = format!("apiserver_storage_size_bytes{{storage_cluster_id=\"embedded\"}} {found}\n");
        assert!(embedded.contains(&line) && !embedded.contains("etcd_"), "{embedded}");
        let storage = Storage::default();
        let asked = Asked {
            operation: "create",
            group: String::new(),
            resource: "pods".to_owned(),
        };
        storage.asked(&asked, Duration::from_millis(1), true);
        storage.asked(&asked, Duration::from_millis(1), false);
        storage.lease_is_over(60);
        let elsewhere = text(&storage);
        assert!(
            !elsewhere.contains("apiserver_storage_size_bytes{"),
            "nobody has told: {elsewhere}"
        );
        storage.is_large(4711);
        let told = text(&storage);
        assert!(
            told.contains("apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} 4711\n"),
            "{told}"
        );
        for (bound, count) in [("50.0", 0), ("100.0", 1), ("5000.0", 1)] {
            let line = format!("etcd_lease_object_counts_bucket{{le=\"{bound}\"}} {count}\n");
            assert!(elsewhere.contains(&line), "{line} is not in\n{elsewhere}");
        }
        for (name, count) in [("requests", 2), ("request_errors", 1)] {
            let line = format!("etcd_{name}_total{{operation=\"create\",group=\"\",resource=\"pods\"}} {count}\n");
            assert!(elsewhere.contains(&line), "{line} is not in\n{elsewhere}");
        }
    }
}
