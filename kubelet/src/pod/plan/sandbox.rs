//! Whether the pod has the sandbox it needs (kubelet contract §4.3).

use super::stopping::{self, Wanted};
use super::{Draft, Inputs};
use crate::dra;
use crate::planted::{self, Fault};
use crate::pod::grace;
use crate::pod::operation::{Key, Operation, StopReason};
use crate::pod_object::{self, Kind};
use crate::runtime::observed::{ObservedPod, ObservedSandbox};
use k8s_openapi::api::core::v1::Container;

/// Asks for a sandbox or for the old one's end as needed; tells the sandbox to start containers in, if it is there.
pub(super) fn decide<'a>(draft: &mut Draft<'a>, observed: &'a ObservedPod) -> Option<&'a ObservedSandbox> {
    if draft.is_running(&Key::Sandbox) {
        draft.plan.operations.push(Operation::StartSandbox { attempt: 0 });
        return None;
    }
    if observed.sandboxes.len() == 1 && planted::is(Fault::SandboxDoubled) {
        start(draft, observed);
        return None;
    }
    if let Some(sandbox) = usable(draft.inputs.pod, observed) {
        for other in observed
            .sandboxes
            .iter()
            .filter(|other| other.ready && other.id != sandbox.id)
        {
            draft.attempt(Operation::StopSandbox { id: other.id.clone() });
        }
        return Some(sandbox);
    }
    if clear_old(draft, observed) {
        start(draft, observed);
    }
    None
}

/// The sandbox the pod is in, if it can live in it.
pub(super) fn usable<'a>(
    pod: &k8s_openapi::api::core::v1::Pod,
    observed: &'a ObservedPod,
) -> Option<&'a ObservedSandbox> {
    let host_network = pod_object::host_network(pod);
    let sandbox = observed.sandbox()?;
    let fits = sandbox.ready && sandbox.host_network == host_network && (host_network || !sandbox.ips.is_empty());
    fits.then_some(sandbox)
}

/// Whether the pod lost a sandbox that it gets no other for: it never restarts, and something of it was made before, which would run
/// again. Containers with a policy of their own may run again, so their pod goes on.
pub(super) fn is_lost_for_good(inputs: &Inputs<'_>, observed: &ObservedPod) -> bool {
    let pod = inputs.pod;
    let own_policy = |(kind, container): (Kind, &Container)| {
        kind != Kind::Sidecar && (container.restart_policy.is_some() || container.restart_policy_rules.is_some())
    };
    pod_object::restart_policy(pod) == "Never"
        && !observed.sandboxes.is_empty()
        && !observed.containers.is_empty()
        && usable(pod, observed).is_none()
        && !inputs.in_flight.contains_key(&Key::Sandbox)
        && !pod_object::containers(pod).any(own_policy)
}

/// Stops what is left in old sandboxes, then the sandboxes; tells whether the way is clear.
fn clear_old(draft: &mut Draft<'_>, observed: &ObservedPod) -> bool {
    let grace_seconds = grace::pod_seconds(draft.inputs.pod, None);
    let mut clear = true;
    for container in observed.alive() {
        clear = false;
        let wanted = Wanted {
            container,
            since: None,
            grace_seconds,
            reason: StopReason::PodEnds,
            waits: false,
        };
        stopping::stop(draft, &wanted);
    }
    if !clear {
        return false;
    }
    for sandbox in &observed.sandboxes {
        if sandbox.ready || !draft.inputs.memory.stopped_sandboxes.contains(&sandbox.id) {
            clear = false;
            draft.attempt(Operation::StopSandbox { id: sandbox.id.clone() });
        }
    }
    clear
}

fn start(draft: &mut Draft<'_>, observed: &ObservedPod) {
    let inputs = &draft.inputs;
    let can_start = inputs.memory.prepared && (inputs.network_ready || pod_object::host_network(inputs.pod));
    if !can_start {
        return;
    }
    // Its devices are the drivers' to make before anything of the pod is in a sandbox.
    if dra::has_claims(inputs.pod) && !inputs.memory.claims_ready {
        draft.attempt(Operation::PrepareClaims);
        return;
    }
    let after_newest = observed.sandboxes.first().map_or(0, |sandbox| sandbox.attempt + 1);
    let attempt = after_newest.max(inputs.memory.sandbox_attempt_min);
    draft.attempt(Operation::StartSandbox { attempt });
}
