//! How one container is stopped: its preStop hook first and only once, then StopContainer with what the hook left of the
//! grace (kubelet contract §4.3).
//!
//! A hook that was begun is never begun again for that instance: the memory says so, and below the worker a mark in the
//! pod's directory says so to the next kubelet. When its time is over the plan names it no more, which ends it.

use super::Draft;
use crate::pod::grace;
use crate::pod::hook::declared;
use crate::pod::operation::{Key, Operation, StopReason};
use crate::runtime::observed::{ContainerState, ObservedContainer};
use jiff::{SignedDuration, Timestamp};

/// A stop that is wanted.
pub(super) struct Wanted<'o> {
    /// Of which container.
    pub(super) container: &'o ObservedContainer,
    /// Since when; without it, since it began.
    pub(super) since: Option<Timestamp>,
    /// Its whole grace from then on, seconds.
    pub(super) grace_seconds: i64,
    /// Why.
    pub(super) reason: StopReason,
    /// Others end before it: only its hook may run meanwhile.
    pub(super) waits: bool,
}

/// Brings a container one step nearer to its end.
pub(super) fn stop(draft: &mut Draft<'_>, wanted: &Wanted<'_>) {
    let now = draft.inputs.now;
    let began = draft.inputs.memory.stops.get(&wanted.container.id);
    let since = wanted.since.or(began.map(|stop| stop.since)).unwrap_or(now);
    let ends = after(since, wanted.grace_seconds);
    if runs_hook(draft, wanted, ends) {
        return;
    }
    if wanted.waits && now < ends {
        draft.wake(ends);
        return;
    }
    call(draft, wanted, grace::stop_seconds(wanted.grace_seconds, since, now));
}

/// Keeps the preStop hook running, or begins it; tells whether it does run.
fn runs_hook(draft: &mut Draft<'_>, wanted: &Wanted<'_>, ends: Timestamp) -> bool {
    let (now, container) = (draft.inputs.now, wanted.container);
    let key = Key::PreStop(container.id.clone());
    let ends = match draft.inputs.in_flight.get(&key) {
        Some(running) => running.grace_ends.map_or(ends, |end| end.min(ends)),
        None if is_due(draft, container) => ends,
        None => return false,
    };
    if now >= ends {
        return false;
    }
    draft.wake(ends);
    draft.begin(Operation::PreStop {
        id: container.id.clone(),
        container: container.name.clone(),
        grace_seconds: ends.duration_since(now).as_secs().max(1),
        reason: wanted.reason.clone(),
    });
    true
}

fn is_due(draft: &Draft<'_>, container: &ObservedContainer) -> bool {
    let began = draft
        .inputs
        .memory
        .stops
        .get(&container.id)
        .is_some_and(|stop| stop.hook);
    !began
        && container.state == ContainerState::Running
        && !draft.is_running(&Key::Stop(container.id.clone()))
        && declared::pre_stop(&declared::spec_of(draft.inputs.pod, container)).is_some()
}

/// Stops it, or stops it again with less grace if the stop under way would take longer than is left.
pub(super) fn call(draft: &mut Draft<'_>, wanted: &Wanted<'_>, grace_seconds: i64) {
    let container = wanted.container;
    let wanted_end = after(draft.inputs.now, grace_seconds + 1);
    let running = draft.inputs.in_flight.get(&Key::Stop(container.id.clone()));
    if running
        .and_then(|running| running.grace_ends)
        .is_some_and(|end| end <= wanted_end)
    {
        return;
    }
    draft.attempt(Operation::StopContainer {
        id: container.id.clone(),
        container: container.name.clone(),
        grace_seconds,
        reason: wanted.reason.clone(),
    });
}

fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}
