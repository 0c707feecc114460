//! Builders for tests of the pure modules: pods and observations in a few words.

use crate::id::PodUid;
use crate::pod::spec::container_hash;
use crate::runtime::observed::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// A time, seconds after the start of the test's world.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).expect("in range")
}

/// A container of image `img`.
pub(crate) fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        image: Some("img".into()),
        ..Container::default()
    }
}

/// An init container that keeps running.
pub(crate) fn sidecar(name: &str) -> Container {
    Container {
        restart_policy: Some("Always".into()),
        ..container(name)
    }
}

/// Begins a pod whose UID is its name.
pub(crate) fn pod(name: &str) -> PodBuilder {
    PodBuilder {
        name: name.into(),
        spec: PodSpec::default(),
    }
}

/// A pod being described.
pub(crate) struct PodBuilder {
    name: String,
    spec: PodSpec,
}

impl PodBuilder {
    pub(crate) fn with(mut self, container: Container) -> Self {
        self.spec.containers.push(container);
        self
    }

    pub(crate) fn init(mut self, container: Container) -> Self {
        self.spec.init_containers.get_or_insert_default().push(container);
        self
    }

    /// Adds an ephemeral container that looks at `target`, which may be empty.
    pub(crate) fn ephemeral(mut self, name: &str, target: &str) -> Self {
        let ephemeral = EphemeralContainer {
            name: name.into(),
            image: Some("img".into()),
            target_container_name: Some(target.into()),
            ..EphemeralContainer::default()
        };
        self.spec.ephemeral_containers.get_or_insert_default().push(ephemeral);
        self
    }

    pub(crate) fn policy(mut self, policy: &str) -> Self {
        self.spec.restart_policy = Some(policy.into());
        self
    }

    pub(crate) fn grace(mut self, seconds: i64) -> Self {
        self.spec.termination_grace_period_seconds = Some(seconds);
        self
    }

    pub(crate) fn build(mut self) -> Pod {
        if self.spec.containers.is_empty() {
            self.spec.containers.push(container("c"));
        }
        self.spec.restart_policy.get_or_insert("Always".into());
        Pod {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some("ns".into()),
                uid: Some(self.name),
                generation: Some(1),
                creation_timestamp: Some(Time(at(0))),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec),
            status: None,
        }
    }
}

/// Begins an observation of the pod with that UID.
pub(crate) fn observed(uid: &str) -> ObservedBuilder {
    ObservedBuilder {
        pod: ObservedPod::empty(PodUid::from(uid)),
        created: 0,
    }
}

/// An observation being described, oldest things first.
pub(crate) struct ObservedBuilder {
    pod: ObservedPod,
    created: i64,
}

impl ObservedBuilder {
    /// Adds a sandbox newer than those before.
    pub(crate) fn sandbox(mut self, ready: bool) -> Self {
        let attempt = u32::try_from(self.pod.sandboxes.len()).expect("few");
        self.created += 1;
        self.pod.sandboxes.push(ObservedSandbox {
            id: format!("s{attempt}").as_str().into(),
            pod: self.pod.uid.clone(),
            name: self.pod.uid.to_string(),
            namespace: "ns".into(),
            attempt,
            ready,
            created_at: at(self.created),
            ips: vec!["10.0.0.5".into()],
            host_network: false,
            handler: String::new(),
        });
        self
    }

    /// Adds a running container in the newest sandbox.
    pub(crate) fn running(self, name: &str) -> Self {
        self.container(name, ContainerState::Running, 0, 0)
    }

    /// Adds a container that exited at that second.
    pub(crate) fn exited(self, name: &str, exit_code: i32, finished: i64) -> Self {
        self.container(name, ContainerState::Exited, exit_code, finished)
    }

    /// Adds a container in the newest sandbox, newer than those before.
    pub(crate) fn container(mut self, name: &str, state: ContainerState, exit_code: i32, finished: i64) -> Self {
        let restart_count = self.pod.containers.iter().filter(|c| c.name == name).count();
        let restart_count = u32::try_from(restart_count).expect("few");
        self.created += 1;
        let started = matches!(state, ContainerState::Running | ContainerState::Exited);
        self.pod.containers.push(ObservedContainer {
            id: format!("{name}{restart_count}").as_str().into(),
            sandbox: self.pod.sandboxes.last().map(|s| s.id.clone()),
            pod: self.pod.uid.clone(),
            name: name.into(),
            attempt: restart_count,
            restart_count,
            hash: Some(container_hash(&container(name))),
            state,
            image: "img".into(),
            image_ref: "sha256:1".into(),
            created_at: at(self.created),
            started_at: started.then(|| at(self.created)),
            finished_at: (state == ContainerState::Exited).then(|| at(finished)),
            exit_code,
            reason: match (state, exit_code) {
                (ContainerState::Exited, 0) => "Completed".into(),
                (ContainerState::Exited, _) => "Error".into(),
                _ => String::new(),
            },
            message: String::new(),
            log_path: String::new(),
            termination_file: None,
            termination_policy: String::new(),
            pre_stop: String::new(),
            ports: String::new(),
            stop_signal: None,
            user: None,
        });
        self
    }

    pub(crate) fn build(mut self) -> ObservedPod {
        self.pod.sort();
        self.pod
    }
}
