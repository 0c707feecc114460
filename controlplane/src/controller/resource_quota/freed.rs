//! Where it is said that an object of any kind went, for the quotas of its namespace.
//!
//! Owns the namespaces in which something went and nothing has been counted since: only those that have quotas. Said by who follows
//! all kinds anyway, the garbage collector; so no copy of them is held for this.

use crate::controller::informers::MetadataChange;
use crate::controller::write::{self, Resource};
use crate::quota::Evaluator;
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

/// Whether what these use is read from their own informers.
fn is_known(resource: &Resource) -> bool {
    [&write::PODS, &write::SERVICES, &write::CLAIMS].contains(&resource)
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
        let namespace = &change.key.namespace;
        if !is_gone || is_known(resource) || namespace.is_empty() || self.quotas.list_namespace(namespace).is_empty() {
            return;
        }
        self.namespaces().insert(namespace.clone());
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Says that something of a resource went, nobody knows where: it concerns the quotas that bound it.
    pub fn tell_everywhere(&self, resource: &Resource) {
        let Some(evaluator) = Evaluator::of(&resource.group, &resource.plural).filter(|_| !is_known(resource)) else {
            return;
        };
        let quotas = self.quotas.list();
        let bounding = quotas.iter().filter(|quota| {
            let bounds = quota.spec.iter().filter_map(|spec| spec.hard.as_ref()).flatten();
            bounds.into_iter().any(|(name, _)| evaluator.measures(name))
        });
        let all: BTreeSet<String> = bounding.filter_map(|quota| quota.metadata.namespace.clone()).collect();
        if all.is_empty() {
            return;
        }
        self.namespaces().extend(all);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::world::informers_of;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[tokio::test(start_paused = true)]
    async fn what_went_is_told_where_it_was_or_everywhere_if_nobody_knows() {
        let quota = |namespace: &str, bounded: &str| json!({"metadata": {"namespace": namespace, "name": "q", "uid": namespace, "resourceVersion": "1"}, "spec": {"hard": {bounded: "3"}}});
        let quotas = [quota("a", "secrets"), quota("b", "count/secrets"), quota("d", "pods")];
        let informers = informers_of(BTreeMap::from([("resourcequotas", quotas.to_vec())]));
        informers.quotas.synced().await;
        let freed = &informers.freed;
        let told = || -> Vec<String> { freed.take().into_iter().map(|quota| quota.namespace).collect() };
        let changes = freed.changes();
        let gone = |namespace: &str, old: Option<ObjectMeta>, new: Option<ObjectMeta>| MetadataChange {
            key: Key::new(namespace, "o"),
            old,
            new,
        };
        let some = || Some(ObjectMeta::default());
        for change in [gone("a", None, some()), gone("c", some(), None), gone("", some(), None)] {
            freed.tell(&write::CONFIG_MAPS, &change);
        }
        freed.tell(&write::PODS, &gone("a", some(), None));
        freed.tell_everywhere(&write::PODS);
        freed.tell_everywhere(&write::CONFIG_MAPS);
        assert!(told().is_empty() && !changes.has_changed().unwrap());
        freed.tell(&write::CONFIG_MAPS, &gone("b", some(), None));
        assert_eq!((told(), changes.has_changed().unwrap()), (vec!["b".to_owned()], true));
        freed.tell_everywhere(&write::SECRETS);
        assert_eq!(told(), ["a", "b"]);
        assert_eq!(told(), [""; 0], "once");
    }
}
