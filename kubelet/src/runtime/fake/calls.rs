//! The scripted runtime's calls: latency, mishaps and faults around [`super::state`].

use super::{FakeRuntime, Mishap, Run, image_named};
use crate::id::{ContainerId, FullName, PodUid, SandboxId};
use crate::runtime::observed::{ContainerState, ContainerSummary, ObservedContainer, ObservedSandbox, SandboxSummary};
use crate::runtime::{
    CgroupDriver, ContainerUsage, ExecOutput, ImageInfo, Runtime, RuntimeError, RuntimeEvent, RuntimeSettings,
    RuntimeStatus, RuntimeVersion,
};
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use proto::cri as pb;
use std::path::Path;
use std::time::Duration;
use tonic::Code;

/// What surrounds one call.
struct Passage {
    call: &'static str,
    lose_reply: bool,
    goes_on: Option<Duration>,
}

impl Passage {
    /// The reply, unless it is to be lost.
    fn reply<T>(&self, value: T) -> Result<T, RuntimeError> {
        if self.lose_reply {
            Err(RuntimeError::deadline(self.call))
        } else {
            Ok(value)
        }
    }
}

impl FakeRuntime {
    /// Records the call, waits its latency, and strikes with whatever is scripted.
    async fn enter(&self, call: &'static str, argument: &str) -> Result<Passage, RuntimeError> {
        let (latency, mishap, fail, lose_reply) = {
            let mut script = self.script();
            script.calls.push(format!("{call} {argument}"));
            let latency = script.latency.get(call).copied().unwrap_or_default();
            let mishap = script
                .mishaps
                .get_mut(call)
                .and_then(std::collections::VecDeque::pop_front);
            let faults = script.faults.clone();
            let fail = script.strikes("fail_call", faults.fail_call);
            let lose_reply = !fail && script.strikes("lose_reply", faults.lose_reply);
            (latency, mishap, fail, lose_reply)
        };
        tokio::time::sleep(latency).await;
        match mishap {
            Some(Mishap::Fail(error)) => return Err(error),
            Some(Mishap::Hang) => {
                tokio::time::sleep(self.shared.timeout).await;
                return Err(RuntimeError::deadline(call));
            }
            Some(Mishap::GoOn(duration)) => {
                return Ok(Passage {
                    call,
                    lose_reply: false,
                    goes_on: Some(duration),
                });
            }
            None => {}
        }
        if fail {
            return Err(RuntimeError::new(call, Code::Unavailable, "scripted failure"));
        }
        Ok(Passage {
            call,
            lose_reply,
            goes_on: None,
        })
    }

    fn end_later(&self, id: ContainerId, duration: Duration, exit_code: i32) {
        let runtime = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(duration).await;
            runtime.end_now(&id, exit_code);
        });
    }

    fn end_now(&self, id: &ContainerId, exit_code: i32) {
        let now = self.shared.clock.now();
        let ended = self.state().end(id, exit_code, now);
        if let Some(pod) = ended {
            self.emit(id.to_string(), pod, true);
        }
    }

    fn make_sandbox(&self, config: &pb::PodSandboxConfig, handler: &str) -> Result<SandboxId, RuntimeError> {
        let now = self.shared.clock.now();
        let id = self.state().run_sandbox(config, handler, now)?;
        let pod = self.state().sandboxes.get(&id).map(|s| s.observed.pod.clone());
        if let Some(pod) = pod {
            self.emit(id.to_string(), pod, false);
        }
        Ok(id)
    }

    /// Makes a sandbox in a while, whether or not anybody waits for it.
    async fn sandbox_goes_on(
        &self,
        config: pb::PodSandboxConfig,
        handler: String,
        duration: Duration,
    ) -> Result<SandboxId, RuntimeError> {
        let metadata = config.metadata.clone().unwrap_or_default();
        let name = (PodUid::new(&metadata.uid), metadata.attempt);
        self.state().reserved.insert(name.clone());
        let runtime = self.clone();
        let making = tokio::spawn(async move {
            tokio::time::sleep(duration).await;
            runtime.state().reserved.remove(&name);
            runtime.make_sandbox(&config, &handler)
        });
        making
            .await
            .unwrap_or_else(|_| Err(RuntimeError::deadline("RunPodSandbox")))
    }

    fn is_alive(&self, id: &ContainerId) -> bool {
        self.state()
            .containers
            .get(id)
            .is_some_and(|c| c.observed.state == ContainerState::Running)
    }
}

#[async_trait]
impl Runtime for FakeRuntime {
    async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        self.enter("Version", "").await?;
        Ok(RuntimeVersion {
            name: "fake".into(),
            version: "0".into(),
        })
    }

    async fn status(&self) -> Result<RuntimeStatus, RuntimeError> {
        self.enter("Status", "").await?;
        let (down, handlers, features) = {
            let state = self.state();
            (state.network_down, state.handlers.clone(), state.features)
        };
        let network_message = if down {
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin \
             not initialized"
                .to_owned()
        } else {
            String::new()
        };
        Ok(RuntimeStatus {
            runtime_ready: true,
            network_ready: !down,
            network_message,
            handlers,
            features,
            ..Default::default()
        })
    }

    async fn run_pod_sandbox(&self, config: pb::PodSandboxConfig, handler: &str) -> Result<SandboxId, RuntimeError> {
        let name = config.metadata.as_ref().map_or("", |m| m.name.as_str()).to_owned();
        let passage = self.enter("RunPodSandbox", &name).await?;
        if let Some(duration) = passage.goes_on {
            return self.sandbox_goes_on(config, handler.to_owned(), duration).await;
        }
        let id = self.make_sandbox(&config, handler)?;
        passage.reply(id)
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let passage = self.enter("StopPodSandbox", id.as_str()).await?;
        let now = self.shared.clock.now();
        let ended = self.state().stop_sandbox(id, now);
        for (id, pod) in ended {
            self.emit(id, pod, true);
        }
        passage.reply(())
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let passage = self.enter("RemovePodSandbox", id.as_str()).await?;
        let now = self.shared.clock.now();
        let mut state = self.state();
        state.stop_sandbox(id, now);
        state.sandboxes.remove(id);
        state.containers.retain(|_, c| c.observed.sandbox.as_ref() != Some(id));
        drop(state);
        passage.reply(())
    }

    async fn pod_sandbox_status(&self, id: &SandboxId) -> Result<ObservedSandbox, RuntimeError> {
        self.enter("PodSandboxStatus", id.as_str()).await?;
        self.state()
            .sandboxes
            .get(id)
            .map(|s| s.observed.clone())
            .ok_or_else(|| RuntimeError::new("PodSandboxStatus", Code::NotFound, "sandbox not found"))
    }

    async fn list_pod_sandboxes(&self, pod: Option<&PodUid>) -> Result<Vec<SandboxSummary>, RuntimeError> {
        self.enter("ListPodSandbox", pod.map_or("", PodUid::as_str)).await?;
        let state = self.state();
        if pod.is_none() && state.refuses_list_of_all {
            let text = "grpc: received message larger than max (16777217 vs. 16777216)";
            return Err(RuntimeError::new("ListPodSandbox", Code::ResourceExhausted, text));
        }
        let all = state.sandboxes.values().map(|s| &s.observed);
        Ok(all
            .filter(|s| pod.is_none_or(|pod| s.pod == *pod))
            .map(|s| SandboxSummary {
                id: s.id.clone(),
                pod: s.pod.clone(),
                name: FullName {
                    namespace: s.namespace.clone(),
                    name: s.name.clone(),
                },
                ready: s.ready,
            })
            .collect())
    }

    async fn list_sandbox_ids(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        self.enter("ListPodSandbox", "").await?;
        Ok(self.state().sandboxes.values().map(|s| s.observed.id.clone()).collect())
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: pb::ContainerConfig,
        _sandbox_config: &pb::PodSandboxConfig,
    ) -> Result<ContainerId, RuntimeError> {
        let name = config.metadata.as_ref().map_or("", |m| m.name.as_str()).to_owned();
        let passage = self.enter("CreateContainer", &name).await?;
        let now = self.shared.clock.now();
        let id = self.state().create_container(sandbox, &config, now)?;
        let images = config
            .mounts
            .into_iter()
            .filter_map(|mount| Some((mount.image?.image, mount.image_sub_path)));
        self.state().mounted_images.extend(images);
        passage.reply(id)
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let passage = self.enter("StartContainer", id.as_str()).await?;
        let now = self.shared.clock.now();
        let (pod, run) = self.state().start(id, now)?;
        self.emit(id.to_string(), pod, false);
        if let Run::For { duration, exit_code } = run {
            self.end_later(id.clone(), duration, exit_code);
        }
        passage.reply(())
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
        let passage = self
            .enter("StopContainer", &format!("{id} {}", grace.as_secs()))
            .await?;
        let stops_after = self.state().containers.get(id).map(|c| c.behaviour.stops_after);
        let Some(stops_after) = stops_after else {
            return passage.reply(());
        };
        let (wait, exit_code) = match stops_after {
            Some(after) if after <= grace => (after, 0),
            _ => (grace, 137),
        };
        // Another call with less grace, or a crash, can end it sooner; look often enough to notice.
        let until = tokio::time::Instant::now() + wait;
        while self.is_alive(id) && tokio::time::Instant::now() < until {
            let step = until.saturating_duration_since(tokio::time::Instant::now());
            tokio::time::sleep(step.min(Duration::from_millis(250))).await;
        }
        self.end_now(id, exit_code);
        passage.reply(())
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: pb::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        let passage = self.enter("UpdateContainerResources", id.as_str()).await?;
        self.state().update(id, resources)?;
        passage.reply(())
    }

    async fn update_sandbox_resources(
        &self,
        id: &SandboxId,
        _overhead: pb::LinuxContainerResources,
        _resources: pb::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        const CALL: &str = "UpdatePodSandboxResources";
        self.enter(CALL, id.as_str()).await?;
        Err(RuntimeError::new(CALL, Code::Unimplemented, "unknown method"))
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let passage = self.enter("RemoveContainer", id.as_str()).await?;
        self.end_now(id, 137);
        self.state().containers.remove(id);
        passage.reply(())
    }

    async fn list_containers(&self, pod: Option<&PodUid>) -> Result<Vec<ContainerSummary>, RuntimeError> {
        self.enter("ListContainers", pod.map_or("", PodUid::as_str)).await?;
        let state = self.state();
        if pod.is_none() && state.refuses_list_of_all {
            let text = "grpc: received message larger than max (16777217 vs. 16777216)";
            return Err(RuntimeError::new("ListContainers", Code::ResourceExhausted, text));
        }
        let all = state.containers.values().map(|c| &c.observed);
        Ok(all
            .filter(|c| pod.is_none_or(|pod| c.pod == *pod))
            .filter_map(|c| {
                let sandbox = c.sandbox.clone()?;
                Some(ContainerSummary {
                    id: c.id.clone(),
                    pod: c.pod.clone(),
                    sandbox,
                    state: c.state,
                    image: c.image_ref.clone(),
                })
            })
            .collect())
    }

    async fn container_status(&self, id: &ContainerId) -> Result<ObservedContainer, RuntimeError> {
        self.enter("ContainerStatus", id.as_str()).await?;
        self.state()
            .containers
            .get(id)
            .map(|c| c.observed.clone())
            .ok_or_else(|| RuntimeError::new("ContainerStatus", Code::NotFound, "container not found"))
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        _timeout: Duration,
    ) -> Result<ExecOutput, RuntimeError> {
        self.enter("ExecSync", &command.join(" ")).await?;
        let behaviour = self.state().containers.get(id).map(|c| c.behaviour.clone());
        let takes = behaviour.as_ref().map_or(Duration::ZERO, |b| b.exec_takes);
        tokio::time::sleep(takes).await;
        match behaviour.filter(|_| self.is_alive(id)) {
            Some(behaviour) => Ok(ExecOutput {
                exit_code: behaviour.exec_exit_code,
                ..ExecOutput::default()
            }),
            None => Err(RuntimeError::new(
                "ExecSync",
                Code::NotFound,
                "container is not running",
            )),
        }
    }

    async fn exec(&self, _request: pb::ExecRequest) -> Result<String, RuntimeError> {
        Err(RuntimeError::new(
            "Exec",
            Code::Unimplemented,
            "no streams in a scripted runtime",
        ))
    }

    async fn attach(&self, _request: pb::AttachRequest) -> Result<String, RuntimeError> {
        Err(RuntimeError::new(
            "Attach",
            Code::Unimplemented,
            "no streams in a scripted runtime",
        ))
    }

    async fn port_forward(&self, _request: pb::PortForwardRequest) -> Result<String, RuntimeError> {
        Err(RuntimeError::new(
            "PortForward",
            Code::Unimplemented,
            "no streams in a scripted runtime",
        ))
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<pb::AuthConfig>,
        _sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<String, RuntimeError> {
        let passage = self.enter("PullImage", image).await?;
        let mut state = self.state();
        if !state.remote.contains(image) {
            let text = format!("failed to resolve reference {image:?}: not found");
            return Err(RuntimeError::new("PullImage", Code::NotFound, text));
        }
        let shown = auth.map(|auth| auth.password);
        if state
            .passwords
            .get(image)
            .is_some_and(|wanted| shown.as_ref() != Some(wanted))
        {
            let text =
                format!("failed to resolve reference {image:?}: authorization failed: no basic auth credentials");
            return Err(RuntimeError::new("PullImage", Code::Unknown, text));
        }
        let info = image_named(image);
        state.images.insert(image.to_owned(), info.clone());
        drop(state);
        passage.reply(info.id)
    }

    async fn image_status(&self, image: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        self.enter("ImageStatus", image).await?;
        Ok(self.state().find_image(image).map(|(_, info)| info.clone()))
    }

    async fn list_container_stats(&self) -> Result<Vec<ContainerUsage>, RuntimeError> {
        self.enter("ListContainerStats", "").await?;
        let memory = self.state().memory.clone();
        let layers = self.state().layers.clone();
        let usage = |(pod, name): (PodUid, String)| ContainerUsage {
            pod: Some(pod),
            memory: memory.get(&name).copied(),
            layer: layers.get(&name).map(|bytes| (*bytes, 1)),
            working_set: Some(memory.get(&name).copied().unwrap_or(4096)),
            name,
            at_nanos: 1_000_000_000,
            cpu_nanos: Some(2_000_000_000),
            ..ContainerUsage::default()
        };
        Ok(self.running().into_iter().map(usage).collect())
    }

    async fn list_images(&self) -> Result<Vec<ImageInfo>, RuntimeError> {
        self.enter("ListImages", "").await?;
        Ok(self.state().images.values().cloned().collect())
    }

    async fn remove_image(&self, image: &str) -> Result<(), RuntimeError> {
        self.enter("RemoveImage", image).await?;
        self.state()
            .images
            .retain(|name, info| name != image && info.id != image);
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<pb::ImageFsInfoResponse, RuntimeError> {
        self.enter("ImageFsInfo", "").await?;
        Ok(self.state().image_file_system())
    }

    async fn checkpoint_container(&self, id: &ContainerId, path: &Path, _: Duration) -> Result<(), RuntimeError> {
        // What fails leaves its half of a file, as real runtimes may.
        let written = std::fs::write(path, id.as_str());
        self.enter("CheckpointContainer", id.as_str()).await?;
        written.map_err(|error| RuntimeError::new("CheckpointContainer", Code::Unknown, error.to_string()))
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let passage = self.enter("ReopenContainerLog", id.as_str()).await?;
        let reopen = self.script().reopen.clone();
        if let Some(reopen) = reopen {
            reopen(id.as_str());
        }
        passage.reply(())
    }

    async fn runtime_config(&self) -> Result<RuntimeSettings, RuntimeError> {
        self.enter("RuntimeConfig", "").await?;
        Ok(RuntimeSettings {
            driver: Some(CgroupDriver::Cgroupfs),
            sandbox_image: None,
        })
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<(), RuntimeError> {
        self.enter("UpdateRuntimeConfig", pod_cidr).await.map(|_| ())
    }

    async fn subscribe(&self) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
        self.enter("GetContainerEvents", "").await?;
        if !self.script().has_events {
            return Err(RuntimeError::new(
                "GetContainerEvents",
                Code::Unimplemented,
                "no events",
            ));
        }
        let receiver = self.shared.events.subscribe();
        // A subscriber that fell behind lost events, as with a real stream: it goes on with what is next.
        let stream = tokio_stream::wrappers::BroadcastStream::new(receiver).filter_map(async |event| event.ok());
        Ok(stream.boxed())
    }
}
