//! The end of a pod, in the contracted order: containers stopped; sandbox stopped (its address is free); then volumes
//! released; then the cgroup removed. Dead containers and the stopped sandbox stay until the object is gone.

use super::stopping::{self, Wanted};
use super::{Advance, Draft, garbage};
use crate::dra;
use crate::planted::{self, Fault};
use crate::pod::operation::{Key, Operation, StopReason};
use crate::pod::state::Termination;
use crate::pod_object::{self, Kind};
use crate::runtime::observed::{ObservedContainer, ObservedPod};

/// Stops containers, sidecars last and in reverse order but all their hooks at once, then sandboxes.
pub(super) fn terminating(draft: &mut Draft<'_>, observed: &ObservedPod, termination: &Termination) {
    let alive: Vec<&ObservedContainer> = observed.alive().collect();
    for container in &alive {
        let wanted = Wanted {
            container,
            since: Some(termination.since),
            grace_seconds: termination.grace_seconds,
            reason: StopReason::PodEnds,
            waits: waits_for_others(draft, container, &alive),
        };
        stopping::stop(draft, &wanted);
    }
    let busy = draft
        .inputs
        .in_flight
        .keys()
        .any(|key| key.starts_something() || matches!(key, Key::Stop(_)));
    if !alive.is_empty() || busy {
        return;
    }
    if planted::is(Fault::SandboxNotStopped) {
        draft.plan.advance = Some(Advance::Stopped);
        return;
    }
    let mut stopped = true;
    for sandbox in &observed.sandboxes {
        if sandbox.ready || !draft.inputs.memory.stopped_sandboxes.contains(&sandbox.id) {
            stopped = false;
            draft.attempt(Operation::StopSandbox { id: sandbox.id.clone() });
        }
    }
    let prepares = draft.is_running(&Key::Prepare) || draft.is_running(&Key::Claims);
    if stopped && observed.is_stopped() && !prepares {
        // The end is told once nothing of the pod holds a device any more.
        if dra::has_claims(draft.inputs.pod) && !draft.inputs.memory.claims_released {
            draft.attempt(Operation::ReleaseClaims);
        } else {
            draft.plan.advance = Some(Advance::Stopped);
        }
    }
}

/// Whether a sidecar must outlive containers that still run.
fn waits_for_others(draft: &Draft<'_>, container: &ObservedContainer, alive: &[&ObservedContainer]) -> bool {
    let inits = pod_object::inits(draft.inputs.pod);
    let position = |name: &str| {
        inits
            .iter()
            .position(|c| c.name == name && pod_object::kind_of_init(c) == Kind::Sidecar)
    };
    let Some(own) = position(&container.name) else {
        return false;
    };
    alive
        .iter()
        .filter(|other| other.id != container.id && !pod_object::is_ephemeral(draft.inputs.pod, &other.name))
        .any(|other| match position(&other.name) {
            None => true,
            Some(theirs) => theirs > own,
        })
}

/// Releases volumes, then the cgroup.
pub(super) fn terminated(draft: &mut Draft<'_>) {
    if draft.is_running(&Key::Volumes) {
        return;
    }
    let memory = draft.inputs.memory;
    if !memory.volumes_released && !planted::is(Fault::DirectoryKept) {
        draft.attempt(Operation::ReleaseVolumes);
    } else if !memory.cgroup_released {
        draft.attempt(Operation::ReleaseCgroup);
    } else {
        draft.plan.advance = Some(Advance::Released);
    }
}

/// Keeps what logs need while the object is there; removes everything once it is gone.
pub(super) fn released(draft: &mut Draft<'_>, observed: &ObservedPod) {
    if draft.inputs.present || planted::is(Fault::SandboxKept) {
        garbage::prune(draft, observed);
        return;
    }
    if !observed.sandboxes.is_empty() {
        for sandbox in &observed.sandboxes {
            draft.attempt(Operation::RemoveSandbox { id: sandbox.id.clone() });
        }
        return;
    }
    if !observed.containers.is_empty() {
        for container in &observed.containers {
            draft.attempt(Operation::RemoveContainer {
                id: container.id.clone(),
                starts_anew: false,
            });
        }
        return;
    }
    if !draft.inputs.memory.purged {
        draft.attempt(Operation::Purge);
        return;
    }
    if draft.inputs.in_flight.is_empty() {
        draft.plan.advance = Some(Advance::Finished);
    }
}
