//! Makes what pods claim by templates, records it in their status, and reserves what they use where no scheduler did.

use super::users::{Used, Users};
use super::{Named, POD_CLAIM, RESERVED_MAX, claimed, is_done, name_of, owner, synced};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::owner::controller_reference;
use crate::controller::write::{self, PatchKind, Plan, Verb, Write, event};
use crate::held::Pod;
use client::Key;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Who writes the claims into a pod's status.
const MANAGER: &str = "ResourceClaimController";
/// The longest beginning of a name: a dash and five characters follow, and a label's length is not passed.
const BASE_MAX: usize = 57;

/// The controller. Its keys are pods.
pub struct PodClaims {
    informers: Informers,
    /// What the feed of pods has told. A pod that it has not told of yet is woken by it.
    users: Arc<Users>,
}

impl PodClaims {
    /// A controller that knows no pod yet.
    pub fn new(informers: Informers) -> Self {
        Self {
            informers,
            users: Arc::default(),
        }
    }
}

/// What is known of a pod's claims.
pub(super) struct Known<'a> {
    /// The claims that the pod controls.
    pub(super) own: Vec<Arc<ResourceClaim>>,
    /// A claim of its namespace.
    pub(super) claim: &'a dyn Fn(&str) -> Option<Arc<ResourceClaim>>,
    /// A template of its namespace.
    pub(super) template: &'a dyn Fn(&str) -> Option<Arc<ResourceClaimTemplate>>,
}

impl Controller for PodClaims {
    const NAME: &'static str = "resource-claim-controller";

    fn wire(&self, wiring: &mut Wiring) {
        let users = Arc::clone(&self.users);
        wiring.on(&self.informers.pods, move |change| {
            users.note(change);
            let pod = change.new.as_deref().filter(|pod| !claimed(pod).is_empty());
            pod.map(|_| change.key.clone()).into_iter().collect()
        });
        // One that went by mistake is made again; one that is allocated may be reserved.
        let users = Arc::clone(&self.users);
        wiring.on(&self.informers.device_claims, move |change| {
            let namespace = &change.key.namespace;
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let owners = sides.into_iter().flatten().filter_map(owner);
            let owners = owners.map(|owner| Key::new(namespace.clone(), owner.name.clone()));
            owners.chain(users.of(&Used::Claim(change.key.clone()))).collect()
        });
        let users = Arc::clone(&self.users);
        wiring.on(&self.informers.device_claim_templates, move |change| {
            users.of(&Used::Template(change.key.clone()))
        });
    }

    fn look_up<'a>(&'a self, _key: &Key, _client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        Some(synced(&self.informers))
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(pod) = self.informers.pods.get_key(key) else {
            return Plan::default();
        };
        let namespace = &key.namespace;
        let known = Known {
            own: self
                .informers
                .device_claims
                .controlled_by(namespace, &pod.uid().unwrap_or_default()),
            claim: &|name| self.informers.device_claims.get(namespace, name),
            template: &|name| self.informers.device_claim_templates.get(namespace, name),
        };
        plan(&pod, &known, self.informers.takes_new(namespace))
    }
}

/// What is to be done for a pod: its claims first, then its status, then reservations. Pure.
pub(super) fn plan(pod: &Pod, known: &Known<'_>, may_create: bool) -> Plan {
    if pod.metadata.deletion_timestamp.is_some() || is_done(pod) {
        return Plan::default();
    }
    let mut made = Plan::default();
    let mut recorded = Vec::new();
    for claim in claimed(pod) {
        match made_for(pod, claim, known) {
            Ok(Made::There(None)) => {}
            Ok(Made::There(Some(name))) => recorded.push((claim.name.clone(), name)),
            Ok(Made::Missing(write)) if may_create => made.writes.push(*write),
            Ok(Made::Missing(_)) => {}
            Err(error) => {
                let message = format!("PodResourceClaim {}: {error}", claim.name);
                let told = event(&write::PODS, pod, "Warning", "FailedResourceClaimCreation", message);
                made.events.push(told);
                made.again_in = Some(Duration::from_secs(10));
                // Nothing is recorded or reserved for a pod of whose claims one is not right.
                return made;
            }
        }
    }
    if !made.writes.is_empty() {
        return made;
    }
    made.writes.extend(record(pod, &recorded));
    if made.writes.is_empty() {
        made.writes = reservations(pod, known);
    }
    made
}

enum Made {
    /// It is there, and has to be recorded under this name if it is made for the pod.
    There(Option<String>),
    /// It is to be made.
    Missing(Box<Write>),
}

/// What stands for one claim of the pod.
fn made_for(pod: &Pod, claim: &PodResourceClaim, known: &Known<'_>) -> Result<Made, String> {
    match name_of(pod, claim) {
        Named::Nothing | Named::Claim(_, false) => return Ok(Made::There(None)),
        Named::Claim(name, true) => {
            if let Some(there) = (known.claim)(name) {
                is_for(pod, &there)?;
                return Ok(Made::There(Some(name.to_owned())));
            }
        }
        Named::Unknown => {}
    }
    let Some(template) = &claim.resource_claim_template_name else {
        return Ok(Made::There(None));
    };
    let mut own = known.own.iter().filter(|own| own.metadata.deletion_timestamp.is_none());
    if let Some(own) = own.find(|own| own.annotations().get(POD_CLAIM) == Some(&claim.name)) {
        return Ok(Made::There(Some(own.name_any())));
    }
    let found = (known.template)(template);
    let found = found.ok_or_else(|| {
        format!(
            "resource claim template \"{template}\": resourceclaimtemplate.resource.k8s.io \"{template}\" not found"
        )
    })?;
    Ok(Made::Missing(Box::new(creation(pod, claim, &found))))
}

/// Whether a claim that is recorded is the pod's.
fn is_for(pod: &Pod, claim: &ResourceClaim) -> Result<(), String> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    if owner(claim).is_some_and(|owner| owner.uid == uid) {
        return Ok(());
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Err(format!(
        "ResourceClaim {namespace}/{} was not created for Pod {namespace}/{} (Pod is not owner)",
        claim.name_any(),
        pod.name_any()
    ))
}

/// How the name of a claim begins: both names, each cut alike where they are too long together.
pub(super) fn base(pod: &str, claim: &str) -> String {
    let whole = pod.len() + 1 + claim.len();
    if whole <= BASE_MAX {
        return format!("{pod}-{claim}-");
    }
    let cut = |text: &str| text[..text.floor_char_boundary(text.len() * BASE_MAX / whole)].to_owned();
    format!("{}-{}-", cut(pod), cut(claim))
}

fn creation(pod: &Pod, claim: &PodResourceClaim, template: &ResourceClaimTemplate) -> Write {
    let own = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = own.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), claim.name.clone());
    let made = ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(base(&pod.name_any(), &claim.name)),
            namespace: pod.metadata.namespace.clone(),
            labels: own.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(&write::PODS, pod)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    };
    let failed = format!("PodResourceClaim {}: {{}}", claim.name);
    Write::create(write::DEVICE_CLAIMS, &made).failure(event(
        &write::PODS,
        pod,
        "Warning",
        "FailedResourceClaimCreation",
        failed,
    ))
}

/// The write of the names to the pod's status, unless it says them.
fn record(pod: &Pod, names: &[(String, String)]) -> Option<Write> {
    let recorded = pod
        .status
        .as_ref()
        .and_then(|status| status.resource_claim_statuses.as_ref());
    let says = |(name, claim): &(String, String)| {
        let mut recorded = recorded.into_iter().flatten();
        recorded.any(|status| status.name == *name && status.resource_claim_name.as_ref() == Some(claim))
    };
    if names.iter().all(says) {
        return None;
    }
    let statuses: Vec<_> = names
        .iter()
        .map(|(name, claim)| json!({"name": name, "resourceClaimName": claim}))
        .collect();
    let body = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
        "status": {"resourceClaimStatuses": statuses}});
    Some(Write::new(
        write::PODS,
        Key::of(pod),
        Verb::Patch(PatchKind::Apply(MANAGER), "status", body),
    ))
}

/// A pod that has a node without a scheduler's doing uses claims that are allocated.
fn reservations(pod: &Pod, known: &Known<'_>) -> Vec<Write> {
    let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
    let mut writes = Vec::new();
    for claim in claimed(pod).iter().filter(|_| is_placed) {
        let Named::Claim(claim, must_be_own) = name_of(pod, claim) else {
            continue;
        };
        let Some(there) = (known.claim)(claim) else { continue };
        // Who may write a pod's status may name there what is another's.
        if must_be_own && is_for(pod, &there).is_err() {
            continue;
        }
        let mut claim = ResourceClaim::clone(&there);
        let Some(status) = claim.status.as_mut().filter(|status| status.allocation.is_some()) else {
            continue;
        };
        let reserved = status.reserved_for.get_or_insert_default();
        if reserved.len() >= RESERVED_MAX || reserved.iter().any(|consumer| consumer.uid == uid) {
            continue;
        }
        reserved.push(ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".to_owned(),
            name: name.clone(),
            uid: uid.clone(),
        });
        writes.push(Write::replace_status(write::DEVICE_CLAIMS, &claim));
    }
    writes
}
