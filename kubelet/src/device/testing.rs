//! A device plugin of ours, scripted: over a real socket, or over a pipe in memory where the clock is paused.

use super::plugin::Plugin;
use super::{Devices, socket};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use proto::device_plugin as pb;
use proto::device_plugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service;
use tonic::{Request, Response, Status};

/// What it says; by default it allocates whatever it is asked for, with nothing to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) pre_start: bool,
    /// What it prefers, if it wants to be asked.
    pub(crate) preferred: Option<Vec<String>>,
    /// What it answers to an allocation, for each container; the devices' names are added as a variable.
    pub(crate) answers: Vec<pb::ContainerAllocateResponse>,
    /// Why it refuses.
    pub(crate) refuses: Option<String>,
    /// It never answers which it prefers, or an allocation.
    pub(crate) hangs: bool,
}

/// A plugin.
#[derive(Clone)]
pub(crate) struct Sample {
    script: Arc<Mutex<Script>>,
    lists: watch::Sender<Vec<pb::Device>>,
    calls: Arc<Mutex<Vec<String>>>,
    /// Ends its connections.
    death: CancellationToken,
}

/// A device, healthy or not, on these NUMA nodes.
pub(crate) fn device(id: &str, healthy: bool, nodes: &[i64]) -> pb::Device {
    let nodes: Vec<pb::NumaNode> = nodes.iter().map(|id| pb::NumaNode { id: *id }).collect();
    pb::Device {
        id: id.to_owned(),
        health: if healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
        topology: (!nodes.is_empty()).then_some(pb::TopologyInfo { nodes }),
    }
}

/// Healthy devices on no NUMA node.
pub(crate) fn well(ids: &[&str]) -> Vec<pb::Device> {
    ids.iter().map(|id| device(id, true, &[])).collect()
}

/// An answer of one variable.
pub(crate) fn env(key: &str, value: &str) -> pb::ContainerAllocateResponse {
    pb::ContainerAllocateResponse {
        envs: [(key.to_owned(), value.to_owned())].into(),
        ..Default::default()
    }
}

impl Sample {
    pub(crate) fn new(devices: Vec<pb::Device>) -> Self {
        let script = Script {
            answers: vec![pb::ContainerAllocateResponse::default()],
            ..Script::default()
        };
        Self {
            script: Arc::new(Mutex::new(script)),
            lists: watch::Sender::new(devices),
            calls: Arc::default(),
            death: CancellationToken::new(),
        }
    }

    pub(crate) fn script(self, change: impl FnOnce(&mut Script)) -> Self {
        change(&mut self.script.lock().expect("a script"));
        self
    }

    pub(crate) fn lists(&self, devices: Vec<pb::Device>) {
        self.lists.send_replace(devices);
    }

    pub(crate) fn dies(&self) {
        self.death.cancel();
    }

    /// What it was asked, apart from its lists.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("calls").clone()
    }

    fn note(&self, call: String) -> Script {
        self.calls.lock().expect("calls").push(call);
        self.script.lock().expect("a script").clone()
    }

    fn handler(&self) -> socket::Handler {
        let service = DevicePluginServer::new(self.clone());
        Arc::new(move |request| {
            let mut service = service.clone();
            async move { service.call(request).await.unwrap_or_else(|never| match never {}) }.boxed()
        })
    }

    /// Serves at a path until it dies.
    pub(crate) fn serve(&self, path: &Path) {
        let listener = socket::listen(path).expect("listens");
        tokio::spawn(socket::serve(listener, self.handler(), self.death.clone()));
    }

    /// Registers over a pipe, and waits until its first list is there.
    pub(crate) async fn register(&self, devices: &Devices, resource: &str) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (handler, death) = (self.handler(), self.death.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = death.cancelled() => {}
                () = socket::converse(theirs, handler) => {}
            }
        });
        let plugin = Plugin::over(ours, devices.unread()).await.expect("connects");
        let never = CancellationToken::new();
        devices.take_plugin(resource, plugin, &never).await.expect("registers");
        let wanted = self.lists.borrow().len();
        until(devices, |devices| {
            devices.capacity().capacity.get(resource) == Some(&wanted)
        })
        .await;
    }
}

/// Waits for something to become true of the node's devices.
pub(crate) async fn until(devices: &Devices, holds: impl Fn(&Devices) -> bool) {
    let mut news = devices.news();
    while !holds(devices) {
        news.changed().await.expect("news");
    }
}

#[tonic::async_trait]
impl DevicePlugin for Sample {
    type ListAndWatchStream = BoxStream<'static, Result<pb::ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<pb::Empty>,
    ) -> Result<Response<pb::DevicePluginOptions>, Status> {
        let script = self.script.lock().expect("a script").clone();
        Ok(Response::new(pb::DevicePluginOptions {
            pre_start_required: script.pre_start,
            get_preferred_allocation_available: script.preferred.is_some(),
        }))
    }

    async fn list_and_watch(&self, _: Request<pb::Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let mut lists = self.lists.subscribe();
        lists.mark_changed();
        let lists = futures::stream::unfold(lists, |mut lists| async move {
            lists.changed().await.ok()?;
            let devices = lists.borrow_and_update().clone();
            Some((Ok(pb::ListAndWatchResponse { devices }), lists))
        });
        Ok(Response::new(lists.boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<pb::PreferredAllocationRequest>,
    ) -> Result<Response<pb::PreferredAllocationResponse>, Status> {
        let request = request.into_inner();
        let asked = request.container_requests.first().cloned().unwrap_or_default();
        let script = self.note(format!(
            "prefer {} of {} with {}",
            asked.allocation_size,
            asked.available_device_i_ds.join(","),
            asked.must_include_device_i_ds.join(",")
        ));
        if script.hangs {
            std::future::pending::<()>().await;
        }
        if let Some(why) = script.refuses {
            return Err(Status::internal(why));
        }
        Ok(Response::new(pb::PreferredAllocationResponse {
            container_responses: vec![pb::ContainerPreferredAllocationResponse {
                device_i_ds: script.preferred.unwrap_or_default(),
            }],
        }))
    }

    async fn allocate(&self, request: Request<pb::AllocateRequest>) -> Result<Response<pb::AllocateResponse>, Status> {
        let request = request.into_inner();
        let asked = request.container_requests.first().cloned().unwrap_or_default();
        let ids = asked.devices_ids.join(",");
        let script = self.note(format!("allocate {ids}"));
        if script.hangs {
            std::future::pending::<()>().await;
        }
        if let Some(why) = script.refuses {
            return Err(Status::internal(why));
        }
        let mut container_responses = script.answers;
        for answer in &mut container_responses {
            let mut envs: BTreeMap<String, String> = answer.envs.drain().collect();
            envs.insert("DEVICES".to_owned(), ids.clone());
            answer.envs = envs.into_iter().collect();
        }
        Ok(Response::new(pb::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<pb::PreStartContainerRequest>,
    ) -> Result<Response<pb::PreStartContainerResponse>, Status> {
        let ids = request.into_inner().devices_ids.join(",");
        let script = self.note(format!("start {ids}"));
        match script.refuses {
            Some(why) => Err(Status::internal(why)),
            None => Ok(Response::new(pb::PreStartContainerResponse {})),
        }
    }
}
