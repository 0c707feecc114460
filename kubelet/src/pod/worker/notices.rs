//! Events a worker records when something begins to hold, once each time.

use super::resize::ToldResize;
use super::{Desired, Kill, Worker};
use crate::events::{Recorder, Severity};
use crate::id::ContainerId;
use crate::pod::memory::Change;
use crate::pod::plan::Plan;
use crate::pod::state::Cause;
use crate::pod_object;
use crate::reason;
use crate::runtime::RuntimeError;
use crate::runtime::observed::{ContainerState, ObservedPod};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use tonic::Code;

/// How long a pod that the node ends may take at least before that is told, seconds; one and a half times its grace otherwise (kubelet
/// contract §4.1).
const PATIENCE_SECONDS_MIN: i64 = 10;

/// What has been told and still holds.
#[derive(Debug, Default)]
pub(super) struct StandingNotices {
    /// Containers that wait, with the reason and the message that were told.
    waiting: BTreeMap<String, (String, String)>,
    network_down: bool,
    rejected: bool,
    /// When the node was first seen to end the pod.
    killed_at: Option<Timestamp>,
    overdue: bool,
    /// Containers of which was told that their stop signal is not obeyed.
    signals: BTreeSet<ContainerId>,
    pub(super) resize: ToldResize,
}

impl StandingNotices {
    pub(super) fn deadline_exceeded(&self, recorder: &Recorder, pod: &Pod) {
        let message = "Pod was active on the node longer than the specified deadline";
        recorder.pod(pod, Severity::Normal, reason::event::DEADLINE_EXCEEDED, message);
    }
}

impl Worker {
    /// Tells what began to hold with this plan.
    pub(super) fn tell(&mut self, desired: &Desired, plan: &Plan) {
        self.tell_rejection(desired);
        self.tell_network(desired);
        self.tell_stops(desired, plan);
        if self.shared.parts.context.stop_signals {
            self.tell_signals(desired);
        }
        let recorder = &self.shared.parts.recorder;
        let pod = &*desired.pod;
        for (name, waiting) in &plan.waiting {
            let told = (waiting.reason.clone(), waiting.message.clone());
            if self.told.waiting.get(name) == Some(&told) {
                continue;
            }
            match waiting.reason.as_str() {
                reason::waiting::CRASH_LOOP_BACK_OFF => {
                    let described = pod_object::described(pod);
                    let message = format!("Back-off restarting failed container {name} in pod {described}");
                    recorder.container(pod, name, Severity::Warning, reason::event::BACK_OFF, message);
                }
                reason::waiting::IMAGE_PULL_BACK_OFF => {
                    // Its own, or that of a volume it mounts.
                    let image = waiting.message.split('"').nth(1).unwrap_or_default();
                    let message = format!("Back-off pulling image \"{image}\"");
                    recorder.container(pod, name, Severity::Normal, reason::event::BACK_OFF, message);
                    recorder.container(
                        pod,
                        name,
                        Severity::Warning,
                        reason::event::FAILED,
                        "Error: ImagePullBackOff",
                    );
                }
                _ => {}
            }
            self.told.waiting.insert(name.clone(), told);
        }
        self.told.waiting.retain(|name, _| plan.waiting.contains_key(name));
    }

    /// Tells that the runtime does not say how the pod is. One that does not answer at all is the node's to tell.
    pub(super) fn tell_trouble(&self, desired: &Desired, trouble: Option<&RuntimeError>) {
        if let Some(error) = trouble.filter(|error| error.code != Code::Unavailable) {
            let message = format!("error determining status: {error}");
            let recorder = &self.shared.parts.recorder;
            recorder.pod(&desired.pod, Severity::Warning, reason::event::FAILED_SYNC, message);
        }
    }

    /// Tells that a pod which the node ends is not over long after its grace; otherwise when to look again.
    pub(super) fn tell_overdue(&mut self, desired: &Desired, now: Timestamp) -> Option<Timestamp> {
        let (kill, since) = (desired.kill.as_ref()?, self.told.killed_at?);
        if self.told.overdue || self.state.has_ended() {
            return None;
        }
        let own = pod_object::spec(&desired.pod).termination_grace_period_seconds;
        let grace = kill.grace_seconds.or(own).unwrap_or(0).max(0);
        let patience = grace.saturating_add(grace / 2).max(PATIENCE_SECONDS_MIN);
        let due = since
            .saturating_add(SignedDuration::from_secs(patience))
            .unwrap_or(Timestamp::MAX);
        if now < due {
            return Some(due);
        }
        self.told.overdue = true;
        let message = "Container runtime did not kill the pod within specified grace period.";
        let (recorder, reason) = (&self.shared.parts.recorder, reason::event::EXCEEDED_GRACE_PERIOD);
        recorder.pod(&desired.pod, Severity::Warning, reason, message);
        None
    }

    /// Tells that the node is about to end the pod; nothing if it ends already.
    pub(super) fn tell_kill(&mut self, kill: &Kill, pod: &Pod, now: Timestamp) {
        // Of what no source has there is nobody to tell.
        if kill.cause != Cause::Orphaned {
            self.told.killed_at.get_or_insert(now);
        }
        if self.state.termination().is_none()
            && let Cause::StorageExceeded { message } = &kill.cause
        {
            let recorder = &self.shared.parts.recorder;
            recorder.pod(pod, Severity::Warning, reason::event::EVICTED, message.clone());
        }
    }

    fn tell_rejection(&mut self, desired: &Desired) {
        if let Some((reason, message)) = &desired.rejected
            && !self.told.rejected
        {
            self.told.rejected = true;
            self.shared
                .parts
                .recorder
                .pod(&desired.pod, Severity::Warning, reason, message.clone());
        }
    }

    fn tell_stops(&self, desired: &Desired, plan: &Plan) {
        for change in &plan.changes {
            if let Change::Stopping {
                container,
                told: Some(told),
                ..
            } = change
            {
                let (recorder, reason) = (&self.shared.parts.recorder, reason::event::KILLING);
                recorder.container(&desired.pod, container, Severity::Normal, reason, told.as_str());
            }
        }
    }

    /// Tells of containers whose runtime does not say that it will stop them by the signal they ask for: older ones pass it over.
    fn tell_signals(&mut self, desired: &Desired) {
        let observed = self.observed.borrow().clone();
        let Some(observed) = observed else { return };
        self.told
            .signals
            .retain(|id| observed.containers.iter().any(|c| c.id == *id));
        for (container, id, asked) in ignored_signals(&desired.pod, &observed) {
            if self.told.signals.insert(id) {
                let message = format!(
                    "The container runtime does not take stop signals: container {container} gets its image's own instead of {asked}"
                );
                let (recorder, reason) = (&self.shared.parts.recorder, reason::event::STOP_SIGNAL_IGNORED);
                recorder.container(&desired.pod, &container, Severity::Warning, reason, message);
            }
        }
    }

    fn tell_network(&mut self, desired: &Desired) {
        let network = self.shared.network.borrow().clone();
        let starting = self.state.termination().is_none()
            && !pod_object::host_network(&desired.pod)
            && self
                .observed
                .borrow()
                .as_deref()
                .is_some_and(|observed| observed.sandbox().is_none());
        let down = starting && !network.ready && !network.message.is_empty();
        if down && !self.told.network_down {
            let message = format!("network is not ready: {}", network.message);
            self.shared.parts.recorder.pod(
                &desired.pod,
                Severity::Warning,
                reason::event::NETWORK_NOT_READY,
                message,
            );
        }
        self.told.network_down = down;
    }
}

/// Running containers that asked for a stop signal their runtime does not tell: name, id and the signal.
fn ignored_signals(pod: &Pod, observed: &ObservedPod) -> Vec<(String, ContainerId, String)> {
    let all = pod_object::containers(pod).filter_map(|(_, container)| {
        let asked = pod_object::stop_signal(container)?;
        let newest = observed.newest(&container.name)?;
        let ignored = newest.state == ContainerState::Running && newest.stop_signal.is_none();
        ignored.then(|| (container.name.clone(), newest.id.clone(), asked.to_owned()))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{container, observed, pod};
    use k8s_openapi::api::core::v1::Lifecycle;

    #[test]
    fn a_signal_that_the_runtime_passes_over_is_told_of_running_containers() {
        let mut asks = container("asks");
        asks.lifecycle = Some(Lifecycle {
            stop_signal: Some("SIGUSR1".into()),
            ..Lifecycle::default()
        });
        let pod = pod("p").with(asks).with(container("does-not")).build();
        let running = observed("p").sandbox(true).running("asks").running("does-not").build();
        let told = ignored_signals(&pod, &running);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0.as_str(), told[0].2.as_str()), ("asks", "SIGUSR1"));
        let mut obeyed = running.clone();
        for container in &mut obeyed.containers {
            container.stop_signal = Some("SIGUSR1".into());
        }
        assert!(ignored_signals(&pod, &obeyed).is_empty());
        let over = observed("p").sandbox(true).exited("asks", 0, 9).build();
        assert!(ignored_signals(&pod, &over).is_empty());
    }
}
