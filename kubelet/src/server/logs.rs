//! `/containerLogs`: finding the container's log, and streaming it.

mod files;
mod follow;
mod line;
mod options;
mod rotation;
mod source;
mod tail;
mod watch;

use super::Server;
use super::answer::{self, Answer, Body};
use super::request::Query;
use super::router::Target;
use super::share::{Share, Shares};
use crate::id::PodUid;
use crate::pod::view::PodSnapshot;
use crate::reason::waiting;
use crate::runtime::observed::{ContainerState, ObservedContainer};
use bytes::Bytes;
use files::LogFiles;
use follow::{Reader, SEND_DEADLINE};
use futures::FutureExt;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ContainerStatus;
use options::LogOptions;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Chunks on their way to a slow client.
const CHUNKS_MAX: usize = 1;
/// Readers at a time: each holds a few blocks of its log.
const READERS_MAX: usize = 512;
/// Of those, of one pod.
const READERS_OF_POD_MAX: usize = 64;

/// What readers of containers' logs share: their places, and the way to the files.
pub(super) struct Logs {
    readers: Arc<Semaphore>,
    of_pods: Shares<PodUid>,
    files: LogFiles,
}

impl Default for Logs {
    fn default() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            of_pods: Shares::new(READERS_OF_POD_MAX),
            files: LogFiles::default(),
        }
    }
}

/// What a reader holds until all it read is taken.
struct Place {
    _among_all: OwnedSemaphorePermit,
    _of_pod: Share<PodUid>,
}

impl Logs {
    fn place(&self, pod: &PodUid) -> Result<Place, &'static str> {
        let of_pod = self.of_pods.take(pod.clone());
        let of_pod = of_pod.ok_or("too many readers of this pod's logs\n")?;
        let among_all = self.readers.clone().try_acquire_owned();
        Ok(Place {
            _among_all: among_all.map_err(|_| "too many readers of containers' logs\n")?,
            _of_pod: of_pod,
        })
    }
}

/// Answers a log request.
pub(super) async fn answer(server: &Server, target: &Target, query: &Query) -> Answer {
    let (pods, logs) = (&server.parts.pods, &server.logs);
    let options = match LogOptions::parse(query, server.now(), server.settings.handlers.log_streams) {
        Ok(options) => options,
        Err(mistake) => return answer::text(mistake.code(), &format!("{mistake}\n")),
    };
    let Some(snapshot) = pods.get(&target.namespace, &target.pod) else {
        return answer::text(
            404,
            &format!(
                "pod {:?} does not exist\n",
                format!("{}/{}", target.namespace, target.pod)
            ),
        );
    };
    let container = match pick(&snapshot, target, options.previous) {
        Ok(container) => container,
        Err((code, text)) => return answer::text(code, &text),
    };
    let place = match logs.place(&container.pod) {
        Ok(place) => place,
        Err(why) => return answer::text(429, why),
    };
    let path = PathBuf::from(&container.log_path);
    let reader = match Reader::begin(&logs.files, path, options.clone()).await {
        Ok(reader) => reader,
        Err(error) => {
            let text = format!(
                "failed to try resolving symlinks in path {:?}: {error}\n",
                container.log_path
            );
            return answer::text(400, &text);
        }
    };
    let (pods, id, uid) = (pods.clone(), container.id.clone(), container.pod.clone());
    let alive = move || {
        let snapshot = pods.by_uid(&uid);
        snapshot.is_some_and(|s| s.observed.alive().any(|c| c.id == id))
    };
    answer::stream(streamed(reader, place, alive))
}

/// Sends what is read; a client that takes nothing for too long loses its place, and an answer that is not all there ends as a broken
/// one.
fn streamed(reader: Reader, place: Place, alive: impl Fn() -> bool + Send + Sync + 'static) -> Body {
    let (chunks, received) = mpsc::channel::<Bytes>(CHUNKS_MAX);
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = is_cut.clone();
    tokio::spawn(
        async move {
            let last = chunks.clone();
            match reader.stream(chunks, alive).await {
                // What was sent last counts until it is taken, for as long as anything before it did.
                Ok(()) => drop(tokio::time::timeout(SEND_DEADLINE, last.reserve_many(CHUNKS_MAX)).await),
                Err(error) => {
                    tracing::debug!(%error, "log stream ended");
                    cut.store(true, Ordering::SeqCst);
                }
            }
            drop((last, place));
        }
        .boxed(),
    );
    let broken = stream::once(async move {
        let cut = is_cut.load(Ordering::SeqCst);
        cut.then(|| Err(io::Error::other("the log is not all there")))
    });
    let frames = ReceiverStream::new(received).map(|chunk| Some(Ok(Frame::data(chunk))));
    let frames = frames.chain(broken).filter_map(std::future::ready);
    BodyExt::boxed(StreamBody::new(frames))
}

fn status_of<'a>(snapshot: &'a PodSnapshot, name: &str) -> Option<&'a ContainerStatus> {
    let status = &snapshot.status;
    let all = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    all.into_iter().flatten().flatten().find(|s| s.name == name)
}

fn is_in_spec(snapshot: &PodSnapshot, name: &str) -> bool {
    let Some(spec) = &snapshot.pod.spec else { return false };
    let mut named = spec.init_containers.iter().flatten().chain(&spec.containers);
    named.any(|c| c.name == name) || spec.ephemeral_containers.iter().flatten().any(|c| c.name == name)
}

/// Why a container that was never created has no log.
fn not_started(snapshot: &PodSnapshot, target: &Target) -> String {
    let (container, pod) = (&target.container, &target.pod);
    let reason = status_of(snapshot, container).and_then(|s| s.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    let why = match reason {
        Some(waiting::ERR_IMAGE_PULL) => "image can't be pulled",
        Some(waiting::IMAGE_PULL_BACK_OFF) => "trying and failing to pull image",
        Some(reason) => reason,
        None => return format!("container {container:?} in pod {pod:?} is not available\n"),
    };
    format!("container {container:?} in pod {pod:?} is waiting to start: {why}\n")
}

/// The container whose log is meant.
fn pick(snapshot: &PodSnapshot, target: &Target, previous: bool) -> Result<ObservedContainer, (u16, String)> {
    let (container, pod) = (&target.container, &target.pod);
    if !is_in_spec(snapshot, container) {
        return Err((404, format!("container {container:?} not found in pod {pod:?}\n")));
    }
    let mut runs = snapshot.observed.containers.iter().filter(|c| c.name == *container);
    if previous {
        let current = runs.next();
        // Between an exit and the next start the last run is itself the previous one.
        let ended = current.filter(|c| c.state == ContainerState::Exited && restarts(snapshot, container));
        let found = runs.find(|c| c.state == ContainerState::Exited).or(ended);
        let none = || {
            (
                400,
                format!("previous terminated container {container:?} in pod {pod:?} not found\n"),
            )
        };
        return found.cloned().ok_or_else(none);
    }
    match runs.find(|c| c.state != ContainerState::Created) {
        Some(found) => Ok(found.clone()),
        None => Err((400, not_started(snapshot, target))),
    }
}

/// Whether the container is waiting to be started again.
fn restarts(snapshot: &PodSnapshot, name: &str) -> bool {
    status_of(snapshot, name).is_some_and(|s| s.state.as_ref().is_some_and(|state| state.waiting.is_some()))
}

#[cfg(test)]
mod tests;
