//! The PodResources API on `pod-resources/kubelet.sock`, v1 and what is left of v1alpha1 (kubelet contract §8): what of the node its
//! pods have, for monitors on it. Only reads what others publish; [`answer`] makes the answers of it.

pub mod answer;
#[cfg(test)]
mod tests;

use crate::device::socket;
use crate::metrics::{PodResourcesCall, PodResourcesMetrics};
use crate::parts::Parts;
use crate::pod::view::PodSnapshot;
use crate::rate::{Bucket, Rate};
use answer::{Of, Share};
use futures::FutureExt;
use proto::pod_resources as v1;
use proto::pod_resources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use proto::pod_resources_v1alpha1 as v1alpha1;
use proto::pod_resources_v1alpha1::pod_resources_lister_server as v1alpha1_server;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service;
use tonic::{Request, Response, Status};

/// The directory beneath `--root-dir`, and the socket in it.
const DIRECTORY: &str = "pod-resources";
const SOCKET: &str = "kubelet.sock";
/// How long until a socket that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How often it may be called, as upstream's.
const RATE: Rate = Rate {
    per_second: 100,
    burst: 10,
};

/// Serves until shut down.
pub async fn run(parts: Arc<Parts>, shutdown: CancellationToken) {
    let directory = parts.context.root_dir.join(DIRECTORY);
    loop {
        match begin(&directory) {
            Ok(listener) => return socket::serve(listener, handler(parts), shutdown).await,
            Err(error) => {
                let directory = directory.display();
                tracing::error!(%directory, %error, "the PodResources API cannot be served, trying again");
            }
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

fn begin(directory: &Path) -> io::Result<UnixListener> {
    socket::make_directory(directory)?;
    socket::listen(&directory.join(SOCKET))
}

fn handler(parts: Arc<Parts>) -> socket::Handler {
    let lister = Lister {
        metrics: parts.metrics.pod_resources.clone(),
        parts,
        bucket: Arc::new(Mutex::new(Bucket::new(RATE))),
    };
    let service = PodResourcesListerServer::new(lister.clone());
    let older = v1alpha1_server::PodResourcesListerServer::new(lister);
    Arc::new(move |request| {
        // Each answers for paths it does not know, too.
        if request.uri().path().starts_with("/v1alpha1.") {
            let mut older = older.clone();
            older.call(request).map(socket::answered).boxed()
        } else {
            let mut service = service.clone();
            service.call(request).map(socket::answered).boxed()
        }
    })
}

#[derive(Clone)]
struct Lister {
    parts: Arc<Parts>,
    metrics: PodResourcesMetrics,
    bucket: Arc<Mutex<Bucket>>,
}

impl Lister {
    /// Takes one call of the rate.
    fn enter(&self) -> Result<(), Status> {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = bucket.take(Instant::now());
        taken.map_err(|_| Status::resource_exhausted("rejected by rate limit"))
    }

    /// What one container has.
    fn share(&self, of: Of<'_>) -> Share {
        let uid = crate::pod_object::uid(of.pod);
        let container = of.container.name.as_str();
        let (devices, pinning) = (&self.parts.devices, &self.parts.pinning);
        Share {
            devices: devices.look(|state| answer::devices_of(state, uid.as_str(), container)),
            cpus: pinning.cpus_of(&uid, container).iter().map(i64::from).collect(),
            memory: answer::memory(&pinning.memory_of(&uid, container)),
            claims: answer::claims(self.parts.dra.used(of.pod, of.container)),
        }
    }

    fn active(&self) -> Vec<Arc<PodSnapshot>> {
        let mut pods = self.parts.pods.list();
        pods.retain(|pod| pod.active && !pod.ended);
        pods
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _request: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        self.enter()?;
        self.metrics.called("v1", PodResourcesCall::List, false);
        let pods = self.active();
        let of = pods.iter().map(|pod| answer::of_pod(&pod.pod, |of| self.share(of)));
        Ok(Response::new(v1::ListPodResourcesResponse {
            pod_resources: of.collect(),
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        self.enter()?;
        self.metrics.called("v1", PodResourcesCall::Allocatable, false);
        let cpus = self.parts.pinning.allocatable_cpus();
        Ok(Response::new(v1::AllocatableResourcesResponse {
            devices: self.parts.devices.look(answer::allocatable),
            cpu_ids: cpus.iter().map(i64::from).collect(),
            memory: answer::memory(&self.parts.pinning.allocatable_memory()),
        }))
    }

    async fn get(
        &self,
        request: Request<v1::GetPodResourcesRequest>,
    ) -> Result<Response<v1::GetPodResourcesResponse>, Status> {
        self.enter()?;
        let asked = request.into_inner();
        let found = self.parts.pods.get(&asked.pod_namespace, &asked.pod_name);
        let found = found.filter(|pod| pod.active && !pod.ended);
        self.metrics.called("v1", PodResourcesCall::Get, found.is_none());
        let Some(pod) = found else {
            let (name, namespace) = (asked.pod_name, asked.pod_namespace);
            return Err(Status::unknown(format!(
                "pod {name} in namespace {namespace} not found"
            )));
        };
        Ok(Response::new(v1::GetPodResourcesResponse {
            pod_resources: Some(answer::of_pod(&pod.pod, |of| self.share(of))),
        }))
    }
}

#[tonic::async_trait]
impl v1alpha1_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _request: Request<v1alpha1::ListPodResourcesRequest>,
    ) -> Result<Response<v1alpha1::ListPodResourcesResponse>, Status> {
        self.enter()?;
        self.metrics.called_older("v1alpha1");
        let pods = self.active();
        let of = pods.iter().map(|pod| {
            let devices = |of: Of<'_>| {
                let state =
                    |state: &_| answer::devices_of(state, crate::pod_object::uid(of.pod).as_str(), &of.container.name);
                self.parts.devices.look(state)
            };
            answer::of_pod_v1alpha1(&pod.pod, devices)
        });
        Ok(Response::new(v1alpha1::ListPodResourcesResponse {
            pod_resources: of.collect(),
        }))
    }
}
