//! What metrics ask for that others serve: of pods, of one object, from outside. Pure.
//!
//! The arithmetic, the errors and what a metric is called are upstream's (`replica_calculator.go`, `horizontal.go`).

use super::calculate::{self, Prepared, Proposal, Question, Samples, Tolerances, Wanted};
use super::metric::{Inputs, MetricError, Proposed};
use super::served::Served;
use crate::controller::printed;
use k8s_openapi::api::autoscaling::v2::{
    ExternalMetricSource, ExternalMetricStatus, MetricIdentifier, MetricSpec, MetricStatus, MetricTarget,
    MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource, PodsMetricStatus,
};
use proto::api::condition;
use proto::api::quantity::Quantity;

/// What was found of a metric.
type Found<'a> = Option<&'a Result<Served, String>>;

/// What the metric asks for, of what was `found`.
///
/// # Errors
/// Upstream's texts.
pub(super) fn compute(inputs: &Inputs<'_>, metric: &MetricSpec, found: Found<'_>) -> Result<Proposed, MetricError> {
    if let Some(source) = metric.pods.as_ref().filter(|_| metric.type_ == "Pods") {
        return pods(inputs, source, found);
    }
    if let Some(source) = metric.object.as_ref().filter(|_| metric.type_ == "Object") {
        return object(inputs, source, found);
    }
    if let Some(source) = metric.external.as_ref().filter(|_| metric.type_ == "External") {
        return external(inputs, source, found);
    }
    let cause = format!("unknown metric source type {:?}", metric.type_);
    Err(MetricError {
        reason: "InvalidMetricSourceType",
        message: cause.clone(),
        cause,
    })
}

/// What was asked for on the autoscaler's behalf and is not there was not asked for.
fn absent() -> String {
    "the metric was not asked for".to_owned()
}

fn samples(found: Found<'_>) -> Result<Samples, String> {
    match found {
        Some(Ok(Served::Pods(samples))) => Ok(samples.clone()),
        Some(Err(error)) => Err(error.clone()),
        _ => Err(absent()),
    }
}

fn value(found: Found<'_>) -> Result<i64, String> {
    match found {
        Some(Ok(Served::Milli(milli))) => Ok(*milli),
        Some(Err(error)) => Err(error.clone()),
        _ => Err(absent()),
    }
}

fn proposed(replicas: i32, name: String, status: MetricStatus) -> Proposed {
    Proposed { replicas, name, status }
}

fn average(milli: i64) -> MetricValueStatus {
    MetricValueStatus {
        average_value: Some(Quantity::from_milli(milli).to_api()),
        ..MetricValueStatus::default()
    }
}

fn whole(milli: i64) -> MetricValueStatus {
    MetricValueStatus {
        value: Some(Quantity::from_milli(milli).to_api()),
        ..MetricValueStatus::default()
    }
}

/// What a target wants, in thousandths.
#[derive(Clone, Copy)]
enum Aim {
    /// Of all pods together.
    Value(i64),
    /// Of each.
    Average(i64),
}

fn aim(target: &MetricTarget, is_average_first: bool) -> Option<Aim> {
    let of = |amount| Quantity::of(amount).milli_value();
    let average = target.average_value.as_ref().map(|amount| Aim::Average(of(amount)));
    let whole = target.value.as_ref().map(|amount| Aim::Value(of(amount)));
    if is_average_first {
        average.or(whole)
    } else {
        whole.or(average)
    }
}

fn pods(inputs: &Inputs<'_>, source: &PodsMetricSource, found: Found<'_>) -> Result<Proposed, MetricError> {
    let name = &source.metric.name;
    let computed = each_pod(inputs, &source.target, found, name);
    let proposal = computed.map_err(|cause| MetricError {
        reason: "FailedGetPodsMetric",
        message: format!("failed to get pods metric value: {cause}"),
        cause,
    })?;
    let status = MetricStatus {
        type_: "Pods".to_owned(),
        pods: Some(PodsMetricStatus {
            current: average(proposal.average_milli),
            metric: source.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    Ok(proposed(proposal.replicas, format!("pods metric {name}"), status))
}

/// As of a resource that no pod requests.
fn each_pod(inputs: &Inputs<'_>, target: &MetricTarget, found: Found<'_>, name: &str) -> Result<Proposal, String> {
    let samples = samples(found).map_err(|error| format!("unable to get metric {name}: {error}"))?;
    let question = Question {
        pods: inputs.pods,
        resource: "",
        container: "",
        current: inputs.current,
        tolerances: tolerances(inputs),
        now: inputs.now,
    };
    let Some(wanted) = &target.average_value else {
        return Err("invalid pods metric source: no average value target was set".to_owned());
    };
    let prepared = Prepared::of(&question, samples)?;
    let wanted = Wanted::AverageMilli(Quantity::of(wanted).milli_value());
    calculate::replicas(&question, &prepared, wanted)
}

fn tolerances(inputs: &Inputs<'_>) -> Tolerances {
    Tolerances::of(inputs.autoscaler.spec.behavior.as_ref())
}

fn object(inputs: &Inputs<'_>, source: &ObjectMetricSource, found: Found<'_>) -> Result<Proposed, MetricError> {
    let (name, about) = (&source.metric.name, &source.described_object);
    let failed = |cause: String, told: String| MetricError {
        reason: "FailedGetObjectMetric",
        message: format!("failed to get object metric value: {told}"),
        cause,
    };
    let namespace = inputs.autoscaler.metadata.namespace.as_deref().unwrap_or_default();
    // The order is upstream's.
    let unread = |error: String| {
        let (kind, object) = (&about.kind, &about.name);
        format!("unable to get metric {name}: {kind} on {namespace} {object}/{error}")
    };
    let aim = aim(&source.target, source.target.type_ == "AverageValue");
    let (replicas, current, title) = match aim {
        Some(Aim::Value(wanted)) => {
            let computed = value(found).map_err(unread).and_then(|milli| {
                let replicas = of_all(inputs, inputs.current, milli, wanted)?;
                Ok((replicas, whole(milli)))
            });
            let (replicas, current) = computed.map_err(|cause| failed(cause.clone(), cause))?;
            (replicas, current, format!("{} metric {name}", about.kind))
        }
        Some(Aim::Average(wanted)) => {
            let computed = value(found).map_err(unread);
            let milli = computed.map_err(|cause| {
                let told = format!("failed to get {name} object metric: {cause}");
                failed(cause, told)
            })?;
            let (replicas, each) = shared(inputs, milli, wanted);
            (replicas, average(each), from_outside(&source.metric))
        }
        None => {
            let cause = "invalid object metric source: neither a value target nor an average value target was set";
            return Err(failed(cause.to_owned(), cause.to_owned()));
        }
    };
    let status = MetricStatus {
        type_: "Object".to_owned(),
        object: Some(ObjectMetricStatus {
            current,
            described_object: about.clone(),
            metric: source.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    Ok(proposed(replicas, title, status))
}

fn external(inputs: &Inputs<'_>, source: &ExternalMetricSource, found: Found<'_>) -> Result<Proposed, MetricError> {
    let name = &source.metric.name;
    let failed = |cause: String, told: String| MetricError {
        reason: "FailedGetExternalMetric",
        message: format!("failed to get {name} external metric value: {told}"),
        cause,
    };
    let namespace = inputs.autoscaler.metadata.namespace.as_deref().unwrap_or_default();
    let unread = |error: String| {
        let selector = printed::selector(source.metric.selector.as_ref());
        format!("unable to get external metric {namespace}/{name}/{selector}: {error}")
    };
    let (replicas, current) = match aim(&source.target, true) {
        Some(Aim::Average(wanted)) => {
            let milli = value(found).map_err(unread).map_err(|cause| {
                let told = format!("failed to get {name} external metric: {cause}");
                failed(cause, told)
            })?;
            let (replicas, each) = shared(inputs, milli, wanted);
            (replicas, average(each))
        }
        Some(Aim::Value(wanted)) => {
            let computed = value(found).map_err(unread).and_then(|milli| {
                let replicas = of_all(inputs, inputs.current, milli, wanted)?;
                Ok((replicas, whole(milli)))
            });
            computed.map_err(|cause| {
                let told = format!("failed to get external metric {name}: {cause}");
                failed(cause, told)
            })?
        }
        None => {
            let cause = "invalid external metric source: neither a value target nor an average value target was set";
            return Err(failed(cause.to_owned(), cause.to_owned()));
        }
    };
    let status = MetricStatus {
        type_: "External".to_owned(),
        external: Some(ExternalMetricStatus {
            current,
            metric: source.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    Ok(proposed(replicas, from_outside(&source.metric), status))
}

fn from_outside(metric: &MetricIdentifier) -> String {
    format!(
        "external metric {}({})",
        metric.name,
        printed::selector(metric.selector.as_ref())
    )
}

/// The replicas for a value that all of them answer for together: the ready ones times how far it is off. Of none, as many as it is
/// times what is wanted, and the tolerance does not count.
fn of_all(inputs: &Inputs<'_>, current: i32, milli: i64, wanted: i64) -> Result<i32, String> {
    let ratio = milli as f64 / wanted as f64;
    if current == 0 {
        return Ok(calculate::ceil(ratio));
    }
    if tolerances(inputs).is_within(ratio) {
        return Ok(current);
    }
    if inputs.pods.is_empty() {
        let why = "no pods returned by selector while calculating replica count";
        return Err(format!("unable to calculate ready pods: {why}"));
    }
    let ready = inputs.pods.iter().filter(|pod| {
        let status = pod.status.as_ref();
        let is_running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
        is_running && condition::is_true(status.and_then(|status| status.conditions.as_ref()), "Ready")
    });
    Ok(calculate::ceil(ratio * ready.count() as f64))
}

/// The replicas for a value of which each is to have so much, and how much each of those there are has.
fn shared(inputs: &Inputs<'_>, milli: i64, wanted: i64) -> (i32, i64) {
    let there = inputs.there;
    let ratio = milli as f64 / (wanted as f64 * f64::from(there));
    let replicas = match tolerances(inputs).is_within(ratio) {
        true => there,
        false => calculate::ceil(milli as f64 / wanted as f64),
    };
    // Upstream divides by zero here; of none, none has anything but all.
    let each = (milli as f64 / f64::from(there.max(1))).ceil();
    (replicas, each as i64)
}

#[cfg(test)]
mod tests;
