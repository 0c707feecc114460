//! Events about this node's objects, for people: aggregated, rate-limited, bounded.
//!
//! Owns the `Event` objects the kubelet writes. Recording never waits: a full queue drops the event and counts it. Never
//! decides what is worth an event.

mod correlate;
mod sink;

use crate::rate::Rate;
use client::Clock;
use correlate::Raw;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

pub use sink::Sink;

/// Events waiting to be written; beyond it they are dropped.
const QUEUE_MAX: usize = 1000;

/// An event's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `Normal`: something went as it should.
    Normal,
    /// `Warning`: somebody may want to look.
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

/// Records events. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<Raw>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// A recorder, and the sink that writes what it records; nothing is written until the sink runs.
    pub fn new(
        clock: Arc<dyn Clock>,
        node_name: &str,
        client: Option<kube::Client>,
        rate: Rate,
        seed: u64,
    ) -> (Self, Sink) {
        let (queue, receiver) = mpsc::channel(QUEUE_MAX);
        let recorder = Self {
            clock,
            queue,
            dropped: Arc::default(),
        };
        (recorder, Sink::new(node_name, client, receiver, rate, seed))
    }

    /// Records an event about a pod as a whole.
    pub fn pod(&self, pod: &Pod, severity: Severity, reason: &str, message: impl Into<String>) {
        self.record(pod_reference(pod, None), severity, reason, message.into());
    }

    /// Records an event about a pod as a whole, with annotations.
    pub fn annotated(
        &self,
        pod: &Pod,
        annotations: &BTreeMap<String, String>,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        let raw = self.raw(pod_reference(pod, None), severity, reason, message.into());
        self.send(Raw {
            annotations: annotations.clone(),
            ..raw
        });
    }

    /// Records an event about one container, by its name.
    pub fn container(&self, pod: &Pod, name: &str, severity: Severity, reason: &str, message: impl Into<String>) {
        self.record(
            pod_reference(pod, field_path(pod, name)),
            severity,
            reason,
            message.into(),
        );
    }

    /// Records an event about the node. Upstream uses the node's name as its uid here, and so do we.
    pub fn node(&self, name: &str, severity: Severity, reason: &str, message: impl Into<String>) {
        let object = ObjectReference {
            kind: Some("Node".into()),
            uid: Some(name.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.record(object, severity, reason, message.into());
    }

    /// Records an event about another object.
    pub fn object(&self, object: ObjectReference, severity: Severity, reason: &str, message: String) {
        self.record(object, severity, reason, message);
    }

    /// How many events were dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn record(&self, object: ObjectReference, severity: Severity, reason: &str, message: String) {
        self.send(self.raw(object, severity, reason, message));
    }

    fn raw(&self, object: ObjectReference, severity: Severity, reason: &str, message: String) -> Raw {
        Raw {
            object,
            severity,
            reason: reason.to_owned(),
            message,
            annotations: BTreeMap::new(),
            at: self.clock.now(),
        }
    }

    fn send(&self, raw: Raw) {
        if self.queue.try_send(raw).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where a container is in its pod, as events say it (kubelet contract §5).
fn field_path(pod: &Pod, name: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_init = spec.init_containers.iter().flatten().any(|c| c.name == name);
    let is_ephemeral = spec.ephemeral_containers.iter().flatten().any(|c| c.name == name);
    let list = match (is_init, is_ephemeral) {
        (true, _) => "initContainers",
        (_, true) => "ephemeralContainers",
        _ => "containers",
    };
    Some(format!("spec.{list}{{{name}}}"))
}

fn pod_reference(pod: &Pod, field_path: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path,
    }
}
