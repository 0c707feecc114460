//! Templates and the replica sets that carry them: equality, hash, creation.
//!
//! Upstream hashes Go's dump of the template, which no other language can reproduce. Ours is FNV-1a (32 bit) over the template
//! as canonical JSON (sorted keys) followed by the collision count in little-endian bytes, with upstream's encoding. What exists
//! is recognised by its template, never by its hash, so replica sets made by upstream's controller are taken over as they are.

use super::{View, annotation, event, rolling};
use crate::controller::owner::controller_reference;
use crate::controller::write::{self, Write};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use proto::api::names;

/// The label that tells replica sets of one deployment apart.
pub const HASH_LABEL: &str = "pod-template-hash";

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        if let Some(labels) = &mut meta.labels {
            labels.remove(HASH_LABEL);
        }
        meta.labels = meta.labels.take().filter(|l| !l.is_empty());
        meta.annotations = meta.annotations.take().filter(|a| !a.is_empty());
        meta.creation_timestamp = None;
    }
    template.metadata = template.metadata.filter(|m| *m != ObjectMeta::default());
    template
}

/// Whether the replica set carries this template, the hash label aside.
pub fn same(rs: &ReplicaSet, template: &PodTemplateSpec) -> bool {
    let own = rs.spec.as_ref().and_then(|s| s.template.as_ref());
    own.is_some_and(|own| without_hash(own) == without_hash(template))
}

/// The template's hash, as names and labels carry it.
pub fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let value = serde_json::to_value(without_hash(template)).expect("API types have string keys and serialise");
    let mut bytes = value.to_string().into_bytes();
    if let Some(collisions) = collisions.filter(|c| *c > 0) {
        bytes.extend(collisions.to_le_bytes());
    }
    let fnv = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    names::safe_encode(&fnv.to_string())
}

fn current_hash(view: &View<'_>) -> String {
    let collisions = view.deployment.status.as_ref().and_then(|s| s.collision_count);
    hash(&view.spec.template, collisions)
}

/// The name that a replica set of the current template is given.
pub fn name(view: &View<'_>) -> String {
    format!("{}-{}", view.deployment.name_any(), current_hash(view))
}

/// Whether `holder`, which has the name of the current template's replica set, is another: then another hash is to be taken. One
/// that is not seen yet is no reason, nor is one of this deployment and template: it was made by a request whose answer got
/// lost, and with a second one there would be twice the pods.
pub fn collides(view: &View<'_>, holder: Option<&ReplicaSet>) -> bool {
    let is_own = |rs: &ReplicaSet| {
        let owner = rs
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true));
        owner.is_some_and(|owner| Some(&owner.uid) == view.deployment.metadata.uid.as_ref())
            && same(rs, &view.spec.template)
    };
    holder.is_some_and(|rs| !is_own(rs))
}

/// Creates the replica set of the current template.
pub fn create(view: &View<'_>) -> Write {
    let deployment = view.deployment;
    let hash = current_hash(view);
    let name = name(view);
    let size = rolling::new_size(view, 0);
    let mut template = view.spec.template.clone();
    let meta = template.metadata.get_or_insert_default();
    meta.labels
        .get_or_insert_default()
        .insert(HASH_LABEL.into(), hash.clone());
    let mut selector = view.spec.selector.clone();
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH_LABEL.into(), hash);
    let mut annotations = annotation::inherited(deployment);
    annotations.insert(annotation::REVISION.into(), annotation::next_revision(view).to_string());
    annotations.extend(annotation::sizes(view).into_iter().map(|(k, v)| (k.to_owned(), v)));
    let rs = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: deployment.namespace(),
            labels: template.metadata.as_ref().and_then(|m| m.labels.clone()),
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(&write::DEPLOYMENTS, deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(size),
            min_ready_seconds: view.spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    let failed = format!("Failed to create new replica set {name:?}: {{}}");
    let write = Write::create(write::REPLICA_SETS, &rs);
    let write = write.failure(event(deployment, "Warning", "ReplicaSetCreateError", failed));
    if size == 0 {
        return write;
    }
    let message = format!("Scaled up replica set {name} from 0 to {size}");
    write.success(event(deployment, "Normal", "ScalingReplicaSet", message))
}
