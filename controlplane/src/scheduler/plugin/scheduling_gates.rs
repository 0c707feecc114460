//! SchedulingGates, at PreEnqueue: a pod with gates is not tried. Only a change of the pod itself can help.

use crate::scheduler::pod::PodInfo;

/// Whether gates hold the pod back.
pub fn holds_back(pod: &PodInfo) -> bool {
    let gates = pod.spec().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}
