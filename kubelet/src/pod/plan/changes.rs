//! What the memory is to hold once the plan's operations have begun. An operation that is running already changes nothing more.

use super::{Draft, containers, crash};
use crate::id::ContainerId;
use crate::pod::memory::{Change, Stop};
use crate::pod::operation::{Operation, StopReason};
use crate::pod_object::{self, Kind};
use crate::runtime::observed::ObservedPod;
use client::ordered::CollectOrdered;
use std::collections::BTreeSet;

/// Drops what is remembered of containers that are gone, and counts the ends that were to be counted with them.
pub(super) fn forget_gone(draft: &mut Draft<'_>, observed: &ObservedPod) {
    let memory = draft.inputs.memory;
    let is_gone = |id: &&ContainerId| observed.containers.iter().all(|c| c.id != **id);
    let remembered = memory.stops.keys().chain(memory.uncounted_crashes.keys());
    let remembered = remembered.chain(&memory.interrupted);
    let gone: BTreeSet<ContainerId> = remembered.filter(is_gone).cloned().collect_ordered();
    draft.plan.changes.extend(gone.into_iter().map(Change::Gone));
}

/// Remembers containers whose start was interrupted, as soon as they are seen: once their end is told it looks like any other.
pub(super) fn note_interrupted(draft: &mut Draft<'_>, observed: &ObservedPod) {
    let inputs = &draft.inputs;
    let new = observed
        .containers
        .iter()
        .filter(|c| !inputs.memory.interrupted.contains(&c.id) && containers::is_interrupted(inputs, c));
    let found = new.map(|c| Change::Interrupted(c.id.clone()));
    draft.plan.changes.extend(found);
}

/// Notes what follows from an operation that begins.
pub(super) fn note(draft: &mut Draft<'_>, operation: &Operation) {
    match operation {
        Operation::StartContainer { container, .. } => restart(draft, container),
        Operation::RemoveContainer { id, starts_anew: true } => removal(draft, id),
        Operation::StopContainer {
            id, container, reason, ..
        } => stop(draft, (id, container), reason, false),
        Operation::PreStop {
            id, container, reason, ..
        } => stop(draft, (id, container), reason, true),
        _ => {}
    }
}

fn restart(draft: &mut Draft<'_>, name: &str) {
    let inputs = &draft.inputs;
    let ended = inputs.observed.and_then(|observed| observed.newest(name));
    let crash = pod_object::find(inputs.pod, name)
        .zip(ended)
        .and_then(|((_, container), ended)| crash::after(inputs, &container, ended));
    let changes = crash.map(|crash| Change::Crashed {
        container: name.to_owned(),
        crash,
    });
    draft.plan.changes.extend(changes);
}

/// A container that is removed so that all start anew: its count goes on, and its end counts when it is gone, as a removal that
/// fails is not one more crash.
fn removal(draft: &mut Draft<'_>, id: &ContainerId) {
    let inputs = &draft.inputs;
    let mut containers = inputs.observed.into_iter().flat_map(|observed| &observed.containers);
    let Some(removed) = containers.find(|container| container.id == *id) else {
        return;
    };
    let counts = Change::CountsFrom {
        container: removed.name.clone(),
        least: removed.restart_count.saturating_add(1),
    };
    let spec = pod_object::find(inputs.pod, &removed.name).map(|(_, spec)| spec);
    let spec = spec.filter(|spec| pod_object::restarts_all(spec, removed.exit_code));
    let crash = spec.and_then(|spec| crash::after(inputs, &spec, removed));
    let crash = crash.map(|crash| Change::CrashedOnceGone {
        id: id.clone(),
        container: removed.name.clone(),
        crash,
    });
    draft.plan.changes.push(counts);
    draft.plan.changes.extend(crash);
}

fn stop(draft: &mut Draft<'_>, (id, name): (&ContainerId, &str), reason: &StopReason, hook: bool) {
    let inputs = &draft.inputs;
    let spec = pod_object::find(inputs.pod, name);
    let kind = spec.as_ref().map_or(Kind::Regular, |(kind, _)| *kind);
    let restarts = match reason {
        StopReason::Changed | StopReason::Resize | StopReason::Unknown => true,
        StopReason::Liveness | StopReason::Startup => {
            spec.is_some_and(|(kind, spec)| pod_object::restarts_after_stop(inputs.pod, kind, &spec))
        }
        StopReason::PodEnds | StopReason::PostStart | StopReason::RestartAll => false,
    };
    let began = inputs.memory.stops.get(id);
    let change = Change::Stopping {
        id: id.clone(),
        container: name.to_owned(),
        restarts,
        told: began.is_none().then(|| reason.message(kind, name, restarts)),
        stop: Stop {
            since: began.map_or(inputs.now, |stop| stop.since),
            reason: began.map_or_else(|| reason.clone(), |stop| stop.reason.clone()),
            hook: hook || began.is_some_and(|stop| stop.hook),
        },
    };
    draft.plan.changes.push(change);
}
