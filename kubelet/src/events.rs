//! Event recorder: what users read in `kubectl describe`.
//!
//! Owns the way of an event to the API server: bounded (a full queue drops, never blocks), aggregated (the same event again
//! only raises a count), rate-limited per object and in all. Never delays whoever records.

use crate::pod::shape;
use client::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Events waiting to be sent; more are dropped.
const QUEUE_MAX: usize = 1000;
/// Distinct events remembered for aggregation.
const REMEMBERED_MAX: usize = 4096;
/// Per object: this many at once, then one per refill (upstream's spam filter).
const OBJECT_BURST: f64 = 25.0;
const OBJECT_REFILL: Duration = Duration::from_secs(300);
/// The deadline of one write.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

/// The component name in an event's source.
const COMPONENT: &str = "kubelet";

/// Whether an event is of interest or a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One event as recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What it is about.
    pub object: ObjectReference,
    /// Its severity.
    pub severity: Severity,
    /// Its reason, upstream's string.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// When it happened.
    pub at: Timestamp,
}

/// Records events. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Record>,
    clock: Arc<dyn Clock>,
}

/// The half that sends what was recorded.
pub struct Sender {
    receiver: mpsc::Receiver<Record>,
    node: String,
    limits: Limits,
}

/// How fast events may be sent (`eventRecordQPS`, `eventBurst`).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Per second; 0 for no limit.
    pub per_second: f64,
    /// At once.
    pub burst: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_second: 50.0,
            burst: 100.0,
        }
    }
}

/// A recorder for the node of that name and the half that sends.
pub fn recorder(node: &str, clock: Arc<dyn Clock>, limits: Limits) -> (Recorder, Sender) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    (
        Recorder { sender, clock },
        Sender {
            receiver,
            node: node.to_owned(),
            limits,
        },
    )
}

/// A reference to a pod.
pub fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: None,
    }
}

impl Recorder {
    /// Records an event about any object.
    pub fn record(&self, object: ObjectReference, severity: Severity, reason: &str, message: impl Into<String>) {
        let record = Record {
            object,
            severity,
            reason: reason.to_owned(),
            message: message.into(),
            at: self.clock.now(),
        };
        if let Err(error) = self.sender.try_send(record) {
            tracing::debug!(%error, "an event was dropped");
        }
    }

    /// Records an event about a pod.
    pub fn pod(&self, pod: &Pod, severity: Severity, reason: &str, message: impl Into<String>) {
        self.record(pod_reference(pod), severity, reason, message);
    }

    /// Records an event about a container of a pod.
    pub fn container(&self, pod: &Pod, name: &str, severity: Severity, reason: &str, message: impl Into<String>) {
        let field_path = shape::find(pod, name).map(|(kind, _)| kind.field_path(name));
        self.record(
            ObjectReference {
                field_path,
                ..pod_reference(pod)
            },
            severity,
            reason,
            message,
        );
    }
}

/// What makes two events the same.
type Identity = (String, String, String, String, String, String);

fn identity(record: &Record) -> Identity {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (
        text(&record.object.namespace),
        text(&record.object.kind),
        format!("{}/{}", text(&record.object.name), text(&record.object.uid)),
        text(&record.object.field_path),
        format!("{}/{}", record.severity.as_str(), record.reason),
        record.message.clone(),
    )
}

/// A bucket of tokens on tokio's clock.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn full(size: f64, now: Instant) -> Self {
        Self {
            tokens: size,
            filled: now,
        }
    }

    /// Takes a token, or tells how long until there is one.
    fn take(&mut self, size: f64, per_second: f64, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * per_second).min(size);
        self.filled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64(
            ((1.0 - self.tokens) / per_second.max(1e-9)).min(3600.0),
        ))
    }
}

struct Sent {
    namespace: String,
    name: String,
    count: i32,
    last: Timestamp,
}

/// What has been sent, for aggregation and limits.
struct Ledger {
    sent: BTreeMap<Identity, Sent>,
    objects: BTreeMap<String, Bucket>,
    all: Bucket,
    serial: u64,
}

impl Sender {
    /// Sends events until every recorder is gone.
    pub async fn run(mut self, client: kube::Client) {
        let now = Instant::now();
        let mut ledger = Ledger {
            sent: BTreeMap::new(),
            objects: BTreeMap::new(),
            all: Bucket::full(self.limits.burst, now),
            serial: 0,
        };
        while let Some(record) = self.receiver.recv().await {
            self.send(&client, &mut ledger, record).await;
        }
    }

    /// Reads and forgets events: what a kubelet without an API server does.
    pub async fn discard(mut self) {
        while let Some(record) = self.receiver.recv().await {
            tracing::info!(
                object = record.object.name.as_deref().unwrap_or_default(),
                reason = record.reason,
                message = record.message,
                "event"
            );
        }
    }

    async fn send(&self, client: &kube::Client, ledger: &mut Ledger, record: Record) {
        if !ledger.allows(&record, Instant::now()) {
            return;
        }
        if self.limits.per_second > 0.0 {
            while let Err(wait) = ledger
                .all
                .take(self.limits.burst, self.limits.per_second, Instant::now())
            {
                tokio::time::sleep(wait).await;
            }
        }
        let identity = identity(&record);
        if ledger.sent.len() >= REMEMBERED_MAX {
            ledger.forget_oldest();
        }
        if let Some(sent) = ledger.sent.get_mut(&identity) {
            sent.count += 1;
            sent.last = record.at;
            let api: Api<Event> = Api::namespaced(client.clone(), &sent.namespace);
            let patch = Patch::Strategic(json!({"count": sent.count, "lastTimestamp": Time(record.at)}));
            let params = PatchParams::default();
            let write = api.patch(&sent.name, &params, &patch);
            match tokio::time::timeout(WRITE_DEADLINE, write).await {
                Ok(Ok(_)) => return,
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                    // It expired at the server: it is told anew below.
                    ledger.sent.remove(&identity);
                }
                other => return log_failure(other),
            }
        }
        ledger.serial += 1;
        let event = self.event(&record, ledger.serial);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let name = event.metadata.name.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let params = PostParams::default();
        match tokio::time::timeout(WRITE_DEADLINE, api.create(&params, &event)).await {
            Ok(Ok(_)) => {
                let sent = Sent {
                    namespace,
                    name,
                    count: 1,
                    last: record.at,
                };
                ledger.sent.insert(identity, sent);
            }
            other => log_failure(other),
        }
    }

    fn event(&self, record: &Record, serial: u64) -> Event {
        let object = record.object.clone();
        let namespace = object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let nanoseconds = i64::try_from(record.at.as_nanosecond()).unwrap_or_default();
        // Upstream's form NAME.HEX-NANOSECONDS; the serial keeps two events of one instant apart.
        let name = format!(
            "{}.{:x}",
            object.name.clone().unwrap_or_default(),
            nanoseconds.wrapping_add(serial as i64)
        );
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: object,
            reason: Some(record.reason.clone()),
            message: Some(record.message.clone()),
            type_: Some(record.severity.as_str().to_owned()),
            count: Some(1),
            first_timestamp: Some(Time(record.at)),
            last_timestamp: Some(Time(record.at)),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        }
    }
}

impl Ledger {
    /// Whether the object has not said too much lately.
    fn allows(&mut self, record: &Record, now: Instant) -> bool {
        let object = record
            .object
            .uid
            .clone()
            .or_else(|| record.object.name.clone())
            .unwrap_or_default();
        if self.objects.len() >= REMEMBERED_MAX {
            self.objects
                .retain(|_, bucket| now.saturating_duration_since(bucket.filled) < OBJECT_REFILL);
        }
        let bucket = self
            .objects
            .entry(object)
            .or_insert_with(|| Bucket::full(OBJECT_BURST, now));
        bucket
            .take(OBJECT_BURST, 1.0 / OBJECT_REFILL.as_secs_f64(), now)
            .is_ok()
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .sent
            .iter()
            .min_by_key(|(_, sent)| sent.last)
            .map(|(identity, _)| identity.clone());
        if let Some(oldest) = oldest {
            self.sent.remove(&oldest);
        }
    }
}

fn log_failure<T>(result: Result<Result<T, kube::Error>, tokio::time::error::Elapsed>) {
    match result {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "an event was not accepted"),
        Err(_) => tracing::warn!("an event was not sent in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{at, pod};

    #[tokio::test(start_paused = true)]
    async fn one_object_cannot_say_everything() {
        let now = Instant::now();
        let mut ledger = Ledger {
            sent: BTreeMap::new(),
            objects: BTreeMap::new(),
            all: Bucket::full(1.0, now),
            serial: 0,
        };
        let record = |name: &str| Record {
            object: pod_reference(&pod(name).build()),
            severity: Severity::Normal,
            reason: "R".into(),
            message: String::new(),
            at: at(0),
        };
        let said = (0..100).filter(|_| ledger.allows(&record("loud"), now)).count();
        assert_eq!(said, 25);
        assert!(ledger.allows(&record("quiet"), now));
        assert!(!ledger.allows(&record("loud"), now));
        assert!(ledger.allows(&record("loud"), now + OBJECT_REFILL));
    }

    #[test]
    fn an_event_says_where_it_comes_from() {
        let record = Record {
            object: pod_reference(&pod("p").build()),
            severity: Severity::Warning,
            reason: "BackOff".into(),
            message: "m".into(),
            at: at(0),
        };
        let (_, receiver) = mpsc::channel(1);
        let sender = Sender {
            receiver,
            node: "n1".into(),
            limits: Limits::default(),
        };
        let event = sender.event(&record, 1);
        assert_eq!(event.metadata.namespace.as_deref(), Some("ns"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.source.and_then(|s| s.host).as_deref(), Some("n1"));
        assert!(event.metadata.name.is_some_and(|name| name.starts_with("p.")));
    }
}
