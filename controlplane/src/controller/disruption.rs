//! PodDisruptionBudgets: how many of the pods that one selects may be evicted now; the API server's eviction spends what is said here.
//!
//! Source: control-plane contract §12. A budget whose pods cannot be counted allows nothing and says why. Beside it, [`StaleDisruptions`]
//! takes back what was said of pods whose disruption did not come.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::pod;
use super::write::{self, PatchKind, Plan, Verb, Write, event};
use crate::held::Pod;
use client::Key;
use futures::future::BoxFuture;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::condition;
use proto::api::selector::{Selector, SelectorError};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod concern;
pub mod expected;
pub mod scale;
pub mod status;

use expected::Unknown;
use scale::Scales;

/// How long an eviction may take until its pod is being deleted, and a pod may say that it will be disrupted and not be.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Pods and budgets that are compared at one look at a budget, to find those that several budgets select.
const PAIRS: usize = 100_000;

/// When owners that no informer knows are asked again how many pods there should be: nobody tells that they say otherwise. (Upstream's
/// asks when its informers resync, after twelve hours.)
const ASKED_AGAIN: Duration = Duration::from_secs(300);

/// First and longest wait before a budget whose pods cannot be counted is tried again.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// As long again as it has failed: each wait doubles the time.
fn retry_after(since: Timestamp, now: Timestamp) -> Duration {
    let failed = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
    failed.clamp(RETRY_FIRST, RETRY_MAX)
}

/// The controller of the budgets.
pub struct Disruptions {
    /// The shared informers.
    pub informers: Informers,
    /// Scales of owners that no informer knows.
    pub scales: Scales,
    /// Since when the pods of a budget cannot be counted.
    pub failing: Mutex<BTreeMap<Key, Timestamp>>,
}

/// The controller of pods that were to be disrupted. Its keys are pods.
pub struct StaleDisruptions {
    /// The shared informers.
    pub informers: Informers,
}

/// What a budget selects: nothing without a selector, everything with an empty one.
fn selector(budget: &PodDisruptionBudget) -> Result<Selector, SelectorError> {
    Selector::from_optional(budget.spec.as_ref().and_then(|s| s.selector.as_ref()))
}

/// The first of the pods that one of these selects; of very many not all are compared.
fn shared<'p>(pods: &'p [Arc<Pod>], selectors: &[Selector]) -> Option<&'p Arc<Pod>> {
    let compared = PAIRS / selectors.len().max(1);
    pods.iter().take(compared).find(|p| {
        let labels = p.metadata.labels.as_ref();
        selectors.iter().any(|s| s.matches_optional(labels))
    })
}

impl Disruptions {
    fn pods(&self, budget: &PodDisruptionBudget) -> Result<Vec<Arc<Pod>>, SelectorError> {
        let selector = selector(budget)?;
        let all = self
            .informers
            .pods
            .list_namespace(&budget.namespace().unwrap_or_default());
        let selected = all
            .into_iter()
            .filter(|p| selector.matches_optional(p.metadata.labels.as_ref()));
        Ok(selected.collect())
    }

    fn scaler(&self, owner: &OwnerReference, namespace: &str) -> Result<Option<(String, i32)>, String> {
        if expected::is_known(owner) {
            return Ok(expected::scaler(&self.informers, owner, namespace));
        }
        let known = self.scales.get(&Unknown::new(owner, namespace)).transpose()?;
        Ok(known.map(|replicas| (owner.uid.clone(), replicas)))
    }

    /// The first pod that another budget selects, too: an eviction refuses to choose. One is told of, as there may be thousands, and
    /// where there are very many of both not all are compared.
    fn overlap(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Option<write::EventText> {
        let own = budget.name_any();
        let others = self
            .informers
            .budgets
            .list_namespace(&budget.namespace().unwrap_or_default());
        // The first by name tells.
        let others = others.iter().filter(|other| other.name_any() > own);
        let selectors: Vec<Selector> = others.filter_map(|other| selector(other).ok()).collect();
        let shared = shared(pods, &selectors)?;
        let (namespace, name) = (shared.namespace().unwrap_or_default(), shared.name_any());
        let message =
            format!("Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {own:?} arbitrarily.");
        Some(event(
            &write::PODS,
            &**shared,
            "Warning",
            "MultiplePodDisruptionBudgets",
            message,
        ))
    }

    /// When a budget whose pods cannot be counted is tried again; nobody tells that its pods' owners have come, or can be scaled.
    fn retry_in(&self, key: &Key, now: Timestamp) -> Duration {
        let mut failing = self.failing.lock().expect("no holder of this lock panics");
        retry_after(*failing.entry(key.clone()).or_insert(now), now)
    }

    fn forget(&self, key: &Key) {
        self.failing.lock().expect("no holder of this lock panics").remove(key);
    }
}

impl Controller for Disruptions {
    const NAME: &'static str = "disruption-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.budgets);
        concern::wire(wiring, &self.informers);
    }

    fn look_up<'a>(&'a self, key: &Key, client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        let budget = self.informers.budgets.get_key(key)?;
        let pods = self.pods(&budget).ok()?;
        let unknown = expected::unknown(&budget, &pods);
        if unknown.is_empty() {
            return None;
        }
        Some(Box::pin(self.scales.look_up(client, unknown)))
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(budget) = self.informers.budgets.get_key(key) else {
            self.forget(key);
            return Plan::default();
        };
        let pods = match self.pods(&budget) {
            Ok(pods) => pods,
            Err(error) => {
                let message = format!("Failed to get pods: {error}");
                let told = event(&write::BUDGETS, &*budget, "Warning", "NoPods", message);
                return status::failed(&budget, &error.to_string(), vec![told], now);
            }
        };
        let mut plan = match status::plan(&budget, &pods, &|owner, namespace| self.scaler(owner, namespace), now) {
            Ok(plan) => {
                self.forget(key);
                plan
            }
            Err(plan) => Plan {
                again_in: Some(self.retry_in(key, now)),
                ..plan
            },
        };
        plan.events.extend(self.overlap(&budget, &pods));
        if !expected::unknown(&budget, &pods).is_empty() {
            plan.again_in = Some(plan.again_in.map_or(ASKED_AGAIN, |other| other.min(ASKED_AGAIN)));
        }
        plan
    }
}

/// How long a pod may still say that it will be disrupted; `None` when it does not, or truly is.
fn stale_in(pod: &Pod, now: Timestamp) -> Option<Duration> {
    if pod.metadata.deletion_timestamp.is_some() || pod::is_terminal(pod) {
        return None;
    }
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let said = condition::find(conditions, "DisruptionTarget")?;
    // What a kubelet says it will do, it does, however long that takes.
    if said.status != "True" || said.reason.as_deref() == Some("TerminationByKubelet") {
        return None;
    }
    // Who does not say since when has said it for ever, as upstream has it: counted from now it would be never over.
    let Some(since) = said.last_transition_time.as_ref() else {
        return Some(Duration::ZERO);
    };
    let age = Duration::try_from(now.duration_since(since.0)).unwrap_or(Duration::ZERO);
    Some(PATIENCE.saturating_sub(age))
}

impl Controller for StaleDisruptions {
    const NAME: &'static str = Disruptions::NAME;

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on(&self.informers.pods, |change| {
            let said = change.new.as_ref().and_then(|p| p.status.as_ref()?.conditions.as_ref());
            match condition::is_true(said, "DisruptionTarget") {
                true => vec![change.key.clone()],
                false => vec![],
            }
        });
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(pod) = self.informers.pods.get_key(key) else {
            return Plan::default();
        };
        match stale_in(&pod, now) {
            None => Plan::default(),
            Some(wait) if !wait.is_zero() => Plan {
                again_in: Some(wait),
                ..Plan::default()
            },
            Some(_) => Plan::of(vec![take_back(&pod, now)]),
        }
    }
}

fn take_back(pod: &Pod, now: Timestamp) -> Write {
    let body = json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "False", "reason": null, "message": null, "lastTransitionTime": Time(now),
            "observedGeneration": pod.metadata.generation,
        }]},
    });
    Write::new(
        write::PODS,
        Key::of(pod),
        Verb::Patch(PatchKind::Strategic, "status", body),
    )
}

#[cfg(test)]
mod tests;
