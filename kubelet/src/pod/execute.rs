//! Carries operations out: the edge between a pod's plan and the node.
//!
//! Every operation is a future its worker owns. One that touches the runtime ends with a look at the pod, so that the reply
//! never runs ahead of the observation; if that look fails, the reply says so. Nothing here decides what to do next.

mod hook;
pub(crate) mod log_file;
mod rush;
mod start;

use super::grace;
use super::operation::{Key, Operation};
use super::shape;
use super::spec::{self, NodeContext};
use crate::cgroup::Cgroups;
use crate::events::{Recorder, Severity};
use crate::id::{ContainerId, PodUid, SandboxId};
use crate::image::{ImageError, Images};
use crate::objects::Objects;
use crate::runtime::observed::ObservedPod;
use crate::runtime::pleg::Pleg;
use crate::runtime::{ImageInfo, Runtime, RuntimeError};
use crate::volume::{Ending, HostVolume, Volumes};
use client::Clock;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

pub use rush::Rush;
pub use start::StartError;

/// What operations are carried out with; one per kubelet.
#[derive(Clone)]
pub struct Tools {
    /// The runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Observes it.
    pub pleg: Pleg,
    /// Images.
    pub images: Images,
    /// Volumes.
    pub volumes: Volumes,
    /// Pod cgroups.
    pub cgroups: Cgroups,
    /// ConfigMaps, Secrets, services.
    pub objects: Arc<Objects>,
    /// The node's facts.
    pub context: Arc<NodeContext>,
    /// Events.
    pub recorder: Recorder,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Bounds sandboxes being started at a time.
    pub sandbox_permits: Arc<Semaphore>,
    /// Has removals wait for pods that start or stop.
    pub rush: Rush,
}

/// The pod as an operation sees it: the snapshot its worker started it from.
#[derive(Clone)]
pub struct Subject {
    /// The pod's UID.
    pub uid: PodUid,
    /// The desired pod.
    pub pod: Arc<Pod>,
    /// What the runtime has of it.
    pub observed: Arc<ObservedPod>,
    /// Its volumes, once they are there.
    pub volumes: Arc<BTreeMap<String, HostVolume>>,
    /// The image a start creates from.
    pub image: Option<ImageInfo>,
    /// The pod's end, if it is ending.
    pub ending: Option<Ending>,
}

/// What came of an operation.
#[derive(Debug)]
pub enum Effect {
    /// Nothing but that it worked or did not.
    Done(Result<(), String>),
    /// Volumes.
    Volumes(Result<BTreeMap<String, HostVolume>, String>),
    /// A sandbox; the error tells whether its name is still reserved.
    Sandbox(u32, Result<SandboxId, RuntimeError>),
    /// An image, for a container as it was when the image was asked for.
    Image(Box<Container>, Result<ImageInfo, ImageError>),
    /// A container's postStart hook; the error is its message.
    PostStart(String, Result<(), String>),
    /// A container's start.
    Started(String, Result<ContainerId, StartError>),
}

/// The reply of an operation.
#[derive(Debug)]
pub struct Reply {
    /// Which operation it was.
    pub key: Key,
    /// What came of it.
    pub effect: Effect,
    /// Whether the pod was looked at afterwards, if it had to be.
    pub observed: bool,
}

impl Tools {
    /// Carries an operation out.
    pub async fn run(self: Arc<Self>, subject: Subject, operation: Operation) -> Reply {
        let key = operation.key();
        let touches_runtime = !matches!(
            operation,
            Operation::Prepare
                | Operation::Volumes
                | Operation::PrepareImage { .. }
                | Operation::PostStart { .. }
                | Operation::PreStop { .. }
                | Operation::ReleaseVolumes
                | Operation::ReleaseCgroup
                | Operation::Purge
                | Operation::Observe
        );
        let _turn = self.rush.turn(&operation).await;
        let _ending = operation.ends().map(|id| self.pleg.ending(&subject.uid, id));
        if matches!(key, Key::PreStop(_) | Key::Stop(_)) {
            self.mark_ending(&subject).await;
        }
        let mut effect = self.effect(&subject, operation).await;
        let mut observed = true;
        if touches_runtime || key == Key::Observe {
            match self.pleg.refresh(&subject.uid).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(pod = %subject.uid, %error, "looking at a pod failed");
                    observed = false;
                    if key == Key::Observe {
                        effect = Effect::Done(Err(error.to_string()));
                    }
                }
            }
        }
        Reply { key, effect, observed }
    }

    async fn effect(&self, subject: &Subject, operation: Operation) -> Effect {
        let plain = |result: Result<(), RuntimeError>| Effect::Done(result.map_err(|error| error.to_string()));
        match operation {
            Operation::Prepare => Effect::Done(self.prepare(subject).await),
            Operation::Volumes => Effect::Volumes(self.mount(subject).await),
            Operation::StartSandbox { attempt } => Effect::Sandbox(attempt, self.start_sandbox(subject, attempt).await),
            Operation::PrepareImage { container, .. } => {
                let result = self.image(subject, &container).await;
                let asked = shape::find(&subject.pod, &container).map(|(_, spec)| spec.clone());
                Effect::Image(Box::new(asked.unwrap_or_default()), result)
            }
            Operation::StartContainer {
                container,
                sandbox,
                restart_count,
                ..
            } => {
                let result = self.start_container(subject, &container, &sandbox, restart_count).await;
                Effect::Started(container, result)
            }
            Operation::StopContainer {
                id,
                container,
                grace_seconds,
                ..
            } => Effect::Done(self.stop(subject, &id, &container, grace_seconds).await),
            Operation::PostStart { id, container } => {
                let result = self.post_start(subject, &id, &container).await;
                Effect::PostStart(container, result)
            }
            Operation::PreStop { id, grace_seconds, .. } => {
                self.pre_stop(subject, &id, grace_seconds).await;
                Effect::Done(Ok(()))
            }
            Operation::StopSandbox { id } => {
                let result = self.runtime.stop_pod_sandbox(&id).await;
                if let Err(error) = &result {
                    self.warn(subject, "FailedKillPod", format!("error killing pod: failed to \"KillPodSandbox\" for \"{}\" with KillPodSandboxError: \"{error}\"", subject.uid));
                }
                plain(result)
            }
            Operation::RemoveContainer { id } => plain(self.remove_container(subject, &id).await),
            Operation::RemoveSandbox { id } => plain(self.runtime.remove_pod_sandbox(&id).await),
            Operation::ReleaseVolumes => Effect::Done(
                self.volumes
                    .release(&subject.uid)
                    .await
                    .map_err(|error| error.to_string()),
            ),
            Operation::ReleaseCgroup => Effect::Done(
                self.cgroups
                    .release_pod(&subject.uid)
                    .await
                    .map_err(|error| chain(&error)),
            ),
            Operation::Purge => Effect::Done(self.purge(subject).await),
            Operation::Observe => Effect::Done(Ok(())),
        }
    }

    async fn prepare(&self, subject: &Subject) -> Result<(), String> {
        let logs = spec::pod_log_directory(&subject.pod, &self.context);
        let cgroup = async {
            self.cgroups
                .ensure_pod(&subject.pod)
                .await
                .map_err(|error| chain(&error))
        };
        let dirs = async {
            self.volumes
                .prepare_pod_dirs(&subject.pod)
                .await
                .map_err(|error| error.to_string())
        };
        let logs = async {
            let directory = logs.clone();
            let made = client::blocking::spawn(move || std::fs::create_dir_all(directory)).await;
            let made = made.unwrap_or_else(|error| Err(error.into()));
            made.map_err(|error| format!("create log directory {}: {error}", logs.display()))
        };
        match futures::future::try_join3(cgroup, dirs, logs).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = format!("unable to ensure pod container exists: {error}");
                self.warn(subject, "FailedCreatePodContainer", message);
                Err(error)
            }
        }
    }

    async fn mount(&self, subject: &Subject) -> Result<BTreeMap<String, HostVolume>, String> {
        let mounted = self.volumes.ensure(&subject.pod).await;
        mounted.map_err(|error| {
            let message = error.to_string();
            self.warn(subject, "FailedMount", message.clone());
            message
        })
    }

    async fn start_sandbox(&self, subject: &Subject, attempt: u32) -> Result<SandboxId, RuntimeError> {
        if attempt > 0 && subject.observed.sandbox().is_some() {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            self.recorder
                .pod(&subject.pod, Severity::Normal, "SandboxChanged", message);
        }
        let started = self.try_start_sandbox(subject, attempt).await;
        if let Err(error) = &started {
            self.warn(
                subject,
                "FailedCreatePodSandBox",
                format!("Failed to create pod sandbox: {error}"),
            );
        }
        started
    }

    async fn try_start_sandbox(&self, subject: &Subject, attempt: u32) -> Result<SandboxId, RuntimeError> {
        const CALL: &str = "RunPodSandbox";
        let invalid = |message: String| RuntimeError::new(CALL, tonic::Code::InvalidArgument, message);
        if let Some(class) = shape::spec(&subject.pod)
            .runtime_class_name
            .as_deref()
            .filter(|class| !class.is_empty())
        {
            return Err(invalid(format!(
                "RuntimeClass {class:?} is not supported by this kubelet yet"
            )));
        }
        let config = spec::sandbox_config(&subject.pod, attempt, &self.context).map_err(|e| invalid(e.to_string()))?;
        for warning in spec::dns_config(&subject.pod, &self.context).1 {
            self.warn(subject, warning.reason, warning.message);
        }
        let _permit = self
            .sandbox_permits
            .acquire()
            .await
            .map_err(|_| invalid("shutting down".to_owned()))?;
        self.runtime.run_pod_sandbox(config, "").await
    }

    async fn image(&self, subject: &Subject, container: &str) -> Result<ImageInfo, ImageError> {
        let Some((_, container)) = shape::find(&subject.pod, container) else {
            let message = format!("container {container:?} is no longer in the pod");
            return Err(ImageError {
                reason: "ErrImagePull",
                message,
            });
        };
        let attempt = subject.observed.sandbox().map_or(0, |sandbox| sandbox.attempt);
        let sandbox = spec::sandbox_config(&subject.pod, attempt, &self.context).ok();
        self.images.ensure(&subject.pod, container, sandbox).await
    }

    /// Tells the next kubelet, should this one die, that the pod's grace has begun. Without the mark it would begin anew.
    async fn mark_ending(&self, subject: &Subject) {
        let Some(ending) = subject
            .ending
            .filter(|ending| ending.grace_seconds > grace::STOP_SECONDS_MIN)
        else {
            return;
        };
        if let Err(error) = self.volumes.mark_ending(&subject.uid, ending).await {
            tracing::debug!(pod = %subject.uid, %error, "the pod's end is not marked");
        }
    }

    async fn stop(
        &self,
        subject: &Subject,
        id: &ContainerId,
        container: &str,
        grace_seconds: i64,
    ) -> Result<(), String> {
        let grace = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0));
        self.runtime.stop_container(id, grace).await.map_err(|error| {
            let message = format!("error killing pod: failed to \"KillContainer\" for \"{container}\" with KillContainerError: \"{error}\"");
            self.warn(subject, "FailedKillPod", message);
            error.to_string()
        })
    }

    /// Removes a dead container, then its log: the newest of each name stays to be read.
    async fn remove_container(&self, subject: &Subject, id: &ContainerId) -> Result<(), RuntimeError> {
        self.runtime.remove_container(id).await?;
        if let Some(container) = subject.observed.containers.iter().find(|c| c.id == *id) {
            let own = spec::pod_log_directory(&subject.pod, &self.context);
            log_file::remove(&self.context.pod_logs_dir, own, &subject.pod, container).await;
        }
        Ok(())
    }

    async fn purge(&self, subject: &Subject) -> Result<(), String> {
        let logs = spec::pod_log_directory(&subject.pod, &self.context);
        let directory = logs.clone();
        let removed = client::blocking::spawn(move || std::fs::remove_dir_all(directory)).await;
        match removed.unwrap_or_else(|error| Err(error.into())) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("remove log directory {}: {error}", logs.display()))
            }
            _ => {
                log_file::remove_dead_links(&self.context.pod_logs_dir).await;
                Ok(())
            }
        }
    }

    fn warn(&self, subject: &Subject, reason: &str, message: String) {
        self.recorder.pod(&subject.pod, Severity::Warning, reason, message);
    }
}

/// An error with everything below it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
