//! Dead containers and old sandboxes nobody needs (kubelet contract §10): one dead instance per container name stays, for
//! its log and its last state. Which they are is [`crate::collect`]'s to say; that of limits over all pods is told with the inputs.

use super::Draft;
use crate::collect::containers::{empty_sandboxes, is_empty, superfluous};
use crate::pod::operation::Operation;
use crate::runtime::observed::{ContainerState, ObservedPod};

/// Removes dead containers but the newest of each name, empty sandboxes but the pod's own, and what the collector names.
pub(super) fn prune(draft: &mut Draft<'_>, observed: &ObservedPod) {
    let garbage = draft.inputs.garbage;
    let runs = |state| matches!(state, ContainerState::Running | ContainerState::Unknown);
    let superfluous = superfluous(observed, garbage.keep);
    for container in &observed.containers {
        let is_superfluous = superfluous.iter().any(|found| found.id == container.id);
        if is_superfluous || (garbage.has_container(container) && !runs(container.state)) {
            draft.attempt(Operation::RemoveContainer {
                id: container.id.clone(),
                starts_anew: false,
            });
        }
    }
    let empty = empty_sandboxes(observed);
    for sandbox in &observed.sandboxes {
        let is_old = empty.iter().any(|found| found.id == sandbox.id);
        if is_old || (garbage.has_sandbox(sandbox) && is_empty(observed, sandbox)) {
            draft.attempt(Operation::RemoveSandbox { id: sandbox.id.clone() });
        }
    }
}
