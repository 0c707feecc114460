//! Scales what HorizontalPodAutoscalers point at, by what its pods use (control-plane contract §12).
//!
//! Every [`SYNC`] an autoscaler's target and metrics are read ([`observe`]), a decision is made of them ([`decide`], pure), the target's
//! scale is written, then the status. What was recommended lately is held in memory.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{self, EventText, Failure, Plan, Verb, Write, event};
use crate::held::Pod;
use crate::metrics::controllers::Controllers as Counters;
use behavior::History;
use client::{Clock, Key};
use decide::{Decision, Known, RIVALS_TOLD, Rescale, Rivals};
use futures::future::BoxFuture;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use observe::{Observed, Target};
use proto::api::selector::Selector;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

mod behavior;
mod calculate;
mod decide;
mod elsewhere;
mod metric;
mod observe;
mod served;

/// How often a decision is made (upstream's `--horizontal-pod-autoscaler-sync-period`).
const SYNC: Duration = Duration::from_secs(15);

/// What is remembered of an autoscaler, for as long as there is one.
#[derive(Default)]
struct Memory {
    /// Whose this is: another of the same name begins with nothing.
    uid: String,
    /// What the last decision was made for.
    spec: HorizontalPodAutoscalerSpec,
    /// When the next one is due.
    due: Option<Timestamp>,
    /// For the decision that comes next.
    observed: Option<Observed>,
    /// A decision whose status is not written yet.
    decided: Option<Decision>,
    /// When the target was scaled last: its status may not have been written.
    scaled: Option<Timestamp>,
    /// What chooses the target's pods.
    selector: Option<Selector>,
    history: History,
    /// What the last decision counts as, until it is counted.
    counted: Option<(&'static str, &'static str)>,
}

impl Memory {
    /// Forgets what another autoscaler left that had the same name.
    fn belong_to(&mut self, uid: String) {
        if self.uid != uid {
            *self = Self { uid, ..Self::default() };
        }
    }
}

/// How long it is until something is due; never longer than from one decision to the next, if the clock went back meanwhile.
fn until(due: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO);
    left.min(SYNC)
}

/// The controller.
pub struct Autoscalers {
    /// The shared informers.
    pub informers: Informers,
    /// Wall time: when a look at the target is due is known before a plan.
    pub clock: Arc<dyn Clock>,
    /// By autoscaler; those of a namespace stand together.
    memories: Mutex<BTreeMap<Key, Memory>>,
}

impl Autoscalers {
    /// A controller that remembers nothing yet.
    pub fn new(informers: Informers, clock: Arc<dyn Clock>) -> Self {
        Self {
            informers,
            clock,
            memories: Mutex::default(),
        }
    }

    fn memories(&self) -> MutexGuard<'_, BTreeMap<Key, Memory>> {
        self.memories.lock().expect("no holder of this lock panics")
    }

    /// Sees to it that what is remembered is of this autoscaler.
    fn begin(&self, key: &Key, autoscaler: &HorizontalPodAutoscaler) {
        let uid = autoscaler.uid().unwrap_or_default();
        self.memories().entry(key.clone()).or_default().belong_to(uid);
    }

    /// How long it is until a decision is due.
    fn due_in(&self, key: &Key, autoscaler: &HorizontalPodAutoscaler, now: Timestamp) -> Duration {
        let memories = self.memories();
        let memory = memories.get(key).filter(|memory| memory.spec == autoscaler.spec);
        let due = memory.and_then(|memory| memory.due);
        due.map_or(Duration::ZERO, |due| until(due, now))
    }

    fn pods(&self, namespace: &str, selector: &Selector) -> Vec<Arc<Pod>> {
        let all = self.informers.pods.list_namespace(namespace);
        let chosen = all
            .into_iter()
            .filter(|pod| selector.matches_optional(pod.metadata.labels.as_ref()));
        chosen.collect()
    }

    /// The autoscalers of the namespace whose selectors choose any of these pods, among them that of this key, which has the selector `own`.
    fn rivals(&self, key: &Key, own: &Selector, pods: &[Arc<Pod>]) -> Rivals {
        let memories = self.memories();
        let of_namespace = memories
            .range(Key::new(key.namespace.clone(), "")..)
            .take_while(|(other, _)| other.namespace == key.namespace);
        // Most pods of a target have the same labels.
        let labels: BTreeSet<_> = pods.iter().map(|pod| pod.metadata.labels.as_ref()).collect();
        let mut rivals = Rivals::default();
        for (other, memory) in of_namespace {
            let selector = if other == key {
                Some(own)
            } else {
                memory.selector.as_ref()
            };
            let chooses = |selector: &Selector| labels.iter().any(|labels| selector.matches_optional(*labels));
            if selector.is_some_and(chooses) {
                rivals.count += 1;
                if rivals.first.len() < RIVALS_TOLD {
                    rivals.first.push(other.name.clone());
                }
            }
        }
        rivals
    }

    /// Decides, and remembers it.
    fn decide(&self, key: &Key, autoscaler: &HorizontalPodAutoscaler, observed: &Observed, now: Timestamp) -> Decision {
        let mut history = std::mem::take(&mut self.memories().entry(key.clone()).or_default().history);
        let known = Known {
            autoscaler,
            observed,
            pods: &|selector| self.pods(&key.namespace, selector),
            rivals: &|own, pods| self.rivals(key, own, pods),
            now,
        };
        let decision = decide::decide(&known, &mut history);
        let mut memories = self.memories();
        let memory = memories.entry(key.clone()).or_default();
        memory.spec = autoscaler.spec.clone();
        memory.due = now.checked_add(SYNC).ok();
        memory.history = history;
        memory.selector = selector_of(observed);
        memory.counted = Some(decision.counted());
        memory.decided = Some(decision.clone());
        decision
    }
}

fn selector_of(observed: &Observed) -> Option<Selector> {
    let target = observed.target.as_ref().ok()?;
    let text = target.selector();
    Selector::parse(text).ok().filter(|_| !text.is_empty())
}

fn told(autoscaler: &HorizontalPodAutoscaler, kind: &'static str, reason: &'static str, message: String) -> EventText {
    event(&write::AUTOSCALERS, autoscaler, kind, reason, message)
}

/// Writes the target's scale; what it was when it was read is the precondition.
fn scale(autoscaler: &HorizontalPodAutoscaler, target: &Target, rescale: &Rescale) -> Write {
    let mut body = target.scale.clone();
    body["spec"]["replicas"] = json!(rescale.to);
    let (to, reason) = (rescale.to, &rescale.reason);
    let message = format!("New size: {to}; reason: {reason}");
    let failed = format!("{message}; error: {{}}");
    Write::new(
        target.resource.clone(),
        target.key.clone(),
        Verb::ReplaceSub("scale", body),
    )
    .success(told(autoscaler, "Normal", "SuccessfulRescale", message))
    .failure(told(autoscaler, "Warning", "FailedRescale", failed))
}

impl Controller for Autoscalers {
    const NAME: &'static str = "horizontal-pod-autoscaler";
    const RETRY_FIRST: Duration = SYNC;
    const RETRY_MAX: Duration = SYNC;

    fn wire(&self, wiring: &mut Wiring) {
        // Its own status wakes nobody.
        wiring.on(&self.informers.autoscalers, |change| {
            let spec = |side: &Option<Arc<HorizontalPodAutoscaler>>| side.as_ref().map(|found| found.spec.clone());
            match spec(&change.old) == spec(&change.new) {
                true => Vec::new(),
                false => vec![change.key.clone()],
            }
        });
    }

    fn look_up<'a>(&'a self, key: &Key, client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        let autoscaler = self.informers.autoscalers.get_key(key)?;
        self.begin(key, &autoscaler);
        let is_written = self.memories().get(key).is_none_or(|memory| memory.decided.is_none());
        if !is_written || !self.due_in(key, &autoscaler, self.clock.now()).is_zero() {
            return None;
        }
        let key = key.clone();
        Some(Box::pin(async move {
            let observed = observe::observe(client, &autoscaler).await;
            self.memories().entry(key).or_default().observed = Some(observed);
        }))
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(autoscaler) = self.informers.autoscalers.get_key(key) else {
            self.memories().remove(key);
            return Plan::default();
        };
        self.begin(key, &autoscaler);
        let observed = match self.memories().get_mut(key) {
            // Its target was scaled: now the status follows.
            Some(memory) if memory.decided.is_some() => None,
            memory => memory.and_then(|memory| memory.observed.take()),
        };
        let Some(observed) = observed else {
            return Plan {
                again_in: Some(self.due_in(key, &autoscaler, now).max(Duration::from_millis(1))),
                ..Plan::default()
            };
        };
        let decision = self.decide(key, &autoscaler, &observed, now);
        let events = decision.events.into_iter();
        let events = events.map(|warning| told(&autoscaler, "Warning", warning.reason, warning.message));
        let writes = match (&decision.rescale, &observed.target) {
            (Some(rescale), Ok(target)) => vec![scale(&autoscaler, target, rescale)],
            _ => Vec::new(),
        };
        Plan {
            writes,
            events: events.collect(),
            again_in: Some(SYNC),
        }
    }

    fn reconciled(&self, counters: &Counters, key: &Key, _writes: &[Write], failure: Option<&Failure>, took: Duration) {
        let counted = self.memories().get_mut(key).and_then(|memory| memory.counted.take());
        if let Some((action, error)) = counted {
            let error = if failure.is_some() && error == "none" {
                "internal"
            } else {
                error
            };
            counters.scaled(action, error, took);
        }
    }

    fn status(&self, key: &Key, now: Timestamp, failure: Option<&Failure>) -> Vec<Write> {
        let Some(autoscaler) = self.informers.autoscalers.get_key(key) else {
            return Vec::new();
        };
        let status = {
            let mut memories = self.memories();
            let Some(memory) = memories.get_mut(key) else {
                return Vec::new();
            };
            let Some(decision) = memory.decided.take() else {
                return Vec::new();
            };
            let mut status = decision.status;
            if let Some(rescale) = &decision.rescale {
                let failure = failure.map(|failure| failure.message.as_str());
                status = decide::rescaled(status, rescale, failure, now);
                if failure.is_none() {
                    memory.history.rescaled(now, rescale.from, rescale.to);
                    memory.scaled = Some(now);
                }
            }
            with_time(status, memory.scaled)
        };
        if autoscaler.status.as_ref() == Some(&status) {
            return Vec::new();
        }
        let mut changed = HorizontalPodAutoscaler::clone(&autoscaler);
        changed.status = Some(status);
        let name = autoscaler.name_any();
        let failed = told(&autoscaler, "Warning", "FailedUpdateStatus", "{}".to_owned());
        tracing::debug!(autoscaler = name, "writing its status");
        vec![Write::replace_status(write::AUTOSCALERS, &changed).failure(failed)]
    }
}

/// The status says when the target was scaled last, as far as that is known.
fn with_time(mut status: HorizontalPodAutoscalerStatus, scaled: Option<Timestamp>) -> HorizontalPodAutoscalerStatus {
    let said = status.last_scale_time.as_ref().map(|time| time.0);
    // What was written has whole seconds.
    let whole = scaled.and_then(|at| Timestamp::from_second(at.as_second()).ok());
    if let Some(latest) = said.max(whole) {
        status.last_scale_time = Some(Time(latest));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_back_puts_nothing_off() {
        let due = Timestamp::from_second(1_000_000).unwrap();
        for (now, expected) in [(999_990, 10), (1_000_000, 0), (1_000_100, 0), (990_000, 15)] {
            let now = Timestamp::from_second(now).unwrap();
            assert_eq!(until(due, now), Duration::from_secs(expected), "{now}");
        }
    }

    #[test]
    fn another_of_the_same_name_begins_with_nothing() {
        let mut memory = Memory::default();
        memory.belong_to("u1".to_owned());
        memory.scaled = Some(Timestamp::UNIX_EPOCH);
        memory.belong_to("u1".to_owned());
        assert_eq!(memory.scaled, Some(Timestamp::UNIX_EPOCH));
        memory.belong_to("u2".to_owned());
        assert_eq!((memory.scaled, &*memory.uid), (None, "u2"));
    }
}
