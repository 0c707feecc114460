//! Event subscriptions: CRI's own where the runtime has it, containerd's event service on the same socket otherwise.

use super::Service;
use crate::id::PodUid;
use crate::rpc::{Client, decoded};
use crate::runtime::{RuntimeError, RuntimeEvent, labels};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use prost::Message;
use proto::containerd as ctrd;
use proto::cri as pb;
use std::time::Duration;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// A server that has a streaming call sends nothing until the first event; one that lacks it answers at once. Silence
/// this long means the call is there.
const PROBE: Duration = Duration::from_millis(500);
/// The largest event that is read, bytes.
const EVENT_BYTES_MAX: usize = 4 << 20;
/// The containerd namespace CRI containers live in.
const CONTAINERD_NAMESPACE: &str = "k8s.io";

/// Subscribes to whichever event source there is.
pub(super) async fn subscribe(
    runtime: &Service,
    channel: Channel,
) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
    let request = pb::GetEventsRequest {};
    let opening = runtime.0.listen("GetContainerEvents", request, MetadataMap::new());
    let events = opened(opening, |bytes| {
        decoded(bytes).ok().map(|event| Some(from_cri_event(event)))
    })
    .await;
    match events.map_err(|status| super::from_status("GetContainerEvents", &status)) {
        Err(error) if error.is_unimplemented() => from_containerd(channel).await,
        other => other,
    }
}

/// The stream that is being opened, once it is, or once silence tells that it will be. It ends with the first message that is none.
async fn opened(
    mut opening: BoxFuture<'static, Result<Streaming<Bytes>, Status>>,
    read: fn(Bytes) -> Option<Option<RuntimeEvent>>,
) -> Result<BoxStream<'static, RuntimeEvent>, Status> {
    let opened = match tokio::time::timeout(PROBE, &mut opening).await {
        Ok(opened) => futures::future::ready(Ok(opened?)).boxed(),
        Err(_) => opening,
    };
    let stream = futures::stream::once(opened)
        .filter_map(async |opened| opened.ok())
        .flatten()
        .map(move |told| told.ok().and_then(read))
        .take_while(|told| futures::future::ready(told.is_some()))
        .filter_map(async |told| told.flatten());
    Ok(stream.boxed())
}

fn from_cri_event(event: pb::ContainerEventResponse) -> RuntimeEvent {
    let ended = [
        pb::ContainerEventType::ContainerStoppedEvent as i32,
        pb::ContainerEventType::ContainerDeletedEvent as i32,
    ];
    let pod = event
        .pod_sandbox_status
        .and_then(|mut status| status.labels.remove(labels::POD_UID));
    RuntimeEvent {
        ended: ended.contains(&event.container_event_type),
        id: event.container_id,
        pod: pod.map(PodUid::from),
    }
}

async fn from_containerd(channel: Channel) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
    let client = Client::new(channel, "containerd.services.events.v1.Events", EVENT_BYTES_MAX);
    let filter = format!("namespace=={CONTAINERD_NAMESPACE},topic~=\"^/tasks/(start|exit|oom|delete)$\"");
    let request = ctrd::SubscribeRequest { filters: vec![filter] };
    let mut metadata = MetadataMap::new();
    let namespace = MetadataValue::from_static(CONTAINERD_NAMESPACE);
    metadata.insert("containerd-namespace", namespace);
    let opening = client.listen("Subscribe", request, metadata);
    let events = opened(opening, |bytes| {
        decoded(bytes).ok().map(|envelope| from_envelope(&envelope))
    })
    .await;
    events.map_err(|status| {
        let code = match status.code() {
            Code::Unknown => Code::Unimplemented,
            code => code,
        };
        RuntimeError::new("Subscribe", code, status.message())
    })
}

/// The container an envelope is about. Exits of processes other than the container's own (exec probes) say nothing.
fn from_envelope(envelope: &ctrd::Envelope) -> Option<RuntimeEvent> {
    let payload = envelope.event.as_ref()?.value.as_slice();
    let (id, ended) = match envelope.topic.as_str() {
        "/tasks/start" => (ctrd::TaskStart::decode(payload).ok()?.container_id, false),
        "/tasks/oom" => (ctrd::TaskOom::decode(payload).ok()?.container_id, false),
        "/tasks/exit" => {
            let exit = ctrd::TaskExit::decode(payload).ok()?;
            if exit.id != exit.container_id {
                return None;
            }
            (exit.container_id, true)
        }
        "/tasks/delete" => {
            let delete = ctrd::TaskDelete::decode(payload).ok()?;
            if !delete.id.is_empty() && delete.id != delete.container_id {
                return None;
            }
            (delete.container_id, true)
        }
        _ => return None,
    };
    Some(RuntimeEvent { id, pod: None, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(topic: &str, payload: Vec<u8>) -> ctrd::Envelope {
        let event = Some(prost_types::Any {
            type_url: String::new(),
            value: payload,
        });
        ctrd::Envelope {
            topic: topic.into(),
            event,
            ..Default::default()
        }
    }

    #[test]
    fn only_the_containers_own_process_is_an_event() {
        let exit = |id: &str| ctrd::TaskExit {
            container_id: "c".into(),
            id: id.into(),
            ..Default::default()
        };
        let own = from_envelope(&envelope("/tasks/exit", exit("c").encode_to_vec()));
        assert_eq!(
            own,
            Some(RuntimeEvent {
                id: "c".into(),
                pod: None,
                ended: true
            })
        );
        assert_eq!(
            from_envelope(&envelope("/tasks/exit", exit("exec-1").encode_to_vec())),
            None
        );
        assert_eq!(from_envelope(&envelope("/tasks/exec-started", Vec::new())), None);
    }
}
