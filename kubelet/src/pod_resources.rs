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
use crate::rpc::decoded;
use answer::{Of, Share};
use bytes::Bytes;
use futures::FutureExt;
use prost::Message;
use proto::pod_resources as v1;
use proto::pod_resources_v1alpha1 as v1alpha1;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

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
        bucket: Mutex::new(Bucket::new(RATE)),
    };
    socket::handler(Arc::new(move |path, request| {
        let answer = lister.call(path, request)?;
        Some(std::future::ready(answer).boxed())
    }))
}

struct Lister {
    parts: Arc<Parts>,
    metrics: PodResourcesMetrics,
    bucket: Mutex<Bucket>,
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

impl Lister {
    /// Answers a call; nothing where the API has none of this path.
    fn call(&self, path: &str, request: Bytes) -> Option<Result<Vec<u8>, Status>> {
        let of_path: fn(&Self, Bytes) -> Result<Vec<u8>, Status> = match path {
            "/v1.PodResourcesLister/List" => |lister, _| Ok(lister.list().encode_to_vec()),
            "/v1.PodResourcesLister/GetAllocatableResources" => |lister, _| Ok(lister.allocatable().encode_to_vec()),
            "/v1.PodResourcesLister/Get" => |lister, request| Ok(lister.get(decoded(request)?)?.encode_to_vec()),
            "/v1alpha1.PodResourcesLister/List" => |lister, _| Ok(lister.list_v1alpha1().encode_to_vec()),
            _ => return None,
        };
        Some(self.enter().and_then(|()| of_path(self, request)))
    }

    fn list(&self) -> v1::ListPodResourcesResponse {
        self.metrics.called("v1", PodResourcesCall::List, false);
        let pods = self.active();
        let of = pods.iter().map(|pod| answer::of_pod(&pod.pod, |of| self.share(of)));
        v1::ListPodResourcesResponse {
            pod_resources: of.collect(),
        }
    }

    fn allocatable(&self) -> v1::AllocatableResourcesResponse {
        self.metrics.called("v1", PodResourcesCall::Allocatable, false);
        let cpus = self.parts.pinning.allocatable_cpus();
        v1::AllocatableResourcesResponse {
            devices: self.parts.devices.look(answer::allocatable),
            cpu_ids: cpus.iter().map(i64::from).collect(),
            memory: answer::memory(&self.parts.pinning.allocatable_memory()),
        }
    }

    fn get(&self, asked: v1::GetPodResourcesRequest) -> Result<v1::GetPodResourcesResponse, Status> {
        let found = self.parts.pods.get(&asked.pod_namespace, &asked.pod_name);
        let found = found.filter(|pod| pod.active && !pod.ended);
        self.metrics.called("v1", PodResourcesCall::Get, found.is_none());
        let Some(pod) = found else {
            let (name, namespace) = (asked.pod_name, asked.pod_namespace);
            return Err(Status::unknown(format!(
                "pod {name} in namespace {namespace} not found"
            )));
        };
        Ok(v1::GetPodResourcesResponse {
            pod_resources: Some(answer::of_pod(&pod.pod, |of| self.share(of))),
        })
    }

    fn list_v1alpha1(&self) -> v1alpha1::ListPodResourcesResponse {
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
        v1alpha1::ListPodResourcesResponse {
            pod_resources: of.collect(),
        }
    }
}
