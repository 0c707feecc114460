//! Resizing: a deployment whose size changed in the middle of a rollout keeps the proportions of its replica sets.

use super::{View, annotation, available, rolling, scale as scale_one, size};
use crate::controller::amount::narrow;
use crate::controller::write::Write;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::ResourceExt;
use std::sync::Arc;

/// The writes that bring all replica sets to the deployment's new size.
pub fn scale(view: &View<'_>) -> Vec<Write> {
    let active: Vec<&Arc<ReplicaSet>> = view.all().filter(|rs| size(rs) > 0).collect();
    let only = match active.as_slice() {
        [] => view.new.as_ref().or_else(|| view.old.last()),
        [one] => Some(*one),
        _ => None,
    };
    if let Some(only) = only {
        return scale_one(view, only, view.wanted()).into_iter().collect();
    }
    if view.new.as_ref().is_some_and(|new| is_saturated(view, new)) {
        return view
            .old
            .iter()
            .filter(|rs| size(rs) > 0)
            .filter_map(|rs| scale_one(view, rs, 0))
            .collect();
    }
    if view.recreates() {
        return vec![];
    }
    spread(view, active)
}

fn is_saturated(view: &View<'_>, rs: &ReplicaSet) -> bool {
    let wanted = view.wanted();
    size(rs) == wanted && annotation::number(rs, annotation::DESIRED) == Some(wanted) && available(rs) == wanted
}

fn spread(view: &View<'_>, mut active: Vec<&Arc<ReplicaSet>>) -> Vec<Write> {
    let allowed = if view.wanted() > 0 { rolling::allowed(view) } else { 0 };
    let to_add = allowed - active.iter().map(|rs| i64::from(size(rs))).sum::<i64>();
    let created = |rs: &ReplicaSet| rs.metadata.creation_timestamp.as_ref().map(|t| t.0);
    // Largest first; among equals the newer grows first and the older shrinks first.
    active.sort_by(|a, b| {
        let age = if to_add > 0 {
            created(b).cmp(&created(a))
        } else {
            created(a).cmp(&created(b))
        };
        size(b)
            .cmp(&size(a))
            .then(age)
            .then_with(|| a.name_any().cmp(&b.name_any()))
    });
    let mut added = 0;
    let mut sizes = Vec::new();
    for rs in &active {
        let share = share(view, rs, to_add, added);
        added += share;
        sizes.push(i64::from(size(rs)) + share);
    }
    // What is left over goes to the first, and is taken from the others where that has no more.
    let mut rest = to_add - added;
    for to in &mut sizes {
        let part = rest.max(-*to);
        *to += part;
        rest -= part;
    }
    active
        .into_iter()
        .zip(sizes)
        .filter_map(|(rs, to)| scale_one(view, rs, narrow(to)))
        .collect()
}

/// One replica set's share of what is to be added (or taken, when negative), never more than what is left of that. What a size was by an
/// annotation may be long untrue: where pods are to go, none grows for it, nor does one shrink where some are to come. (Upstream's may; a
/// set that it let grow takes so much more from the others that the sum is beyond the surge.)
fn share(view: &View<'_>, rs: &ReplicaSet, to_add: i64, added: i64) -> i64 {
    let left = to_add - added;
    fraction(view, rs).clamp(left.min(0), left.max(0))
}

fn fraction(view: &View<'_>, rs: &ReplicaSet) -> i64 {
    if view.wanted() == 0 {
        return -i64::from(size(rs));
    }
    let max_now = f64::from(view.wanted()) + f64::from(rolling::surge(view));
    let reported = view.deployment.status.as_ref().and_then(|s| s.replicas);
    let max_before = annotation::number(rs, annotation::MAX)
        .filter(|m| *m > 0)
        .or(reported)
        .unwrap_or(0);
    if max_before == 0 {
        return 0;
    }
    let exact = f64::from(size(rs)) * max_now / f64::from(max_before);
    // Upstream rounds half away from zero. It is below 2^63: a size by two.
    (exact.round() as i64) - i64::from(size(rs))
}
