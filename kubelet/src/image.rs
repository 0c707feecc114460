//! Images: having the one a container needs.
//!
//! [`Images::ensure`] applies the pull policy and tells users what happens; [`puller`] joins and bounds the pulls of the whole
//! node; [`reference`] and [`credentials`] are pure. Back-off is the caller's: a call either has the image or fails.

pub mod credentials;
pub mod puller;
pub mod reference;

use crate::events::{Recorder, Severity};
use crate::id::PodUid;
use crate::objects::Objects;
use crate::runtime::{ImageInfo, Runtime, RuntimeError};
use credentials::Keyring;
use k8s_openapi::api::core::v1::{Container, Pod};
use proto::cri as pb;
use puller::Puller;
use std::sync::Arc;
use std::time::Duration;

/// Why an image is not there, in the words of a waiting container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImageError {
    /// The waiting reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl Images {
    /// Images of a runtime, pulled at most `parallel_max` at a time.
    pub fn new(runtime: Arc<dyn Runtime>, objects: Arc<Objects>, recorder: Recorder, parallel_max: usize) -> Self {
        let puller = Puller::new(runtime.clone(), parallel_max);
        Self {
            runtime,
            puller,
            objects,
            recorder,
        }
    }

    /// Has the container's image there, by its policy. Dropping the future leaves a pull to those who also wait for it.
    pub async fn ensure(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<ImageInfo, ImageError> {
        let given = container.image.as_deref().unwrap_or_default();
        let image = reference::with_tag(given).map_err(|_| {
            let message = format!(
                "Failed to apply default image tag \"{given}\": couldn't parse image name \"{given}\": invalid reference \
                 format"
            );
            self.warn(pod, container, "InspectFailed", &message);
            ImageError { reason: "InvalidImageName", message }
        })?;
        let policy = Policy::of(container);
        let present = self.runtime.image_status(&image).await.map_err(|error| {
            let message = format!("Failed to inspect image \"{given}\": {error}");
            self.warn(pod, container, "InspectFailed", &message);
            ImageError {
                reason: "ImageInspectError",
                message,
            }
        })?;
        match (policy, present) {
            (Policy::IfNotPresent | Policy::Never, Some(info)) => {
                let message = format!("Container image \"{given}\" already present on machine");
                self.recorder
                    .container(pod, &container.name, Severity::Normal, "Pulled", message);
                Ok(info)
            }
            (Policy::Never, None) => {
                let message = format!("Container image \"{given}\" is not present with pull policy of Never");
                self.warn(pod, container, "ErrImageNeverPull", &message);
                Err(ImageError {
                    reason: "ErrImageNeverPull",
                    message,
                })
            }
            (Policy::Always, _) | (Policy::IfNotPresent, None) => self.pull(pod, container, &image, sandbox).await,
        }
    }

    async fn pull(
        &self,
        pod: &Pod,
        container: &Container,
        image: &str,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<ImageInfo, ImageError> {
        let given = container.image.as_deref().unwrap_or_default();
        let keyring = self.keyring(pod).await;
        let pulling = format!("Pulling image \"{given}\"");
        self.recorder
            .container(pod, &container.name, Severity::Normal, "Pulling", pulling);
        let begun = tokio::time::Instant::now();
        let pulled = self.puller.pull(image, &keyring.matching(image), sandbox).await;
        let waited = begun.elapsed();
        let info = match pulled {
            Ok(pull) => {
                // The reference is what was pulled; its name may meanwhile mean another image.
                let info = match self.runtime.image_status(&pull.reference).await {
                    Ok(Some(info)) => Ok(info),
                    Ok(None) => self.runtime.image_status(image).await.map(Option::unwrap_or_default),
                    Err(error) => Err(error),
                };
                info.map(|info| (info, pull.took))
            }
            Err(error) => Err(error),
        };
        match info {
            Ok((info, took)) => {
                let message = format!(
                    "Successfully pulled image \"{given}\" in {} ({} including waiting). Image size: {} bytes.",
                    go_duration(took),
                    go_duration(waited),
                    info.size
                );
                self.recorder
                    .container(pod, &container.name, Severity::Normal, "Pulled", message);
                Ok(info)
            }
            Err(error) => {
                let failed = ImageError {
                    reason: reason_of(&error),
                    message: error.to_string(),
                };
                self.warn(
                    pod,
                    container,
                    "Failed",
                    &format!("Failed to pull image \"{given}\": {error}"),
                );
                self.warn(pod, container, "Failed", &format!("Error: {}", failed.reason));
                Err(failed)
            }
        }
    }

    /// The credentials of the pod's pull secrets; missing ones are told, and done without.
    async fn keyring(&self, pod: &Pod) -> Keyring {
        let references = pod.spec.as_ref().and_then(|spec| spec.image_pull_secrets.as_ref());
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let uid = PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default());
        let mut keyring = Keyring::default();
        let mut missing = Vec::new();
        for reference in references.into_iter().flatten() {
            match self.objects.secret(&uid, namespace, &reference.name).await {
                Ok(Some(secret)) => keyring.add(&secret),
                Ok(None) | Err(_) => missing.push(reference.name.clone()),
            }
        }
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.recorder
                .pod(pod, Severity::Warning, "FailedToRetrieveImagePullSecret", message);
        }
        keyring
    }

    fn warn(&self, pod: &Pod, container: &Container, reason: &str, message: &str) {
        self.recorder
            .container(pod, &container.name, Severity::Warning, reason, message);
    }
}

/// The waiting reason of a failed pull: some runtimes say more in their error's first word.
fn reason_of(error: &RuntimeError) -> &'static str {
    match error.message.as_str() {
        text if text.starts_with("RegistryUnavailable") => "RegistryUnavailable",
        text if text.starts_with("SignatureValidationFailed") => "SignatureValidationFailed",
        _ => "ErrImagePull",
    }
}

/// A duration as Go prints it, in milliseconds (`1.234s`, `1m2.5s`, `45ms`).
fn go_duration(duration: Duration) -> String {
    let total = duration.as_millis();
    let (minutes, millis) = (total / 60_000, total % 60_000);
    if total < 1000 {
        return format!("{total}ms");
    }
    let fraction = format!("{:03}", millis % 1000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let seconds = format!("{}{point}{fraction}s", millis / 1000);
    if minutes == 0 {
        seconds
    } else {
        format!("{}m{seconds}", minutes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_prints_them() {
        let cases = [
            (45, "45ms"),
            (1000, "1s"),
            (1230, "1.23s"),
            (62_500, "1m2.5s"),
            (120_000, "2m0s"),
        ];
        for (millis, text) in cases {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn policies_default_by_tag() {
        let of = |image: &str, policy: Option<&str>| {
            Policy::of(&Container {
                image: Some(image.into()),
                image_pull_policy: policy.map(Into::into),
                ..Container::default()
            })
        };
        assert_eq!(of("nginx", None), Policy::Always);
        assert_eq!(of("nginx:latest", None), Policy::Always);
        assert_eq!(of("nginx:1.27", None), Policy::IfNotPresent);
        assert_eq!(of("nginx", Some("Never")), Policy::Never);
    }
}
