//! All containers of a pod start anew because one of them ended by a rule `RestartAllContainers` (kubelet contract §4.3,
//! KEP-5532).
//!
//! The ended container is itself the sign that this is under way: it is removed last, after every other one was stopped (without
//! preStop hooks, as upstream) and removed. What is left then is a pod without containers, which starts from the beginning. A
//! kubelet that begins anew in between finds the sign and goes on.

use super::stopping::{self, Wanted};
use super::{Draft, Inputs, crash};
use crate::pod::grace;
use crate::pod::operation::{Key, Operation, StopReason};
use crate::pod_object;
use crate::runtime::observed::{ContainerState, ObservedContainer, ObservedPod};
use k8s_openapi::api::core::v1::{Container, Pod};

/// The containers whose end restarts all.
fn triggers<'o>(
    pod: &'o Pod,
    observed: &'o ObservedPod,
) -> impl Iterator<Item = (&'o Container, &'o ObservedContainer)> {
    pod_object::containers(pod).filter_map(|(_, container)| {
        let newest = observed.newest(&container.name)?;
        let ended = newest.state == ContainerState::Exited;
        (ended && pod_object::restarts_all(container, newest.exit_code)).then_some((container, newest))
    })
}

/// Whether all containers are being restarted.
pub fn is_under_way(pod: &Pod, observed: &ObservedPod) -> bool {
    triggers(pod, observed).next().is_some()
}

/// Brings the pod one step nearer to having no containers.
pub(super) fn clear(draft: &mut Draft<'_>, observed: &ObservedPod) {
    let Inputs { pod, now, .. } = draft.inputs;
    let triggers: Vec<_> = triggers(pod, observed).collect();
    let is_trigger = |container: &ObservedContainer| triggers.iter().any(|(_, trigger)| trigger.id == container.id);
    // A start under way leaves one more container, which is as much of the past.
    let mut is_alone = !draft.inputs.in_flight.keys().any(Key::starts_something);
    // Ephemeral containers are no part of the pod's work, and could not be started a second time.
    let is_past =
        |container: &&ObservedContainer| !is_trigger(container) && !pod_object::is_ephemeral(pod, &container.name);
    for container in observed.containers.iter().filter(is_past) {
        is_alone = false;
        match container.state {
            ContainerState::Running | ContainerState::Unknown => {
                let wanted = Wanted {
                    container,
                    since: None,
                    grace_seconds: 0,
                    reason: StopReason::RestartAll,
                    waits: false,
                };
                stopping::call(draft, &wanted, grace::stop_seconds(0, now, now));
            }
            ContainerState::Created | ContainerState::Exited => remove(draft, container),
        }
    }
    // One that ends so again and again backs off like any other.
    let waits = triggers.iter().filter_map(|(container, newest)| {
        let (until, waiting) = crash::wait(&draft.inputs, container, newest)?;
        Some((container.name.clone(), until, waiting))
    });
    let waits: Vec<_> = waits.collect();
    let may_end = is_alone && waits.is_empty();
    for (name, until, waiting) in waits {
        draft.wake(until);
        draft.plan.waiting.insert(name, waiting);
    }
    for (_, trigger) in triggers.iter().filter(|_| may_end) {
        remove(draft, trigger);
    }
}

fn remove(draft: &mut Draft<'_>, container: &ObservedContainer) {
    draft.attempt(Operation::RemoveContainer {
        id: container.id.clone(),
        starts_anew: true,
    });
}
