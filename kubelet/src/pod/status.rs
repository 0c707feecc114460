//! The status of a pod, from the same snapshot its plan is made from. Pure.
//!
//! Kubelet contract §5. Times have second precision, lists a fixed order, so that an unchanged pod gives an equal status.

mod conditions;
mod containers;
mod phase;
mod resize;
#[cfg(test)]
mod tests;

use super::memory::Waiting;
use super::plan;
use super::state::{BY_NODE, Cause, PodState};
use crate::planted::{self, Fault};
use crate::pod_object;
use crate::probe::outcome::Outcomes;
use crate::reason;
use crate::runtime::observed::ObservedPod;
use client::ordered::Arrange;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proto::api::qos::qos_class;
use std::collections::{BTreeMap, BTreeSet};

pub use phase::Phase;
pub use resize::Resize;

/// What a status is made from.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The desired pod, with the status the API server has.
    pub pod: &'a Pod,
    /// The status this worker computed last; the API server's to begin with.
    pub previous: &'a PodStatus,
    /// Where the pod is in its life.
    pub state: &'a PodState,
    /// What the runtime has of it.
    pub observed: &'a ObservedPod,
    /// Its probes' outcomes.
    pub outcomes: &'a Outcomes,
    /// Why containers that should run do not, from the plan.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// Containers whose start is not over although they run, from the plan.
    pub starting: &'a BTreeSet<String>,
    /// Whether mounts of the pod can be read only with all that is below them.
    pub recursive_read_only: bool,
    /// Whether containers' stop signals are shown.
    pub stop_signals: bool,
    /// How far its resize is.
    pub resize: &'a Resize<'a>,
    /// The scheme of container ids, the runtime's name.
    pub runtime_name: &'a str,
    /// The node's addresses, primary first.
    pub host_ips: &'a [String],
    /// The time.
    pub now: Timestamp,
}

/// Makes the pod's status.
pub fn status(inputs: &Inputs<'_>) -> PodStatus {
    let pod = inputs.pod;
    let mut inits: Vec<ContainerStatus> = pod_object::inits(pod)
        .iter()
        .map(|container| containers::status(inputs, pod_object::kind_of_init(container), container))
        .collect();
    let mut regulars: Vec<ContainerStatus> = pod_object::regulars(pod)
        .iter()
        .map(|container| containers::status(inputs, pod_object::Kind::Regular, container))
        .collect();

    let mut ephemerals: Vec<ContainerStatus> = pod_object::ephemerals(pod)
        .iter()
        .map(pod_object::of_ephemeral)
        .map(|container| containers::status(inputs, pod_object::Kind::Ephemeral, &container))
        .collect();

    if inputs.state.has_ended() {
        containers::end(pod, &mut inits, &mut regulars);
    }
    let told = phase::told(inputs, &inits, &regulars);
    let (phase, reason, message) = (told.phase, told.reason, told.message);
    let mut conditions = inputs.previous.conditions.clone().unwrap_or_default();
    let source = conditions::Source {
        inputs,
        phase,
        inits: &inits,
        regulars: &regulars,
    };
    source.update(&mut conditions);

    regulars.arrange_by(|a, b| a.name.cmp(&b.name));
    ephemerals.arrange_by(|a, b| a.name.cmp(&b.name));
    let pod_ips = pod_ips(inputs);
    PodStatus {
        phase: Some(phase.as_str().to_owned()),
        reason,
        message,
        conditions: Some(conditions),
        host_ip: inputs.host_ips.first().cloned(),
        host_ips: non_empty(inputs.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: non_empty(pod_ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: inputs.previous.start_time.clone().or_else(|| Some(seconds(inputs.now))),
        init_container_statuses: non_empty(inits),
        container_statuses: non_empty(regulars),
        ephemeral_container_statuses: non_empty(ephemerals),
        qos_class: Some(qos_class(pod_object::spec(pod)).as_str().to_owned()),
        observed_generation: pod.metadata.generation,
        resource_claim_statuses: pod.status.as_ref().and_then(|s| s.resource_claim_statuses.clone()),
        allocated_resources: resize::allocated(pod),
        resources: resize::running(inputs),
        nominated_node_name: pod.status.as_ref().and_then(|s| s.nominated_node_name.clone()),
        ..PodStatus::default()
    }
}

/// The status of a pod that is not let in: failed, with its reason, and nothing of it ever ran.
pub fn rejected(pod: &Pod, reason: &str, message: &str, host_ips: &[String], now: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    status.phase = Some(Phase::Failed.as_str().to_owned());
    status.reason = Some(reason.to_owned());
    status.message = Some(format!("Pod was rejected: {message}"));
    status.start_time.get_or_insert(seconds(now));
    status.host_ip = host_ips.first().cloned();
    status.host_ips = non_empty(host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
    status.qos_class = Some(qos_class(pod_object::spec(pod)).as_str().to_owned());
    status.observed_generation = pod.metadata.generation;
    status
}

/// Whether a phase is terminal.
pub fn is_terminal(status: Option<&PodStatus>) -> bool {
    matches!(status.and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// The pod-level reason and message of a termination that fails the pod.
fn failure(state: &PodState) -> Option<(&str, &str)> {
    match state.termination().map(|termination| &termination.cause) {
        Some(Cause::Failed { reason, message }) => Some((reason, message)),
        Some(Cause::StorageExceeded { message }) => Some((reason::pod::EVICTED, message)),
        _ => None,
    }
}

/// Whether it is the node's need that fails the pod.
fn is_disrupted(state: &PodState) -> bool {
    let cause = state.termination().map(|termination| &termination.cause);
    matches!(cause, Some(Cause::Failed { reason, .. }) if BY_NODE.contains(&reason.as_str()))
}

/// Whether all containers are being restarted.
fn restarts_all(inputs: &Inputs<'_>) -> bool {
    inputs.state.termination().is_none() && plan::restarts_all(inputs.pod, inputs.observed)
}

fn pod_ips(inputs: &Inputs<'_>) -> Vec<String> {
    if planted::is(Fault::AddressLeftOut) {
        return Vec::new();
    }
    if pod_object::host_network(inputs.pod) {
        return inputs.host_ips.to_vec();
    }
    match inputs.observed.sandbox().filter(|sandbox| sandbox.ready) {
        Some(sandbox) => sandbox.addresses(inputs.host_ips),
        None if inputs.state.termination().is_some() || inputs.observed.sandbox().is_some() => kept_ips(inputs),
        None => Vec::new(),
    }
}

/// The addresses of a pod that ends are told to the end, as they were; those of a lost sandbox until there is another.
fn kept_ips(inputs: &Inputs<'_>) -> Vec<String> {
    inputs
        .previous
        .pod_ips
        .iter()
        .flatten()
        .map(|ip| ip.ip.clone())
        .collect()
}

fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// A time with second precision, as it is sent.
pub(crate) fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
