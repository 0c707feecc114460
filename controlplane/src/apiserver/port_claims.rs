//! The node ports of all Services of a shared store, in the one record upstream's API servers keep them in (`resource::service::range_allocation`).
//!
//! Owns how that record is changed: over the revision it was judged by. Used where several API servers write ([`Store::is_shared`]); a
//! store of one process needs no record beside the Services.

use crate::resource::service::{range_allocation, taken_ports};
use crate::store::{Expect, Record, Store, StoreError};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Upstream's key.
const KEY: &str = "/registry/ranges/servicenodeports";
/// How often a change begins again after somebody else's. Each time another's change went through.
const ATTEMPTS: usize = 100;

/// The ports that are marked as taken, and what has to be so for a change over them.
pub(crate) struct Taken {
    pub(crate) ports: BTreeSet<u16>,
    expect: Expect,
}

impl Taken {
    /// As it is now.
    ///
    /// # Errors
    /// Whatever the store answers; `Unusable` if the record is none.
    pub(crate) async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let (_, records) = store.range(KEY).await?;
        Self::of(records.into_iter().find(|record| *record.key == *KEY))
    }

    fn of(record: Option<Record>) -> Result<Self, StoreError> {
        let Some(record) = record else {
            return Ok(Self {
                ports: BTreeSet::new(),
                expect: Expect::Absent,
            });
        };
        let ports = taken_ports(&record.value);
        let ports = ports.map_err(|why| StoreError::Unusable(format!("{KEY} cannot be read: {why}")))?;
        Ok(Self {
            ports,
            expect: Expect::At(record.modified),
        })
    }

    /// Writes `ports` in its place; gives what somebody else has written meanwhile, if so.
    ///
    /// # Errors
    /// As [`Taken::read`].
    pub(crate) async fn replace(&self, store: &dyn Store, ports: &BTreeSet<u16>) -> Result<Option<Self>, StoreError> {
        let nonce = uuid::Uuid::new_v4().to_string();
        let raw = Bytes::from(range_allocation(ports, &nonce));
        match store.put(KEY, raw, self.expect).await {
            Ok(_) => Ok(None),
            Err(StoreError::Conflict { current, .. }) => Self::of(current).map(Some),
            Err(error) => Err(error),
        }
    }
}

/// Marks the ports as taken: all of them, or none and the one that is taken already.
///
/// # Errors
/// Whatever the store answers.
pub(super) async fn claim(store: &dyn Store, wanted: &BTreeSet<u16>) -> Result<Result<(), u16>, StoreError> {
    let all = change(store, |taken| match wanted.iter().find(|port| taken.contains(port)) {
        Some(port) => Err(*port),
        None => Ok(taken.union(wanted).copied().collect()),
    });
    all.await
}

/// Marks the ports as free again.
///
/// # Errors
/// Whatever the store answers.
pub(super) async fn release(store: &dyn Store, freed: &BTreeSet<u16>) -> Result<(), StoreError> {
    let done = change(store, |taken| Ok(taken.difference(freed).copied().collect())).await?;
    debug_assert!(done.is_ok(), "nothing is against it");
    Ok(())
}

async fn change(
    store: &dyn Store,
    make: impl Fn(&BTreeSet<u16>) -> Result<BTreeSet<u16>, u16>,
) -> Result<Result<(), u16>, StoreError> {
    let mut taken = Taken::read(store).await?;
    for _ in 0..ATTEMPTS {
        let ports = match make(&taken.ports) {
            Ok(ports) if ports == taken.ports => return Ok(Ok(())),
            Ok(ports) => ports,
            Err(port) => return Ok(Err(port)),
        };
        match taken.replace(store, &ports).await? {
            None => return Ok(Ok(())),
            Some(newer) => taken = newer,
        }
    }
    Err(StoreError::Unusable(format!("{KEY} is changed by others all the time")))
}
