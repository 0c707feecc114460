//! `ContainerConfig`.

use super::room::Room;
use super::{ContainerFiles, NodeContext, SpecError, hash, mounts, resources, security};
use crate::id::ContainerId;
use crate::pinning::Unbounded;
use crate::pod_object;
use crate::runtime::ImageInfo;
use crate::runtime::{labels, signal};
use crate::user_namespace::IdRange;
use crate::volume::HostVolume;
use k8s_openapi::api::core::v1::{Container, Pod};
use proto::cri;
use std::collections::{BTreeMap, HashMap};

/// Everything a container is made from.
#[derive(Debug, Clone, Copy)]
pub struct ContainerInput<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// The container.
    pub container: &'a Container,
    /// How often it was started before: attempt, annotation and log file name.
    pub restart_count: u32,
    /// The image it is created from.
    pub image: &'a ImageInfo,
    /// Its environment, from [`super::environment`].
    pub environment: &'a BTreeMap<String, String>,
    /// The pod's volumes by name.
    pub volumes: &'a BTreeMap<String, HostVolume>,
    /// Files prepared for this start.
    pub files: &'a ContainerFiles,
    /// The container whose processes an ephemeral one sees.
    pub target: Option<&'a ContainerId>,
    /// The ids of a pod with users of its own.
    pub ids: Option<IdRange>,
    /// Whether its handler can make mounts read only with all that is below them.
    pub recursive_read_only: bool,
    /// The pod's containers that have CPUs alone.
    pub unbounded: &'a Unbounded,
    /// The node.
    pub ctx: &'a NodeContext,
}

fn container_labels(pod: &Pod, container: &Container) -> HashMap<String, String> {
    let meta = &pod.metadata;
    [
        (labels::POD_NAME, meta.name.clone().unwrap_or_default()),
        (labels::POD_NAMESPACE, meta.namespace.clone().unwrap_or_default()),
        (labels::POD_UID, meta.uid.clone().unwrap_or_default()),
        (labels::CONTAINER_NAME, container.name.clone()),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v))
    .collect()
}

fn container_annotations(pod: &Pod, container: &Container, restart_count: u32) -> HashMap<String, String> {
    let mut out = HashMap::new();
    let mut put = |key: &str, value: String| {
        out.insert(key.to_owned(), value);
    };
    put(labels::HASH, hash::container_hash(container));
    put(labels::RESTART_COUNT, restart_count.to_string());
    put(
        labels::TERMINATION_MESSAGE_PATH,
        mounts::termination_path(container).to_owned(),
    );
    let policy = container
        .termination_message_policy
        .as_deref()
        .filter(|p| !p.is_empty());
    put(labels::TERMINATION_MESSAGE_POLICY, policy.unwrap_or("File").to_owned());
    if let Some(handler) = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref())
        && let Ok(json) = serde_json::to_string(handler)
    {
        put(labels::PRE_STOP_HANDLER, json);
    }
    if let Some(ports) = container.ports.as_ref().filter(|p| !p.is_empty())
        && let Ok(json) = serde_json::to_string(ports)
    {
        put(labels::PORTS, json);
    }
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        put(labels::POD_DELETION_GRACE, seconds.to_string());
    }
    if let Some(seconds) = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds) {
        put(labels::POD_TERMINATION_GRACE, seconds.to_string());
    }
    out
}

/// A container's start in CRI terms.
///
/// # Errors
/// Something of it cannot be had, or its words are more than a process can be started with.
pub fn container_config(input: &ContainerInput<'_>) -> Result<cri::ContainerConfig, SpecError> {
    let ContainerInput {
        pod,
        container,
        restart_count,
        environment,
        ..
    } = *input;
    let mut room = Room::beside(environment);
    let mut expanded = |field, words: &Option<Vec<String>>| {
        let lookup = |name: &str| environment.get(name).map(String::as_str);
        room.words(field, words.as_deref().unwrap_or_default(), lookup)
    };
    let (command, args) = (
        expanded("command", &container.command)?,
        expanded("args", &container.args)?,
    );
    Ok(cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata {
            name: container.name.clone(),
            attempt: restart_count,
        }),
        image: Some(cri::ImageSpec {
            image: input.image.id.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: environment
            .iter()
            .map(|(key, value)| cri::KeyValue {
                key: key.clone(),
                value: value.clone().into_bytes(),
            })
            .collect(),
        mounts: mounts::mounts(input)?,
        labels: container_labels(pod, container),
        annotations: container_annotations(pod, container, restart_count),
        log_path: format!("{}/{restart_count}.log", container.name),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        stop_signal: signal::to_cri(pod_object::stop_signal(container).filter(|_| input.ctx.stop_signals)) as i32,
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources::container_resources(
                pod,
                container,
                input.ctx,
                input.unbounded,
            )),
            security_context: Some(security::container_security(input)?),
        }),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, pod};
    use super::*;

    #[test]
    fn whole_container() {
        let mut pod = pod(
            r#"{"terminationGracePeriodSeconds":30,"containers":[{"name":"main","image":"busybox","command":["sh","-c","echo $(A) $$(A) $(NO)"],"args":["$(A)"],
                "workingDir":"/w","stdin":true,"tty":true,"ports":[{"containerPort":80}],"lifecycle":{"stopSignal":"SIGRTMIN+3","preStop":{"exec":{"command":["x"]}}}}]}"#,
        );
        pod.metadata.deletion_grace_period_seconds = Some(5);
        let ctx = context();
        let image = ImageInfo {
            id: "sha256:1".into(),
            ..Default::default()
        };
        let environment = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let input = ContainerInput {
            pod: &pod,
            container: &pod.spec.as_ref().expect("spec").containers[0],
            restart_count: 3,
            image: &image,
            environment: &environment,
            volumes: &BTreeMap::new(),
            files: &ContainerFiles::default(),
            target: None,
            ids: None,
            recursive_read_only: false,
            unbounded: &Default::default(),
            ctx: &ctx,
        };
        let config = container_config(&input).expect("valid");
        let quarter = BTreeMap::from([("A".to_owned(), "x".repeat(1 << 19))]);
        let of = |words: &[&str]| {
            let words = Some(words.iter().map(|word| (*word).to_owned()).collect());
            let container = Container {
                command: words.clone(),
                args: words,
                ..input.container.clone()
            };
            container_config(&ContainerInput {
                container: &container,
                environment: &quarter,
                ..input
            })
        };
        assert!(of(&["$(A)"]).is_ok());
        let refused = of(&["", "$(A)$(A)"]).expect_err("beside the variable there is room for one alone");
        let exceeds = "environment and command exceed maximum size of 2MB together";
        assert_eq!(refused.to_string(), format!("args[1]: {exceeds}"));
        let refused = of(&["$(A)$(A)$(A)"]).expect_err("no room");
        assert_eq!(refused.to_string(), format!("command[0]: {exceeds}"));
        assert_eq!(config.stop_signal, cri::Signal::Sigrtminplus3 as i32);
        let without = NodeContext {
            stop_signals: false,
            ..ctx.clone()
        };
        let gate_off = container_config(&ContainerInput { ctx: &without, ..input }).expect("valid");
        assert_eq!(gate_off.stop_signal, cri::Signal::RuntimeDefault as i32);
        assert_eq!(config.command, vec!["sh", "-c", "echo 1 $(A) $(NO)"]);
        assert_eq!(config.args, vec!["1"]);
        assert_eq!(config.log_path, "main/3.log");
        assert_eq!(config.metadata.as_ref().map(|m| m.attempt), Some(3));
        assert_eq!(
            config
                .image
                .as_ref()
                .map(|i| (i.image.as_str(), i.user_specified_image.as_str())),
            Some(("sha256:1", "busybox"))
        );
        assert!(config.stdin && config.tty && !config.stdin_once);
        let annotations: BTreeMap<_, _> = config.annotations.into_iter().collect();
        let expected = [
            (
                "io.kubernetes.container.hash",
                hash::container_hash(&pod.spec.as_ref().expect("spec").containers[0]),
            ),
            ("io.kubernetes.container.ports", r#"[{"containerPort":80}]"#.into()),
            (
                "io.kubernetes.container.preStopHandler",
                r#"{"exec":{"command":["x"]}}"#.into(),
            ),
            ("io.kubernetes.container.restartCount", "3".into()),
            (
                "io.kubernetes.container.terminationMessagePath",
                "/dev/termination-log".into(),
            ),
            ("io.kubernetes.container.terminationMessagePolicy", "File".into()),
            ("io.kubernetes.pod.deletionGracePeriod", "5".into()),
            ("io.kubernetes.pod.terminationGracePeriod", "30".to_owned()),
        ];
        assert_eq!(
            annotations,
            expected.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
        );
        assert_eq!(
            config.labels.get(labels::CONTAINER_NAME).map(String::as_str),
            Some("main")
        );
    }
}
