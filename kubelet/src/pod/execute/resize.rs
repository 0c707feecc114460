//! A resize of a running pod: its cgroup and its containers, step by step.

use super::{Executor, Subject};
use crate::allocation::PodResources;
use crate::cgroup::CgroupError;
use crate::pod::resize::{self, Applied, Lowered, Step};
use crate::pod::spec;
use crate::runtime::RuntimeError;
use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;

/// Why a resize did not get further. It is begun anew later; what was done is done again, to no effect.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// More memory is in use than would be allowed.
    #[error("cannot decrease memory limits: {0}")]
    InUse(String),
    /// The pod's cgroup.
    #[error("failed to set pod cgroup values")]
    Cgroup(#[source] CgroupError),
    /// The runtime.
    #[error(transparent)]
    Runtime(RuntimeError),
}

impl Executor {
    /// Brings the pod from what it runs with to what it was given. Returns the containers that were updated.
    pub(super) async fn resize(&self, subject: &Subject) -> Result<Vec<String>, ResizeError> {
        let (pod, applied) = (&*subject.pod, &*subject.applied);
        let before = applied.cgroup.clone().unwrap_or_else(|| PodResources::of(pod));
        let (cgroups, unbounded) = (&self.parts.cgroups, &self.parts.pinning.unbounded(&subject.uid));
        let values = (
            &cgroups.pod_values(&before.applied_to(&subject.pod), unbounded),
            &cgroups.pod_values(pod, unbounded),
        );
        let updated = resize::updated(pod, applied, &subject.observed);
        let lowered = resize::lowered(applied, &updated, values);
        if let Some(why) = resize::in_use(&self.measured(subject, lowered).await?) {
            return Err(ResizeError::InUse(why));
        }
        self.update_sandbox(subject).await?;
        for step in resize::steps(pod, applied, &updated, values, (&self.parts.context, unbounded)) {
            match step {
                Step::Pod(values) => {
                    let begun = Instant::now();
                    let set = cgroups.set_pod(pod, values).await;
                    self.parts.metrics.pods.cgroup("update", begun.elapsed());
                    set.map_err(ResizeError::Cgroup)?;
                }
                Step::Container(id, resources) => {
                    let done = self.parts.runtime.update_container_resources(&id, *resources).await;
                    done.map_err(ResizeError::Runtime)?;
                }
            }
        }
        self.keep(subject, &updated, applied).await;
        Ok(updated.iter().map(|(_, container)| container.name.clone()).collect())
    }

    /// What is in use of limits that are to be lowered.
    async fn measured(&self, subject: &Subject, mut lowered: Vec<Lowered>) -> Result<Vec<Lowered>, ResizeError> {
        if lowered.is_empty() {
            return Ok(lowered);
        }
        let of_pod = self.parts.cgroups.usage(Some((*subject.pod).clone())).await;
        let of_pod = of_pod.map_err(ResizeError::Cgroup)?.memory;
        let stats = self.parts.runtime.list_container_stats().await;
        let stats = stats.map_err(ResizeError::Runtime)?;
        for lowered in &mut lowered {
            lowered.used = match &lowered.container {
                None => of_pod,
                Some(name) => stats
                    .iter()
                    .find(|usage| usage.pod.as_ref() == Some(&subject.uid) && usage.name == *name)
                    .and_then(|usage| usage.memory),
            };
        }
        Ok(lowered)
    }

    /// Tells the runtime what the sandbox is to hold; most need not know.
    async fn update_sandbox(&self, subject: &Subject) -> Result<(), ResizeError> {
        let Some(sandbox) = subject.observed.sandbox() else {
            return Ok(());
        };
        let (context, unbounded) = (&self.parts.context, self.parts.pinning.unbounded(&subject.uid));
        let of_pod = crate::pod_object::spec(&subject.pod);
        let (resources, overhead) = spec::sandbox_resources(of_pod, context, &unbounded);
        let runtime = &self.parts.runtime;
        match runtime.update_sandbox_resources(&sandbox.id, overhead, resources).await {
            Err(error) if !error.is_unimplemented() => Err(ResizeError::Runtime(error)),
            _ => Ok(()),
        }
    }

    /// Has the next kubelet know what the containers run with. Without that it would resize them once more.
    async fn keep(&self, subject: &Subject, updated: &[(crate::id::ContainerId, &Container)], applied: &Applied) {
        let of_pod = crate::pod_object::spec(&subject.pod).resources.clone();
        let kept = self.parts.actuated.change(&subject.uid, |held| {
            held.pod = of_pod;
            for (name, resources) in applied.containers.iter() {
                held.containers.insert(name.to_owned(), resources.clone());
            }
            for (_, container) in updated {
                let resources = container.resources.clone().unwrap_or_default();
                held.containers.insert(container.name.clone(), resources);
            }
        });
        if let Err(error) = kept.await {
            tracing::warn!(pod = %subject.uid, %error, "keeping what containers run with failed");
        }
    }

    /// Has the next kubelet know what a container was started with.
    pub(super) async fn keep_started(&self, subject: &Subject, container: &Container) {
        if crate::pod_object::is_ephemeral(&subject.pod, &container.name) {
            return;
        }
        let of_pod = crate::pod_object::spec(&subject.pod).resources.clone();
        let resources = container.resources.clone().unwrap_or_default();
        let kept = self.parts.actuated.change(&subject.uid, |held| {
            if held.containers.is_empty() {
                held.pod = of_pod;
            }
            held.containers.insert(container.name.clone(), resources);
        });
        if let Err(error) = kept.await {
            tracing::warn!(pod = %subject.uid, %error, "keeping what a container runs with failed");
        }
    }
}
