//! Replacing pods of old templates: by deleting them, never more than `maxUnavailable` at a time, or by putting new ones beside them,
//! never more than `maxSurge`. Pure.
//!
//! Counted are nodes: one is unavailable unless exactly one pod is there and serves. Pods that do not serve are replaced at once, since
//! that costs nothing.

use super::View;
use crate::controller::amount::{Round, resolve};
use crate::controller::write::Write;
use crate::held::Pod;
use k8s_openapi::api::apps::v1::RollingUpdateDaemonSet;
use std::collections::BTreeSet;
use std::sync::Arc;

fn rolling<'a>(view: &View<'a>) -> Option<&'a RollingUpdateDaemonSet> {
    let strategy = view.spec.update_strategy.as_ref()?;
    strategy
        .rolling_update
        .as_ref()
        .filter(|_| strategy.type_.as_deref() != Some("OnDelete"))
}

/// Whether two pods may be on one node meanwhile.
pub fn may_surge(view: &View<'_>) -> bool {
    let surge = rolling(view).and_then(|r| r.max_surge.as_ref());
    resolve(surge, 1, Round::Up) > 0
}

/// (surge, unavailable): never both zero.
fn fences(view: &View<'_>) -> (usize, usize) {
    let of = |value| usize::try_from(resolve(value, view.wanted(), Round::Up)).unwrap_or(0);
    let rolling = rolling(view);
    let surge = of(rolling.and_then(|r| r.max_surge.as_ref()));
    let unavailable = of(rolling.and_then(|r| r.max_unavailable.as_ref()));
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

/// A pod of a node: of the set's template, or of another.
type Place<'a> = Option<&'a Arc<Pod>>;

/// The pods of a node that are not on their way out: the one of the set's template, and the one of another. `None` if there are several
/// of either.
fn pair<'a>(view: &'a View<'_>, node: &str) -> Option<(Place<'a>, Place<'a>)> {
    let (mut new, mut old) = (None, None);
    let staying = view.on(node).iter().filter(|p| p.metadata.deletion_timestamp.is_none());
    for pod in staying {
        let place = if view.is_updated(pod) { &mut new } else { &mut old };
        if place.replace(pod).is_some() {
            return None;
        }
    }
    Some((new, old))
}

/// Nodes that have pods or should have one.
fn nodes<'a>(view: &'a View<'_>) -> BTreeSet<&'a String> {
    let fit = view.fits.iter().filter(|(_, fit)| fit.should_run);
    fit.map(|(node, _)| node).chain(view.pods.keys()).collect()
}

/// The next step of a rollout; nothing when there is none, or none may be taken now.
pub fn plan(view: &View<'_>) -> Vec<Write> {
    let type_ = view.spec.update_strategy.as_ref().and_then(|s| s.type_.as_deref());
    if type_ == Some("OnDelete") {
        return vec![];
    }
    match fences(view) {
        (0, unavailable) => replace(view, unavailable),
        (surge, _) => put_beside(view, surge),
    }
}

fn replace(view: &View<'_>, max_unavailable: usize) -> Vec<Write> {
    let (mut unavailable, mut delete, mut candidates) = (0, Vec::new(), Vec::new());
    for node in nodes(view) {
        match pair(view, node) {
            Some((Some(new), None)) if view.is_available(new) => {}
            Some((None, Some(old))) if view.is_available(old) => candidates.push(old.clone()),
            Some((None, Some(old))) => {
                unavailable += 1;
                delete.push(old.clone());
            }
            // None, several, or a new one that does not serve yet.
            _ => unavailable += 1,
        }
    }
    candidates.truncate(max_unavailable.saturating_sub(unavailable));
    delete.extend(candidates);
    view.writes(&delete, &[])
}

fn put_beside(view: &View<'_>, max_surge: usize) -> Vec<Write> {
    let (mut surging, mut available) = (0_usize, 0_usize);
    let (mut delete, mut leaving) = (Vec::new(), Vec::new());
    let (mut replace, mut candidates) = (Vec::new(), Vec::new());
    for node in nodes(view) {
        let Some((new, old)) = pair(view, node) else {
            surging += 1;
            continue;
        };
        if old.or(new).is_some_and(|pod| view.is_available(pod)) {
            available += 1;
        }
        let belongs = view.fit(node).should_run;
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) if view.is_available(old) => match belongs {
                true => candidates.push(node.clone()),
                false => leaving.push(old.clone()),
            },
            (None, Some(old)) => match belongs {
                true => replace.push(node.clone()),
                false => delete.push(old.clone()),
            },
            (Some(new), Some(old)) if view.is_available(new) => delete.push(old.clone()),
            (Some(_), Some(_)) => surging += 1,
        }
    }
    // A pod leaves a node it no longer belongs on once enough others serve.
    let wanted = usize::try_from(view.wanted()).unwrap_or(0);
    leaving.truncate(available.saturating_sub(wanted));
    delete.extend(leaving);
    candidates.truncate(max_surge.saturating_sub(surging));
    replace.extend(candidates);
    view.writes(&delete, &replace)
}
