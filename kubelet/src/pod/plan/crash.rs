//! How long a container that crashes waits to be started again: everything that is decided about it. Pure.
//!
//! The wait counts from the container's end. It begins with the first restart, doubles with each that follows and starts over after a
//! quiet time ([`Crash`]); another image or other resources begin anew.

use super::Inputs;
use crate::pod::backoff::{Crash, go_seconds, later};
use crate::pod::memory::Waiting;
use crate::pod_object;
use crate::reason;
use crate::runtime::observed::{ContainerState, ObservedContainer};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;

/// What a back-off of this container belongs to (kubelet contract, "20 behaviours" 5): another image or other resources
/// start a new one.
pub(super) fn key(container: &Container) -> String {
    let resources = serde_json::to_string(&container.resources).unwrap_or_default();
    format!(
        "{}\n{}\n{resources}",
        container.name,
        container.image.as_deref().unwrap_or_default()
    )
}

/// Until when a container that ended waits to be started again, if it has to, and how users are told so.
pub(super) fn wait(
    inputs: &Inputs<'_>,
    container: &Container,
    ended: &ObservedContainer,
) -> Option<(Timestamp, Waiting)> {
    let finished = finished(ended);
    let entry = inputs.memory.crashes.get(&container.name);
    let wait = Crash::waiting(entry, &key(container), finished, inputs.crash)?;
    let until = later(finished, wait);
    if inputs.now >= until {
        return None;
    }
    let message = format!(
        "back-off {} restarting failed container={} pod={}",
        go_seconds(wait),
        container.name,
        pod_object::described(inputs.pod)
    );
    let waiting = Waiting {
        reason: reason::waiting::CRASH_LOOP_BACK_OFF.to_owned(),
        message,
    };
    Some((until, waiting))
}

/// The back-off of a container that is started again after this end; nothing if it has not ended.
pub(super) fn after(inputs: &Inputs<'_>, container: &Container, ended: &ObservedContainer) -> Option<Crash> {
    if ended.state != ContainerState::Exited {
        return None;
    }
    let entry = inputs.memory.crashes.get(&container.name);
    Some(Crash::next(
        entry,
        &key(container),
        finished(ended),
        inputs.crash,
        inputs.now,
    ))
}

fn finished(ended: &ObservedContainer) -> Timestamp {
    ended.finished_at.unwrap_or(ended.created_at)
}
