//! Where it is said that an object of any kind went, for the quotas of its namespace.
//!
//! Owns the namespaces in which something went and nothing has been counted since: only those that have quotas. Said by who follows
//! all kinds anyway, the garbage collector; so no copy of them is held for this.

use crate::controller::informers::MetadataChange;
use crate::controller::write::{self, Resource};
use client::{Informer, Key};
use k8s_openapi::api::core::v1::ResourceQuota;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// See the module. Clones share it.
#[derive(Clone)]
pub struct Freed {
    quotas: Informer<ResourceQuota>,
    namespaces: Arc<Mutex<BTreeSet<String>>>,
    changed: Arc<watch::Sender<u64>>,
}

impl Freed {
    /// Nothing went yet.
    pub fn new(quotas: Informer<ResourceQuota>) -> Self {
        Self {
            quotas,
            namespaces: Arc::default(),
            changed: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Says what became of an object.
    pub fn tell(&self, resource: &Resource, change: &MetadataChange) {
        let is_gone = change.old.is_some() && change.new.is_none();
        // What these use is read from their own informers.
        let is_known = [&write::PODS, &write::SERVICES, &write::CLAIMS].contains(&resource);
        let namespace = &change.key.namespace;
        if !is_gone || is_known || namespace.is_empty() || self.quotas.list_namespace(namespace).is_empty() {
            return;
        }
        self.namespaces().insert(namespace.clone());
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Moves when something went.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The quotas of the namespaces in which something went since this was asked.
    pub fn take(&self) -> Vec<Key> {
        let namespaces = std::mem::take(&mut *self.namespaces());
        let all = namespaces
            .iter()
            .flat_map(|namespace| self.quotas.list_namespace(namespace));
        all.map(|quota| Key::of(&*quota)).collect()
    }

    fn namespaces(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
