//! ResourceQuotas: what is enforced, and how much of it is used, counted anew (`status.hard`, `status.used`).
//!
//! Source: control-plane contract §12. New objects are charged by the API server before they are stored; here is counted what goes:
//! pods that end, objects that are deleted, and all of it once in five minutes. A count may miss what is being charged meanwhile, so it
//! is written over no revision in particular: the server never stores less than there is ([`crate::apiserver`], `quota`).
//! Pods, Services and claims are read from the shared informers; of all other objects the server is asked for their number.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{self, Failure, Plan, Verb, Write};
use crate::held::Pod;
use crate::quota::{Evaluator, Measured, Quota, Usage, masked, overdue_at};
use client::informer::{Change, Object};
use client::{Clock, Informer, Key};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota, Service};
use k8s_openapi::jiff::Timestamp;
use proto::api::quantity::{Format, Quantity};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub mod freed;
pub mod number;

use number::Numbers;

/// How often all is counted whatever happened.
pub const RESYNC: Duration = Duration::from_secs(300);
/// Until objects that could not be counted are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// After something went: many that go together are one count.
const SETTLE: Duration = Duration::from_millis(50);

/// The controller.
pub struct ResourceQuotas {
    /// The shared informers.
    pub informers: Informers,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// How many objects there are of what no informer holds.
    pub numbers: Numbers,
}

/// What a count is made of.
struct Contents<'c> {
    pods: &'c [Arc<Pod>],
    services: &'c [Arc<Service>],
    claims: &'c [Arc<PersistentVolumeClaim>],
    /// Numbers of objects by the name they are counted under; what could not be asked is absent.
    numbers: &'c BTreeMap<String, i64>,
}

/// How much of what the quota bounds is used. What cannot be counted stays as it was.
fn used(quota: &Quota, contents: &Contents<'_>, now: Timestamp) -> Usage {
    let bounds = &quota.wanted;
    let mut used = masked(&quota.used, bounds);
    let pods = contents.pods.iter().map(|pod| &**pod);
    used.extend(quota.sum(&Evaluator::Pods, pods, bounds, now));
    let services = contents.services.iter().map(|service| &**service);
    used.extend(quota.sum(&Evaluator::Services, services, bounds, now));
    let claims = contents.claims.iter().map(|claim| &**claim);
    used.extend(quota.sum(&Evaluator::Claims, claims, bounds, now));
    for name in counted_by_number(quota) {
        // A scope is about pods or claims: nothing else is in it.
        let number = match quota.is_scoped() {
            true => Some(0),
            false => contents.numbers.get(name).copied(),
        };
        if let Some(number) = number {
            used.insert(name.to_owned(), Quantity::from_units(number, Format::DecimalSi));
        }
    }
    used
}

/// The names under which a quota bounds numbers of objects that no evaluator of ours reads.
fn counted_by_number(quota: &Quota) -> impl Iterator<Item = &str> {
    let names = quota.wanted.keys().map(String::as_str);
    names.filter(|name| {
        matches!(
            Evaluator::of_name(name),
            Some(Evaluator::Objects { .. } | Evaluator::DeviceClaims)
        )
    })
}

/// The status to be written, if it says something else than before.
fn status(object: &ResourceQuota, contents: &Contents<'_>, now: Timestamp) -> Option<Write> {
    let quota = Quota::of(object);
    let used = used(&quota, contents, now);
    let before = object.status.as_ref();
    let is_told = before.is_some_and(|status| status.hard.is_some() && status.used.is_some());
    if is_told && quota.wanted == quota.hard && quota.used == used {
        return None;
    }
    let used: BTreeMap<&String, String> = used.iter().map(|(name, amount)| (name, amount.to_string())).collect();
    let key = Key::of(object);
    let hard = object
        .spec
        .as_ref()
        .and_then(|spec| spec.hard.clone())
        .unwrap_or_default();
    let body = json!({
        "kind": "ResourceQuota", "apiVersion": "v1",
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": object.metadata.uid},
        "status": {"hard": hard, "used": used},
    });
    Some(Write::new(
        write::RESOURCE_QUOTAS,
        key,
        Verb::ReplaceSub("status", body),
    ))
}

/// Whether a quota's change calls for a count; what admission charges does not.
fn is_to_be_counted(change: &Change<ResourceQuota>) -> bool {
    let Some(new) = change.new.as_deref() else {
        // What was kept for it is forgotten.
        return true;
    };
    let quota = Quota::of(new);
    let lacks = quota
        .wanted
        .keys()
        .any(|name| !quota.used.contains_key(name) && Evaluator::of_name(name).is_some());
    let is_other = change.old.as_deref().is_none_or(|old| old.spec != new.spec);
    is_other || lacks || quota.wanted != quota.hard
}

/// Whether a change of a pod, Service or claim frees something, or moves it to another quota.
fn frees<K: Object + Measured>(change: &Change<K>, now: Timestamp) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.usage(now) != new.usage(now),
        (old, _) => old.is_some(),
    }
}

fn deadline(pod: Option<&Arc<Pod>>) -> Option<i64> {
    pod?.spec.as_ref()?.active_deadline_seconds
}

impl ResourceQuotas {
    fn with_contents<T>(&self, key: &Key, run: impl FnOnce(&Contents<'_>) -> T) -> T {
        let namespace = &key.namespace;
        run(&Contents {
            pods: &self.informers.pods.list_namespace(namespace),
            services: &self.informers.services.list_namespace(namespace),
            claims: &self.informers.claims.list_namespace(namespace),
            numbers: &self.numbers.of(key),
        })
    }

    /// Wakes the quotas of a namespace a little after something in it was freed.
    fn on_freed<K: Object + Measured>(
        &self,
        wiring: &mut Wiring,
        informer: &Informer<K>,
        moves: fn(&Change<K>) -> bool,
    ) {
        let (quotas, clock) = (self.informers.quotas.clone(), Arc::clone(&self.clock));
        wiring.on_later(informer, move |change| {
            let all = quotas.list_namespace(&change.key.namespace);
            if all.is_empty() || !(moves(change) || frees(change, clock.now())) {
                return Vec::new();
            }
            all.iter().map(|quota| (Key::of(&**quota), SETTLE)).collect()
        });
    }

    /// When a pod that is being deleted will be counted no more, if it is still there.
    fn next_overdue(&self, key: &Key, now: Timestamp) -> Option<Duration> {
        let pods = self.informers.pods.list_namespace(&key.namespace);
        let all = pods.iter().filter_map(|pod| overdue_at(pod)).filter(|at| *at >= now);
        let wait = Duration::try_from(all.min()?.duration_since(now)).ok()?;
        // Past the moment, not at it.
        Some(wait + Duration::from_secs(1))
    }
}

impl Controller for ResourceQuotas {
    const NAME: &'static str = "resourcequota-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on(&self.informers.quotas, |change| {
            is_to_be_counted(change)
                .then(|| change.key.clone())
                .into_iter()
                .collect()
        });
        self.on_freed(wiring, &self.informers.pods, |change| {
            deadline(change.old.as_ref()) != deadline(change.new.as_ref()) && change.old.is_some()
        });
        self.on_freed(wiring, &self.informers.services, |_| false);
        self.on_freed(wiring, &self.informers.claims, |_| false);
        let freed = self.informers.freed.clone();
        wiring.on_value(freed.changes(), move || freed.take());
    }

    fn look_up<'a>(&'a self, key: &Key, client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        let quota = Quota::of(&*self.informers.quotas.get_key(key)?);
        let names: Vec<String> = counted_by_number(&quota).map(str::to_owned).collect();
        if names.is_empty() || quota.is_scoped() {
            return None;
        }
        Some(Box::pin(self.numbers.look_up(client, key.clone(), names)))
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        if self.informers.quotas.get_key(key).is_none() {
            self.numbers.forget(key);
            return Plan::default();
        }
        let retry = self.numbers.is_incomplete(key).then_some(RETRY);
        let next = [retry, self.next_overdue(key, now)].into_iter().flatten().min();
        Plan {
            again_in: Some(next.map_or(RESYNC, |next| next.min(RESYNC))),
            ..Plan::default()
        }
    }

    fn status(&self, key: &Key, now: Timestamp, _failure: Option<&Failure>) -> Vec<Write> {
        let Some(quota) = self.informers.quotas.get_key(key) else {
            return Vec::new();
        };
        let write = self.with_contents(key, |contents| status(&quota, contents, now));
        write.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
