//! What the judges are shown: every change of the store as the store tells it (never the server under test), every event of every
//! runtime as it happens, and what the doors carried. It keeps them in one order and collects what they say.

use crate::checker::{Checker, RuntimeView, Seen};
use crate::model::Model;
use crate::trace::Trace;
use crate::watcher::Sighting;
use controlplane::store::{Change, Record, Revision};
use k8s_openapi::api::core::v1::Pod;
use kubelet::runtime::fake::FakeRuntime;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
struct Bench {
    checker: Checker,
    model: Model,
    runtimes: BTreeMap<String, FakeRuntime>,
}

/// The judges; clones are the same ones.
#[derive(Clone)]
pub struct Judge {
    bench: Arc<Mutex<Bench>>,
    trace: Trace,
}

impl Judge {
    pub fn new(trace: Trace) -> Self {
        let bench = Arc::default();
        Self { bench, trace }
    }

    fn bench(&self) -> MutexGuard<'_, Bench> {
        self.bench.lock().expect("no judge panics")
    }

    /// Follows a node's runtime from now on.
    pub fn follow(&self, node: &str, runtime: &FakeRuntime) {
        self.bench().runtimes.insert(node.to_owned(), runtime.clone());
        let (judge, node) = (self.clone(), node.to_owned());
        runtime.witnessed_by(move |event| {
            let what = if event.ended { "ended" } else { "began" };
            let pod = event.pod.as_ref().map_or("", |pod| pod.as_str());
            judge.trace.write(&format!("{node} {} of {pod} {what}", event.id));
            let mut bench = judge.bench();
            let views = bench.views();
            bench.checker.on_runtimes(&views);
            bench.model.on_runtimes(&views);
        });
    }

    /// The store told of a change.
    pub fn changed(&self, change: &Change) {
        let shown = change
            .value
            .as_deref()
            .map_or("deleted".into(), String::from_utf8_lossy);
        self.trace
            .write(&format!("r{} {} {shown}", change.revision, change.key));
        // What is not an object of the API (the server keeps some notes of its own) has no value here, but stands.
        let parse = |value: &[u8]| serde_json::from_slice::<Value>(value).unwrap_or_default();
        let value = change.value.as_deref().map(parse);
        let mut bench = self.bench();
        let before = bench.model.on_change(change.revision, &change.key, value.clone());
        if change.key.starts_with("/registry/pods/") {
            let seen = if value.is_some() { Seen::Applied } else { Seen::Deleted };
            if let Some(pod) = value.or(before).and_then(|value| typed(value, change.revision)) {
                let views = bench.views();
                bench.checker.on_pod(seen, &pod, &views);
            }
        }
    }

    /// The store answered a write.
    pub fn acknowledged(&self, key: &str, revision: Revision, base: Option<Revision>) {
        self.bench().model.acknowledged(key, revision, base);
    }

    /// The store was opened, for the first time or again.
    pub fn reopened(&self, revision: Revision, records: &[Record]) {
        self.bench().model.reopened(revision, records);
    }

    /// Somebody is about to ask the server for that deletion.
    pub fn collects(&self, uid: &str) {
        self.bench().model.collects(uid);
    }

    /// That user asks for a deletion.
    pub fn asked_to_delete(&self, who: &str, uid: &str) {
        self.bench().model.asked_to_delete(who, uid);
    }

    /// The reply to the binding of that pod (`NAMESPACE/NAME`) was lost: the scheduler does not know of it.
    pub fn lost_binding(&self, pod: &str) {
        self.bench().model.lost_binding(pod);
    }

    /// A conditional write succeeded.
    pub fn conditional(&self, base: Revision, revision: Revision) {
        self.bench().model.conditional(base, revision);
    }

    /// A watcher that is cut and resumes saw something.
    pub fn sighted(&self, sighting: Sighting) {
        self.bench().model.sighted(sighting);
    }

    /// Somebody was allowed what the policy forbids.
    pub fn breach(&self, text: String) {
        self.bench().model.breach(text);
    }

    /// How often something happened that only the store shows.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.bench().model.counts()
    }

    /// Objects under a prefix, as the store has them.
    pub fn objects(&self, prefix: &str) -> BTreeMap<String, Value> {
        self.bench().model.objects(prefix)
    }

    /// The verdict, once everything has come to rest.
    pub fn verdict(&self, pods: &[Pod]) -> Vec<String> {
        let mut bench = self.bench();
        let views = bench.views();
        bench.checker.at_rest(pods, &views);
        bench.model.at_rest();
        let mut breaches = std::mem::take(&mut bench.checker.breaches);
        breaches.append(&mut bench.model.breaches);
        breaches
    }
}

impl Bench {
    fn views(&self) -> BTreeMap<String, RuntimeView> {
        let views = self.runtimes.iter();
        views
            .map(|(name, runtime)| (name.clone(), crate::cluster::view(runtime)))
            .collect()
    }
}

/// A stored pod as readers of the API have it.
pub fn typed(mut value: Value, revision: Revision) -> Option<Pod> {
    value["metadata"]["resourceVersion"] = revision.to_string().into();
    serde_json::from_value(value).ok()
}
