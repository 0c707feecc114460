//! What each metric of an autoscaler says. Pure.
//!
//! Resource metrics come from metrics.k8s.io; those of pods, objects and from outside are computed in [`super::elsewhere`].

use super::calculate::{self, Prepared, Proposal, Question, Sample, Samples, Tolerances, Wanted};
use super::elsewhere;
use super::observe::PodUsage;
use super::served::AllServed;
use crate::held::Pod;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus,
    ResourceMetricStatus,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::quantity::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A metric that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricError {
    /// Of the event, and of the condition.
    pub(super) reason: &'static str,
    /// What is wrong.
    pub(super) cause: String,
    /// As the autoscaler's whole error says it.
    pub(super) message: String,
}

impl MetricError {
    /// Of the metrics beyond the first `most` of so many.
    pub(super) fn too_many(most: usize, all: usize) -> Self {
        let cause = format!("too many metrics: the first {most} of {all} are computed");
        Self {
            reason: "TooManyMetrics",
            message: cause.clone(),
            cause,
        }
    }
}

/// What a metric proposes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proposed {
    pub(super) replicas: i32,
    /// As conditions and events call it.
    pub(super) name: String,
    pub(super) status: MetricStatus,
}

/// What all metrics of an autoscaler are computed from.
pub(super) struct Inputs<'a> {
    pub(super) autoscaler: &'a HorizontalPodAutoscaler,
    pub(super) usage: &'a Result<Vec<PodUsage>, String>,
    /// What others serve.
    pub(super) served: &'a AllServed,
    /// The pods that the target's selector chooses.
    pub(super) pods: &'a [Arc<Pod>],
    /// The replicas there should be now.
    pub(super) current: i32,
    /// The replicas there are, as the target's scale says.
    pub(super) there: i32,
    pub(super) now: Timestamp,
}

/// The metrics of one decision as they are computed: what several have in common is found once.
pub(super) struct Computing<'a> {
    inputs: Inputs<'a>,
    /// By names of the resource and of the container.
    prepared: BTreeMap<(String, String), Result<Prepared, String>>,
}

impl<'a> Computing<'a> {
    /// From these inputs.
    pub(super) fn of(inputs: Inputs<'a>) -> Self {
        Self {
            inputs,
            prepared: BTreeMap::new(),
        }
    }

    /// What the metric in that place of the autoscaler's list says.
    pub(super) fn compute(&mut self, at: usize, metric: &MetricSpec) -> Result<Proposed, MetricError> {
        compute(self, at, metric)
    }
}

fn compute(computing: &mut Computing<'_>, at: usize, metric: &MetricSpec) -> Result<Proposed, MetricError> {
    if let Some(source) = metric.resource.as_ref().filter(|_| metric.type_ == "Resource") {
        let found = resource(computing, &source.name, "", &source.target);
        let (proposal, name) = found.map_err(|cause| MetricError {
            reason: "FailedGetResourceMetric",
            message: format!("failed to get {} resource metric value: {cause}", source.name),
            cause,
        })?;
        let status = ResourceMetricStatus {
            name: source.name.clone(),
            current: current(proposal),
        };
        return Ok(proposed(proposal, name, metric, |all| all.resource = Some(status)));
    }
    if let Some(source) = metric
        .container_resource
        .as_ref()
        .filter(|_| metric.type_ == "ContainerResource")
    {
        let found = resource(computing, &source.name, &source.container, &source.target);
        let (proposal, name) = found.map_err(|cause| MetricError {
            reason: "FailedGetContainerResourceMetric",
            message: format!("failed to get {} container metric value: {cause}", source.container),
            cause,
        })?;
        let status = ContainerResourceMetricStatus {
            name: source.name.clone(),
            container: source.container.clone(),
            current: current(proposal),
        };
        return Ok(proposed(proposal, name, metric, |all| {
            all.container_resource = Some(status);
        }));
    }
    let inputs = &computing.inputs;
    elsewhere::compute(inputs, metric, inputs.served.get(&at))
}

fn proposed(proposal: Proposal, name: String, metric: &MetricSpec, fill: impl FnOnce(&mut MetricStatus)) -> Proposed {
    let mut status = MetricStatus {
        type_: metric.type_.clone(),
        ..MetricStatus::default()
    };
    fill(&mut status);
    Proposed {
        replicas: proposal.replicas,
        name,
        status,
    }
}

fn current(proposal: Proposal) -> MetricValueStatus {
    MetricValueStatus {
        average_utilization: proposal.utilization,
        average_value: Some(Quantity::from_milli(proposal.average_milli).to_api()),
        value: None,
    }
}

/// What the pods, or one container of each, use of a resource; and how it is called.
fn resource(
    computing: &mut Computing<'_>,
    resource: &str,
    container: &str,
    target: &MetricTarget,
) -> Result<(Proposal, String), String> {
    let (wanted, what, name) = match (&target.average_value, target.average_utilization) {
        (Some(value), _) => (
            Wanted::AverageMilli(Quantity::of(value).milli_value()),
            "usage",
            format!("{resource} resource"),
        ),
        (None, Some(percent)) => {
            let of = if container.is_empty() { "" } else { " container" };
            let name = format!("{resource}{of} resource utilization (percentage of request)");
            (Wanted::Utilization(percent), "utilization", name)
        }
        (None, None) => {
            return Err(
                "invalid resource metric source: neither an average utilization target nor an average value \
                        (usage) target was set"
                    .to_owned(),
            );
        }
    };
    let failed = |error: String| format!("failed to get {resource} {what}: {error}");
    let inputs = &computing.inputs;
    let question = Question {
        pods: inputs.pods,
        resource,
        container,
        current: inputs.current,
        tolerances: Tolerances::of(inputs.autoscaler.spec.behavior.as_ref()),
        now: inputs.now,
    };
    let names = (resource.to_owned(), container.to_owned());
    let prepared = computing.prepared.entry(names).or_insert_with(|| {
        let samples = match inputs.usage {
            Ok(usage) => samples(inputs, usage, resource, container),
            Err(error) => Err(error.clone()),
        };
        let samples = samples.map_err(|error| format!("unable to get metrics for resource {resource}: {error}"))?;
        Prepared::of(&question, samples)
    });
    let prepared = prepared.as_ref().map_err(|error| failed(error.clone()))?;
    let proposal = calculate::replicas(&question, prepared, wanted).map_err(failed)?;
    Ok((proposal, name))
}

/// What pods use of a resource: the sum over their containers, or one of them. A pod of which a container does not say has no sample.
fn samples(inputs: &Inputs<'_>, usage: &[PodUsage], resource: &str, container: &str) -> Result<Samples, String> {
    let mut samples = Samples::new();
    for pod in usage {
        let milli = if container.is_empty() {
            let amounts = pod.containers.values().map(|amounts| amounts.get(resource).copied());
            let amounts: Option<Vec<i64>> = amounts.collect();
            amounts
                .filter(|amounts| !amounts.is_empty())
                .map(|amounts| amounts.into_iter().fold(0, i64::saturating_add))
        } else {
            let own = pod.containers.get(container).ok_or_else(|| {
                let namespace = inputs.autoscaler.namespace().unwrap_or_default();
                format!(
                    "failed to get container metrics: container {container} not present in metrics for pod {namespace}/{}",
                    pod.pod
                )
            })?;
            own.get(resource).copied()
        };
        if let Some(milli) = milli {
            let (at, window) = (pod.at, pod.window);
            samples.insert(pod.pod.clone(), Sample { at, window, milli });
        }
    }
    Ok(samples)
}
