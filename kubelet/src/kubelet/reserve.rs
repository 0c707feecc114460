//! Holds pods, and the cgroups that something is set aside for, to their part of the node (`enforceNodeAllocatable`; kubelet contract
//! §7). What cannot be yet, because more is in use, is told on the node and tried again; everything else goes on meanwhile.

use crate::cgroup::Part;
use crate::events::Severity;
use crate::parts::Parts;
use crate::reason::event;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The wait between tries.
const RETRY: Duration = Duration::from_secs(60);

/// Tries to hold each part; returns those that could not be.
pub(super) async fn hold(parts: &Parts, all: Vec<Part>) -> Vec<Part> {
    let node = &parts.context.node_name;
    let mut left = Vec::new();
    for part in all {
        match parts.cgroups.hold(&part).await {
            Ok(()) => {
                let reason = event::NODE_ALLOCATABLE_ENFORCED;
                parts.recorder.node(node, Severity::Normal, reason, part.held());
            }
            Err(error) => {
                let message = part.failed(&chain(&error));
                tracing::warn!(message, "tried again in a minute");
                let reason = event::FAILED_NODE_ALLOCATABLE_ENFORCEMENT;
                parts.recorder.node(node, Severity::Warning, reason, message);
                left.push(part);
            }
        }
    }
    left
}

/// Tries what is left until it is held, or the kubelet ends.
pub(super) async fn keep_trying(parts: Arc<Parts>, mut left: Vec<Part>, shutdown: CancellationToken) {
    while !left.is_empty() {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
        left = hold(&parts, left).await;
    }
}

/// An error with what led to it.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
