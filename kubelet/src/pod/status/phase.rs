//! The phase (kubelet contract §5). Pure.

use super::{Inputs, failure};
use crate::planted::{self, Fault};
use crate::pod_object::{self, Kind};
use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStatus};

/// A pod's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not everything runs yet.
    Pending,
    /// Something runs, or will again.
    Running,
    /// Everything ended well.
    Succeeded,
    /// Everything ended, not all of it well; or the node ended it.
    Failed,
}

impl Phase {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether nothing comes after it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            _ => Self::Pending,
        }
    }
}

/// The phase to tell, with the pod-level reason and message.
pub(super) struct ReportedPhase {
    pub(super) phase: Phase,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

/// The phase as it may be told now: a terminal one only once nothing can run, and then for good.
pub(super) fn told(inputs: &Inputs<'_>, inits: &[ContainerStatus], regulars: &[ContainerStatus]) -> ReportedPhase {
    let previous = inputs.previous;
    let before = Phase::parse(previous.phase.as_deref());
    if before.is_terminal() {
        let is_known = super::is_terminal(inputs.pod.status.as_ref());
        let taken_back = is_known && planted::once(Fault::EndTakenBack);
        return ReportedPhase {
            phase: if taken_back { Phase::Running } else { before },
            reason: previous.reason.clone(),
            message: previous.message.clone(),
        };
    }
    let computed = compute(inputs, inits, regulars);
    let early = inputs.state.termination().is_some() && planted::is(Fault::EndToldEarly);
    if !inputs.state.has_ended() && !early {
        // A pod that starts anew within itself goes on running.
        let anew = before == Phase::Running && pod_object::may_restart_all(inputs.pod);
        let phase = if computed.is_terminal() || anew {
            before
        } else {
            computed
        };
        return ReportedPhase {
            phase,
            reason: previous.reason.clone(),
            message: previous.message.clone(),
        };
    }
    if let Some((reason, message)) = failure(inputs.state) {
        return ReportedPhase {
            phase: Phase::Failed,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
        };
    }
    let phase = if computed.is_terminal() {
        computed
    } else {
        Phase::Failed
    };
    ReportedPhase {
        phase,
        reason: previous.reason.clone(),
        message: previous.message.clone(),
    }
}

#[derive(Default)]
struct Tally {
    waiting: usize,
    running: usize,
    stopped: usize,
    succeeded: usize,
    unknown: usize,
}

/// The phase that follows from the containers.
fn compute(inputs: &Inputs<'_>, inits: &[ContainerStatus], regulars: &[ContainerStatus]) -> Phase {
    let pod = inputs.pod;
    let (pending_init, failed_init) = initialization(inputs, inits, regulars);
    if failed_init {
        return Phase::Failed;
    }
    let mut tally = Tally::default();
    for status in regulars {
        tally.add(status);
    }
    let total = pod_object::regulars(pod).len();
    if inputs.state.has_ended() {
        let all_well = tally.stopped == total && tally.succeeded == tally.stopped && total > 0;
        return if all_well && !pending_init {
            Phase::Succeeded
        } else {
            Phase::Failed
        };
    }
    if pending_init || tally.waiting > 0 {
        return Phase::Pending;
    }
    if tally.running > 0 && tally.unknown == 0 {
        return Phase::Running;
    }
    if tally.running == 0 && tally.stopped > 0 && tally.unknown == 0 {
        return all_stopped(inputs, regulars, &tally);
    }
    Phase::Pending
}

fn all_stopped(inputs: &Inputs<'_>, regulars: &[ContainerStatus], tally: &Tally) -> Phase {
    let restarts = pod_object::regulars(inputs.pod)
        .iter()
        .any(|container| will_restart(inputs, container, regulars));
    if restarts {
        Phase::Running
    } else if tally.succeeded == tally.stopped {
        Phase::Succeeded
    } else {
        Phase::Failed
    }
}

fn will_restart(inputs: &Inputs<'_>, container: &Container, regulars: &[ContainerStatus]) -> bool {
    let status = regulars.iter().find(|status| status.name == container.name);
    let exit = status.and_then(|s| exit_code(s.state.as_ref()).or_else(|| exit_code(s.last_state.as_ref())));
    let waits = status.is_some_and(|s| s.state.as_ref().is_some_and(|state| state.waiting.is_some()));
    waits || exit.is_none_or(|code| pod_object::restarts(inputs.pod, Kind::Regular, container, code))
}

/// Whether an init container is still to finish, and whether one failed for good.
fn initialization(inputs: &Inputs<'_>, inits: &[ContainerStatus], regulars: &[ContainerStatus]) -> (bool, bool) {
    let regular_exists = regulars.iter().any(|status| status.container_id.is_some());
    let (mut pending, mut failed) = (false, false);
    for (container, status) in pod_object::inits(inputs.pod).iter().zip(inits) {
        let exit = exit_code(status.state.as_ref());
        match pod_object::kind_of_init(container) {
            Kind::Sidecar => {
                let running = status.state.as_ref().is_some_and(|state| state.running.is_some());
                let started = running && status.started == Some(true);
                pending |= !started && exit.is_none() && !regular_exists;
            }
            kind => match exit {
                Some(0) => {}
                Some(code) => {
                    let again = pod_object::restarts(inputs.pod, kind, container, code);
                    failed |= !again;
                    pending |= again;
                }
                None => pending = true,
            },
        }
    }
    (pending, failed)
}

impl Tally {
    fn add(&mut self, status: &ContainerStatus) {
        let Some(state) = &status.state else {
            self.unknown += 1;
            return;
        };
        if state.running.is_some() {
            self.running += 1;
        } else if let Some(code) = exit_code(Some(state)) {
            self.stopped += 1;
            self.succeeded += usize::from(code == 0);
        } else if exit_code(status.last_state.as_ref()).is_some() {
            self.stopped += 1;
        } else {
            self.waiting += 1;
        }
    }
}

fn exit_code(state: Option<&ContainerState>) -> Option<i32> {
    state
        .and_then(|state| state.terminated.as_ref())
        .map(|terminated| terminated.exit_code)
}
