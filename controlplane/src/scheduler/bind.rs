//! What a cycle's decision becomes in the API: a binding, or a condition that says why not, evictions for the pod's sake, events.

use super::extender::call::Caller;
use super::plugin::Plugin;
use super::plugin::default_preemption::Preemption;
use super::pod::PodInfo;
use super::recorder::{Note, Recorder};
use crate::controller::write::{PODS, reference};
use client::Clock;
use http::Request;
use jiff::Timestamp;
use proto::api::condition;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
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
    /// Others were evicted for the pod, or not.
    Evicted {
        /// The pod.
        pod: Arc<PodInfo>,
        /// The node.
        node: String,
        /// Whether the API has it that the pod waits for the node.
        is_nominated: bool,
        /// UIDs of those that stay after all, with why.
        kept: Vec<(String, String)>,
        /// Those that waited for the node, and do not any more.
        displaced: Vec<Arc<PodInfo>>,
    },
}

/// What becomes of `status.nominatedNodeName`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nomination {
    /// It stays as it is.
    Keep,
    /// The pod waits for no node.
    Clear,
    /// The pod waits for this one.
    Node(String),
}

/// Writes decisions. Clones share everything.
#[derive(Clone)]
pub struct Binder {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    recorders: Arc<BTreeMap<String, Recorder>>,
}

/// Kind, reason and action of an event.
type Sort = (&'static str, &'static str, &'static str);
const SCHEDULED: Sort = ("Normal", "Scheduled", "Binding");
const FAILED: Sort = ("Warning", "FailedScheduling", "Scheduling");
const PREEMPTED: Sort = ("Normal", "Preempted", "Preempting");

const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl Binder {
    /// A binder that writes with that client; events are told by the recorder of the pod's scheduler name.
    pub fn new(client: kube::Client, clock: Arc<dyn Clock>, recorders: BTreeMap<String, Recorder>) -> Self {
        Self {
            client,
            clock,
            recorders: Arc::new(recorders),
        }
    }

    /// The answer's text: of most answers nobody reads more than that it is one.
    async fn send(&self, request: Result<Request<Vec<u8>>, http::Error>) -> Result<String, Refusal> {
        let other = |text: String| Refusal { text, code: 0 };
        let request = request.map_err(|e| other(e.to_string()))?;
        match timeout(DEADLINE, self.client.request_text(request)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(kube::Error::Api(status))) => Err(Refusal {
                code: status.code,
                text: status.message.clone(),
            }),
            Ok(Err(error)) => Err(other(error.to_string())),
            Err(_) => Err(other("deadline exceeded".into())),
        }
    }

    async fn patch_status(&self, pod: &PodInfo, status: Value) -> Result<(), Refusal> {
        let body = json!({"metadata": {"uid": pod.uid}, "status": status});
        let request = Request::patch(format!("{}/status", PODS.path(&pod.key)));
        let request = request.header(http::header::CONTENT_TYPE, STRATEGIC);
        self.send(request.body(body.to_string().into_bytes())).await.map(drop)
    }

    /// Tells of `about`, in the name of the scheduler that works for `pod`: kind, reason and action, then the text.
    fn event(&self, pod: &PodInfo, about: &PodInfo, (kind, reason, action): Sort, note: String) {
        if let Some(recorder) = self.recorders.get(pod.scheduler()) {
            let is_other = about.uid != pod.uid;
            recorder.record(Note {
                regarding: reference(&PODS, &*about.pod),
                related: is_other.then(|| reference(&PODS, &*pod.pod)),
                kind,
                reason,
                action,
                note,
            });
        }
    }

    /// Tells that no node is looked for, since the pod is being deleted.
    pub fn skip(&self, pod: &PodInfo) {
        self.event(pod, pod, FAILED, format!("skip schedule deleting pod: {}", pod.key));
    }

    /// Binds the pod to the node.
    pub async fn bind(&self, pod: Arc<PodInfo>, node: String) -> Bound {
        let request = Request::post(format!("{}/binding", PODS.path(&pod.key)));
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        let sent = self.send(request.body(Binding::text(&pod, &node))).await;
        let told = |error: Refusal| format!("running Bind plugin {:?}: {}", Plugin::DefaultBinder.name(), error.text);
        self.bound(pod, &node, sent.map(drop).map_err(told))
    }

    /// Has an extender bind the pod to the node.
    pub async fn bind_by(&self, extender: &Caller, pod: Arc<PodInfo>, node: String) -> Bound {
        let asked = extender.bind(&pod, &node).await;
        self.bound(pod, &node, asked)
    }

    fn bound(&self, pod: Arc<PodInfo>, node: &str, outcome: Result<(), String>) -> Bound {
        match outcome {
            Ok(()) => {
                let message = format!("Successfully assigned {} to {node}", pod.key);
                self.event(&pod, &pod, SCHEDULED, message);
                Bound::Done
            }
            Err(error) => Bound::Failed { pod, error },
        }
    }

    /// Tells why the pod has no node: event FailedScheduling and condition PodScheduled.
    pub async fn refuse(
        &self,
        pod: Arc<PodInfo>,
        reason: &'static str,
        message: String,
        nomination: Nomination,
    ) -> Bound {
        if let Err(error) = self.say(&pod, reason, message, &nomination).await {
            tracing::debug!(pod = %pod.key, error = error.text, "condition not written");
        }
        Bound::Done
    }

    async fn say(
        &self,
        pod: &PodInfo,
        reason: &'static str,
        message: String,
        nomination: &Nomination,
    ) -> Result<(), Refusal> {
        self.event(pod, pod, FAILED, message.clone());
        let conditions = pod.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let old = condition::find(conditions, "PodScheduled");
        let same = |c: &k8s_openapi::api::core::v1::PodCondition| {
            c.status == "False"
                && c.reason.as_deref() == Some(reason)
                && c.message.as_deref() == Some(&message)
                && c.observed_generation == pod.pod.metadata.generation
        };
        let nominated = match nomination {
            Nomination::Keep => pod.nominated(),
            Nomination::Clear => "",
            Nomination::Node(node) => node,
        };
        if old.is_some_and(same) && nominated == pod.nominated() {
            return Ok(());
        }
        let since = old
            .filter(|c| c.status == "False")
            .and_then(|c| c.last_transition_time.clone());
        let since = since.map_or_else(|| self.clock.now(), |t| t.0);
        let mut status = json!({"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": time(since), "observedGeneration": pod.pod.metadata.generation,
        }]});
        match nomination {
            Nomination::Keep => {}
            Nomination::Clear => status["nominatedNodeName"] = Value::Null,
            Nomination::Node(node) => status["nominatedNodeName"] = json!(node),
        }
        self.patch_status(pod, status).await
    }

    /// Tells that the pod has no node yet and which one it waits for; then has others evicted from there. Nobody is evicted for
    /// a pod that is not there any more.
    pub async fn evict(&self, pod: Arc<PodInfo>, message: String, preemption: Preemption) -> Bound {
        let Preemption {
            node,
            victims,
            displaced,
            ..
        } = preemption;
        let nomination = Nomination::Node(node.clone());
        let mut kept = Vec::new();
        if let Err(error) = self.say(&pod, "Unschedulable", message, &nomination).await {
            kept.extend(victims.iter().map(|victim| (victim.uid.clone(), error.text.clone())));
            return Bound::Evicted {
                pod,
                node,
                is_nominated: false,
                kept,
                displaced,
            };
        }
        for other in &displaced {
            if let Err(error) = self.patch_status(other, json!({"nominatedNodeName": null})).await {
                tracing::debug!(pod = %other.key, error = error.text, "nomination not cleared");
            }
        }
        for victim in victims {
            if let Err(error) = self.evict_one(&pod, &victim, &node).await
                && !self.is_gone(&victim, &error).await
            {
                kept.push((victim.uid.clone(), error.text));
            }
        }
        Bound::Evicted {
            pod,
            node,
            is_nominated: true,
            kept,
            displaced,
        }
    }

    /// Whether the refusal means that the pod is not there any more. A conflict, and the refusal of a patch with another UID (422), say so
    /// only if another pod has its name by now: of the pod itself it means that somebody else wrote at the same time.
    async fn is_gone(&self, pod: &PodInfo, refusal: &Refusal) -> bool {
        match refusal.code {
            404 => true,
            409 | 422 => match self.send(Request::get(PODS.path(&pod.key)).body(Vec::new())).await {
                Ok(now) => {
                    let now: Value = serde_json::from_str(&now).unwrap_or_default();
                    now["metadata"]["uid"].as_str().is_some_and(|uid| uid != pod.uid)
                }
                Err(error) => error.code == 404,
            },
            _ => false,
        }
    }

    async fn evict_one(&self, pod: &PodInfo, victim: &PodInfo, node: &str) -> Result<(), Refusal> {
        if victim.kin.terminating {
            return Ok(());
        }
        let message = format!("{}: preempting to accommodate a higher priority pod", pod.scheduler());
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message,
            "lastTransitionTime": time(self.clock.now()), "observedGeneration": victim.pod.metadata.generation,
        });
        self.patch_status(victim, json!({"conditions": [condition]})).await?;
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": victim.uid}});
        let request = Request::delete(PODS.path(&victim.key));
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        self.send(request.body(options.to_string().into_bytes())).await?;
        let message = format!("Preempted by pod {} on node {node}", pod.uid);
        self.event(pod, victim, PREEMPTED, message);
        Ok(())
    }
}

/// A binding as it is sent. There is one for each pod: it is written as it stands, not put together as JSON first.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Binding<'b> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Meta<'b>,
    target: Target<'b>,
}

#[derive(Serialize)]
struct Meta<'b> {
    name: &'b str,
    namespace: &'b str,
    uid: &'b str,
}

#[derive(Serialize)]
struct Target<'b> {
    kind: &'static str,
    name: &'b str,
}

impl Binding<'_> {
    fn text(pod: &PodInfo, node: &str) -> Vec<u8> {
        let binding = Binding {
            api_version: "v1",
            kind: "Binding",
            metadata: Meta {
                name: &pod.key.name,
                namespace: &pod.key.namespace,
                uid: &pod.uid,
            },
            target: Target {
                kind: "Node",
                name: node,
            },
        };
        // Strings alone can always be written.
        serde_json::to_vec(&binding).unwrap_or_default()
    }
}

/// Why the API did not take a write.
struct Refusal {
    text: String,
    /// HTTP code; 0 when there was no answer.
    code: u16,
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::super::testing::pod;
    use super::*;
    use http::Method;

    /// A server that refuses to evict the victim with that code, and has a pod of its name with that UID if any.
    fn server(refusal: u16, uid: &'static str) -> kube::Client {
        let service = tower::service_fn(move |request: Request<kube::client::Body>| async move {
            let is_victim = request.uri().path().contains("victim");
            let status = |code: u16| {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "reason": "x", "message": "no", "metadata": {}});
                (code, status)
            };
            let (code, body) = match *request.method() {
                Method::GET if uid.is_empty() => status(404),
                Method::GET => (200, json!({"metadata": {"uid": uid}})),
                _ if is_victim => status(refusal),
                _ => (200, json!({})),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            http::Response::builder().status(code).body(body)
        });
        kube::Client::new(service, "default")
    }

    async fn evict(client: kube::Client) -> (bool, Vec<(String, String)>) {
        let binder = Binder::new(client, Arc::new(client::SystemClock), BTreeMap::new());
        let preemption = Preemption {
            node: "n".into(),
            victims: vec![pod("victim", json!({}))],
            displaced: vec![],
            violations: 0,
        };
        match binder.evict(pod("p", json!({})), "m".into(), preemption).await {
            Bound::Evicted { is_nominated, kept, .. } => (is_nominated, kept),
            _ => panic!("something else was done"),
        }
    }

    #[test]
    fn a_binding_names_the_pod_it_is_of_and_the_node() {
        let text = Binding::text(&pod("p", json!({"metadata": {"uid": "u"}})), "n");
        let expected = json!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": "p", "namespace": "default", "uid": "u"}, "target": {"kind": "Node", "name": "n"}});
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), expected);
    }

    #[tokio::test]
    async fn a_refused_binding_says_what_the_server_says() {
        let binder = Binder::new(server(409, "victim"), Arc::new(client::SystemClock), BTreeMap::new());
        match binder.bind(pod("victim", json!({})), "n".into()).await {
            Bound::Failed { error, .. } => assert_eq!(error, "running Bind plugin \"DefaultBinder\": no"),
            _ => panic!("it is bound"),
        }
    }

    /// What a condition tells of the pod it is of: the generation that it was found for.
    #[tokio::test]
    async fn conditions_name_the_generation_they_were_found_for() {
        let (send, mut sent) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let send = send.clone();
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                send.send(serde_json::from_slice::<Value>(&body).unwrap()).unwrap();
                Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(b"{}".to_vec())))
            }
        });
        let client = kube::Client::new(service, "default");
        let binder = Binder::new(client, Arc::new(client::SystemClock), BTreeMap::new());
        let of = |name: &str, generation: i64| {
            let said = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m",
                "observedGeneration": 3, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            pod(
                name,
                json!({"metadata": {"generation": generation}, "status": {"conditions": [said]}}),
            )
        };
        let preemption = Preemption {
            node: "n".into(),
            victims: vec![of("victim", 7)],
            displaced: vec![],
            violations: 0,
        };
        binder.evict(of("p", 3), "m".into(), preemption).await;
        // It has been said of this generation, and not of the next.
        binder
            .refuse(of("p", 3), "Unschedulable", "m".into(), Nomination::Keep)
            .await;
        binder
            .refuse(of("p", 4), "Unschedulable", "m".into(), Nomination::Keep)
            .await;
        let mut told = Vec::new();
        while let Ok(body) = sent.try_recv() {
            let condition = &body["status"]["conditions"][0];
            if condition.is_object() {
                told.push((condition["type"].clone(), condition["observedGeneration"].clone()));
            }
        }
        let expected = [("PodScheduled", 3), ("DisruptionTarget", 7), ("PodScheduled", 4)];
        assert_eq!(
            told,
            expected.map(|(kind, generation)| (json!(kind), json!(generation)))
        );
    }

    #[tokio::test]
    async fn a_victim_is_gone_only_if_it_is_known_to_be() {
        let stays = |(is_nominated, kept): (bool, Vec<(String, String)>)| (is_nominated, kept.len());
        assert_eq!(stays(evict(server(404, "")).await), (true, 0));
        assert_eq!(stays(evict(server(409, "")).await), (true, 0));
        assert_eq!(stays(evict(server(409, "another")).await), (true, 0));
        assert_eq!(stays(evict(server(422, "another")).await), (true, 0));
        assert_eq!(
            stays(evict(server(422, "victim")).await),
            (true, 1),
            "it is invalid otherwise"
        );
        assert_eq!(
            stays(evict(server(409, "victim")).await),
            (true, 1),
            "a conflict about itself"
        );
        assert_eq!(stays(evict(server(500, "another")).await), (true, 1));
    }
}
