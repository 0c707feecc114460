//! Which resizes are refused for good, and in which order the others are looked at (kubelet contract §7). Pure.
//!
//! Whether one fits is the ledger's to say. That it never will is no reason to refuse it for good: it is deferred.

use super::{PodResources, Resizable};
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

/// What the refusal of static pods is counted as.
pub const STATIC_POD: &str = "static_pod";

/// Why the node resizes no pod of this sort, if it does not.
pub fn refusal(pod: &Pod) -> Option<&'static str> {
    pod_object::is_static(pod).then_some("In-place resize of static-pods is not supported")
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
