//! ResourceClaims of pods (control-plane contract §12; KEP-4381): made from templates, recorded in the pod's status, released when nobody
//! uses them any more.
//!
//! Two halves: [`pods`] looks at pods and makes claims, [`claims`] looks at claims and lets go of what is not used. Which devices a claim
//! gets is the scheduler's. An API server that does not serve resource.k8s.io/v1 makes both wait, and nothing else.

use super::harness::Wiring;
use super::informers::Informers;
use super::pod::is_terminal;
use crate::held::Pod;
use client::Key;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

pub mod claims;
pub mod pods;
mod users;

/// The annotation of a claim that was made for a pod: what the pod calls it.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// The finalizer of what is allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Pods that may use one claim at a time.
const RESERVED_MAX: usize = 256;

/// Waits until claims and their templates are known.
fn synced(informers: &Informers) -> BoxFuture<'_, ()> {
    Box::pin(async {
        informers.device_claims.synced().await;
        informers.device_claim_templates.synced().await;
    })
}

/// Whether none of its containers runs, and none ever will.
fn is_done(pod: &Pod) -> bool {
    let is_placed = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    is_terminal(pod) || (pod.metadata.deletion_timestamp.is_some() && is_placed.is_none())
}

/// What the pod claims.
fn claimed(pod: &Pod) -> &[PodResourceClaim] {
    let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref());
    claims.map(Vec::as_slice).unwrap_or_default()
}

/// What stands for a claim of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named<'a> {
    /// This claim; whether it has to be the pod's own.
    Claim(&'a str, bool),
    /// None is needed: that is recorded, too.
    Nothing,
    /// It is not recorded yet.
    Unknown,
}

/// The claim that stands for one of the pod's.
fn name_of<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> Named<'a> {
    if let Some(name) = &claim.resource_claim_name {
        return Named::Claim(name, false);
    }
    let recorded = pod
        .status
        .as_ref()
        .and_then(|status| status.resource_claim_statuses.as_ref());
    match recorded.into_iter().flatten().find(|status| status.name == claim.name) {
        None => Named::Unknown,
        Some(status) => match status.resource_claim_name.as_deref() {
            Some(name) => Named::Claim(name, true),
            None => Named::Nothing,
        },
    }
}

/// The pod that controls a claim.
fn owner(claim: &ResourceClaim) -> Option<&OwnerReference> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == "Pod" && owner.api_version == "v1")
}

/// The claims that a pod uses, by key.
fn keys_of(pod: &Pod) -> Vec<Key> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let named = claimed(pod).iter().filter_map(|claim| match name_of(pod, claim) {
        Named::Claim(name, _) => Some(Key::new(namespace.clone(), name)),
        Named::Nothing | Named::Unknown => None,
    });
    named.collect()
}

/// Wakes the claims of pods that change.
fn wire_claims(informers: &Informers, wiring: &mut Wiring) {
    wiring.on_self(&informers.device_claims);
    wiring.on(&informers.pods, |change| {
        let sides = [change.old.as_deref(), change.new.as_deref()];
        sides.into_iter().flatten().flat_map(keys_of).collect()
    });
}

#[cfg(test)]
mod tests;
