//! What a status tells of resizes: the two conditions, and the pod's own resources (kubelet contract §7). Pure.

use super::{Inputs, seconds};
use crate::allocation::decide::Pending;
use crate::pod::resize::Applied;
use crate::pod_object;
use crate::reason::condition::{ERROR, POD_RESIZE_IN_PROGRESS, POD_RESIZE_PENDING};
use k8s_openapi::api::core::v1::{Pod, PodCondition, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proto::api::condition;
use std::collections::BTreeMap;

/// How far a pod's resize is.
#[derive(Clone, Copy, Debug)]
pub struct Resize<'a> {
    /// What it runs with.
    pub applied: &'a Applied,
    /// Why it was not given what it wants.
    pub pending: Option<&'a Pending>,
    /// Whether it runs with something else than it was given.
    pub in_progress: bool,
    /// The generation whose resize it was given last.
    pub given: Option<i64>,
    /// Why that does not get further.
    pub error: Option<&'a str>,
}

/// Sets the two conditions while they hold, and takes them away when they do not.
pub(super) fn tell(inputs: &Inputs<'_>, conditions: &mut Vec<PodCondition>) {
    let lives = inputs.state.termination().is_none();
    let generation = inputs.pod.metadata.generation;
    let resize = inputs.resize;
    let pending = resize.pending.filter(|_| lives).map(|pending| {
        let reason = Some(pending.reason.to_owned());
        (reason, Some(pending.message.clone()), pending.generation)
    });
    let in_progress = (resize.in_progress && lives).then(|| {
        let reason = resize.error.map(|_| ERROR.to_owned());
        (reason, resize.error.map(str::to_owned), resize.given.or(generation))
    });
    for (kind, holds) in [(POD_RESIZE_PENDING, pending), (POD_RESIZE_IN_PROGRESS, in_progress)] {
        let Some((reason, message, observed_generation)) = holds else {
            conditions.retain(|condition| condition.type_ != kind);
            continue;
        };
        let holding = PodCondition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            reason,
            message,
            last_probe_time: None,
            last_transition_time: Some(seconds(inputs.now)),
            observed_generation,
        };
        condition::set(conditions, holding);
    }
}

/// What the pod as a whole was given, if it asks for anything as a whole.
pub(super) fn allocated(pod: &Pod) -> Option<BTreeMap<String, Quantity>> {
    pod_object::spec(pod).resources.as_ref()?.requests.clone()
}

/// What it runs with as a whole.
pub(super) fn running(inputs: &Inputs<'_>) -> Option<ResourceRequirements> {
    let given = pod_object::spec(inputs.pod).resources.as_ref()?;
    let applied = inputs.resize.applied.cgroup.as_ref();
    applied.and_then(|own| own.pod.as_ref()).or(Some(given)).cloned()
}
