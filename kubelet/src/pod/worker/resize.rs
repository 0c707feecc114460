//! A worker's part in resizes: what its pod runs with, and what users are told of it.

use super::{Desired, Worker};
use crate::allocation::{PodResources, message};
use crate::events::Severity;
use crate::pod::failure::{Failure, chain};
use crate::pod::operation::{Key, Operation};
use crate::pod::plan::Plan;
use crate::pod::resize::Applied;
use crate::pod_object;
use crate::reason::{condition, event};
use crate::runtime::observed::ObservedPod;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// What was told of a resize.
#[derive(Debug, Default)]
pub(super) struct ToldResize {
    /// It is under way, or an earlier kubelet said so.
    in_progress: bool,
    /// The last resize whose end was told.
    completed: Option<i64>,
    /// What stands in the way, with the generation.
    error: Option<(Option<i64>, String)>,
}

impl Worker {
    /// Takes over what an earlier kubelet noted of what runs; what it did not note runs with what the pod was given.
    pub(super) fn remember_resources(&mut self, pod: &Pod, observed: &ObservedPod) {
        let noted = self.shared.parts.actuated.get(&self.uid);
        let runs = observed.alive().next().is_some();
        self.told.resize.in_progress =
            proto::api::condition::is_true(self.status.conditions.as_ref(), condition::POD_RESIZE_IN_PROGRESS);
        if !runs {
            return;
        }
        let mut ran_with = PodResources::of(pod);
        if let Some(noted) = noted {
            ran_with.containers.extend(noted.containers);
            ran_with.pod = noted.pod;
        }
        let is_there = |name: &str| observed.newest(name).is_some();
        self.memory.applied.containers = ran_with.containers.clone();
        self.memory.applied.containers.retain(is_there);
        self.memory.ran_with = Some(ran_with);
    }

    /// The pod as an operation is to see it. A cgroup that has containers is first made as they are: only a resize changes it.
    pub(super) fn subject_pod(&self, pod: &Arc<Pod>, operation: &Operation) -> Arc<Pod> {
        match (operation, &self.memory.ran_with) {
            (Operation::Prepare, Some(ran_with)) => ran_with.applied_to(pod),
            _ => pod.clone(),
        }
    }

    /// What the pod runs with, for the operation that begins from it.
    pub(super) fn subject_applied(&self, operation: &Operation) -> Arc<Applied> {
        match operation {
            Operation::Resize => Arc::new(self.memory.applied.clone()),
            _ => Arc::default(),
        }
    }

    /// Notes what will run once an operation has worked.
    pub(super) fn note_resources(&mut self, pod: &Pod, operation: &Operation) {
        let resources = match operation {
            Operation::Prepare | Operation::Resize => PodResources::of(pod),
            Operation::StartContainer { container, .. } if !pod_object::is_ephemeral(pod, container) => {
                let mut all = PodResources::of(pod);
                all.containers.retain(|name| name == container);
                all
            }
            _ => return,
        };
        self.memory.applying.insert(operation.key(), resources);
    }

    /// Takes the end of a resize; tells whether it worked.
    pub(super) fn take_resize(&mut self, key: &Key, result: Result<Vec<String>, Failure>) -> bool {
        let reached = self.memory.applying.remove(key);
        match result {
            Ok(updated) => {
                let applied = &mut self.memory.applied;
                if let Some(reached) = reached {
                    for name in updated {
                        let resources = reached.containers.get(&name).cloned().unwrap_or_default();
                        applied.containers.insert(name, resources);
                    }
                    applied.cgroup = Some(reached);
                }
                self.memory.resize_error = None;
                true
            }
            Err(failure) => {
                self.memory.resize_error = Some(chain(&failure));
                self.complain(key, &failure)
            }
        }
    }

    /// Tells users of the end of a resize, and of what stands in its way.
    pub(super) fn tell_resize(&mut self, desired: &Desired, plan: &Plan) {
        if !plan.resizing {
            self.memory.resize_error = None;
        }
        let (recorder, pod) = (&self.shared.parts.recorder, &*desired.pod);
        let generation = desired.given.or(pod.metadata.generation);
        let number = generation.unwrap_or(0);
        let told = &mut self.told.resize;
        let error = self.memory.resize_error.clone().map(|error| (generation, error));
        if let Some((_, error)) = error.as_ref().filter(|_| error != told.error) {
            let text = message::failed(pod, number, error);
            recorder.pod(pod, Severity::Warning, event::RESIZE_ERROR, text);
        }
        told.error = error;
        let began = told.in_progress || desired.given.is_some_and(|given| told.completed != Some(given));
        if began && !plan.resizing && plan.is_settled {
            let text = message::completed(pod, number);
            recorder.pod(pod, Severity::Normal, event::RESIZE_COMPLETED, text);
            told.completed = generation;
            told.in_progress = false;
        } else {
            told.in_progress |= plan.resizing;
        }
    }
}
