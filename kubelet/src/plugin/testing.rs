//! A plugin as drivers are: it serves its registration at a socket, and remembers what it was told.

use async_trait::async_trait;
use proto::plugin_registration::registration_server::{Registration, RegistrationServer};
use proto::plugin_registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

#[derive(Clone)]
struct Answers {
    info: PluginInfo,
    told: watch::Sender<Vec<RegistrationStatus>>,
}

#[async_trait]
impl Registration for Answers {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.told.send_modify(|told| told.push(request.into_inner()));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// A plugin that serves its registration until dropped; its socket goes with it.
pub(crate) struct SamplePlugin {
    path: PathBuf,
    told: watch::Receiver<Vec<RegistrationStatus>>,
    _server: AbortOnDropHandle<()>,
}

impl SamplePlugin {
    /// Begins to serve. Must be called inside a tokio runtime.
    pub(crate) fn start(path: &Path, info: PluginInfo) -> Self {
        let (sender, told) = watch::channel(Vec::new());
        let service = RegistrationServer::new(Answers { info, told: sender });
        let listener = UnixListener::bind(path).expect("bound");
        let serving = Server::builder().add_service(service);
        let serving = serving.serve_with_incoming(UnixListenerStream::new(listener));
        let server = tokio::spawn(async move { serving.await.expect("served") });
        Self {
            path: path.to_owned(),
            told,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Waits until it was told something so many times; what it was told last.
    pub(crate) async fn told(&mut self, times: usize) -> RegistrationStatus {
        let told = self.told.wait_for(|told| told.len() >= times).await.expect("it serves");
        told.last().expect("told").clone()
    }
}

impl Drop for SamplePlugin {
    fn drop(&mut self) {
        // A test's directory may be gone before it.
        let _ = std::fs::remove_file(&self.path);
    }
}
