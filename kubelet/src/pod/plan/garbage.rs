//! Dead containers and old sandboxes nobody needs (kubelet contract §10): one dead instance per container name stays, for
//! its log and its last state.

use super::Draft;
use crate::pod::operation::Operation;
use crate::runtime::observed::{ContainerState, ObservedPod};
use std::collections::BTreeSet;

/// Removes dead containers but the newest of each name, and empty sandboxes but the pod's own.
pub(super) fn prune(draft: &mut Draft<'_>, observed: &ObservedPod) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut kept_dead: BTreeSet<&str> = BTreeSet::new();
    for container in &observed.containers {
        let newest = seen.insert(&container.name);
        let superseded = match container.state {
            ContainerState::Exited => !kept_dead.insert(&container.name),
            ContainerState::Created => !newest,
            ContainerState::Running | ContainerState::Unknown => false,
        };
        if superseded {
            draft.attempt(Operation::RemoveContainer {
                id: container.id.clone(),
                starts_anew: false,
            });
        }
    }
    let current = observed.sandbox().map(|sandbox| &sandbox.id);
    for sandbox in observed.sandboxes.iter().filter(|sandbox| Some(&sandbox.id) != current) {
        let empty = !observed
            .containers
            .iter()
            .any(|c| c.sandbox.as_ref() == Some(&sandbox.id));
        if empty && !sandbox.ready {
            draft.attempt(Operation::RemoveSandbox { id: sandbox.id.clone() });
        }
    }
}
