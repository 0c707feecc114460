//! The revisions of a stateful set: the template's is found, made or numbered anew; the one pods are moved from is on record. Pure.

use super::View;
use crate::controller::history::{self, HASH_LABEL, REVISION_LABEL, Revision, Spelling};
use crate::controller::pod;
use crate::controller::write::{self, Failure, Write};
use client::Key;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::sync::Arc;

fn hash(set: &StatefulSet) -> Option<String> {
    let template = &set.spec.as_ref()?.template;
    let collisions = set.status.as_ref().and_then(|s| s.collision_count).unwrap_or(0);
    Some(history::hash(&history::data_of(template), collisions))
}

/// The name that the template's revision is given.
pub fn key(set: &StatefulSet) -> Key {
    let hash = hash(set).unwrap_or_default();
    Key::new(
        set.namespace().unwrap_or_default(),
        history::name(&set.name_any(), &hash),
    )
}

/// What is to be written first, given the revisions in the order of their numbers.
pub fn step(set: &StatefulSet, template: &Spelling, revisions: &[Arc<Revision>]) -> Option<Write> {
    let last = revisions.last();
    let next = last.map_or(0, |r| r.number).saturating_add(1);
    match revisions.iter().rev().find(|r| r.is_of(template)) {
        Some(equal) if last.is_some_and(|last| Arc::ptr_eq(last, equal)) => None,
        // There is no higher number.
        Some(equal) if equal.number == next => None,
        // The template is an old one again.
        Some(equal) => Some(history::renumber(equal, next)),
        None => {
            let hash = hash(set)?;
            let owner = (&write::STATEFUL_SETS, set);
            Some(history::create(
                owner,
                &set.spec.as_ref()?.template,
                (HASH_LABEL, &hash),
                next,
            ))
        }
    }
}

/// The revision that pods are moved from, and that of the template; `None` before that is there.
pub fn pair(
    set: &StatefulSet,
    template: &Spelling,
    revisions: &[Arc<Revision>],
) -> Option<(Arc<Revision>, Arc<Revision>)> {
    // Several have the highest number only where there is no higher one.
    let highest = revisions.last()?.number;
    let mut newest = revisions.iter().rev().take_while(|r| r.number == highest);
    let update = newest.find(|r| r.is_of(template))?;
    let recorded = set.status.as_ref().and_then(|s| s.current_revision.as_deref());
    let current = revisions.iter().find(|r| Some(r.name()) == recorded).unwrap_or(update);
    Some((current.clone(), update.clone()))
}

/// The status that makes the next creation take another hash, if that is why the last one failed.
pub fn after_collision(
    set: &StatefulSet,
    template: &Spelling,
    failure: &Failure,
    holder: Option<&Revision>,
) -> Option<StatefulSetStatus> {
    let mut status = set.status.clone().unwrap_or_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    let uid = set.uid().unwrap_or_default();
    history::collides(failure, holder, &uid, template).then_some(status)
}

/// Revisions above the limit that no pod is of, the oldest first.
pub fn expired(view: &View<'_>, revisions: &[Arc<Revision>]) -> Vec<Write> {
    let limit = view.spec.revision_history_limit.unwrap_or(10);
    let mut live: BTreeSet<&str> = view.pods.values().map(|p| pod::label(p, REVISION_LABEL)).collect();
    live.extend([view.current.name(), view.update.name()]);
    history::expire(revisions, limit, &live, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_that_cannot_grow_is_not_written_again() {
        let set: StatefulSet = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {"serviceName": "", "selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": "a"}]}}}}))
        .unwrap();
        let own = &set.spec.as_ref().unwrap().template;
        let template = Spelling::of(own);
        let revision = |name: &str, number: i64, data: serde_json::Value| -> Arc<Revision> {
            let value = json!({"revision": number, "data": data, "metadata": {"name": name, "namespace": "default"}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let pair_at = |number: i64| {
            [
                revision("a", number, history::data_of(own)),
                revision("b", i64::MAX, json!({})),
            ]
        };
        assert!(step(&set, &template, &pair_at(7)).is_some());
        let last = pair_at(i64::MAX);
        assert_eq!(step(&set, &template, &last), None);
        assert_eq!(pair(&set, &template, &last).unwrap().1.name(), "a");
    }
}
