//! Pod garbage collection: pods that nobody will ever finish.
//!
//! Source: control-plane contract §12. Pods on nodes that do not exist (after 40 s of quarantine, and only if the server itself says so:
//! informers may be behind), and unscheduled pods that are being deleted; pods being deleted on nodes that are marked out of service; the
//! oldest of more terminated pods than may stay. None goes before it is marked failed: who counts its end needs to see one.

use super::disruption::scale::is_segment;
use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::pod;
use super::write::{self, PatchKind, Plan, Verb, Write};
use crate::held::Node;
use crate::held::Pod;
use client::{Clock, Key};
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use proto::api::condition;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// How long a node must be missing before its pods count as orphaned.
const QUARANTINE: Duration = Duration::from_secs(40);

/// For how long it is believed that a node is not there, and how soon it is asked again if nobody answered.
const TOLD: Duration = Duration::from_secs(20);
const ASKED_AGAIN: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(10);

/// Terminated pods that may stay (upstream's `--terminated-pod-gc-threshold`).
pub const TERMINATED: usize = 12_500;
/// How often terminated pods are counted.
const COUNT_EVERY: Duration = Duration::from_secs(20);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The key that stands for all terminated pods; no pod is called so.
fn all_terminated() -> Key {
    Key::new("", "")
}

/// The controller. Its keys are pods.
pub struct PodGc {
    /// The shared informers.
    pub informers: Informers,
    /// The nodes that pods are on and that are not there.
    pub missing: Arc<Mutex<Missing>>,
    /// Terminated pods that may stay; all of them if it is 0.
    pub terminated: usize,
    /// Wall time: whether a node is to be asked for is known before a plan.
    pub clock: Arc<dyn Clock>,
    /// When terminated pods were counted last.
    pub counted: Mutex<Option<Timestamp>>,
}

/// A node that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Absence {
    /// When we saw that first.
    since: Timestamp,
    /// When the server said so last.
    told: Option<Timestamp>,
}

/// How long it is since then; nothing if that is yet to come, by a clock that went back.
fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}

/// Since when nodes are missing.
#[derive(Debug, Default)]
pub struct Missing {
    since: BTreeMap<String, Absence>,
    /// When names that no pod has were dropped last.
    swept: Option<Timestamp>,
}

impl Missing {
    /// Since when the node is missing, which it is now. `used` names the nodes that pods are on: others are forgotten now and then, so
    /// that no more names are kept than there are pods.
    fn since(&mut self, node: &str, now: Timestamp, used: impl FnOnce() -> BTreeSet<String>) -> Timestamp {
        if !self.since.contains_key(node) && self.swept.is_none_or(|last| age(last, now) >= COUNT_EVERY) {
            self.keep(&used());
            self.swept = Some(now);
        }
        let new = Absence { since: now, told: None };
        self.since.entry(node.to_owned()).or_insert(new).since
    }

    /// Whether the node is missing for so long that its pods are to go, if the server says so, too, which is to be asked now.
    fn is_questionable(&self, node: &str, now: Timestamp) -> bool {
        let absence = self.since.get(node);
        absence.is_some_and(|found| age(found.since, now) >= QUARANTINE) && !self.is_gone(node, now)
    }

    /// The server has no such node.
    fn tell(&mut self, node: &str, now: Timestamp) {
        if let Some(absence) = self.since.get_mut(node) {
            absence.told = Some(now);
        }
    }

    /// Whether the server said so lately.
    fn is_gone(&self, node: &str, now: Timestamp) -> bool {
        let told = self.since.get(node).and_then(|absence| absence.told);
        told.is_some_and(|told| age(told, now) < TOLD)
    }

    /// Forgets all but these.
    fn keep(&mut self, used: &BTreeSet<String>) {
        self.since.retain(|node, _| used.contains(node));
    }

    /// The node is there: when it goes again, its pods have their time again.
    fn found(&mut self, node: &str) {
        self.since.remove(node);
    }
}

/// The nodes that pods are on.
fn used(pods: &[Arc<Pod>]) -> BTreeSet<String> {
    pods.iter().map(|pod| pod::node_name(pod).to_owned()).collect()
}

/// Whether somebody said that the node will not come back.
fn is_out_of_service(node: &Node) -> bool {
    let mut taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    taints.any(|taint| taint.key == OUT_OF_SERVICE) && !condition::is_true(conditions, "Ready")
}

impl PodGc {
    /// Counts the terminated pods, and deletes those that are too many.
    fn count(&self, now: Timestamp) -> Plan {
        let mut counted = self.counted.lock().expect("no holder of this lock panics");
        let age = counted.and_then(|last| Duration::try_from(now.duration_since(last)).ok());
        if let Some(age) = age.filter(|age| *age < COUNT_EVERY) {
            return Plan {
                again_in: Some(COUNT_EVERY - age),
                ..Plan::default()
            };
        }
        *counted = Some(now);
        let pods = self.informers.pods.list();
        self.missing
            .lock()
            .expect("no holder of this lock panics")
            .keep(&used(&pods));
        Plan {
            writes: surplus(pods, self.terminated),
            ..Plan::default()
        }
    }
}

/// Asks the server itself whether it has the node; `None` if nobody answered.
async fn ask(client: &kube::Client, node: &str) -> Option<bool> {
    if !is_segment(node) {
        // No node can be called so.
        return Some(false);
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let found = timeout(DEADLINE, nodes.get_metadata_opt(node)).await.ok()?.ok()?;
    Some(found.is_some())
}

/// Deletes what is beyond `most` of the terminated pods, if there is such a bound: evicted ones first, then the oldest.
fn surplus(pods: Vec<Arc<Pod>>, most: usize) -> Vec<Write> {
    if most == 0 {
        return Vec::new();
    }
    let mut terminated: Vec<Arc<Pod>> = pods.into_iter().filter(|pod| pod::is_terminal(pod)).collect();
    let too_many = terminated.len().saturating_sub(most);
    if too_many == 0 {
        return Vec::new();
    }
    terminated.sort_by_key(|pod| {
        let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (reason != Some("Evicted"), created, Key::of(&**pod))
    });
    terminated.iter().take(too_many).map(|pod| force_delete(pod)).collect()
}

impl Controller for PodGc {
    const NAME: &'static str = "pod-garbage-collector";

    fn wire(&self, wiring: &mut Wiring) {
        let nodes = self.informers.nodes.clone();
        wiring.on(&self.informers.pods, move |change| {
            let Some(new) = &change.new else { return vec![] };
            let name = pod::node_name(new);
            let node = nodes.get("", name);
            let is_ending = new.metadata.deletion_timestamp.is_some();
            let asks = match node {
                None if name.is_empty() => is_ending,
                None => true,
                Some(node) => is_ending && is_out_of_service(&node),
            };
            let mut keys: Vec<Key> = asks.then(|| change.key.clone()).into_iter().collect();
            if pod::is_terminal(new) && !change.old.as_ref().is_some_and(|old| pod::is_terminal(old)) {
                keys.push(all_terminated());
            }
            keys
        });
        let (pods, missing) = (self.informers.pods.clone(), self.missing.clone());
        wiring.on(&self.informers.nodes, move |change| {
            if change.new.is_some() {
                let mut missing = missing.lock().expect("no holder of this lock panics");
                missing.found(&change.key.name);
            }
            if change.new.as_ref().is_some_and(|node| !is_out_of_service(node)) {
                return vec![];
            }
            pods.at(&change.key.name).iter().map(|p| Key::of(&**p)).collect()
        });
    }

    fn look_up<'a>(&'a self, key: &Key, client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        let pod = self.informers.pods.get_key(key).filter(|pod| !is_held(pod))?;
        let node = pod::node_name(&pod).to_owned();
        let is_questionable = {
            let missing = self.missing.lock().expect("no holder of this lock panics");
            missing.is_questionable(&node, self.clock.now())
        };
        is_questionable.then(|| -> BoxFuture<'a, ()> {
            Box::pin(async move {
                let answer = ask(client, &node).await;
                let mut missing = self.missing.lock().expect("no holder of this lock panics");
                match answer {
                    Some(true) => missing.found(&node),
                    Some(false) => missing.tell(&node, self.clock.now()),
                    None => {}
                }
            })
        })
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        if *key == all_terminated() {
            return self.count(now);
        }
        let Some(pod) = self.informers.pods.get_key(key) else {
            return Plan::default();
        };
        if is_held(&pod) {
            return Plan::default();
        }
        let node = pod::node_name(&pod);
        if node.is_empty() {
            let writes = pod.metadata.deletion_timestamp.as_ref().map(|_| end(&pod, None, now));
            return Plan {
                writes: writes.into_iter().collect(),
                ..Plan::default()
            };
        }
        if !self.informers.nodes.is_synced() {
            return Plan {
                again_in: Some(QUARANTINE),
                ..Plan::default()
            };
        }
        let mut missing = self.missing.lock().expect("no holder of this lock panics");
        if let Some(found) = self.informers.nodes.get("", node) {
            missing.found(node);
            let is_stuck = pod.metadata.deletion_timestamp.is_some() && is_out_of_service(&found);
            return Plan {
                writes: is_stuck.then(|| end(&pod, None, now)).into_iter().collect(),
                ..Plan::default()
            };
        }
        let since = missing.since(node, now, || used(&self.informers.pods.list()));
        let left = QUARANTINE.saturating_sub(age(since, now));
        if !left.is_zero() || !missing.is_gone(node, now) {
            return Plan {
                again_in: Some(left.max(ASKED_AGAIN)),
                ..Plan::default()
            };
        }
        Plan::of(vec![end(&pod, Some("PodGC: node no longer exists"), now)])
    }
}

fn force_delete(pod: &Pod) -> Write {
    let verb = Verb::Delete {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        revision: None,
        grace: Some(0),
        propagation: None,
    };
    Write::new(write::PODS, Key::of(pod), verb)
}

/// Whether a pod is deleted but for its finalizers: there is nothing to do but wait for whoever holds it.
fn is_held(pod: &Pod) -> bool {
    let meta = &pod.metadata;
    let is_over = pod::is_terminal(pod) && meta.deletion_timestamp.is_some();
    is_over && meta.deletion_grace_period_seconds == Some(0) && meta.finalizers.as_ref().is_some_and(|f| !f.is_empty())
}

/// Marks a pod that nobody else will end failed, and, where that is what ended it, with why it was disrupted; deletes it once it is over.
fn end(pod: &Pod, disruption: Option<&str>, now: Timestamp) -> Write {
    if pod::is_terminal(pod) {
        return force_delete(pod);
    }
    let mut status = json!({"phase": "Failed"});
    if let Some(message) = disruption {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let known = condition::find(conditions, "DisruptionTarget").filter(|known| known.status == "True");
        let since = known.and_then(|known| known.last_transition_time.clone());
        status["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": message,
            "lastTransitionTime": since.unwrap_or(Time(now)), "observedGeneration": pod.metadata.generation,
        }]);
    }
    let body = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    Write::new(
        write::PODS,
        Key::of(pod),
        Verb::Patch(PatchKind::Strategic, "status", body),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_comes_back_is_missing_anew_and_names_without_pods_are_forgotten() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let used = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let mut missing = Missing::default();
        assert_eq!(missing.since("a", at(0), || used(&["a"])), at(0));
        assert_eq!(missing.since("a", at(30), || unreachable!()), at(0));
        missing.found("a");
        assert_eq!(missing.since("a", at(100), || used(&["a", "b"])), at(100));
        assert_eq!(
            missing.since("b", at(101), || unreachable!()),
            at(101),
            "not at once again"
        );
        assert_eq!(missing.since("c", at(200), || used(&["a", "c"])), at(200));
        assert_eq!(missing.since.keys().collect::<Vec<_>>(), ["a", "c"]);
    }

    /// What is done about a pod, as long as there is something: phases and conditions that it is given, then "deleted".
    fn ended(mut pod: Pod, disruption: Option<&str>) -> Vec<serde_json::Value> {
        let mut steps = Vec::new();
        while steps.len() < 5 {
            match end(&pod, disruption, Timestamp::UNIX_EPOCH).verb {
                Verb::Patch(PatchKind::Strategic, "status", body) => {
                    pod.status = serde_json::from_value(body["status"].clone()).unwrap();
                    steps.push(body["status"].clone());
                }
                Verb::Delete { grace: Some(0), .. } => {
                    steps.push(json!("deleted"));
                    return steps;
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("{steps:?}")
    }

    #[test]
    fn whatever_ends_a_pod_it_fails_before_it_goes() {
        let pod = |conditions: serde_json::Value| -> Pod {
            let status = json!({"phase": "Running", "conditions": conditions});
            serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "generation": 3}, "status": status}))
                .unwrap()
        };
        let disrupted = |since: &str| {
            json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "gone",
                "lastTransitionTime": since, "observedGeneration": 3})
        };
        let (begun, earlier) = ("1970-01-01T00:00:00Z", "1969-01-01T00:00:00Z");
        // Upstream says of pods alone whose node is gone that they were disrupted.
        for (conditions, disruption, told) in [
            (
                json!([]),
                Some("gone"),
                json!({"phase": "Failed", "conditions": [disrupted(begun)]}),
            ),
            (json!([]), None, json!({"phase": "Failed"})),
            // It was evicted before, and its node never ended it: a Job that waits for its end would do so for ever.
            (
                json!([disrupted(earlier)]),
                Some("gone"),
                json!({"phase": "Failed", "conditions": [disrupted(earlier)]}),
            ),
            (json!([disrupted(earlier)]), None, json!({"phase": "Failed"})),
        ] {
            assert_eq!(ended(pod(conditions), disruption), [told, json!("deleted")]);
        }
    }

    #[tokio::test]
    async fn a_node_is_gone_only_if_the_server_says_so() {
        let asked = |code: u16| async move {
            let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                assert_eq!(request.uri().path(), "/api/v1/nodes/n");
                let reason = if code == 404 { "NotFound" } else { "" };
                let body = match code {
                    200 => {
                        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "n"}})
                    }
                    _ => {
                        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                        "reason": reason, "message": "no"})
                    }
                };
                let body = kube::client::Body::from(body.to_string().into_bytes());
                std::future::ready(http::Response::builder().status(code).body(body))
            });
            let client = kube::Client::new(service, "default");
            assert_eq!(
                ask(&client, "../pods").await,
                Some(false),
                "of what is no name nobody is asked"
            );
            ask(&client, "n").await
        };
        assert_eq!(
            (asked(200).await, asked(404).await, asked(500).await),
            (Some(true), Some(false), None)
        );
    }

    #[test]
    fn a_missing_node_is_asked_for_once_it_is_missing_for_long() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut missing = Missing::default();
        assert!(!missing.is_questionable("a", at(100)), "it is not missing");
        missing.since("a", at(0), BTreeSet::new);
        assert!(!missing.is_questionable("a", at(39)));
        assert!(missing.is_questionable("a", at(40)) && !missing.is_gone("a", at(40)));
        missing.tell("a", at(40));
        assert!(!missing.is_questionable("a", at(59)) && missing.is_gone("a", at(59)));
        assert!(
            missing.is_questionable("a", at(60)) && !missing.is_gone("a", at(60)),
            "that was long ago"
        );
        missing.found("a");
        missing.tell("a", at(61));
        assert!(!missing.is_gone("a", at(61)), "it is there");
    }

    #[test]
    fn what_is_over_waits_for_its_holders() {
        let pod = |phase: &str, finalizers: serde_json::Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
                    "finalizers": finalizers},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let pending = pod("Pending", json!(["example.org/held"]));
        assert!(!is_held(&pending));
        assert!(is_held(&pod("Failed", json!(["example.org/held"]))));
        let free = pod("Failed", json!(null));
        assert!(!is_held(&free));
    }

    #[test]
    fn surplus_pods_go_evicted_first_then_the_oldest() {
        let pod = |name: &str, phase: &str, reason: &str, created: i64| -> Arc<Pod> {
            Arc::new(Pod {
                metadata: kube::api::ObjectMeta {
                    name: Some(name.into()),
                    namespace: Some("a".into()),
                    creation_timestamp: Some(Time(Timestamp::from_second(created).unwrap())),
                    ..Default::default()
                },
                status: serde_json::from_value(json!({"phase": phase, "reason": reason})).unwrap(),
                ..Pod::default()
            })
        };
        let pods = vec![
            pod("old", "Succeeded", "", 1),
            pod("older-but-running", "Running", "", 0),
            pod("evicted", "Failed", "Evicted", 9),
            pod("new", "Failed", "", 5),
        ];
        let names = |most| -> Vec<String> {
            let writes = surplus(pods.clone(), most);
            writes.iter().map(|write| write.key.name.clone()).collect()
        };
        assert!(names(3).is_empty());
        assert_eq!(names(2), ["evicted"]);
        assert_eq!(names(1), ["evicted", "old"]);
        assert!(names(0).is_empty(), "as upstream: there is no bound then");
    }
}
