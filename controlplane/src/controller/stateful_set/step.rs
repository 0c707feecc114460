//! The next step of a stateful set whose revisions are there: start what is missing, stop what is too many, replace what is of an
//! old template, in this order. Pure.
//!
//! In order (`OrderedReady`) a step is for one pod, and whatever is not well is waited for: it is made well by its node, or by somebody.
//! Otherwise (`Parallel`) starting and stopping wait for nothing; replacing does.

use super::claim;
use super::identity::{self, Ordinal};
use super::status::is_ready;
use super::{BURST, View};
use crate::controller::amount::{Round, resolve};
use crate::controller::burst::Burst;
use crate::controller::history::REVISION_LABEL;
use crate::controller::pod;
use crate::controller::write::{self, EventText, PatchKind, Plan, Write, event};
use crate::held::Pod;
use client::Key;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn is_of(pod: &Pod, revision: &str) -> bool {
    pod::label(pod, REVISION_LABEL) == revision
}

/// The events of a write about a pod, as upstream words them.
fn told(view: &View<'_>, write: Write, verb: &'static str, ordinal: Ordinal) -> Write {
    let set = view.set.name_any();
    let pod = identity::name(&set, ordinal);
    let (done, failed) = match verb {
        "create" => ("SuccessfulCreate", "FailedCreate"),
        "update" => ("SuccessfulUpdate", "FailedUpdate"),
        _ => ("SuccessfulDelete", "FailedDelete"),
    };
    let about = |kind, reason, message| event(&write::STATEFUL_SETS, view.set, kind, reason, message);
    let success = format!("{verb} Pod {pod} in StatefulSet {set} successful");
    let failure = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {{}}");
    write
        .success(about("Normal", done, success))
        .failure(about("Warning", failed, failure))
}

fn delete(view: &View<'_>, ordinal: Ordinal, pod: &Pod) -> Write {
    told(view, Write::delete(write::PODS, pod), "delete", ordinal)
}

/// What one ordinal needs.
enum Need {
    /// Nothing: the next one's turn.
    Nothing,
    /// To be waited for, with what there is to say.
    Time(Vec<EventText>),
    /// These writes.
    Writes(Vec<Write>),
}

/// An ordinal without a pod: its claims first, then the pod.
fn absent(view: &View<'_>, ordinal: Ordinal) -> Need {
    if claim::is_leaving(view, ordinal) {
        return Need::Time(vec![]);
    }
    if let Some(name) = claim::deleting(view, ordinal) {
        let set = view.set.name_any();
        let pod = identity::name(&set, ordinal);
        let message = format!("create Pod {pod} in StatefulSet {set} failed error: pvc {name} is being deleted");
        let told = event(&write::STATEFUL_SETS, view.set, "Warning", "FailedCreate", message);
        return Need::Time(vec![told]);
    }
    let claims = claim::missing(view, ordinal);
    if !claims.is_empty() {
        return Need::Writes(claims);
    }
    let create = Write::create(write::PODS, &identity::pod(view, ordinal));
    Need::Writes(vec![told(view, create, "create", ordinal)])
}

fn relabel(view: &View<'_>, ordinal: Ordinal, pod: &Pod) -> Write {
    let labels: Map<String, Value> = identity::labels(&view.set.name_any(), ordinal)
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    let body = json!({"metadata": {"uid": pod.metadata.uid, "labels": labels}});
    let patch = Write::patch(write::PODS, Key::of(pod), PatchKind::Merge, body);
    told(view, patch, "update", ordinal)
}

/// An ordinal's pod. What ended is made anew, whatever it ended with.
fn present(view: &View<'_>, ordinal: Ordinal, pod: &Pod) -> Need {
    if pod::is_terminal(pod) {
        return match is_going(pod) {
            true => Need::Time(vec![]),
            false => Need::Writes(vec![delete(view, ordinal, pod)]),
        };
    }
    if pod::phase(pod) == "Pending" && !is_going(pod) {
        let mut writes = claim::missing(view, ordinal);
        writes.extend(claim::retain(view, ordinal, pod));
        if !writes.is_empty() {
            return Need::Writes(writes);
        }
    }
    if view.is_ordered() && !(view.serves(pod) && is_ready(pod)) {
        return Need::Time(vec![]);
    }
    let mut writes = claim::retain(view, ordinal, pod);
    if !identity::is_labelled(pod) && !is_going(pod) {
        writes.push(relabel(view, ordinal, pod));
    }
    match writes.is_empty() {
        true => Need::Nothing,
        false => Need::Writes(writes),
    }
}

/// The next step.
pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut burst = Burst::new(BURST);
    for ordinal in view.wanted() {
        let need = match view.pods.get(&ordinal) {
            Some(pod) => present(view, ordinal, pod),
            None => absent(view, ordinal),
        };
        let waits = match need {
            Need::Nothing => false,
            Need::Time(events) => {
                plan.events.extend(events);
                true
            }
            Need::Writes(writes) => {
                burst.add(writes);
                true
            }
        };
        // So many replicas may be asked for that looking at each takes long: those that wait are few, or do so for one reason.
        if waits && view.is_ordered() || burst.is_full() || plan.events.len() >= BURST {
            plan.writes = burst.into_writes();
            return plan;
        }
    }
    plan.writes = burst.into_writes();
    if plan.writes.is_empty() {
        stop(view, &mut plan);
    }
    if plan.writes.is_empty() && !stopping_waits(view) {
        plan.writes = replace(view);
    }
    plan
}

/// Pods that are not wanted, the highest ordinal first.
fn condemned<'a>(view: &'a View<'_>) -> impl Iterator<Item = (Ordinal, &'a Pod)> {
    let all = view.pods.iter().rev().map(|(ordinal, pod)| (*ordinal, &**pod));
    all.filter(|(ordinal, _)| !view.wanted().contains(ordinal))
}

/// Whether pods that are not wanted are still there, in order: then nothing is replaced yet.
fn stopping_waits(view: &View<'_>) -> bool {
    view.is_ordered() && condemned(view).next().is_some()
}

fn stop(view: &View<'_>, plan: &mut Plan) {
    let retained = condemned(view).flat_map(|(ordinal, pod)| claim::retain(view, ordinal, pod));
    plan.writes = Burst::new(BURST).fill(retained).into_writes();
    if !plan.writes.is_empty() {
        return;
    }
    if !view.is_ordered() {
        let staying = condemned(view).filter(|(_, pod)| !is_going(pod)).take(BURST);
        plan.writes = staying.map(|(ordinal, pod)| delete(view, ordinal, pod)).collect();
        return;
    }
    let Some((ordinal, pod)) = condemned(view).next() else {
        return;
    };
    // A pod that is not well is stopped only if none before it is not well either.
    let first_unwell = condemned(view).filter(|(_, pod)| !view.serves(pod)).last();
    let is_first = first_unwell.is_some_and(|(first, _)| first == ordinal);
    let is_well = is_ready(pod) && view.serves(pod);
    if !is_going(pod) && (is_well || is_first) {
        plan.writes.push(delete(view, ordinal, pod));
    }
}

/// Pods of old revisions, from the highest ordinal down to the partition.
fn replace(view: &View<'_>) -> Vec<Write> {
    let strategy = view.spec.update_strategy.as_ref();
    if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
        return vec![];
    }
    let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
    let partition = rolling.and_then(|r| r.partition).unwrap_or(0).max(0);
    let wanted = view.wanted();
    let (first, end) = (wanted.start + Ordinal::from(partition), wanted.end);
    if first >= end {
        return vec![];
    }
    let update = view.update.name();
    let targets = || view.pods.range(first..end).rev();
    let is_old = |pod: &Pod| !is_of(pod, update) && !is_going(pod);
    let Some(limit) = rolling.and_then(|r| r.max_unavailable.as_ref()) else {
        // One at a time: the highest that is of an old revision, unless one above it is not well yet.
        let mut above = end;
        for (ordinal, pod) in targets() {
            let is_next = ordinal + 1 == above;
            above = *ordinal;
            if !is_next {
                return vec![];
            }
            if is_old(pod) {
                return vec![delete(view, *ordinal, pod)];
            }
            if !view.serves(pod) {
                return vec![];
            }
        }
        return vec![];
    };
    let replicas = view.spec.replicas.unwrap_or(1);
    let limit = usize::try_from(resolve(Some(limit), replicas, Round::Down).max(1)).unwrap_or(1);
    let serving = view.pods.range(wanted).filter(|(_, pod)| view.serves(pod)).count();
    let unavailable = usize::try_from(replicas).unwrap_or(0).saturating_sub(serving);
    // What serves nobody costs nothing to replace, and counts as unavailable already: who counted it against what may go would wait for ever
    // for what the new template is to mend. (In order nobody comes here before all serve.)
    let mut room = limit.saturating_sub(unavailable);
    let mut leaving = Vec::new();
    for (ordinal, pod) in targets().filter(|(_, pod)| is_old(pod)) {
        let is_free = !view.serves(pod);
        if (is_free || room > 0) && leaving.len() < BURST {
            room -= usize::from(!is_free);
            leaving.push(delete(view, *ordinal, pod));
        }
    }
    leaving
}
