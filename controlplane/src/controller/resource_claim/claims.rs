//! Lets go of claims: reservations of pods that are gone or done, what was allocated for them, and claims that were made for such pods.

use super::{FINALIZER, is_done, owner, synced, wire_claims};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::write::{self, Plan, Write};
use crate::held::Pod;
use client::Key;
use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// For all that is asked about a claim, together.
const DEADLINE: Duration = Duration::from_secs(10);
/// Questions about a claim at the same time.
const AT_ONCE: usize = 8;

/// The controller. Its keys are claims.
pub struct UsedClaims {
    /// The shared informers.
    pub informers: Informers,
    /// UIDs of pods that the API server says are gone, by claim, until the next plan.
    pub gone: Mutex<BTreeMap<Key, BTreeSet<String>>>,
    /// UIDs of claims whose allocation was taken back, and whose finalizer goes next.
    pub freed: Mutex<BTreeSet<String>>,
}

impl UsedClaims {
    fn gone(&self) -> MutexGuard<'_, BTreeMap<Key, BTreeSet<String>>> {
        self.gone.lock().expect("no holder of this lock panics")
    }

    /// Pods that the claim is reserved for, and that no informer knows.
    fn unknown(&self, claim: &ResourceClaim) -> Vec<ResourceClaimConsumerReference> {
        let namespace = claim.namespace().unwrap_or_default();
        let is_known = |name: &str| self.informers.pods.get(&namespace, name).is_some();
        let pods = reserved(claim).iter().filter(|consumer| is_pod(consumer));
        pods.filter(|consumer| !is_known(&consumer.name)).cloned().collect()
    }
}

fn is_pod(consumer: &ResourceClaimConsumerReference) -> bool {
    consumer.resource == "pods" && consumer.api_group.as_deref().unwrap_or_default().is_empty()
}

fn reserved(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    let status = claim.status.as_ref();
    let reserved = status.and_then(|status| status.reserved_for.as_ref());
    reserved.map(Vec::as_slice).unwrap_or_default()
}

/// Which of these pods there are not, as the API server says: an informer may not know one yet. Of one that it does not answer about in time
/// nothing is known.
async fn ask(client: &kube::Client, namespace: &str, pods: &[ResourceClaimConsumerReference]) -> BTreeSet<String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let until = Instant::now() + DEADLINE;
    let each = pods.iter().map(|consumer| {
        let (api, consumer) = (api.clone(), consumer.clone());
        Box::pin(async move {
            let found = timeout_at(until, api.get_metadata_opt(&consumer.name)).await;
            let is_there = match found {
                Ok(Ok(found)) => found.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(&*consumer.uid)),
                // Not known: it stays.
                Ok(Err(_)) | Err(_) => true,
            };
            (!is_there).then_some(consumer.uid)
        })
    });
    let each: Vec<_> = each.collect();
    let answers = futures::stream::iter(each).buffer_unordered(AT_ONCE);
    answers.filter_map(std::future::ready).collect().await
}

impl Controller for UsedClaims {
    const NAME: &'static str = "resource-claim-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wire_claims(&self.informers, wiring);
    }

    fn look_up<'a>(&'a self, key: &Key, client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        let key = key.clone();
        Some(Box::pin(async move {
            synced(&self.informers).await;
            let Some(claim) = self.informers.device_claims.get_key(&key) else {
                return;
            };
            let unknown = self.unknown(&claim);
            if !unknown.is_empty() {
                let gone = ask(client, &key.namespace, &unknown).await;
                self.gone().insert(key, gone);
            }
        }))
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let gone = self.gone().remove(key).unwrap_or_default();
        let Some(claim) = self.informers.device_claims.get_key(key) else {
            return Plan::default();
        };
        let uid = claim.uid().unwrap_or_default();
        let mut freed = self.freed.lock().expect("no holder of this lock panics");
        let known = Known {
            pod: &|name| self.informers.pods.get(&key.namespace, name),
            gone: &gone,
            is_freed: freed.contains(&uid),
        };
        let next = next(&claim, &known);
        match &next {
            Some(Next::Free(_)) => drop(freed.insert(uid)),
            _ => drop(freed.remove(&uid)),
        }
        Plan::of(next.map(Next::into_write).into_iter().collect())
    }
}

/// What is known of a claim's pods.
pub(super) struct Known<'a> {
    /// The pod of that name, if an informer has it.
    pub(super) pod: &'a dyn Fn(&str) -> Option<Arc<Pod>>,
    /// UIDs of pods that are gone for certain.
    pub(super) gone: &'a BTreeSet<String>,
    /// Whether the allocation was taken back just now.
    pub(super) is_freed: bool,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// A status without what is not used, and without the allocation.
    Free(Write),
    /// Any other write.
    Write(Write),
}

impl Next {
    pub(super) fn into_write(self) -> Write {
        match self {
            Next::Free(write) | Next::Write(write) => write,
        }
    }
}

/// The next step of letting go. Pure.
pub(super) fn next(claim: &ResourceClaim, known: &Known<'_>) -> Option<Next> {
    let all = reserved(claim);
    let valid: Vec<_> = all
        .iter()
        .filter(|consumer| is_used(consumer, known))
        .cloned()
        .collect();
    let is_protected = claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    let is_ending = claim.metadata.deletion_timestamp.is_some();
    let frees = is_protected && is_allocated && valid.is_empty();
    if valid.len() < all.len() || (frees && is_ending) {
        let mut changed = claim.clone();
        let status = changed.status.get_or_insert_default();
        status.reserved_for = Some(valid).filter(|valid| !valid.is_empty());
        if frees {
            status.allocation = None;
            status.devices = None;
        }
        let write = Write::replace_status(write::DEVICE_CLAIMS, &changed);
        return Some(if frees { Next::Free(write) } else { Next::Write(write) });
    }
    // The scheduler puts the finalizer first and allocates then: only what was freed, or goes, loses it.
    if is_protected && !is_allocated && valid.is_empty() && (is_ending || known.is_freed) {
        let mut changed = claim.clone();
        changed.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        return Some(Next::Write(Write::replace(write::DEVICE_CLAIMS, &changed)));
    }
    let owner = owner(claim).filter(|_| valid.is_empty() && !is_ending)?;
    let pod = (known.pod)(&owner.name)?;
    let is_over = pod.metadata.uid.as_deref() != Some(&*owner.uid) || is_done(&pod);
    is_over.then(|| Next::Write(Write::delete(write::DEVICE_CLAIMS, claim)))
}

/// Whether the consumer may use the claim yet. What is no pod is nobody's here to judge.
fn is_used(consumer: &ResourceClaimConsumerReference, known: &Known<'_>) -> bool {
    if !is_pod(consumer) {
        return true;
    }
    match (known.pod)(&consumer.name) {
        Some(pod) => pod.metadata.uid.as_deref() == Some(&*consumer.uid) && !is_done(&pod),
        None => !known.gone.contains(&consumer.uid),
    }
}
