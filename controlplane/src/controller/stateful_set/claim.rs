//! The claims of a stateful set's pods: their names, what is made, and whose they are, which decides when they go. Pure.
//!
//! Claims outlive their pods. With `persistentVolumeClaimRetentionPolicy` they get owners, and the garbage collector does the rest: the
//! set (`whenDeleted: Delete`), or a pod that scaling has condemned (`whenScaled: Delete`).

use super::View;
use super::identity::{self, Ordinal};
use crate::controller::write::{self, EventText, Resource, Write, event};
use crate::held::Pod;
use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use std::sync::Arc;

fn templates(spec: &StatefulSetSpec) -> &[PersistentVolumeClaim] {
    spec.volume_claim_templates.as_deref().unwrap_or_default()
}

fn name(template: &PersistentVolumeClaim, set: &str, ordinal: Ordinal) -> String {
    format!("{}-{set}-{ordinal}", template.name_any())
}

/// The claims of an ordinal that there are.
fn existing(view: &View<'_>, ordinal: Ordinal) -> Vec<Arc<PersistentVolumeClaim>> {
    let set = view.set.name_any();
    let all = templates(view.spec).iter();
    all.filter_map(|template| (view.claims)(&name(template, &set, ordinal)))
        .collect()
}

/// Puts the claims of an ordinal into a pod's volumes, in the place of volumes of the same names.
pub fn mount(spec: &StatefulSetSpec, set: &str, ordinal: Ordinal, pod: &mut PodSpec) {
    let templates = templates(spec);
    if templates.is_empty() {
        return;
    }
    let volume = |template: &PersistentVolumeClaim| Volume {
        name: template.name_any(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: name(template, set, ordinal),
            read_only: None,
        }),
        ..Volume::default()
    };
    let mut volumes: Vec<Volume> = templates.iter().map(volume).collect();
    let others = pod.volumes.take().unwrap_or_default();
    let is_claimed = |v: &Volume| templates.iter().any(|t| t.name_any() == v.name);
    volumes.extend(others.into_iter().filter(|v| !is_claimed(v)));
    pod.volumes = Some(volumes);
}

fn owned_by(claim: &PersistentVolumeClaim, uid: &str) -> bool {
    claim.owner_references().iter().any(|owner| owner.uid == uid)
}

fn refers_to(owner: &OwnerReference, resource: &Resource, name: &str) -> bool {
    owner.api_version == resource.api_version() && owner.kind == resource.kind && owner.name == name
}

/// What the set's policy says of claims.
#[derive(Clone, Copy)]
struct Retention {
    delete_with_set: bool,
    delete_with_scaling: bool,
}

fn retention(spec: &StatefulSetSpec) -> Retention {
    let policy = spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |text: Option<&String>| text.is_some_and(|text| text == "Delete");
    Retention {
        delete_with_set: deletes(policy.and_then(|p| p.when_deleted.as_ref())),
        delete_with_scaling: deletes(policy.and_then(|p| p.when_scaled.as_ref())),
    }
}

/// Whether a claim still belongs to an earlier pod of the name and will go with it: no pod may use it any more.
pub fn is_leaving(view: &View<'_>, ordinal: Ordinal) -> bool {
    let pod = identity::name(&view.set.name_any(), ordinal);
    let uid = view.pods.get(&ordinal).and_then(|p| p.uid()).unwrap_or_default();
    let is_stale = |claim: &PersistentVolumeClaim| {
        let mut owners = claim.owner_references().iter();
        owners.any(|owner| refers_to(owner, &write::PODS, &pod) && owner.uid != uid)
    };
    retention(view.spec).delete_with_scaling && existing(view, ordinal).iter().any(|claim| is_stale(claim))
}

/// The first of the ordinal's claims that is being deleted.
pub fn deleting(view: &View<'_>, ordinal: Ordinal) -> Option<String> {
    let claims = existing(view, ordinal);
    let going = claims.iter().find(|claim| claim.metadata.deletion_timestamp.is_some());
    going.map(|claim| claim.name_any())
}

fn told(view: &View<'_>, kind: &'static str, reason: &'static str, message: String) -> EventText {
    event(&write::STATEFUL_SETS, view.set, kind, reason, message)
}

/// Creates the claims of an ordinal that there are not.
pub fn missing(view: &View<'_>, ordinal: Ordinal) -> Vec<Write> {
    let set = view.set.name_any();
    let pod = identity::name(&set, ordinal);
    let absent = templates(view.spec)
        .iter()
        .filter(|t| (view.claims)(&name(t, &set, ordinal)).is_none());
    absent
        .map(|template| {
            let mut claim = template.clone();
            let name = name(template, &set, ordinal);
            claim.metadata.name = Some(name.clone());
            claim.metadata.namespace = view.set.namespace();
            let labels = claim.metadata.labels.get_or_insert_default();
            labels.extend(view.spec.selector.match_labels.clone().unwrap_or_default());
            let done = format!("create Claim {name} Pod {pod} in StatefulSet {set} success");
            let failed = format!("create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {{}}");
            Write::create(write::CLAIMS, &claim)
                .success(told(view, "Normal", "SuccessfulCreate", done))
                .failure(told(view, "Warning", "FailedCreate", failed))
        })
        .collect()
}

fn controller(resource: &Resource, name: String, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: resource.api_version(),
        kind: resource.kind.to_string(),
        name,
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whose a claim should be.
struct Owners {
    all: Vec<OwnerReference>,
    /// Another controller has it, so that the set's policy does not count.
    is_managed: bool,
}

/// The owners a claim of the pod should have; `None` when it has them, or is somebody else's to care for.
fn owners(view: &View<'_>, ordinal: Ordinal, pod: &Pod, claim: &PersistentVolumeClaim) -> Option<Owners> {
    let (set_name, set_uid) = (view.set.name_any(), view.set.uid().unwrap_or_default());
    let (pod_name, pod_uid) = (pod.name_any(), pod.uid().unwrap_or_default());
    let is_set = |owner: &OwnerReference| refers_to(owner, &write::STATEFUL_SETS, &set_name);
    let is_pod = |owner: &OwnerReference| refers_to(owner, &write::PODS, &pod_name);
    let known = claim.owner_references();
    // Of an earlier set or pod of the name: the garbage collector will see to it.
    let is_stale = |o: &OwnerReference| is_set(o) && o.uid != set_uid || is_pod(o) && o.uid != pod_uid;
    if known.iter().any(is_stale) {
        return None;
    }
    let policy = retention(view.spec);
    let others = || known.iter().filter(|o| !is_set(o) && !is_pod(o)).cloned();
    let is_managed =
        (policy.delete_with_set || policy.delete_with_scaling) && others().any(|o| o.controller == Some(true));
    let has = (owned_by(claim, &set_uid), owned_by(claim, &pod_uid));
    let wants_pod = !is_managed && policy.delete_with_scaling && !view.wanted().contains(&ordinal);
    let wants_set = !is_managed && policy.delete_with_set && !wants_pod;
    let mut ours = known.iter().filter(|o| o.uid == set_uid || o.uid == pod_uid);
    let all_control = ours.all(|o| o.controller == Some(true));
    if (is_managed || all_control) && has == (wants_set, wants_pod) {
        return None;
    }
    let set = wants_set.then(|| controller(&write::STATEFUL_SETS, set_name.clone(), &set_uid));
    let pod = wants_pod.then(|| controller(&write::PODS, pod_name.clone(), &pod_uid));
    Some(Owners {
        all: others().chain(set).chain(pod).collect(),
        is_managed,
    })
}

/// Gives the claims of a pod the owners that the set's policy says.
pub fn retain(view: &View<'_>, ordinal: Ordinal, pod: &Pod) -> Vec<Write> {
    let claims = existing(view, ordinal);
    let changed = claims.iter().filter_map(|claim| {
        let owners = owners(view, ordinal, pod, claim)?;
        let mut claim = PersistentVolumeClaim::clone(claim);
        claim.metadata.owner_references = (!owners.all.is_empty()).then_some(owners.all);
        let write = Write::replace(write::CLAIMS, &claim);
        if !owners.is_managed {
            return Some(write);
        }
        let message = format!(
            "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the retention policy is \
             ignored for this claim",
            claim.name_any()
        );
        Some(write.success(told(view, "Warning", "ConflictingController", message)))
    });
    changed.collect()
}
