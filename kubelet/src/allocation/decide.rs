//! Which resizes are refused for good, and in which order the others are looked at (kubelet contract §7). Pure.
//!
//! Whether one fits is the ledger's to say. That it never will is no reason to refuse it for good: it is deferred.

use super::{PodResources, Resizable, amounts};
use crate::pod_object;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use proto::api::qos::{QosClass, qos_class};
use proto::api::quantity::Quantity;
use proto::api::resources::pod_requests;
use std::cmp::Reverse;
use std::sync::Arc;

/// Why a resize waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// `Deferred` or `Infeasible`.
    pub reason: &'static str,
    /// The message.
    pub message: String,
    /// The pod's generation that wants it.
    pub generation: Option<i64>,
}

/// Why the node does not resize a pod, whatever room there is; in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is of no API server.
    #[error("In-place resize of static-pods is not supported")]
    Static,
    /// Its containers may have CPUs to themselves, of which they keep as many as they have.
    #[error("Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"")]
    ExclusiveCpus,
    /// Its containers have their memory of certain NUMA nodes.
    #[error("Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"")]
    ExclusiveMemory,
}

/// What the node does not change for a Guaranteed pod that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The static CPU policy rules.
    pub cpu: bool,
    /// The static memory policy rules.
    pub memory: bool,
}

/// Why the node does not resize this pod from what it was given to what it wants, if it never does. What is `fixed` of Guaranteed
/// pods stays as it is.
pub fn refusal(wanted: &Pod, given: &Pod, fixed: Fixed) -> Option<Refusal> {
    if pod_object::is_static(wanted) {
        return Some(Refusal::Static);
    }
    let requests = |pod: &Pod, of: Resizable| -> Vec<_> {
        let all = pod_object::containers(pod);
        all.map(|(_, container)| amounts(container.resources.as_ref(), of).0)
            .collect()
    };
    let differs = |of| requests(wanted, of) != requests(given, of);
    let guaranteed = qos_class(pod_object::spec(wanted)) == QosClass::Guaranteed;
    match guaranteed {
        true if fixed.cpu && differs(Resizable::Cpu) => Some(Refusal::ExclusiveCpus),
        true if fixed.memory && differs(Resizable::Memory) => Some(Refusal::ExclusiveMemory),
        _ => None,
    }
}

impl Refusal {
    /// What it is counted as.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Static => "static_pod",
            Self::ExclusiveCpus => "guaranteed_pod_cpu_manager_static_policy",
            Self::ExclusiveMemory => "guaranteed_pod_memory_manager_static_policy",
        }
    }
}

/// What decides a resize's turn: what asks for no more than it has is first, then the pod of higher priority, then the
/// Guaranteed one, then who waits longest.
pub fn turn(wanted: &Arc<Pod>, given: &PodResources, since: Timestamp) -> impl Ord + use<> {
    let spec = pod_object::spec(wanted);
    (
        grows(wanted, &given.applied_to(wanted)),
        Reverse(spec.priority.unwrap_or(0)),
        qos_class(spec) != QosClass::Guaranteed,
        since,
    )
}

fn grows(wanted: &Pod, given: &Pod) -> bool {
    let (wanted, given) = (
        pod_requests(pod_object::spec(wanted)),
        pod_requests(pod_object::spec(given)),
    );
    let amount = |list: &proto::api::resources::ResourceList, of: Resizable| {
        list.get(of.name()).copied().unwrap_or(Quantity::ZERO)
    };
    Resizable::ALL
        .iter()
        .any(|of| amount(&wanted, *of) > amount(&given, *of))
}
