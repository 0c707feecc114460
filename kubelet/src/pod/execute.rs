//! Carries operations out: the edge between a pod's plan and the node.
//!
//! Every operation is a future its worker owns. One that touches the runtime ends with a look at the pod, so that the reply
//! never runs ahead of the observation; if that look fails, the reply says so. Nothing here decides what to do next.

pub(crate) mod log_file;
mod node_files;
mod resize;
mod runtime_load;
mod sandbox;
mod start;

use super::failure::Failure;
use super::grace;
use super::operation::{Key, Operation};
use super::resize::Applied;
use super::spec;
use crate::events::Severity;
use crate::host::{FileWork, tree};
use crate::id::{ContainerId, PodUid, SandboxId};
use crate::image::{ImageError, Images};
use crate::parts::Parts;
use crate::pod_object;
use crate::reason::{event, waiting};
use crate::runtime::observed::ObservedPod;
use crate::runtime::{ImageInfo, RuntimeError};
use crate::volume::{Ending, HostVolume};
use k8s_openapi::api::core::v1::{Container, Pod};
use policy::facts::PodId;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use resize::ResizeError;
pub use runtime_load::RuntimeLoad;

/// What operations are carried out with; one per kubelet.
#[derive(Clone)]
pub struct Executor {
    /// The kubelet's parts.
    pub parts: Arc<Parts>,
    /// Images.
    pub images: Images,
    /// Bounds sandboxes being started at a time.
    pub sandbox_permits: Arc<Semaphore>,
    /// Has removals wait for pods that start or stop.
    pub runtime_load: RuntimeLoad,
    /// Logs and the node's own files: by pod, or by path.
    pub files: FileWork,
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
    /// The images of the volumes it mounts that are images, by volume.
    pub volume_images: BTreeMap<String, ImageInfo>,
    /// Whether it starts again once it has ended.
    pub returns: bool,
    /// The pod's end, if it is ending.
    pub ending: Option<Ending>,
    /// What it runs with, as a resize begins from it.
    pub applied: Arc<Applied>,
}

/// What came of an operation.
#[derive(Debug)]
pub enum Effect {
    /// Nothing but that it worked or did not.
    Done(Result<(), Failure>),
    /// Volumes.
    Volumes(Result<BTreeMap<String, HostVolume>, Failure>),
    /// A sandbox; the error tells whether its name is still reserved.
    Sandbox(u32, Result<SandboxId, Failure>),
    /// An image, for a container as it was when the image was asked for.
    Image(Box<Container>, Result<ImageInfo, ImageError>),
    /// A container's postStart hook.
    PostStart(String, Result<(), Failure>),
    /// A container's start.
    Started(String, Result<ContainerId, Failure>),
    /// A resize: the containers that were updated.
    Resized(Result<Vec<String>, Failure>),
}

impl Effect {
    /// What failed, with the container's name if it is one's. An image's failure is told where it was to be had.
    fn failure(&self) -> Option<(Option<&str>, &Failure)> {
        match self {
            Self::Done(Err(failure)) | Self::Volumes(Err(failure)) | Self::Sandbox(_, Err(failure)) => {
                Some((None, failure))
            }
            Self::PostStart(container, Err(failure)) | Self::Started(container, Err(failure)) => {
                Some((Some(container), failure))
            }
            _ => None,
        }
    }
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

impl Executor {
    /// Carries an operation out.
    pub async fn run(self: Arc<Self>, subject: Subject, operation: Operation) -> Reply {
        let key = operation.key();
        let touches_runtime = !matches!(
            operation,
            Operation::Prepare
                | Operation::Volumes
                | Operation::PrepareClaims
                | Operation::ReleaseClaims
                | Operation::PrepareImage { .. }
                | Operation::PostStart { .. }
                | Operation::PreStop { .. }
                | Operation::ReleaseVolumes
                | Operation::ReleaseCgroup
                | Operation::Purge
                | Operation::Resize
                | Operation::Observe
        );
        let _turn = self.runtime_load.turn(&operation).await;
        let _ending = operation.ends().map(|id| self.parts.pleg.ending(&subject.uid, id));
        if matches!(key, Key::PreStop(_) | Key::Stop(_)) {
            self.mark_ending(&subject).await;
        }
        let mut effect = self.effect(&subject, operation).await;
        if let Some((container, failure)) = effect.failure() {
            self.tell(&subject, container, failure);
        }
        let mut observed = true;
        if touches_runtime || key == Key::Observe {
            match self.parts.pleg.refresh(&subject.uid).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(pod = %subject.uid, %error, "looking at a pod failed");
                    observed = false;
                    if matches!(effect, Effect::Sandbox(_, Ok(_))) && error.call == "PodSandboxStatus" {
                        let message = format!("Unable to get pod sandbox status: {error}");
                        self.warn(&subject, event::FAILED_POD_SANDBOX_STATUS, message);
                    }
                    if key == Key::Observe {
                        effect = Effect::Done(Err(Failure::Observe(error)));
                    }
                }
            }
        }
        Reply { key, effect, observed }
    }

    async fn effect(&self, subject: &Subject, operation: Operation) -> Effect {
        match operation {
            Operation::Prepare => Effect::Done(self.prepare(subject).await),
            Operation::Volumes => Effect::Volumes(self.mount(subject).await),
            Operation::PrepareClaims => {
                let prepared = self.parts.dra.prepare(&subject.pod).await;
                Effect::Done(prepared.map_err(Failure::PrepareClaims))
            }
            Operation::ReleaseClaims => {
                let released = self.parts.dra.unprepare(subject.uid.as_str()).await;
                Effect::Done(released.map_err(Failure::ReleaseClaims))
            }
            Operation::StartSandbox { attempt } => {
                let started = self.start_sandbox(subject, attempt).await;
                Effect::Sandbox(attempt, started.map_err(Failure::Sandbox))
            }
            Operation::PrepareImage { container, .. } => {
                let result = self.image(subject, &container).await;
                let asked = pod_object::image_user(&subject.pod, &container).map(Cow::into_owned);
                Effect::Image(Box::new(asked.unwrap_or_default()), result)
            }
            Operation::StartContainer {
                container,
                sandbox,
                restart_count,
                ..
            } => {
                let result = self.start_container(subject, &container, &sandbox, restart_count).await;
                Effect::Started(container, result.map_err(Failure::Start))
            }
            Operation::StopContainer {
                id,
                container,
                grace_seconds,
                ..
            } => {
                let grace = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0));
                let stopped = self.parts.runtime.stop_container(&id, grace).await;
                Effect::Done(stopped.map_err(|error| Failure::KillContainer { container, error }))
            }
            Operation::PostStart { id, container } => {
                let result = self.post_start(subject, &id, &container).await;
                Effect::PostStart(container, result.map_err(Failure::PostStart))
            }
            Operation::PreStop { id, grace_seconds, .. } => {
                self.pre_stop(subject, &id, grace_seconds).await;
                Effect::Done(Ok(()))
            }
            Operation::StopSandbox { id } => {
                let stopped = self.parts.runtime.stop_pod_sandbox(&id).await;
                let others = subject.observed.sandboxes.iter().filter(|sandbox| sandbox.id != id);
                if stopped.is_ok() && !others.into_iter().any(|sandbox| sandbox.ready) {
                    self.forget_addresses(subject);
                }
                let pod = subject.uid.clone();
                Effect::Done(stopped.map_err(|error| Failure::KillSandbox { pod, error }))
            }
            Operation::RemoveContainer { id, starts_anew } => {
                let keeps_log = starts_anew || subject.returns;
                let removed = self.remove_container(subject, &id, keeps_log).await;
                Effect::Done(removed.map_err(Failure::Remove))
            }
            Operation::RemoveSandbox { id } => {
                let removed = self.parts.runtime.remove_pod_sandbox(&id).await;
                Effect::Done(removed.map_err(Failure::Remove))
            }
            Operation::ReleaseVolumes => {
                let released = self.parts.volumes.release(&subject.uid).await;
                Effect::Done(released.map_err(Failure::ReleaseVolumes))
            }
            Operation::ReleaseCgroup => {
                let begun = Instant::now();
                let released = self.parts.cgroups.release_pod(&subject.uid).await;
                self.parts.metrics.pods.cgroup("destroy", begun.elapsed());
                // Its sandbox may have vanished without being stopped.
                self.forget_addresses(subject);
                Effect::Done(released.map_err(Failure::ReleaseCgroup))
            }
            Operation::Purge => Effect::Done(self.purge(subject).await),
            Operation::Resize => {
                let begun = Instant::now();
                let resized = self.resize(subject).await;
                self.parts.metrics.resizes.done(begun.elapsed(), resized.is_ok());
                Effect::Resized(resized.map_err(Failure::Resize))
            }
            Operation::Observe => Effect::Done(Ok(())),
        }
    }

    /// The pod has no sandbox any more: its addresses are nobody's.
    fn forget_addresses(&self, subject: &Subject) {
        if let Some(gate) = &self.parts.gate {
            gate.forget(&PodId::of(&subject.pod));
        }
    }

    /// Tells users what failed, as its consequence says.
    pub(super) fn tell(&self, subject: &Subject, container: Option<&str>, failure: &Failure) {
        let Some(reason) = failure.consequence().event else {
            return;
        };
        let (recorder, message) = (&self.parts.recorder, failure.event_message(container));
        match container {
            Some(name) => recorder.container(&subject.pod, name, Severity::Warning, reason, message),
            None => recorder.pod(&subject.pod, Severity::Warning, reason, message),
        }
    }

    async fn prepare(&self, subject: &Subject) -> Result<(), Failure> {
        let unbounded = self.parts.pinning.unbounded(&subject.uid);
        let cgroup = async {
            let begun = Instant::now();
            let made = self.parts.cgroups.ensure_pod(&subject.pod, unbounded).await;
            self.parts.metrics.pods.cgroup("create", begun.elapsed());
            made.map_err(Failure::PodCgroup)
        };
        let dirs = async {
            let made = self.parts.volumes.prepare_pod_dirs(&subject.pod).await;
            made.map_err(Failure::PodDirectories)
        };
        let logs = async {
            let path = spec::pod_log_directory(&subject.pod, &self.parts.context);
            let directory = path.clone();
            let made = self
                .files
                .run(subject.uid.as_str(), move || std::fs::create_dir_all(directory));
            let made = made.await.map_err(std::io::Error::other).flatten();
            made.map_err(|source| Failure::LogDirectory { path, source })
        };
        futures::future::try_join3(cgroup, dirs, logs).await.map(|_| ())
    }

    async fn mount(&self, subject: &Subject) -> Result<BTreeMap<String, HostVolume>, Failure> {
        self.parts.volumes.ensure(&subject.pod).await.map_err(Failure::Mount)
    }

    async fn image(&self, subject: &Subject, container: &str) -> Result<ImageInfo, ImageError> {
        let Some(container) = pod_object::image_user(&subject.pod, container) else {
            let message = format!("container {container:?} is no longer in the pod");
            return Err(ImageError {
                reason: waiting::ERR_IMAGE_PULL,
                message,
            });
        };
        let attempt = subject.observed.sandbox().map_or(0, |sandbox| sandbox.attempt);
        let node = self.resolver().await.unwrap_or_default();
        // Of a pod with users of its own the runtime is told once it has them.
        let ids = match subject.observed.sandbox() {
            Some(_) => self.ids(subject).await.unwrap_or_default(),
            None => None,
        };
        let (context, unbounded) = (&self.parts.context, self.parts.pinning.unbounded(&subject.uid));
        let sandbox = spec::sandbox_config(&subject.pod, attempt, context, &node, ids, &unbounded).ok();
        self.images.ensure(&subject.pod, &container, sandbox).await
    }

    /// Tells the next kubelet, should this one die, that the pod's grace has begun. Without the mark it would begin anew.
    async fn mark_ending(&self, subject: &Subject) {
        // A grace as short as the least there is may as well begin anew.
        let tells = |ending: &&Ending| {
            let by_node = ending.storage_exceeded.is_some() || ending.failed.is_some();
            ending.grace_seconds > grace::STOP_SECONDS_MIN || by_node
        };
        let Some(ending) = subject.ending.as_ref().filter(tells) else {
            return;
        };
        if let Err(error) = self.parts.volumes.mark_ending(&subject.uid, ending.clone()).await {
            // Why it goes is known to nobody else: after a kill of the kubelet the next one lets it go on.
            match ending.storage_exceeded.is_some() || ending.failed.is_some() {
                true => tracing::warn!(pod = %subject.uid, %error, "why the pod is ended is not marked"),
                false => tracing::debug!(pod = %subject.uid, %error, "the pod's end is not marked"),
            }
        }
    }

    /// Removes a dead container, then its log unless that is to stay: the newest of each name stays to be read.
    async fn remove_container(&self, subject: &Subject, id: &ContainerId, keeps_log: bool) -> Result<(), RuntimeError> {
        self.parts.runtime.remove_container(id).await?;
        let removed = subject.observed.containers.iter().find(|c| c.id == *id);
        if let Some(container) = removed.filter(|_| !keeps_log) {
            let own = spec::pod_log_directory(&subject.pod, &self.parts.context);
            log_file::remove(
                &self.files,
                &self.parts.context.pod_logs_dir,
                own,
                &subject.pod,
                container,
            )
            .await;
        }
        Ok(())
    }

    async fn purge(&self, subject: &Subject) -> Result<(), Failure> {
        if subject.returns {
            return Ok(());
        }
        let path = spec::pod_log_directory(&subject.pod, &self.parts.context);
        let directory = path.clone();
        let removed = self.files.run(subject.uid.as_str(), move || tree::remove(&directory));
        match removed.await.map_err(std::io::Error::other).flatten() {
            Err(source) => Err(Failure::RemoveLogs { path, source }),
            Ok(()) => {
                log_file::remove_dead_links(&self.files, &self.parts.context.pod_logs_dir).await;
                Ok(())
            }
        }
    }

    pub(super) fn warn(&self, subject: &Subject, reason: &str, message: String) {
        self.parts
            .recorder
            .pod(&subject.pod, Severity::Warning, reason, message);
    }
}
