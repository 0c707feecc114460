//! The revision of a daemon set's template: found, made, numbered; one alone for one template. Pure.

use super::live_labels;
use crate::controller::deployment::template;
use crate::controller::history::{self, REVISION_LABEL, Revision, Spelling};
use crate::controller::pod;
use crate::controller::write::{self, Failure, PatchKind, Write};
use crate::held::Pod;
use client::Key;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;

/// What is next for the revisions.
pub enum Step {
    /// To be written first.
    Write(Vec<Write>),
    /// The hash of the template's revision.
    Settled(String),
}

fn template_of(set: &DaemonSet) -> PodTemplateSpec {
    set.spec.as_ref().map(|s| s.template.clone()).unwrap_or_default()
}

fn hash(set: &DaemonSet) -> String {
    let collisions = set.status.as_ref().and_then(|s| s.collision_count);
    template::hash(&template_of(set), collisions)
}

/// The name that the template's revision is given.
pub fn key(set: &DaemonSet) -> Key {
    Key::new(
        set.namespace().unwrap_or_default(),
        history::name(&set.name_any(), &hash(set)),
    )
}

fn label(key: Key, resource: write::Resource, value: &str) -> Write {
    let body = json!({"metadata": {"labels": {REVISION_LABEL: value}}});
    Write::patch(resource, key, PatchKind::Merge, body)
}

/// The set's template, as revisions spell it.
pub fn spelling(set: &DaemonSet) -> Spelling {
    let template = set.spec.as_ref().map(|s| &s.template);
    template.map_or_else(|| Spelling::of(&PodTemplateSpec::default()), Spelling::of)
}

/// What is next, given the set's template and its revisions in the order of their numbers.
pub fn step(set: &DaemonSet, template: &Spelling, revisions: &[Arc<Revision>], pods: &[Arc<Pod>]) -> Step {
    let nameless: Vec<Write> = revisions
        .iter()
        .filter(|r| r.label().is_none())
        .map(|r| label(Key::of(&**r), write::CONTROLLER_REVISIONS, r.name()))
        .collect();
    if !nameless.is_empty() {
        return Step::Write(nameless);
    }
    let (current, old): (Vec<&Arc<Revision>>, Vec<_>) = revisions.iter().partition(|r| r.is_of(template));
    let next = old.iter().map(|r| r.number).max().unwrap_or(0).saturating_add(1);
    let Some((kept, duplicates)) = current.split_last() else {
        let (owner, hash) = ((&write::DAEMON_SETS, set), hash(set));
        return Step::Write(vec![history::create(
            owner,
            &template_of(set),
            (REVISION_LABEL, &hash),
            next,
        )]);
    };
    let hash = kept.label().unwrap_or_default();
    if !duplicates.is_empty() {
        return Step::Write(merge(duplicates, hash, pods));
    }
    if kept.number < next {
        return Step::Write(vec![history::renumber(kept, next)]);
    }
    Step::Settled(hash.to_owned())
}

/// Pods of revisions that are there twice become the kept one's; then those go.
fn merge(duplicates: &[&Arc<Revision>], hash: &str, pods: &[Arc<Pod>]) -> Vec<Write> {
    let is_of = |pod: &&Arc<Pod>| {
        let own = pod::label(pod, REVISION_LABEL);
        own != hash && duplicates.iter().any(|r| r.label() == Some(own))
    };
    let relabelled: Vec<Write> = pods
        .iter()
        .filter(is_of)
        .map(|pod| label(Key::of(&**pod), write::PODS, hash))
        .collect();
    if !relabelled.is_empty() {
        return relabelled;
    }
    let gone = duplicates
        .iter()
        .map(|r| Write::delete(write::CONTROLLER_REVISIONS, &***r));
    gone.collect()
}

/// The status that makes the next creation take another hash, if that is why the last one failed.
pub fn after_collision(
    set: &DaemonSet,
    template: &Spelling,
    failure: &Failure,
    holder: Option<&Revision>,
) -> Option<DaemonSetStatus> {
    let uid = set.uid().unwrap_or_default();
    let mut status = set.status.clone().unwrap_or_default();
    let collisions = status.collision_count.unwrap_or(0).saturating_add(1);
    status.collision_count = Some(collisions);
    history::collides(failure, holder, &uid, template).then_some(status)
}

/// Revisions above the limit, the oldest first; those of pods that are still there stay.
pub fn expired(set: &DaemonSet, template: &Spelling, revisions: &[Arc<Revision>], pods: &[Arc<Pod>]) -> Vec<Write> {
    let limit = set.spec.as_ref().and_then(|s| s.revision_history_limit).unwrap_or(10);
    let old: Vec<Arc<Revision>> = revisions.iter().filter(|r| !r.is_of(template)).cloned().collect();
    history::expire(&old, limit, &live_labels(pods), true)
}
