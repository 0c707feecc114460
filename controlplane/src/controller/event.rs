//! The event recorder: creates core v1 events, counts repeats, never blocks and never fails its caller. What one object may have of
//! them is bounded ([`spam`]).

use super::write::EventText;
use client::Clock;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Request;
use serde_json::{Value, json};
use spam::SpamFilter;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

mod spam;

/// Events waiting to be sent; more are dropped.
const BACKLOG: usize = 1000;
/// Events whose repeats are counted instead of created again.
const REMEMBERED: usize = 1024;
/// Requests at the same time.
const CONCURRENCY: usize = 16;
/// The longest message, in bytes: that of a note of events.k8s.io.
const MESSAGE_BYTES: usize = 1024;
/// How a message ends that was longer.
const CUT: &str = " ...";
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

/// Identities known on the server, the oldest forgotten first.
struct Writer {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    component: Cow<'static, str>,
    known: BTreeMap<Identity, Known>,
    order: VecDeque<Identity>,
    made: u64,
    spam: SpamFilter,
}

/// A request under way, and what to do if it fails.
struct Sending {
    identity: Identity,
    event: EventText,
    request: Result<Request<Vec<u8>>, http::Error>,
    repeats: bool,
}

impl Recorder {
    /// Starts a recorder that writes as `component` until every handle is dropped.
    pub fn spawn(client: kube::Client, clock: Arc<dyn Clock>, component: impl Into<Cow<'static, str>>) -> Self {
        let (send, receive) = mpsc::channel(BACKLOG);
        let writer = Writer {
            client,
            clock,
            component: component.into(),
            known: BTreeMap::new(),
            order: VecDeque::new(),
            made: 0,
            spam: SpamFilter::default(),
        };
        tokio::spawn(writer.run(receive));
        Self { send }
    }

    /// Records an event; drops it when too many wait, or its object has had too many. A long message is cut.
    pub fn record(&self, mut event: EventText) {
        cut(&mut event.message);
        if self.send.try_send(event).is_err() {
            tracing::warn!("event dropped: too many are waiting");
        }
    }
}

fn cut(message: &mut String) {
    if message.len() > MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES - CUT.len()));
        message.push_str(CUT);
    }
}

fn identity(event: &EventText) -> Identity {
    let text = |o: &Option<String>| o.clone().unwrap_or_default();
    let about = &event.regarding;
    let message = event.message.clone();
    (
        text(&about.namespace),
        text(&about.name),
        text(&about.uid),
        event.kind,
        event.reason,
        message,
    )
}

fn collection(event: &EventText) -> String {
    let namespace = event
        .regarding
        .namespace
        .as_deref()
        .filter(|n| !n.is_empty())
        .unwrap_or("default");
    format!("/api/v1/namespaces/{namespace}/events")
}

async fn send(client: kube::Client, mut sending: Sending) -> (Sending, bool) {
    let empty = Ok(Request::new(Vec::new()));
    let Ok(request) = std::mem::replace(&mut sending.request, empty) else {
        return (sending, false);
    };
    let sent = match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            tracing::debug!(%error, "event not written");
            false
        }
        Err(_) => false,
    };
    (sending, sent)
}

impl Writer {
    async fn run(mut self, mut receive: mpsc::Receiver<EventText>) {
        let mut sending = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some((done, sent)) = sending.next(), if !sending.is_empty() => {
                    if let Some(again) = self.finished(done, sent) {
                        sending.push(send(self.client.clone(), again));
                    }
                }
                event = receive.recv(), if sending.len() < CONCURRENCY => match event {
                    Some(event) => {
                        if let Some(next) = self.prepare(event) {
                            sending.push(send(self.client.clone(), next));
                        }
                    }
                    None => break,
                },
            }
        }
        while sending.next().await.is_some() {}
    }

    /// An event seen before is counted, another one created. Of an object that has had too many only repeats are counted, until there is
    /// one again that may be sent.
    fn prepare(&mut self, event: EventText) -> Option<Sending> {
        let identity = identity(&event);
        let is_admitted = self.spam.admits(&event.regarding, Instant::now());
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Some(known) = self.known.get_mut(&identity) else {
            return is_admitted.then(|| self.create(identity, event));
        };
        known.count += 1;
        if !is_admitted {
            return None;
        }
        let patch = json!({"count": known.count, "lastTimestamp": now});
        let request = Request::patch(format!("{}/{}", collection(&event), known.name));
        let request = request.header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        Some(Sending {
            identity,
            event,
            request: request.body(patch.to_string().into_bytes()),
            repeats: true,
        })
    }

    fn create(&mut self, identity: Identity, event: EventText) -> Sending {
        let (name, body) = self.fresh(&event);
        self.remember(identity.clone(), name);
        let request = Request::post(collection(&event)).header(http::header::CONTENT_TYPE, "application/json");
        Sending {
            identity,
            event,
            request: request.body(body.to_string().into_bytes()),
            repeats: false,
        }
    }

    /// A repeat of an event that the server no longer has becomes a new event; one that cannot be created is dropped.
    fn finished(&mut self, done: Sending, sent: bool) -> Option<Sending> {
        if sent {
            return None;
        }
        self.known.remove(&done.identity);
        self.order.retain(|identity| *identity != done.identity);
        done.repeats.then(|| self.create(done.identity, done.event))
    }

    fn fresh(&mut self, event: &EventText) -> (String, Value) {
        let now = self.clock.now();
        self.made += 1;
        let stamp = u64::try_from(now.as_nanosecond())
            .unwrap_or_default()
            .wrapping_add(self.made);
        let about = &event.regarding;
        let name = format!("{}.{stamp:016x}", about.name.as_deref().unwrap_or_default());
        let namespace = about
            .namespace
            .as_deref()
            .filter(|n| !n.is_empty())
            .unwrap_or("default");
        let second = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
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
}

#[cfg(test)]
mod tests;
