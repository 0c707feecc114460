//! What a cycle's decision becomes in the API: a binding, or a condition that says why not, and an event.

use super::pod::PodInfo;
use crate::controller::event::Recorder;
use crate::controller::write::{EventText, PODS, reference};
use client::Clock;
use http::Request;
use proto::api::condition;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

/// What came of it.
pub enum Bound {
    /// The API has it.
    Done,
    /// The pod is not bound.
    Failed {
        /// The pod.
        pod: Arc<PodInfo>,
        /// Why.
        error: String,
    },
}

/// Writes decisions. Clones share everything.
#[derive(Clone)]
pub struct Binder {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
}

impl Binder {
    /// A binder that writes with that client.
    pub fn new(client: kube::Client, clock: Arc<dyn Clock>, recorder: Recorder) -> Self {
        Self {
            client,
            clock,
            recorder,
        }
    }

    async fn send(&self, request: Result<Request<Vec<u8>>, http::Error>) -> Result<Value, String> {
        let request = request.map_err(|e| e.to_string())?;
        match timeout(DEADLINE, self.client.request::<Value>(request)).await {
            Ok(reply) => reply.map_err(|e| e.to_string()),
            Err(_) => Err("deadline exceeded".into()),
        }
    }

    fn event(&self, pod: &PodInfo, kind: &'static str, reason: &'static str, message: String) {
        self.recorder.record(EventText {
            regarding: reference(&PODS, &*pod.pod),
            kind,
            reason,
            message,
        });
    }

    /// Binds the pod to the node.
    pub async fn bind(&self, pod: Arc<PodInfo>, node: String) -> Bound {
        let body = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid},
            "target": {"kind": "Node", "name": node},
        });
        let request = Request::post(format!("{}/binding", PODS.path(&pod.key)));
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        match self.send(request.body(body.to_string().into_bytes())).await {
            Ok(_) => {
                let message = format!("Successfully assigned {} to {node}", pod.key);
                self.event(&pod, "Normal", "Scheduled", message);
                Bound::Done
            }
            Err(error) => Bound::Failed { pod, error },
        }
    }

    /// Tells why the pod has no node: event FailedScheduling and condition PodScheduled.
    pub async fn refuse(&self, pod: Arc<PodInfo>, reason: &'static str, message: String) -> Bound {
        self.event(&pod, "Warning", "FailedScheduling", message.clone());
        let conditions = pod.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let old = condition::find(conditions, "PodScheduled");
        let same = |c: &k8s_openapi::api::core::v1::PodCondition| {
            c.status == "False" && c.reason.as_deref() == Some(reason) && c.message.as_deref() == Some(&message)
        };
        if old.is_some_and(same) {
            return Bound::Done;
        }
        let since = old
            .filter(|c| c.status == "False")
            .and_then(|c| c.last_transition_time.clone());
        let since = since.map_or_else(|| self.clock.now(), |t| t.0);
        let body = json!({
            "metadata": {"uid": pod.uid},
            "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            }]},
        });
        let request = Request::patch(format!("{}/status", PODS.path(&pod.key)));
        let request = request.header(http::header::CONTENT_TYPE, "application/strategic-merge-patch+json");
        if let Err(error) = self.send(request.body(body.to_string().into_bytes())).await {
            tracing::debug!(pod = %pod.key, error, "condition not written");
        }
        Bound::Done
    }
}
