//! Event subscriptions: CRI's own where the runtime has it, containerd's event service on the same socket otherwise.

use crate::id::PodUid;
use crate::runtime::{RuntimeError, RuntimeEvent, labels};
use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt};
use prost::Message;
use proto::containerd as ctrd;
use proto::containerd::events_client::EventsClient;
use proto::cri as pb;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request};

/// A server that has a streaming call sends nothing until the first event; one that lacks it answers at once. Silence
/// this long means the call is there.
const PROBE: Duration = Duration::from_millis(500);
/// The containerd namespace CRI containers live in.
const CONTAINERD_NAMESPACE: &str = "k8s.io";

/// Subscribes to whichever event source there is.
pub(super) async fn subscribe(
    runtime: RuntimeServiceClient<Channel>,
    channel: Channel,
) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
    match from_cri(runtime).await {
        Err(error) if error.is_unimplemented() => from_containerd(channel).await,
        other => other,
    }
}

async fn from_cri(mut client: RuntimeServiceClient<Channel>) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
    let mut opening = Box::pin(async move { client.get_container_events(pb::GetEventsRequest {}).await });
    let opened = match tokio::time::timeout(PROBE, &mut opening).await {
        Ok(Ok(response)) => futures::future::ready(Ok(response)).left_future(),
        Ok(Err(status)) => return Err(super::from_status("GetContainerEvents", &status)),
        Err(_) => opening.right_future(),
    };
    let stream = futures::stream::once(opened)
        .filter_map(async |opened| opened.ok())
        .flat_map(|response| response.into_inner())
        .take_while(|event| futures::future::ready(event.is_ok()))
        .filter_map(async |event| event.ok().map(from_cri_event));
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
    let mut client = EventsClient::new(channel);
    let filter = format!("namespace=={CONTAINERD_NAMESPACE},topic~=\"^/tasks/(start|exit|oom|delete)$\"");
    let mut request = Request::new(ctrd::SubscribeRequest { filters: vec![filter] });
    let namespace = MetadataValue::from_static(CONTAINERD_NAMESPACE);
    request.metadata_mut().insert("containerd-namespace", namespace);
    let mut opening = Box::pin(async move { client.subscribe(request).await });
    let opened = match tokio::time::timeout(PROBE, &mut opening).await {
        Ok(Ok(response)) => futures::future::ready(Ok(response)).left_future(),
        Ok(Err(status)) => {
            let code = if status.code() == Code::Unknown {
                Code::Unimplemented
            } else {
                status.code()
            };
            return Err(RuntimeError::new("Subscribe", code, status.message()));
        }
        Err(_) => opening.right_future(),
    };
    let stream = futures::stream::once(opened)
        .filter_map(async |opened| opened.ok())
        .flat_map(|response| response.into_inner())
        .take_while(|event| futures::future::ready(event.is_ok()))
        .filter_map(async |event| event.ok().and_then(|envelope| from_envelope(&envelope)));
    Ok(stream.boxed())
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
