//! A driver as drivers are: it serves both versions of the service and its devices' health at a real socket, and does what it is told to.

use crate::plugin::{Handler, Plugin};
use async_trait::async_trait;
use futures::stream::BoxStream;
use proto::dra::health::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use proto::dra::health::{NodeWatchResourcesRequest, NodeWatchResourcesResponse};
use proto::dra::v1::dra_plugin_server::{DraPlugin as V1, DraPluginServer as V1Server};
use proto::dra::v1::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use proto::dra::v1beta1::dra_plugin_server::{DraPlugin as V1beta1, DraPluginServer as V1beta1Server};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// How a driver behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It gives device `dev` of pool `pool`, as `NAME/class=UID`.
    #[default]
    Good,
    /// It fails at every claim, with these words.
    Fails(&'static str),
    /// It tells of a claim nobody asked about.
    Lies,
    /// It answers with more than is read about one claim.
    Floods,
    /// It never answers.
    Hangs,
}

#[derive(Clone)]
struct Answers {
    name: String,
    manner: Arc<Mutex<Manner>>,
    /// What it was asked, in order: `v1 +CLAIM` and `v1 -CLAIM`.
    calls: watch::Sender<Vec<String>>,
    health: watch::Receiver<NodeWatchResourcesResponse>,
    /// Looks at the world at every call.
    look: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Answers {
    fn note(&self, version: &str, sign: &str, claims: &[Claim]) {
        let seen = (self.look)();
        for claim in claims {
            let call = format!("{version} {sign}{}{seen}", claim.name);
            self.calls.send_modify(|calls| calls.push(call));
        }
    }

    fn manner(&self) -> Manner {
        self.manner.lock().expect("not poisoned").clone()
    }

    async fn prepare(
        &self,
        version: &str,
        claims: Vec<Claim>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        self.note(version, "+", &claims);
        let manner = self.manner();
        if manner == Manner::Hangs {
            std::future::pending::<()>().await;
        }
        let device = |uid: &str| Device {
            pool_name: "pool".into(),
            device_name: "dev".into(),
            cdi_device_ids: vec![format!("{}/class={uid}", self.name)],
            ..Device::default()
        };
        let of = |claim: &Claim| match &manner {
            Manner::Fails(error) => NodePrepareResourceResponse {
                error: (*error).to_owned(),
                ..Default::default()
            },
            Manner::Floods => NodePrepareResourceResponse {
                error: "x".repeat(200 << 10),
                ..Default::default()
            },
            _ => NodePrepareResourceResponse {
                devices: vec![device(&claim.uid)],
                ..Default::default()
            },
        };
        let mut answer: std::collections::HashMap<String, NodePrepareResourceResponse> =
            claims.iter().map(|claim| (claim.uid.clone(), of(claim))).collect();
        if manner == Manner::Lies {
            answer.insert("stranger".to_owned(), NodePrepareResourceResponse::default());
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims: answer }))
    }

    fn unprepare(&self, version: &str, claims: Vec<Claim>) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        self.note(version, "-", &claims);
        if let Manner::Fails(error) = self.manner() {
            return Err(Status::internal(error));
        }
        let answer = claims
            .into_iter()
            .map(|claim| (claim.uid, Default::default()))
            .collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims: answer }))
    }
}

#[async_trait]
impl V1 for Answers {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        self.prepare("v1", request.into_inner().claims).await
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        self.unprepare("v1", request.into_inner().claims)
    }
}

#[async_trait]
impl V1beta1 for Answers {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        self.prepare("v1beta1", request.into_inner().claims).await
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        self.unprepare("v1beta1", request.into_inner().claims)
    }
}

#[async_trait]
impl DraResourceHealth for Answers {
    type NodeWatchResourcesStream = BoxStream<'static, Result<NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        use futures::StreamExt;
        let told = WatchStream::new(self.health.clone()).map(Ok);
        Ok(Response::new(Box::pin(told)))
    }
}

/// A driver that serves until dropped.
pub(crate) struct SampleDriver {
    name: String,
    path: PathBuf,
    manner: Arc<Mutex<Manner>>,
    calls: watch::Receiver<Vec<String>>,
    /// What it tells of its devices.
    pub(crate) health: watch::Sender<NodeWatchResourcesResponse>,
    _server: AbortOnDropHandle<()>,
}

impl SampleDriver {
    /// Begins to serve at `NAME.sock`. Must be called inside a tokio runtime.
    pub(crate) fn start(directory: &Path, name: &str) -> Self {
        Self::that_looks(directory, name, Arc::new(String::new))
    }

    /// As [`SampleDriver::start`]; it adds what it sees to each call it notes.
    pub(crate) fn that_looks(directory: &Path, name: &str, look: Arc<dyn Fn() -> String + Send + Sync>) -> Self {
        let path = directory.join(format!("{name}.sock"));
        let (sender, calls) = watch::channel(Vec::new());
        let (health, told) = watch::channel(NodeWatchResourcesResponse::default());
        let manner = Arc::<Mutex<Manner>>::default();
        let answers = Answers {
            name: name.to_owned(),
            manner: manner.clone(),
            calls: sender,
            health: told,
            look,
        };
        let listener = UnixListener::bind(&path).expect("bound");
        let serving = Server::builder()
            .add_service(V1Server::new(answers.clone()))
            .add_service(V1beta1Server::new(answers.clone()))
            .add_service(DraResourceHealthServer::new(answers));
        let serving = serving.serve_with_incoming(UnixListenerStream::new(listener));
        let server = tokio::spawn(async move { serving.await.expect("served") });
        Self {
            name: name.to_owned(),
            path,
            manner,
            calls,
            health,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Registers it, as one that has these services.
    pub(crate) async fn register(&self, handler: &dyn Handler, services: &[&str]) {
        handler.register(&self.plugin(services)).await.expect("registered");
    }

    /// What it says of itself.
    pub(crate) fn plugin(&self, services: &[&str]) -> Plugin {
        Plugin {
            name: self.name.clone(),
            socket: self.path.clone(),
            endpoint: self.path.clone(),
            versions: services.iter().map(|service| (*service).to_owned()).collect(),
        }
    }

    /// Has it behave so from now on.
    pub(crate) fn behave(&self, manner: Manner) {
        *self.manner.lock().expect("not poisoned") = manner;
    }

    /// What it was asked so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.borrow().clone()
    }

    /// Waits until it was asked so many times.
    pub(crate) async fn asked(&mut self, times: usize) {
        let asked = self.calls.wait_for(|calls| calls.len() >= times).await;
        drop(asked.expect("it serves"));
    }
}
