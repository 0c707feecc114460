//! The store that the configuration asks for, what backups of it are made of, and what is told of it.
//!
//! Owns which one is opened, and that the daemon ends with it. Never reads what is in it.

use super::DaemonError;
use crate::apiserver::expiry;
use crate::bootstrap::live;
use crate::config::{Config, StoreKind};
use crate::metrics::storage::Storage;
use crate::resource::stored::{KeyKinds, resource_of};
use crate::store::Store;
use crate::store::counted::Counted;
use crate::store::disk::Disk;
use crate::store::disk::snapshot::Snapshots;
use crate::store::memory::Memory;
use crate::store::value::TypeMeta;
use etcd::{Etcd, Lifetime};
use futures::StreamExt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What goes by itself where others look at it, too: as upstream's API servers write it.
const LIFETIMES: [Lifetime; 2] = [
    Lifetime {
        prefix: "/registry/events/",
        after: expiry::LIFETIME,
    },
    Lifetime {
        prefix: live::PREFIX,
        after: live::TTL,
    },
];

/// Tells why a store is of no use any more, which says itself when.
pub(super) type Over = futures::future::BoxFuture<'static, String>;

/// Ends, and all else with it, when the store is of no use any more: who starts the daemon again finds what is there now.
pub(super) async fn end_with(over: Over, shutdown: CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        why = over => eprintln!("the control plane ends: {why}"),
    }
}

/// Tells now and then how large the store is, in bytes.
pub(super) type Sizes = futures::stream::BoxStream<'static, u64>;

/// Takes down how large the store is, until shutdown.
pub(super) async fn follow_sizes(mut sizes: Sizes, metrics: Arc<Storage>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(size) = sizes.next() => metrics.is_large(size),
        }
    }
}

/// See the module.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    /// Of the embedded store.
    pub(super) snapshots: Option<Snapshots>,
    /// Of what outlives the process.
    pub(super) metrics: Option<Arc<Storage>>,
    /// Of what others may take away.
    pub(super) over: Option<Over>,
    /// Of what is elsewhere.
    pub(super) sizes: Option<Sizes>,
}

/// Opens it.
///
/// # Errors
/// It cannot be used, or nobody answers.
pub(super) async fn open(config: &Config) -> Result<Opened, DaemonError> {
    Ok(match &config.store {
        StoreKind::Etcd(options) => {
            let etcd = Etcd::open(options.clone()).await.map_err(DaemonError::Etcd)?;
            let metrics = Arc::new(Storage::default());
            let leases = Arc::clone(&metrics);
            let etcd = etcd.with_lifetimes(&LIFETIMES, Box::new(move |values| leases.lease_is_over(values)));
            etcd.note_form().await.map_err(DaemonError::Store)?;
            let over: Over = Box::pin(etcd.over());
            let sizes = etcd.sizes().boxed();
            let counted = Counted::over(Arc::new(etcd), Arc::clone(&metrics), Box::new(resource_of()));
            Opened {
                store: Arc::new(counted),
                snapshots: None,
                metrics: Some(metrics),
                over: Some(over),
                sizes: Some(sizes),
            }
        }
        StoreKind::Memory => Opened {
            store: Arc::new(Memory::new()),
            snapshots: None,
            metrics: None,
            over: None,
            sizes: None,
        },
        StoreKind::Disk => {
            let mut kinds = KeyKinds::new();
            let mut describe = |key: &str, read: &dyn Fn(&str) -> Option<Vec<u8>>| {
                let (api_version, kind) = kinds.of(key, read)?;
                Some(TypeMeta::new(&api_version, &kind).into_owned())
            };
            let directory = config.data_dir.join("store");
            let disk = Disk::open_upgrading(directory, &mut describe).map_err(DaemonError::Store)?;
            Opened {
                snapshots: Some(disk.snapshots()),
                metrics: Some(Arc::new(Storage::in_file(disk.file()))),
                store: Arc::new(disk),
                over: None,
                sizes: None,
            }
        }
    })
}
