//! Whether the pod's containers are brought to what the pod was given.
//!
//! Containers that get theirs by a restart are stopped first: while one of them runs as it was, nothing else is changed.

use super::{Draft, Inputs};
use crate::pod::operation::{Key, Operation};
use crate::pod::state::PodState;
use crate::pod_object;
use crate::runtime::observed::{ContainerState, ObservedPod};
use k8s_openapi::api::core::v1::Container;

/// Whether the pod runs, or is to run again in a moment, with something else than it was given.
pub(super) fn differs(inputs: &Inputs<'_>, observed: &ObservedPod) -> bool {
    let memory = inputs.memory;
    let goes_on = |container: &Container| runs(observed, container) || memory.restart_wanted.contains(&container.name);
    *inputs.state == PodState::Syncing
        && (memory.applied.cgroup_differs(inputs.pod)
            || pod_object::containers(inputs.pod)
                .any(|(_, container)| memory.applied.differs(container) && goes_on(container)))
}

fn runs(observed: &ObservedPod, container: &Container) -> bool {
    let newest = observed.newest(&container.name);
    newest.is_some_and(|newest| newest.state == ContainerState::Running)
}

/// Asks for the resize that is due.
pub(super) fn resize(draft: &mut Draft<'_>, observed: &ObservedPod) {
    let inputs = draft.inputs;
    let applied = &inputs.memory.applied;
    let (mut is_due, mut restarts) = (applied.cgroup_differs(inputs.pod), false);
    for (_, container) in pod_object::containers(inputs.pod) {
        if runs(observed, container) {
            is_due |= applied.differs(container);
            restarts |= applied.needs_restart(container);
        }
    }
    is_due &= inputs.memory.prepared && !restarts;
    let is_running = draft.is_running(&Key::Resize);
    if is_due || is_running {
        // A start waits for the pod's cgroup to be as large as the container needs it, but not for a resize that fails.
        draft.holds_starts = draft.attempt(Operation::Resize);
    }
    draft.plan.is_settled = inputs.memory.prepared && !is_running;
}
