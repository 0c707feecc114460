//! Which ResourceClaims a pod has, and whether it may use one as it is (KEP-4381; kubelet contract §8). Pure.

use super::DraError;
use crate::pod_object;
use k8s_openapi::api::core::v1::{Container, Pod, PodResourceClaim};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What is read of a claim. Everything else is the scheduler's and the driver's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Claim {
    pub(super) metadata: Metadata,
    pub(super) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    uid: String,
    controller: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    allocation: Option<Allocation>,
    reserved_for: Vec<Consumer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Consumer {
    uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    devices: Devices,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Devices {
    results: Vec<Allocated>,
}

/// One allocated device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Allocated {
    /// Its driver.
    pub(super) driver: String,
    /// Its pool.
    pub(super) pool: String,
    /// Its name.
    pub(super) device: String,
}

/// A claim a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// The object's name.
    pub(super) name: String,
    /// Whether it was made for the pod and must be its own.
    pub(super) own: bool,
}

/// A claim that is to be prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// Its UID.
    pub(super) uid: String,
    /// Its drivers, with the pools and devices that are allocated of each.
    pub(super) drivers: BTreeMap<String, BTreeSet<(String, String)>>,
}

/// Whether the pod names any claim, its own or one for its extended resources.
pub fn has_claims(pod: &Pod) -> bool {
    let named = pod_object::spec(pod).resource_claims.iter().flatten().next().is_some();
    named || extended(pod).is_some()
}

/// The claim of the pod's extended resources (KEP-5004).
fn extended(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::PodExtendedResourceClaimStatus> {
    pod.status.as_ref()?.extended_resource_claim_status.as_ref()
}

/// The object behind a claim of the pod's spec; nothing where none was to be made.
fn reference(pod: &Pod, claim: &PodResourceClaim) -> Result<Option<Reference>, DraError> {
    if let Some(name) = &claim.resource_claim_name {
        return Ok(Some(Reference {
            name: name.clone(),
            own: false,
        }));
    }
    let told = |what: String| DraError::Claim(what);
    let (namespace, name) = (pod_object::namespace(pod), pod_object::name(pod));
    if claim.resource_claim_template_name.is_none() {
        let claim = &claim.name;
        return Err(told(format!(
            "Pod {namespace}/{name}, spec.resourceClaim {claim}: none of the supported fields are set"
        )));
    }
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.resource_claim_statuses.as_ref());
    match statuses.into_iter().flatten().find(|status| status.name == claim.name) {
        Some(status) => {
            let named = status.resource_claim_name.clone();
            Ok(named.map(|name| Reference { name, own: true }))
        }
        None => Err(told(format!("Pod {namespace}/{name}: ResourceClaim not created yet"))),
    }
}

/// The name of the object behind one claim of the pod's spec, if it is known.
pub(super) fn object(pod: &Pod, claim: &str) -> Option<String> {
    let mut claims = pod_object::spec(pod).resource_claims.iter().flatten();
    let claim = claims.find(|known| known.name == claim)?;
    Some(reference(pod, claim).ok()??.name)
}

/// Every claim the pod names.
///
/// # Errors
/// One was not made yet, or is named in a way that is not known here.
pub(super) fn references(pod: &Pod) -> Result<Vec<Reference>, DraError> {
    let mut all = Vec::new();
    for claim in pod_object::spec(pod).resource_claims.iter().flatten() {
        all.extend(reference(pod, claim)?);
    }
    all.extend(extended(pod).map(|status| Reference {
        name: status.resource_claim_name.clone(),
        own: false,
    }));
    Ok(all)
}

/// The claims one container uses: the object's name, and the request of it, empty for all. In upstream's order: its claims, then what its
/// extended resources are mapped to.
///
/// # Errors
/// As [`references`].
pub(super) fn of_container(pod: &Pod, container: &Container) -> Result<Vec<(String, String)>, DraError> {
    let mut used = Vec::new();
    let resources = container.resources.as_ref();
    for claim in pod_object::spec(pod).resource_claims.iter().flatten() {
        let named = resources
            .and_then(|resources| resources.claims.as_ref())
            .into_iter()
            .flatten();
        let requests: Vec<_> = named.filter(|named| named.name == claim.name).collect();
        if requests.is_empty() {
            continue;
        }
        let Some(reference) = reference(pod, claim)? else {
            continue;
        };
        used.extend(requests.iter().map(|named| {
            let request = named.request.clone().unwrap_or_default();
            (reference.name.clone(), request)
        }));
    }
    let Some(extended) = extended(pod) else { return Ok(used) };
    let asked = resources.and_then(|resources| resources.requests.as_ref());
    let asks = |name: &str| {
        let quantity = asked.and_then(|asked| asked.get(name));
        quantity.is_some_and(|quantity| !quantity.0.trim_matches(['0', '.', '+', '-']).is_empty())
    };
    let mapped = extended.request_mappings.iter();
    let mapped = mapped.filter(|mapped| mapped.container_name == container.name && asks(&mapped.resource_name));
    used.extend(mapped.map(|mapped| (extended.resource_claim_name.clone(), mapped.request_name.clone())));
    Ok(used)
}

/// What is to be prepared of a claim for a pod.
///
/// # Errors
/// It is another pod's, was not reserved for this one, or is not allocated.
pub(super) fn wanted(pod: &Pod, reference: &Reference, claim: &Claim) -> Result<Wanted, DraError> {
    let uid = pod_object::uid(pod);
    let (namespace, name) = (pod_object::namespace(pod), pod_object::name(pod));
    let of = &claim.metadata;
    let is_owner = |owner: &Owner| owner.controller && owner.uid == uid.as_str();
    if reference.own && (of.namespace != namespace || !of.owner_references.iter().any(is_owner)) {
        return Err(DraError::Claim(format!(
            "ResourceClaim {}/{} was not created for Pod {namespace}/{name} (Pod is not owner)",
            of.namespace, of.name
        )));
    }
    if claim
        .status
        .reserved_for
        .iter()
        .all(|consumer| consumer.uid != uid.as_str())
    {
        return Err(DraError::Claim(format!(
            "pod {name} ({uid}) is not allowed to use ResourceClaim {} ({})",
            reference.name, of.uid
        )));
    }
    let Some(allocation) = &claim.status.allocation else {
        return Err(DraError::Claim(format!("ResourceClaim {}: not allocated", of.name)));
    };
    let mut drivers: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for allocated in &allocation.devices.results {
        let devices = drivers.entry(allocated.driver.clone()).or_default();
        devices.insert((allocated.pool.clone(), allocated.device.clone()));
    }
    Ok(Wanted {
        namespace: of.namespace.clone(),
        name: of.name.clone(),
        uid: of.uid.clone(),
        drivers,
    })
}

#[cfg(test)]
mod tests;
