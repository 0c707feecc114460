//! What an autoscaler does now: the replicas it wants, and its status. Pure; reasons and messages are upstream's (`horizontal.go`).

use super::behavior::{self, Bounds, History};
use super::metric::{Computing, Inputs, MetricError};
use super::observe::{Observed, PodUsage, Target};
use crate::held::Pod;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proto::api::selector::Selector;
use std::sync::Arc;

const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";

/// An event of the autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A change of the target's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rescale {
    pub(super) from: i32,
    pub(super) to: i32,
    pub(super) reason: String,
}

/// What is to be done, and the status once it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) rescale: Option<Rescale>,
    pub(super) status: HorizontalPodAutoscalerStatus,
    /// Warnings.
    pub(super) events: Vec<Told>,
}

/// Reasons of conditions for which the autoscaler itself is to be mended.
const OF_SPEC: [&str; 3] = ["AmbiguousSelector", "InvalidMetricSourceType", "InvalidSelector"];

impl Decision {
    /// The action and the error that upstream counts it as.
    pub(super) fn counted(&self) -> (&'static str, &'static str) {
        let action = match &self.rescale {
            Some(rescale) if rescale.to > rescale.from => "scale_up",
            Some(rescale) if rescale.to < rescale.from => "scale_down",
            _ => "none",
        };
        let failed = |told: &Told| told.reason == "FailedComputeMetricsReplicas" || told.reason == "FailedGetScale";
        let conditions = self.status.conditions.iter().flatten();
        let mut inactive = conditions.filter(|condition| condition.type_ == ACTIVE && condition.status == "False");
        let is_of_spec = inactive.any(|condition| OF_SPEC.contains(&condition.reason.as_deref().unwrap_or_default()));
        let error = match self.events.iter().any(failed) {
            false => "none",
            true if is_of_spec => "spec",
            true => "internal",
        };
        (action, error)
    }
}

/// Rivals named where there are too many: each of them names the others.
pub(super) const RIVALS_TOLD: usize = 5;
/// Metrics that are computed of one autoscaler, at most: its list has no end, and each takes a walk over the pods.
pub(super) const METRICS_MAX: usize = 100;
/// Metrics that fail and have events of their own, at most, of one decision.
const FAILURES_TOLD: usize = 5;
/// The longest message of a condition, in bytes, as conditions elsewhere have it (`metav1.Condition`).
const MESSAGE_BYTES: usize = 32 << 10;

/// Autoscalers that choose the same pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rivals {
    /// The first of them by name, at most [`RIVALS_TOLD`].
    pub(super) first: Vec<String>,
    /// How many there are.
    pub(super) count: usize,
}

impl Rivals {
    /// As Go prints a list of them; of many, how many more there are.
    fn text(&self, namespace: &str) -> String {
        let mut names: Vec<String> = self
            .first
            .iter()
            .map(|name| format!("{{{name} {namespace}}}"))
            .collect();
        let more = self.count.saturating_sub(self.first.len());
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        names.join(" ")
    }
}

/// Finds autoscalers, given a selector and the pods it chooses.
type FindRivals<'a> = &'a dyn Fn(&Selector, &[Arc<Pod>]) -> Rivals;

/// What a decision is made from beside the history.
pub(super) struct Known<'a> {
    pub(super) autoscaler: &'a HorizontalPodAutoscaler,
    pub(super) observed: &'a Observed,
    /// The pods that a selector chooses in the autoscaler's namespace.
    pub(super) pods: &'a dyn Fn(&Selector) -> Vec<Arc<Pod>>,
    /// The autoscalers of the namespace whose selectors choose any of these pods, this one among them.
    pub(super) rivals: FindRivals<'a>,
    pub(super) now: Timestamp,
}

/// The status as it becomes, and what is told on the way.
struct Turn<'a> {
    known: &'a Known<'a>,
    status: HorizontalPodAutoscalerStatus,
    events: Vec<Told>,
}

/// Sets a condition; its time is that of its status.
pub(super) fn set(
    status: &mut HorizontalPodAutoscalerStatus,
    kind: &str,
    is_true: bool,
    (reason, mut message): (&str, String),
    now: Timestamp,
) {
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
    let conditions = status.conditions.get_or_insert_default();
    let text = if is_true { "True" } else { "False" };
    let at = conditions.iter().position(|condition| condition.type_ == kind);
    let mut condition = match at {
        Some(at) => conditions[at].clone(),
        None => HorizontalPodAutoscalerCondition {
            type_: kind.to_owned(),
            ..HorizontalPodAutoscalerCondition::default()
        },
    };
    if condition.status != text {
        condition.last_transition_time = Some(Time(now));
    }
    text.clone_into(&mut condition.status);
    condition.reason = Some(reason.to_owned());
    condition.message = Some(message);
    match at {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

/// The status when the target's scale was, or was not, changed as decided.
pub(super) fn rescaled(
    mut status: HorizontalPodAutoscalerStatus,
    rescale: &Rescale,
    failure: Option<&str>,
    now: Timestamp,
) -> HorizontalPodAutoscalerStatus {
    let said = match failure {
        None => (
            "SucceededRescale",
            format!(
                "the HPA controller was able to update the target scale to {}",
                rescale.to
            ),
        ),
        Some(error) => (
            "FailedUpdateScale",
            format!("the HPA controller was unable to update the target scale: {error}"),
        ),
    };
    set(&mut status, ABLE, failure.is_none(), said, now);
    if failure.is_none() {
        status.desired_replicas = rescale.to;
        status.last_scale_time = Some(Time(now));
    }
    status
}

/// Decides.
pub(super) fn decide(known: &Known<'_>, history: &mut History) -> Decision {
    let mut status = known.autoscaler.status.clone().unwrap_or_default();
    status.observed_generation = known.autoscaler.metadata.generation;
    let mut turn = Turn {
        known,
        status,
        events: Vec::new(),
    };
    let rescale = turn.take(history);
    Decision {
        rescale,
        status: turn.status,
        events: turn.events,
    }
}

impl Turn<'_> {
    fn condition(&mut self, kind: &str, is_true: bool, reason: &str, message: impl Into<String>) {
        set(
            &mut self.status,
            kind,
            is_true,
            (reason, message.into()),
            self.known.now,
        );
    }

    fn tell(&mut self, reason: &'static str, message: impl Into<String>) {
        let message = message.into();
        self.events.push(Told { reason, message });
    }

    fn take(&mut self, history: &mut History) -> Option<Rescale> {
        let spec = &self.known.autoscaler.spec;
        let target = match &self.known.observed.target {
            Ok(target) => target,
            Err(error) => {
                self.tell("FailedGetScale", error);
                let message = format!("the HPA controller was unable to get the target's current scale: {error}");
                self.condition(ABLE, false, "FailedGetScale", message);
                return None;
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        self.condition(ABLE, true, "SucceededGetScale", message);
        let bounds = Bounds {
            min: spec.min_replicas.unwrap_or(1),
            max: spec.max_replicas,
            current: target.replicas(),
        };
        history.begin(self.known.now, bounds.current);
        self.status.current_replicas = Some(bounds.current);
        self.scale(target, bounds, history)
    }

    fn scale(&mut self, target: &Target, bounds: Bounds, history: &mut History) -> Option<Rescale> {
        let current = bounds.current;
        let to_bound = |to, reason: &str| Rescale {
            from: current,
            to,
            reason: reason.to_owned(),
        };
        let rescale = if current == 0 && bounds.min != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.condition(ACTIVE, false, "ScalingDisabled", message);
            None
        } else if current > bounds.max {
            Some(to_bound(
                bounds.max,
                "Current number of replicas above Spec.MaxReplicas",
            ))
        } else if current < bounds.min {
            Some(to_bound(
                bounds.min,
                "Current number of replicas below Spec.MinReplicas",
            ))
        } else {
            return self.follow(target, bounds, history);
        };
        self.status.current_metrics = None;
        self.status.desired_replicas = current;
        rescale
    }

    /// Follows the metrics.
    fn follow(&mut self, target: &Target, bounds: Bounds, history: &mut History) -> Option<Rescale> {
        let current = bounds.current;
        let (wanted, name) = match self.metrics(target, current) {
            Ok(found) => found,
            Err(error) => {
                self.tell("FailedComputeMetricsReplicas", error);
                return None;
            }
        };
        let reason = match wanted.cmp(&current) {
            std::cmp::Ordering::Greater => format!("{name} above target"),
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
        };
        let behavior = self.known.autoscaler.spec.behavior.as_ref();
        let settled = behavior::settle(behavior, bounds, wanted, history, self.known.now);
        self.condition(ABLE, true, settled.able.0, settled.able.1);
        let (is_limited, (why, message)) = settled.limited;
        self.condition(LIMITED, is_limited, why, message);
        self.status.desired_replicas = current;
        (settled.replicas != current).then_some(Rescale {
            from: current,
            to: settled.replicas,
            reason,
        })
    }

    /// The replicas that the metrics ask for, and the metric that asks for most.
    fn metrics(&mut self, target: &Target, current: i32) -> Result<(i32, String), String> {
        let pods = match self.pods(target) {
            Ok(pods) => pods,
            Err(error) => {
                self.status.current_metrics = None;
                return Err(error);
            }
        };
        let specs = self.known.autoscaler.spec.metrics.as_deref().unwrap_or_default();
        let usage: &Result<Vec<PodUsage>, String> = &self.known.observed.usage;
        let mut computing = Computing::of(Inputs {
            autoscaler: self.known.autoscaler,
            usage,
            served: &self.known.observed.served,
            pods: &pods,
            current,
            there: target.there(),
            now: self.known.now,
        });
        let mut most: Option<(i32, String)> = None;
        let mut failed: Vec<MetricError> = Vec::new();
        let mut statuses = Vec::new();
        for (at, spec) in specs.iter().take(METRICS_MAX).enumerate() {
            match computing.compute(at, spec) {
                Ok(found) => {
                    statuses.push(found.status);
                    if most.as_ref().is_none_or(|(replicas, _)| found.replicas > *replicas) {
                        most = Some((found.replicas, found.name));
                    }
                }
                Err(error) => {
                    // Readers go by the place of a metric, so the place stays.
                    statuses.push(MetricStatus::default());
                    if failed.len() < FAILURES_TOLD {
                        self.tell(error.reason, &*error.cause);
                    }
                    failed.push(error);
                }
            }
        }
        let rest = specs.len().saturating_sub(METRICS_MAX);
        let invalid = failed.len() + rest;
        if rest > 0 {
            let error = MetricError::too_many(METRICS_MAX, specs.len());
            self.tell(error.reason, &*error.cause);
            failed.push(error);
        }
        self.status.current_metrics = (!statuses.is_empty()).then_some(statuses);
        // What is not known might ask for more, so nothing goes away meanwhile.
        match (most, failed.first()) {
            (Some((replicas, name)), first) if first.is_none() || replicas >= current => {
                let message = format!("the HPA was able to successfully calculate a replica count from {name}");
                self.condition(ACTIVE, true, "ValidMetricFound", message);
                Ok((replicas, name))
            }
            (_, Some(first)) => {
                let message = format!("the HPA was unable to compute the replica count: {}", first.cause);
                self.condition(ACTIVE, false, first.reason, message);
                Err(format!(
                    "invalid metrics ({invalid} invalid out of {}), first error is: {}",
                    specs.len(),
                    first.message
                ))
            }
            // The API server fills a metric in, so there is one.
            (_, None) => Err("invalid metrics (0 invalid out of 0), first error is: <nil>".to_owned()),
        }
    }

    /// The target's pods, which no other autoscaler may choose as well.
    fn pods(&mut self, target: &Target) -> Result<Vec<Arc<Pod>>, String> {
        let text = target.selector();
        if text.is_empty() {
            let message = "the HPA target's scale is missing a selector";
            self.condition(ACTIVE, false, "InvalidSelector", message);
            return Err(self.refuse("SelectorRequired", "selector is required".to_owned()));
        }
        let selector = match Selector::parse(text) {
            Ok(selector) => selector,
            Err(error) => {
                let error = format!("couldn't convert selector into a corresponding internal selector object: {error}");
                self.condition(ACTIVE, false, "InvalidSelector", &*error);
                return Err(self.refuse("InvalidSelector", error));
            }
        };
        let pods = (self.known.pods)(&selector);
        let rivals = (self.known.rivals)(&selector, &pods);
        if rivals.count > 1 {
            let namespace = self.known.autoscaler.metadata.namespace.as_deref().unwrap_or_default();
            let error = format!(
                "pods by selector {text} are controlled by multiple HPAs: [{}]",
                rivals.text(namespace)
            );
            self.condition(ACTIVE, false, "AmbiguousSelector", &*error);
            return Err(self.refuse("AmbiguousSelector", error));
        }
        Ok(pods)
    }

    fn refuse(&mut self, reason: &'static str, error: String) -> String {
        self.tell(reason, &*error);
        error
    }
}

#[cfg(test)]
mod tests;
