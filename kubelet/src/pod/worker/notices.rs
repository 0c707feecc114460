//! Events a worker records when something begins to hold, once each time.

use super::resize::ToldResize;
use super::{Desired, Kill, Worker};
use crate::events::{Recorder, Severity};
use crate::pod::memory::Change;
use crate::pod::plan::Plan;
use crate::pod::state::Cause;
use crate::pod_object;
use crate::reason;
use crate::runtime::RuntimeError;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use tonic::Code;

/// What has been told and still holds.
#[derive(Debug, Default)]
pub(super) struct StandingNotices {
    /// Containers that wait, with the reason and the message that were told.
    waiting: BTreeMap<String, (String, String)>,
    network_down: bool,
    rejected: bool,
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
                    let image = pod_object::find(pod, name)
                        .and_then(|(_, c)| c.image.clone())
                        .unwrap_or_default();
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

    /// Tells that the node is about to end the pod; nothing if it ends already.
    pub(super) fn tell_kill(&self, kill: &Kill, pod: &Pod) {
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
