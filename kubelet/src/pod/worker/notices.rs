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
use std::net::IpAddr;
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
    /// The address of another family that the pod had.
    foreign_host_ip: Option<String>,
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
        self.tell_family(desired);
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
        if self.state.termination().is_some() {
            return;
        }
        let recorder = &self.shared.parts.recorder;
        match &kill.cause {
            Cause::StorageExceeded { message } => {
                recorder.pod(pod, Severity::Warning, reason::event::EVICTED, message.clone());
            }
            // The machine goes down, which is the node's event.
            Cause::Failed { reason, .. } if reason == reason::pod::TERMINATED => {}
            Cause::Failed { reason, message } => {
                recorder.annotated(pod, &kill.annotations, Severity::Warning, reason, message.clone());
            }
            _ => {}
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

    /// Tells that the pod was told an address of another family than the node's first one is of.
    fn tell_family(&mut self, desired: &Desired) {
        let told = desired.pod.status.as_ref().and_then(|status| status.host_ip.as_deref());
        let host_ips = self.shared.parts.context.host_ips.texts();
        let mismatch = told
            .zip(host_ips.first())
            .and_then(|(told, own)| family_mismatch(told, own));
        let news = mismatch
            .as_ref()
            .filter(|_| self.told.foreign_host_ip.as_deref() != told);
        if let Some(message) = news.filter(|_| self.shared.parts.client.is_some()) {
            let (recorder, reason) = (&self.shared.parts.recorder, reason::event::HOST_IPS_FAMILY_MISMATCH);
            recorder.pod(&desired.pod, Severity::Warning, reason, message.clone());
        }
        self.told.foreign_host_ip = mismatch.and(told).map(str::to_owned);
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

/// What is told of two addresses that are not of one family.
fn family_mismatch(told: &str, own: &str) -> Option<String> {
    let family = |address: &str| match address.parse() {
        Ok(IpAddr::V4(_)) => Some("4"),
        Ok(IpAddr::V6(_)) => Some("6"),
        Err(_) => None,
    };
    let (first, second) = (family(told)?, family(own)?);
    (first != second).then(|| {
        format!(
            "Kubelet detected an IPv{first} node IP ({told}), but the cloud provider selected an IPv{second} node IP ({own}); pass \
             an explicit `--node-ip` to kubelet to fix this."
        )
    })
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
    fn addresses_of_two_families_are_told() {
        for (told, own, says) in [
            ("10.0.0.1", "10.0.0.2", None),
            ("fd00::1", "fd00::2", None),
            ("", "10.0.0.1", None),
            (
                "10.0.0.1",
                "fd00::1",
                Some("an IPv4 node IP (10.0.0.1), but the cloud provider selected an IPv6 node IP (fd00::1)"),
            ),
            (
                "fd00::1",
                "10.0.0.1",
                Some("an IPv6 node IP (fd00::1), but the cloud provider selected an IPv4 node IP (10.0.0.1)"),
            ),
        ] {
            let found = family_mismatch(told, own);
            assert_eq!(found.is_some(), says.is_some(), "{found:?}");
            assert!(found.is_none_or(|found| found.contains(says.unwrap_or_default())));
        }
    }

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
