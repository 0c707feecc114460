//! The event recorder: creates core v1 events, counts repeats, never blocks and never fails its caller.

use super::write::EventText;
use client::Clock;
use http::Request;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Events waiting to be sent; more are dropped.
const BACKLOG: usize = 1000;
/// Events whose repeats are counted instead of created again.
const REMEMBERED: usize = 1024;
const DEADLINE: Duration = Duration::from_secs(10);

/// A handle that accepts events.
#[derive(Clone)]
pub struct Recorder {
    send: mpsc::Sender<EventText>,
}

/// What makes two events the same one.
type Identity = (String, String, String, &'static str, &'static str, String);

struct Known {
    name: String,
    count: u32,
}

struct Writer {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    component: &'static str,
    known: BTreeMap<Identity, Known>,
    order: VecDeque<Identity>,
    made: u64,
}

impl Recorder {
    /// Starts a recorder that writes as `component` until every handle is dropped.
    pub fn spawn(client: kube::Client, clock: Arc<dyn Clock>, component: &'static str) -> Self {
        let (send, mut receive) = mpsc::channel(BACKLOG);
        let mut writer = Writer {
            client,
            clock,
            component,
            known: BTreeMap::new(),
            order: VecDeque::new(),
            made: 0,
        };
        tokio::spawn(async move {
            while let Some(event) = receive.recv().await {
                writer.write(event).await;
            }
        });
        Self { send }
    }

    /// Records an event; drops it when too many wait.
    pub fn record(&self, event: EventText) {
        if self.send.try_send(event).is_err() {
            tracing::warn!("event dropped: too many are waiting");
        }
    }
}

impl Writer {
    async fn write(&mut self, event: EventText) {
        let about = &event.regarding;
        let text = |o: &Option<String>| o.clone().unwrap_or_default();
        let identity = (
            text(&about.namespace),
            text(&about.name),
            text(&about.uid),
            event.kind,
            event.reason,
            event.message.clone(),
        );
        let namespace = about
            .namespace
            .clone()
            .filter(|n| !n.is_empty())
            .unwrap_or_else(|| "default".to_owned());
        let path = format!("/api/v1/namespaces/{namespace}/events");
        if let Some(known) = self.known.get_mut(&identity) {
            known.count += 1;
            let patch = json!({"count": known.count, "lastTimestamp": self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
            let request = Request::patch(format!("{path}/{}", known.name));
            let request = request.header(http::header::CONTENT_TYPE, "application/merge-patch+json");
            if self.send(request.body(patch.to_string().into_bytes())).await {
                return;
            }
            // The server forgot it: create it again.
            self.known.remove(&identity);
        }
        let (name, body) = self.fresh(&event, &namespace);
        let request = Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        if self.send(request.body(body.to_string().into_bytes())).await {
            self.remember(identity, name);
        }
    }

    fn fresh(&mut self, event: &EventText, namespace: &str) -> (String, Value) {
        let now = self.clock.now();
        self.made += 1;
        let stamp = u64::try_from(now.as_nanosecond())
            .unwrap_or_default()
            .wrapping_add(self.made);
        let name = format!("{}.{stamp:016x}", event.regarding.name.as_deref().unwrap_or_default());
        let second = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": event.regarding,
            "reason": event.reason, "message": event.message, "type": event.kind,
            "source": {"component": self.component}, "reportingComponent": self.component, "reportingInstance": "",
            "firstTimestamp": second, "lastTimestamp": second, "count": 1, "eventTime": null,
        });
        (name, body)
    }

    fn remember(&mut self, identity: Identity, name: String) {
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(identity.clone());
        self.known.insert(identity, Known { name, count: 1 });
    }

    async fn send(&self, request: Result<Request<Vec<u8>>, http::Error>) -> bool {
        let Ok(request) = request else { return false };
        match timeout(DEADLINE, self.client.request::<Value>(request)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "event not written");
                false
            }
            Err(_) => false,
        }
    }
}
