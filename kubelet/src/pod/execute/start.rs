//! One start of one container: environment, files, creation, start.

use super::{Subject, Tools, log_file};
use crate::events::Severity;
use crate::id::{ContainerId, SandboxId};
use crate::objects::ResolvedObjects;
use crate::pod::shape;
use crate::pod::spec::{self, ContainerInput};
use crate::runtime::RuntimeError;
use crate::volume::ContainerFilesRequest;
use k8s_openapi::api::core::v1::Container;
use std::path::Path;

/// A start that failed, in the words of a waiting container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// The waiting reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
    /// The restart count whose name the runtime still holds, if that is why.
    pub reserved: Option<u32>,
}

impl StartError {
    fn config(message: impl ToString) -> Self {
        Self {
            reason: "CreateContainerConfigError",
            message: message.to_string(),
            reserved: None,
        }
    }

    // Of a runtime's error users are told its description alone, as upstream does here.
    fn create(error: &RuntimeError, restart_count: u32) -> Self {
        let reserved = error.is_name_reserved().then_some(restart_count);
        Self {
            reason: "CreateContainerError",
            message: error.message.clone(),
            reserved,
        }
    }

    fn run(error: &RuntimeError) -> Self {
        Self {
            reason: "RunContainerError",
            message: error.message.clone(),
            reserved: None,
        }
    }
}

impl Tools {
    /// Creates and starts a container in a sandbox, and tells users.
    pub(super) async fn start_container(
        &self,
        subject: &Subject,
        name: &str,
        sandbox: &SandboxId,
        restart_count: Option<u32>,
    ) -> Result<ContainerId, StartError> {
        let Some((_, container)) = shape::find(&subject.pod, name) else {
            return Err(StartError::config(format!(
                "container {name:?} is no longer in the pod"
            )));
        };
        let started = self.try_start(subject, container, sandbox, restart_count).await;
        if let Err(error) = &started {
            let message = format!("Error: {}", error.message);
            self.recorder
                .container(&subject.pod, name, Severity::Warning, "Failed", message);
        }
        started
    }

    async fn try_start(
        &self,
        subject: &Subject,
        container: &Container,
        sandbox_id: &SandboxId,
        restart_count: Option<u32>,
    ) -> Result<ContainerId, StartError> {
        let (pod, context) = (&*subject.pod, &*self.context);
        let sandbox = subject
            .observed
            .sandboxes
            .iter()
            .find(|sandbox| sandbox.id == *sandbox_id);
        let attempt = sandbox.map_or(0, |sandbox| sandbox.attempt);
        let pod_ips = match sandbox {
            Some(sandbox) if !sandbox.host_network => sandbox.ips.clone(),
            _ => context.host_ips.texts(),
        };
        let references = spec::env_references(pod, container);
        let objects = if shape::is_static(pod) {
            ResolvedObjects {
                services: self.objects.services(),
                ..ResolvedObjects::default()
            }
        } else {
            let resolved = self.objects.resolve(&subject.uid, &references).await;
            resolved.map_err(StartError::config)?
        };
        let environment = spec::environment(pod, container, &objects, &pod_ips, context).map_err(StartError::config)?;
        let logs = spec::pod_log_directory(pod, context);
        let restart_count = match restart_count {
            Some(count) => count,
            None => from_logs(&logs.join(&container.name)).await,
        };
        let request = ContainerFilesRequest {
            pod: subject.uid.clone(),
            container: container.name.clone(),
            restart_count,
            log_directory: logs,
            hosts: spec::hosts_file(pod, &pod_ips, context),
            sub_paths: spec::sub_paths(container, &environment).map_err(StartError::config)?,
            volumes: (*subject.volumes).clone(),
        };
        let files = self
            .volumes
            .prepare_container(request)
            .await
            .map_err(StartError::config)?;
        let image = subject.image.clone().unwrap_or_default();
        let config = spec::container_config(&ContainerInput {
            pod,
            container,
            restart_count,
            image: &image,
            environment: &environment,
            volumes: &subject.volumes,
            files: &files,
            ctx: context,
        })
        .map_err(StartError::config)?;
        let sandbox_config = spec::sandbox_config(pod, attempt, context).map_err(StartError::config)?;

        let created = self.runtime.create_container(sandbox_id, config, &sandbox_config).await;
        let id = created.map_err(|error| StartError::create(&error, restart_count))?;
        self.recorder
            .container(pod, &container.name, Severity::Normal, "Created", "Container created");
        self.runtime
            .start_container(&id)
            .await
            .map_err(|error| StartError::run(&error))?;
        self.recorder
            .container(pod, &container.name, Severity::Normal, "Started", "Container started");
        let log = spec::pod_log_directory(pod, context).join(format!("{}/{restart_count}.log", container.name));
        log_file::make_link(&context.pod_logs_dir, pod, &container.name, id.as_str(), log).await;
        Ok(id)
    }
}

/// The restart count after the logs that are there: one more than the highest (kubelet contract §6), 0 without any.
async fn from_logs(directory: &Path) -> u32 {
    let directory = directory.to_owned();
    let highest = client::blocking::spawn(move || {
        let entries = std::fs::read_dir(directory).ok()?.flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str().and_then(number_of))
            .max()
    });
    highest.await.ok().flatten().map_or(0, |number| number + 1)
}

/// The number in `N.log` and whatever rotation makes of it.
fn number_of(file: &str) -> Option<u32> {
    let (number, rest) = file.split_once('.')?;
    rest.starts_with("log").then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_restart_count_goes_on_from_the_logs() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert_eq!(from_logs(&dir.path().join("none")).await, 0);
        assert_eq!(from_logs(dir.path()).await, 0);
        for file in ["0.log", "2.log.20260101-000000.gz", "notes.txt", "x.log"] {
            std::fs::write(dir.path().join(file), "").expect("write");
        }
        assert_eq!(from_logs(dir.path()).await, 3);
    }
}
