//! `/containerLogs`: finding the container's log, and streaming it.

mod follow;
mod line;
mod options;

use super::answer::{self, Answer};
use super::request::Query;
use super::router::Target;
use crate::pod::view::{PodSnapshot, PodView};
use crate::reason::waiting;
use crate::runtime::observed::{ContainerState, ObservedContainer};
use bytes::Bytes;
use follow::Reader;
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ContainerStatus;
use options::LogOptions;
use std::convert::Infallible;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Chunks on their way to a slow client.
const CHUNKS_MAX: usize = 16;

/// Answers a log request.
pub(super) async fn answer(pods: &PodView, target: &Target, query: &Query, now: Timestamp) -> Answer {
    let options = match LogOptions::parse(query, now) {
        Ok(options) => options,
        Err(mistake) => return answer::text(422, &mistake),
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
    let path = PathBuf::from(&container.log_path);
    let reader = match Reader::open(path, options.clone()).await {
        Ok(reader) => reader,
        Err(error) => {
            let text = format!(
                "failed to try resolving symlinks in path {:?}: {error}\n",
                container.log_path
            );
            return answer::text(400, &text);
        }
    };
    let (chunks, received) = mpsc::channel::<Bytes>(CHUNKS_MAX);
    let (pods, id, uid) = (pods.clone(), container.id.clone(), container.pod.clone());
    let alive = move || {
        let snapshot = pods.by_uid(&uid);
        snapshot.is_some_and(|s| s.observed.alive().any(|c| c.id == id))
    };
    tokio::spawn(async move {
        if let Err(error) = reader.stream(chunks, alive).await {
            tracing::debug!(%error, "log stream ended");
        }
    });
    let frames = ReceiverStream::new(received).map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    answer::stream(BodyExt::boxed(StreamBody::new(frames)))
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
