//! CRI messages into our types. Pure.

use super::MESSAGE_BYTES_MAX;
use crate::id::{FullName, PodUid};
use crate::runtime::observed::{ContainerState, ContainerSummary, ObservedContainer, ObservedSandbox, SandboxSummary};
use crate::runtime::{CgroupDriver, ImageInfo, RuntimeStatus, labels, signal};
use jiff::Timestamp;
use proto::cri as pb;
use std::collections::HashMap;
use tonic::{Code, Status};

/// What users are told of a message beyond the bound, in the words they know; our gRPC library has other ones.
pub(super) fn too_large(status: &Status) -> Option<String> {
    let length = status
        .message()
        .strip_prefix("Error, decoded message length too large: found ")?
        .split(' ')
        .next()?;
    (status.code() == Code::OutOfRange)
        .then(|| format!("grpc: received message larger than max ({length} vs. {MESSAGE_BYTES_MAX})"))
}

/// The label selector for one pod's things, or for everything.
pub(super) fn pod_selector(pod: Option<&PodUid>) -> HashMap<String, String> {
    pod.map(|uid| (labels::POD_UID.to_owned(), uid.to_string()))
        .into_iter()
        .collect()
}

/// Nanoseconds since the epoch; zero is "never".
fn moment(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds > 0)
        .then(|| Timestamp::from_nanosecond(i128::from(nanoseconds)).ok())
        .flatten()
}

fn state(value: i32) -> ContainerState {
    match pb::ContainerState::try_from(value) {
        Ok(pb::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(pb::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(pb::ContainerState::ContainerExited) => ContainerState::Exited,
        _ => ContainerState::Unknown,
    }
}

fn is_ready(value: i32) -> bool {
    value == pb::PodSandboxState::SandboxReady as i32
}

/// A listed sandbox, if a pod's UID is on it.
pub(super) fn sandbox_summary(sandbox: pb::PodSandbox) -> Option<SandboxSummary> {
    let pod = sandbox.labels.get(labels::POD_UID)?;
    let metadata = sandbox.metadata.unwrap_or_default();
    Some(SandboxSummary {
        pod: PodUid::new(pod),
        name: FullName {
            namespace: metadata.namespace,
            name: metadata.name,
        },
        ready: is_ready(sandbox.state),
        id: sandbox.id.into(),
    })
}

/// A listed container, if a pod's UID is on it.
pub(super) fn container_summary(container: pb::Container) -> Option<ContainerSummary> {
    let pod = container.labels.get(labels::POD_UID)?;
    Some(ContainerSummary {
        pod: PodUid::new(pod),
        sandbox: container.pod_sandbox_id.into(),
        state: state(container.state),
        id: container.id.into(),
        image: match container.image_ref.is_empty() {
            true => container.image.unwrap_or_default().image,
            false => container.image_ref,
        },
    })
}

/// A sandbox's status.
pub(super) fn sandbox(status: pb::PodSandboxStatus) -> ObservedSandbox {
    let metadata = status.metadata.unwrap_or_default();
    let network = status.network.unwrap_or_default();
    let options = status
        .linux
        .and_then(|linux| linux.namespaces)
        .and_then(|namespaces| namespaces.options);
    let first = Some(network.ip).filter(|ip| !ip.is_empty());
    ObservedSandbox {
        pod: PodUid::new(status.labels.get(labels::POD_UID).unwrap_or(&metadata.uid)),
        id: status.id.into(),
        name: metadata.name,
        namespace: metadata.namespace,
        attempt: metadata.attempt,
        ready: is_ready(status.state),
        created_at: moment(status.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        ips: first
            .into_iter()
            .chain(network.additional_ips.into_iter().map(|ip| ip.ip))
            .collect(),
        host_network: options.is_some_and(|o| o.network == pb::NamespaceMode::Node as i32),
        handler: status.runtime_handler,
    }
}

/// A container's status.
pub(super) fn container(status: pb::ContainerStatus) -> ObservedContainer {
    let metadata = status.metadata.unwrap_or_default();
    let annotation = |key: &str| status.annotations.get(key).cloned();
    let termination_path = annotation(labels::TERMINATION_MESSAGE_PATH).unwrap_or_default();
    // Of two mounts at one path the later covers the earlier, in the container too: the kubelet's own comes last.
    let termination_file = status
        .mounts
        .iter()
        .rfind(|mount| !termination_path.is_empty() && mount.container_path == termination_path)
        .map(|mount| mount.host_path.clone());
    let user = status
        .user
        .and_then(|user| user.linux)
        .map(|user| (user.uid, user.gid, user.supplemental_groups));
    ObservedContainer {
        sandbox: None,
        pod: PodUid::new(status.labels.get(labels::POD_UID).map_or("", String::as_str)),
        name: status
            .labels
            .get(labels::CONTAINER_NAME)
            .cloned()
            .unwrap_or(metadata.name),
        attempt: metadata.attempt,
        restart_count: annotation(labels::RESTART_COUNT)
            .and_then(|text| text.parse().ok())
            .unwrap_or(metadata.attempt),
        hash: annotation(labels::HASH),
        state: state(status.state),
        image: status.image.map(|image| image.image).unwrap_or_default(),
        image_ref: status.image_ref,
        created_at: moment(status.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        started_at: moment(status.started_at),
        finished_at: moment(status.finished_at),
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        log_path: status.log_path,
        termination_file,
        termination_policy: annotation(labels::TERMINATION_MESSAGE_POLICY).unwrap_or_default(),
        pre_stop: annotation(labels::PRE_STOP_HANDLER).unwrap_or_default(),
        ports: annotation(labels::PORTS).unwrap_or_default(),
        stop_signal: signal::of_cri(status.stop_signal),
        user,
        id: status.id.into(),
    }
}

/// An image.
pub(super) fn image(image: pb::Image) -> ImageInfo {
    ImageInfo {
        id: image.id,
        repo_tags: image.repo_tags,
        repo_digests: image.repo_digests,
        size: image.size,
        uid: image.uid.map(|uid| uid.value),
        username: image.username,
        pinned: image.pinned,
    }
}

/// The runtime's conditions, with upstream's texts.
pub(super) fn runtime_status(reply: pb::StatusResponse) -> RuntimeStatus {
    let conditions = reply.status.unwrap_or_default().conditions;
    let find = |kind: &str| conditions.iter().find(|condition| condition.r#type == kind);
    let describe = |kind: &str, lead: &str| match find(kind) {
        Some(condition) if condition.status => String::new(),
        Some(condition) => {
            format!(
                "{lead}: {kind}=false reason:{} message:{}",
                condition.reason, condition.message
            )
        }
        None => format!("{lead}: {kind} is not reported"),
    };
    let runtime_message = describe("RuntimeReady", "container runtime not ready");
    let network_message = describe("NetworkReady", "container runtime network not ready");
    RuntimeStatus {
        runtime_ready: runtime_message.is_empty(),
        network_ready: network_message.is_empty(),
        runtime_message,
        network_message,
        handlers: reply.runtime_handlers,
        features: reply.features,
    }
}

/// The runtime's cgroup driver.
pub(super) fn cgroup_driver(value: i32) -> CgroupDriver {
    if value == pb::CgroupDriver::Systemd as i32 {
        CgroupDriver::Systemd
    } else {
        CgroupDriver::Cgroupfs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_is_not_ready_reads_as_upstream_prints_it() {
        let condition = |kind: &str, status, reason: &str, message: &str| pb::RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: reason.into(),
            message: message.into(),
        };
        let conditions = vec![
            condition("RuntimeReady", true, "", ""),
            condition(
                "NetworkReady",
                false,
                "NetworkPluginNotReady",
                "cni plugin not initialized",
            ),
        ];
        let status = runtime_status(pb::StatusResponse {
            status: Some(pb::RuntimeStatus { conditions }),
            ..Default::default()
        });
        assert!(status.runtime_ready && !status.network_ready);
        assert_eq!(
            status.network_message,
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin \
             not initialized"
        );
    }

    #[test]
    fn restart_count_comes_from_the_annotation_and_falls_back_to_the_attempt() {
        let metadata = Some(pb::ContainerMetadata {
            name: "c".into(),
            attempt: 3,
        });
        let plain = container(pb::ContainerStatus {
            metadata: metadata.clone(),
            ..Default::default()
        });
        assert_eq!((plain.restart_count, plain.attempt), (3, 3));
        let annotations = [(labels::RESTART_COUNT.to_owned(), "7".to_owned())]
            .into_iter()
            .collect();
        let annotated = container(pb::ContainerStatus {
            metadata,
            annotations,
            ..Default::default()
        });
        assert_eq!(annotated.restart_count, 7);
    }

    #[test]
    fn the_termination_file_is_the_mount_at_the_announced_path() {
        let annotations = [(
            labels::TERMINATION_MESSAGE_PATH.to_owned(),
            "/dev/termination-log".to_owned(),
        )]
        .into_iter()
        .collect();
        let mount = |container: &str, host: &str| pb::Mount {
            container_path: container.into(),
            host_path: host.into(),
            ..Default::default()
        };
        let status = pb::ContainerStatus {
            annotations,
            mounts: vec![
                mount("/data", "/x"),
                // A volume mounted at the same path is covered by the kubelet's own file.
                mount("/dev/termination-log", "/home/user"),
                mount("/dev/termination-log", "/pods/u/log"),
            ],
            ..Default::default()
        };
        assert_eq!(container(status).termination_file.as_deref(), Some("/pods/u/log"));
    }
}
