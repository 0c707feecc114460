//! Annotations that carry revisions and sizes between deployment and replica sets, and the history they make.

use super::status::is_complete;
use super::{View, rolling, size};
use crate::controller::write::{self, PatchKind, Write};
use client::Key;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use serde_json::{Map, json};
use std::collections::{BTreeMap, VecDeque};

/// Number of the rollout.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier numbers of a replica set that was rolled back to.
pub const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The deployment's size when the replica set was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Size and surge at that time.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// The revision that the deployment is to go back to.
pub const ROLLBACK: &str = "deprecated.deployment.rollback.to";

/// The longest [`HISTORY`], as upstream's.
const HISTORY_BYTES: usize = 2000;

/// Annotations of the deployment that stay with it.
pub const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    ROLLBACK,
];

/// The deployment's annotations that its replica sets carry too.
pub fn inherited(deployment: &Deployment) -> BTreeMap<String, String> {
    let all = deployment.annotations().iter();
    all.filter(|(k, _)| !OWN.contains(&k.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// The size annotations every scaling writes.
pub fn sizes(view: &View<'_>) -> [(&'static str, String); 2] {
    let wanted = view.wanted();
    [
        (DESIRED, wanted.to_string()),
        (MAX, wanted.saturating_add(rolling::surge(view)).to_string()),
    ]
}

/// A number an annotation holds.
pub fn number(rs: &ReplicaSet, annotation: &str) -> Option<i32> {
    rs.annotations().get(annotation)?.parse().ok()
}

/// A replica set's revision; 0 if it has none.
pub fn revision(rs: &ReplicaSet) -> i64 {
    rs.annotations().get(REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// The revision of the current template: one above all old ones.
pub fn next_revision(view: &View<'_>) -> i64 {
    let last = view.old.iter().map(|rs| revision(rs)).max();
    last.unwrap_or(0).saturating_add(1)
}

/// Whether the deployment was resized since a replica set in use was last scaled.
pub fn is_scaling(view: &View<'_>) -> bool {
    let active = view.all().filter(|rs| size(rs) > 0);
    active
        .filter_map(|rs| number(rs, DESIRED))
        .any(|desired| desired != view.wanted())
}

/// Earlier revisions with one more. Those before them that there is no room for are forgotten: who rolls back again and again would have an
/// annotation at last that no server takes.
fn history(earlier: &str, revision: i64) -> String {
    let mut all = earlier
        .split(',')
        .filter(|one| !one.is_empty())
        .collect::<VecDeque<_>>();
    let revision = revision.to_string();
    let mut length = all.iter().map(|one| one.len() + 1).sum::<usize>() + revision.len();
    while length > HISTORY_BYTES
        && let Some(oldest) = all.pop_front()
    {
        length -= oldest.len() + 1;
    }
    all.push_back(&revision);
    all.make_contiguous().join(",")
}

/// What must change on the new replica set and on the deployment before anything else: revision, inherited annotations,
/// minReadySeconds.
pub fn corrections(view: &View<'_>) -> Vec<Write> {
    let Some(new) = &view.new else { return vec![] };
    let mut writes = Vec::new();
    let have = new.annotations();
    let mut annotations = Map::new();
    for (key, value) in inherited(view.deployment) {
        if have.get(&key) != Some(&value) {
            annotations.insert(key, json!(value));
        }
    }
    let (current, next) = (revision(new), next_revision(view));
    if current < next {
        annotations.insert(REVISION.into(), json!(next.to_string()));
        if current > 0 {
            let earlier = have.get(HISTORY).map_or("", String::as_str);
            annotations.insert(HISTORY.into(), json!(history(earlier, current)));
        }
    }
    let min_ready = view.spec.min_ready_seconds.unwrap_or(0);
    let spec_differs = new.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0) != min_ready;
    if !annotations.is_empty() || spec_differs {
        let mut body =
            json!({"metadata": {"resourceVersion": new.metadata.resource_version, "annotations": annotations}});
        if spec_differs {
            body["spec"] = json!({"minReadySeconds": min_ready});
        }
        writes.push(Write::patch(
            write::REPLICA_SETS,
            Key::of(&**new),
            PatchKind::Merge,
            body,
        ));
    }
    let shown = current.max(next).to_string();
    if view.deployment.annotations().get(REVISION) != Some(&shown) {
        // The controller's role may update deployments, not patch them.
        let mut deployment = view.deployment.clone();
        let annotations = deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(REVISION.into(), shown);
        writes.push(Write::replace(write::DEPLOYMENTS, &deployment));
    }
    writes
}

/// Deletes old replica sets beyond `revisionHistoryLimit`, once the rollout is complete (or while it is paused).
pub fn expired_history(view: &View<'_>) -> Vec<Write> {
    let Some(limit) = view.spec.revision_history_limit.and_then(|l| usize::try_from(l).ok()) else {
        return vec![];
    };
    let status = view.deployment.status.clone().unwrap_or_default();
    if view.spec.paused != Some(true) && !is_complete(view, &status) {
        return vec![];
    }
    let idle = |rs: &&std::sync::Arc<ReplicaSet>| {
        let status = rs.status.clone().unwrap_or_default();
        let seen = status.observed_generation.unwrap_or(0) >= rs.metadata.generation.unwrap_or(0);
        status.replicas == 0 && size(rs) == 0 && seen
    };
    // One that goes, and may take long to, is no history.
    let mut oldest: Vec<_> = view.old.iter().collect();
    oldest.retain(|rs| rs.metadata.deletion_timestamp.is_none());
    let excess = oldest.len().saturating_sub(limit);
    oldest.sort_by_key(|rs| (revision(rs), rs.name_any()));
    oldest
        .into_iter()
        .take(excess)
        .filter(idle)
        .map(|rs| Write::delete(write::REPLICA_SETS, &**rs))
        .collect()
}
