//! Images: having the one a container needs.
//!
//! [`Images::ensure`] applies the pull policy and tells users what happens; [`puller`] joins and bounds the pulls of the whole
//! node; [`provider`] asks plugins for logins; [`records`] keeps on disk what was pulled with whose login; [`reference`],
//! [`credentials`] and [`verification`] are pure. Back-off is the caller's: a call either has the image or fails.

pub mod credentials;
mod given;
pub mod node_logins;
pub mod provider;
pub mod puller;
pub mod records;
pub mod reference;
pub mod verification;

use crate::events::{Recorder, Severity};
use crate::host::FileWork;
use crate::id::PodUid;
use crate::metrics::RuntimeMetrics;
use crate::objects::Objects;
use crate::parts::Parts;
use crate::rate::Rate;
use crate::reason;
use crate::runtime::{ImageInfo, Runtime, RuntimeError};
use client::Clock;
use client::ordered::CollectOrdered;
use credentials::{Credential, Keyring};
use given::Given;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use node_logins::NodeLogins;
use proto::cri as pb;
use provider::Providers;
use puller::{PullError, Pulled, Puller};
use records::{Open, RecordError, Records};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verification::{Access, Verdict};

/// Why an image is not there, in the words of a waiting container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImageError {
    /// The waiting reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// How often records are looked through.
const RECORDS_EVERY: Duration = Duration::from_secs(300);

/// Why records were not looked through.
#[derive(Debug, thiserror::Error)]
enum AgingError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// Before every start.
    Always,
    /// If it is not there.
    IfNotPresent,
    /// Not at all.
    Never,
}

impl Policy {
    /// The container's policy; by default `Always` for the tag `latest`, else `IfNotPresent`.
    pub fn of(container: &Container) -> Self {
        match container.image_pull_policy.as_deref() {
            Some("Always") => Self::Always,
            Some("IfNotPresent") => Self::IfNotPresent,
            Some("Never") => Self::Never,
            _ if reference::is_latest(container.image.as_deref().unwrap_or_default()) => Self::Always,
            _ => Self::IfNotPresent,
        }
    }
}

/// The node's images. Cheap to clone.
#[derive(Clone)]
pub struct Images {
    runtime: Arc<dyn Runtime>,
    puller: Puller,
    objects: Arc<Objects>,
    recorder: Recorder,
    metrics: RuntimeMetrics,
    records: Records,
    clock: Arc<dyn Clock>,
    rules: Arc<Rules>,
    providers: Providers,
    /// The node's logins.
    files: FileWork,
    given: Given,
}

/// How images are pulled and who may use them.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How fast pulls are begun.
    pub rate: Rate,
    /// Pulls at a time.
    pub parallel_max: usize,
    /// Which images need a login once they are here.
    pub verification: verification::Policy,
    /// The node's own logins.
    pub logins: NodeLogins,
    /// Plugins that give logins.
    pub providers: provider::Setup,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            rate: Rate::UNBOUND,
            parallel_max: 4,
            verification: verification::Policy::default(),
            logins: NodeLogins::default(),
            providers: provider::Setup::default(),
        }
    }
}

impl Images {
    /// Images of a kubelet's runtime.
    pub fn new(parts: &Parts, records: Records, rules: Rules) -> Self {
        let runtime = parts.runtime.clone();
        let given = Given::default();
        let puller = Puller::new(
            runtime.clone(),
            (records.clone(), given.clone()),
            rules.parallel_max,
            rules.rate,
        );
        let (objects, metrics) = (parts.objects.clone(), &parts.metrics.providers);
        let providers = Providers::new(&rules.providers, objects, parts.clock.clone(), metrics);
        Self {
            runtime,
            puller,
            providers,
            objects: parts.objects.clone(),
            recorder: parts.recorder.clone(),
            metrics: parts.metrics.runtime.clone(),
            records,
            clock: parts.clock.clone(),
            rules: Arc::new(rules),
            files: FileWork::new(node_logins::DEADLINE),
            given,
        }
    }

    /// Has the container's image there, by its policy. Dropping the future leaves a pull to those who also wait for it.
    pub async fn ensure(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<ImageInfo, ImageError> {
        let found = self.find_or_pull(pod, container, sandbox).await?;
        self.given.note(&found.id);
        Ok(found)
    }

    /// The ids of images that pods were given within the last minutes: their containers may not be there yet.
    pub fn given_lately(&self) -> Vec<String> {
        self.given.lately()
    }

    /// The images that were pulled since this was last asked, by what the runtime called each (an id or a digest), each with when.
    pub fn take_pulled(&self) -> BTreeMap<String, Instant> {
        self.given.take_pulled()
    }

    async fn find_or_pull(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<ImageInfo, ImageError> {
        let given = container.image.as_deref().unwrap_or_default();
        let image = reference::with_tag(given).map_err(|why| {
            let message =
                format!("Failed to apply default image tag \"{given}\": couldn't parse image name \"{given}\": {why}");
            self.warn(pod, container, reason::event::INSPECT_FAILED, &message);
            ImageError {
                reason: reason::waiting::INVALID_IMAGE_NAME,
                message,
            }
        })?;
        let policy = Policy::of(container);
        let keyring = self.keyring(pod).await;
        let mut credentials = keyring.matching(&image);
        let present = match policy {
            Policy::Always => None,
            Policy::IfNotPresent | Policy::Never => self.present(pod, container, &image).await?,
        };
        let mut usable = match &present {
            Some(info) => self.may_use(&image, info, &credentials).await,
            None => false,
        };
        // Plugins are asked only where their answer counts: an image everybody may use starts without them.
        if !usable && (policy != Policy::Never || present.is_some()) {
            credentials.extend(self.providers.logins(&image, pod).await);
            if let Some(info) = &present {
                usable = self.may_use(&image, info, &credentials).await;
            }
        }
        if let Some(info) = present.filter(|_| usable) {
            let message =
                format!("Container image \"{given}\" already present on machine and can be accessed by the pod");
            self.recorder
                .container(pod, &container.name, Severity::Normal, reason::event::PULLED, message);
            return Ok(info);
        }
        if policy == Policy::Never {
            let message = format!("Container image \"{given}\" is not present with pull policy of Never");
            self.warn(pod, container, reason::event::ERR_IMAGE_NEVER_PULL, &message);
            return Err(ImageError {
                reason: reason::waiting::ERR_IMAGE_NEVER_PULL,
                message,
            });
        }
        self.pull(pod, container, &image, &credentials, sandbox).await
    }

    async fn present(&self, pod: &Pod, container: &Container, image: &str) -> Result<Option<ImageInfo>, ImageError> {
        self.runtime.image_status(image).await.map_err(|error| {
            let given = container.image.as_deref().unwrap_or_default();
            let message = format!("Failed to inspect image \"{given}\": {error}");
            self.warn(pod, container, reason::event::INSPECT_FAILED, &message);
            ImageError {
                reason: reason::waiting::IMAGE_INSPECT_ERROR,
                message,
            }
        })
    }

    /// Whether an image that is here may be used with these logins.
    async fn may_use(&self, image: &str, info: &ImageInfo, credentials: &[Credential]) -> bool {
        let known = self.records.known(image, &info.id).await;
        match verification::judge(&self.rules.verification, image, &known, credentials) {
            Verdict::Usable => true,
            Verdict::UsableBy(access) => {
                if let Err(error) = self.records.allow(image, &info.id, access).await {
                    tracing::warn!(%error, "a login that fits an image is not remembered");
                }
                true
            }
            Verdict::MustPull => false,
        }
    }

    /// Keeps the records of pulls true to what the runtime has, from now on until told to stop.
    pub async fn keep_records(self, stop: CancellationToken) {
        loop {
            self.providers.sweep();
            self.forget_gone().await;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RECORDS_EVERY) => {}
            }
        }
    }

    /// Brings the records of pulls to what the runtime has now.
    pub async fn forget_gone(&self) {
        if let Err(error) = self.age_records().await {
            tracing::warn!(%error, "records of image pulls are not looked through");
        }
    }

    /// What a dead kubelet began is settled; what is known of images that are gone goes. An image that is in no list is asked for
    /// by name before that: without its record it would pass for one everybody may use.
    async fn age_records(&self) -> Result<(), AgingError> {
        for open in self.records.open().await? {
            if let Err(error) = self.settle(&open).await {
                let image = &open.image;
                tracing::warn!(image, %error, "an image pull that was begun is not settled");
            }
        }
        let until = self.clock.now();
        let present = self.runtime.list_images().await?.into_iter().map(|image| image.id);
        for reference in self.records.stale(&present.collect_ordered(), until).await? {
            if let Err(error) = self.forget(&reference, until).await {
                tracing::warn!(reference, %error, "the record of an image that is gone stays");
            }
        }
        Ok(())
    }

    async fn settle(&self, open: &Open) -> Result<(), AgingError> {
        match self.runtime.image_status(&open.image).await? {
            Some(info) => self.records.settle(&open.image, Some(&info.id)).await?,
            None if open.is_old => self.records.settle(&open.image, None).await?,
            None => {}
        }
        Ok(())
    }

    async fn forget(&self, reference: &str, until: Timestamp) -> Result<(), AgingError> {
        if self.runtime.image_status(reference).await?.is_none() {
            self.records.remove(reference, until).await?;
        }
        Ok(())
    }

    async fn pull(
        &self,
        pod: &Pod,
        container: &Container,
        image: &str,
        credentials: &[Credential],
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<ImageInfo, ImageError> {
        let given = container.image.as_deref().unwrap_or_default();
        let pulling = format!("Pulling image \"{given}\"");
        self.recorder
            .container(pod, &container.name, Severity::Normal, reason::event::PULLING, pulling);
        let begun = Instant::now();
        let result = self.pull_and_record(image, credentials, sandbox).await;
        let waited = begun.elapsed();
        match result {
            Ok((info, pulled)) => {
                self.metrics.pulled(info.size, waited);
                let message = format!(
                    "Successfully pulled image \"{given}\" in {} ({} including waiting). Image size: {} bytes.",
                    go_duration(pulled.took),
                    go_duration(waited),
                    info.size
                );
                self.recorder
                    .container(pod, &container.name, Severity::Normal, reason::event::PULLED, message);
                Ok(info)
            }
            Err((reason, said)) => {
                let message = format!("Failed to pull image \"{given}\": {said}");
                self.warn(pod, container, reason::event::FAILED, &message);
                self.warn(pod, container, reason::event::FAILED, &format!("Error: {reason}"));
                let message = waiting_message(given, reason, said);
                Err(ImageError { reason, message })
            }
        }
    }

    /// Pulls, and writes down with whose login; else gives the waiting reason and what was said.
    async fn pull_and_record(
        &self,
        image: &str,
        credentials: &[Credential],
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<(ImageInfo, Pulled), (&'static str, String)> {
        let logins: Vec<_> = credentials.iter().map(|credential| credential.auth.clone()).collect();
        let failed = |error: RuntimeError| (reason_of(&error), puller::text(&error));
        let pulled = self.puller.pull(image, &logins, sandbox).await;
        let (pulled, pull) = pulled.map_err(|error| match error {
            PullError::Runtime(error) => failed(error),
            PullError::Throttled | PullError::Record(_) => (reason::waiting::ERR_IMAGE_PULL, error.to_string()),
        })?;
        // The reference is what was pulled; its name may meanwhile mean another image.
        let info = match self.runtime.image_status(&pulled.reference).await {
            Ok(Some(info)) => info,
            Ok(None) => {
                let named = self.runtime.image_status(image).await;
                named.map(Option::unwrap_or_default).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        let used = pulled.used.and_then(|index| credentials.get(index));
        // Without a record the intent stays, and the next pod pulls again: that is no reason to fail this one.
        if let Err(error) = pull.worked(&info.id, Access::of(used)).await {
            tracing::warn!(%error, "a pull is not recorded");
        }
        Ok((info, pulled))
    }

    /// The credentials of the pod's pull secrets, then the node's; what is missing or cannot be read is told, and done without.
    async fn keyring(&self, pod: &Pod) -> Keyring {
        let references = pod.spec.as_ref().and_then(|spec| spec.image_pull_secrets.as_ref());
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let uid = PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default());
        let mut keyring = Keyring::default();
        let mut missing = Vec::new();
        for reference in references.into_iter().flatten() {
            match self.objects.secret(&uid, namespace, &reference.name).await {
                Ok(Some(secret)) => {
                    if let Err(error) = keyring.add_secret(&secret) {
                        missing.push(format!("{}: {error}", reference.name));
                    }
                }
                Ok(None) | Err(_) => missing.push(reference.name.clone()),
            }
        }
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.recorder.pod(
                pod,
                Severity::Warning,
                reason::event::FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET,
                message,
            );
        }
        self.rules.logins.add_to(&self.files, keyring).await
    }

    fn warn(&self, pod: &Pod, container: &Container, reason: &str, message: &str) {
        self.recorder
            .container(pod, &container.name, Severity::Warning, reason, message);
    }
}

/// The waiting reason of a failed pull: some runtimes say more in their error's first word.
fn reason_of(error: &RuntimeError) -> &'static str {
    match error.message.as_str() {
        text if text.starts_with(reason::waiting::REGISTRY_UNAVAILABLE) => reason::waiting::REGISTRY_UNAVAILABLE,
        text if text.starts_with(reason::waiting::SIGNATURE_VALIDATION_FAILED) => {
            reason::waiting::SIGNATURE_VALIDATION_FAILED
        }
        _ => reason::waiting::ERR_IMAGE_PULL,
    }
}

/// What a waiting container says of a failed pull, in upstream's words where the reason is more than that it failed.
fn waiting_message(image: &str, reason: &str, said: String) -> String {
    let why = match reason {
        reason::waiting::REGISTRY_UNAVAILABLE => "the registry is unavailable",
        reason::waiting::SIGNATURE_VALIDATION_FAILED => "the signature validation failed",
        _ => return said,
    };
    let more = said.split_once(reason).map_or("", |(_, more)| more);
    format!("image pull failed for {image} because {why}{more}")
}

/// A duration as Go prints it, in milliseconds (`1.234s`, `1m2.5s`, `1h0m0s`, `45ms`).
pub(crate) fn go_duration(duration: Duration) -> String {
    let total = duration.as_millis();
    let (minutes, millis) = (total / 60_000, total % 60_000);
    if total < 1000 {
        return format!("{total}ms");
    }
    let fraction = format!("{:03}", millis % 1000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let seconds = format!("{}{point}{fraction}s", millis / 1000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests;
