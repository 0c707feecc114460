//! The status of one container (kubelet contract §5). Pure.

use super::{Inputs, seconds};
use crate::planted::{self, Fault};
use crate::pod::spec;
use crate::pod_object::{self, Kind};
use crate::reason;
use crate::runtime::observed::{ContainerState as Observed, ObservedContainer};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, LinuxContainerUser, Pod, VolumeMountStatus,
};
use proto::api::condition;

/// The reason of a container nobody can find any more.
const UNKNOWN: &str = reason::terminated::CONTAINER_STATUS_UNKNOWN;
const GONE_MESSAGE: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
const GONE_AT_END_MESSAGE: &str = "The container could not be located when the pod was terminated";

/// The most of all termination messages of a pod together, bytes.
const MESSAGES_BYTES_MAX: usize = 12 * 1024;

pub(super) fn status(inputs: &Inputs<'_>, kind: Kind, container: &Container) -> ContainerStatus {
    let previous = previous(inputs, kind, &container.name);
    let mut instances = inputs.observed.containers.iter().filter(|c| c.name == container.name);
    let mut status = match instances.next() {
        Some(newest) => observed(inputs, container, newest, instances.next(), previous),
        None => absent(inputs, kind, container, previous),
    };
    overlay_waiting(inputs, &mut status);
    if inputs.state.has_ended() {
        take_last_end(&mut status);
    }
    finish(inputs, kind, container, &mut status);
    status
}

/// At the pod's end no container that may have run is left in the open; one that never had its turn goes on waiting.
pub(super) fn end(pod: &Pod, inits: &mut [ContainerStatus], regulars: &mut [ContainerStatus]) {
    if was_initialized(pod, inits, regulars) {
        regulars.iter_mut().for_each(end_in_the_open);
    }
    let begun = inits
        .iter()
        .rposition(|status| !waits(status) || has_ended_before(status));
    let begun = begun.map_or(1, |last| last + 1).min(inits.len());
    inits[..begun].iter_mut().for_each(end_in_the_open);
}

/// Whether the regular containers have had their turn.
fn was_initialized(pod: &Pod, inits: &[ContainerStatus], regulars: &[ContainerStatus]) -> bool {
    let Some((last, status)) = pod_object::inits(pod).last().zip(inits.last()) else {
        return true;
    };
    if regulars.iter().any(|status| has_ended_before(status) || !waits(status)) {
        return true;
    }
    match pod_object::kind_of_init(last) {
        Kind::Sidecar => status.started == Some(true),
        _ => {
            let end = status.state.as_ref().and_then(|state| state.terminated.as_ref());
            end.is_some_and(|end| end.exit_code == 0)
        }
    }
}

fn waits(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.waiting.is_some())
}

fn has_ended_before(status: &ContainerStatus) -> bool {
    status.last_state.as_ref().is_some_and(|last| last.terminated.is_some())
}

fn previous<'a>(inputs: &Inputs<'a>, kind: Kind, name: &str) -> Option<&'a ContainerStatus> {
    let list = match kind {
        Kind::Regular => inputs.previous.container_statuses.as_ref(),
        Kind::Init | Kind::Sidecar => inputs.previous.init_container_statuses.as_ref(),
        Kind::Ephemeral => inputs.previous.ephemeral_container_statuses.as_ref(),
    };
    list.into_iter().flatten().find(|status| status.name == name)
}

fn default_waiting(inputs: &Inputs<'_>) -> ContainerState {
    let reason = if pod_object::inits(inputs.pod).is_empty() {
        reason::waiting::CONTAINER_CREATING
    } else {
        reason::waiting::POD_INITIALIZING
    };
    waiting(reason, None)
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message,
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

/// A container the runtime has nothing of.
fn absent(
    inputs: &Inputs<'_>,
    kind: Kind,
    container: &Container,
    previous: Option<&ContainerStatus>,
) -> ContainerStatus {
    let fresh = || ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(default_waiting(inputs)),
        ..ContainerStatus::default()
    };
    let Some(previous) = previous else { return fresh() };
    let state = previous.state.clone().unwrap_or_default();
    if starts_anew(inputs) {
        let told = state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref());
        if told == Some(reason::waiting::RESTARTING_ALL_CONTAINERS) {
            return previous.clone();
        }
        if previous.container_id.is_some() {
            return removed_to_start_anew(previous);
        }
    }
    if state.terminated.is_some() {
        return previous.clone();
    }
    if state.running.is_some() {
        if kind == Kind::Init && any_regular_created(inputs) {
            return completed(previous);
        }
        let ending = inputs.state.termination().is_some();
        return ContainerStatus {
            state: Some(default_waiting(inputs)),
            last_state: Some(unknown_end(previous.container_id.clone(), GONE_MESSAGE)),
            restart_count: previous.restart_count + i32::from(!ending),
            container_id: None,
            ..previous.clone()
        };
    }
    ContainerStatus {
        restart_count: previous.restart_count,
        last_state: previous.last_state.clone(),
        container_id: previous.container_id.clone(),
        image_id: previous.image_id.clone(),
        ..fresh()
    }
}

/// Whether a container that is gone was removed because all containers start anew.
fn starts_anew(inputs: &Inputs<'_>) -> bool {
    let before = inputs.previous.conditions.as_ref();
    let was_told = condition::is_true(before, reason::condition::ALL_CONTAINERS_RESTARTING);
    inputs.state.termination().is_none() && (was_told || super::restarts_all(inputs))
}

fn removed_to_start_anew(previous: &ContainerStatus) -> ContainerStatus {
    let message = "The container is removed because RestartAllContainers in place";
    let end = ContainerStateTerminated {
        reason: Some(reason::terminated::RESTARTING_ALL_CONTAINERS.to_owned()),
        message: Some(message.to_owned()),
        exit_code: 137,
        ..ContainerStateTerminated::default()
    };
    let waits = reason::waiting::RESTARTING_ALL_CONTAINERS;
    ContainerStatus {
        state: Some(waiting(waits, Some(message.to_owned()))),
        last_state: Some(ContainerState {
            terminated: Some(end),
            ..ContainerState::default()
        }),
        restart_count: previous.restart_count.saturating_add(1),
        container_id: None,
        ..previous.clone()
    }
}

fn any_regular_created(inputs: &Inputs<'_>) -> bool {
    pod_object::regulars(inputs.pod)
        .iter()
        .any(|container| inputs.observed.newest(&container.name).is_some())
}

/// An init container that is lost after regular ones were created must have done its work.
fn completed(previous: &ContainerStatus) -> ContainerStatus {
    let terminated = ContainerStateTerminated {
        reason: Some(reason::terminated::COMPLETED.to_owned()),
        message: Some(
            "Unable to get init container status from container runtime and pod has been initialized, treat it as exited \
             normally"
                .to_owned(),
        ),
        exit_code: 0,
        ..ContainerStateTerminated::default()
    };
    let state = ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    };
    ContainerStatus {
        state: Some(state),
        ..previous.clone()
    }
}

fn unknown_end(container_id: Option<String>, message: &str) -> ContainerState {
    let terminated = ContainerStateTerminated {
        reason: Some(UNKNOWN.to_owned()),
        message: Some(message.to_owned()),
        exit_code: 137,
        container_id,
        ..ContainerStateTerminated::default()
    };
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}

/// A container the runtime has.
fn observed(
    inputs: &Inputs<'_>,
    container: &Container,
    newest: &ObservedContainer,
    before: Option<&ObservedContainer>,
    previous: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = container_id(inputs, newest);
    let state = match newest.state {
        Observed::Created => default_waiting(inputs),
        Observed::Running if inputs.starting.contains(&container.name) => default_waiting(inputs),
        Observed::Running => ContainerState {
            running: Some(ContainerStateRunning {
                started_at: newest.started_at.map(seconds),
            }),
            ..ContainerState::default()
        },
        // An end that was told stays as it was told: its message may be gone with the pod's directory.
        Observed::Exited => told_end(previous, &id).unwrap_or_else(|| terminated(inputs, newest)),
        Observed::Unknown if may_have_run(previous, &id) => unknown_end(Some(id.clone()), GONE_AT_END_MESSAGE),
        Observed::Unknown => default_waiting(inputs),
    };
    let last_state = match before {
        Some(before) if before.state == Observed::Exited => Some(terminated(inputs, before)),
        _ => previous.and_then(|p| inherited_last_state(p, &id)),
    };
    let restarts = match planted::is(Fault::RestartsForgotten) {
        true => newest.restart_count % 2,
        false => newest.restart_count,
    };
    ContainerStatus {
        name: container.name.clone(),
        image: newest.image.clone(),
        image_id: newest.image_ref.clone(),
        container_id: Some(id),
        restart_count: i32::try_from(restarts).unwrap_or(i32::MAX),
        state: Some(state),
        last_state,
        ..ContainerStatus::default()
    }
}

/// Whether an instance of which the runtime knows nothing was told to run, or to have been lost since.
fn may_have_run(previous: Option<&ContainerStatus>, id: &str) -> bool {
    let state = previous.and_then(|previous| previous.state.as_ref());
    let lost = state.and_then(|state| state.terminated.as_ref());
    state.is_some_and(|state| state.running.is_some())
        || lost.is_some_and(|end| end.container_id.as_deref() == Some(id))
}

/// The end of this instance as it was told before.
fn told_end(previous: Option<&ContainerStatus>, id: &str) -> Option<ContainerState> {
    let states = previous.map(|p| [&p.state, &p.last_state]);
    let is_its = |state: &&ContainerState| {
        state
            .terminated
            .as_ref()
            .is_some_and(|end| end.container_id.as_deref() == Some(id) && end.reason.as_deref() != Some(UNKNOWN))
    };
    states.into_iter().flatten().flatten().find(is_its).cloned()
}

/// The last state told before: kept for the same instance; the state told of the instance before it otherwise.
fn inherited_last_state(previous: &ContainerStatus, id: &str) -> Option<ContainerState> {
    if previous.container_id.as_deref() == Some(id) {
        return previous.last_state.clone();
    }
    let ended = previous.state.as_ref().filter(|state| state.terminated.is_some());
    ended.or(previous.last_state.as_ref()).cloned()
}

fn container_id(inputs: &Inputs<'_>, container: &ObservedContainer) -> String {
    format!("{}://{}", inputs.runtime_name, container.id)
}

fn terminated(inputs: &Inputs<'_>, container: &ObservedContainer) -> ContainerState {
    let count = pod_object::containers(inputs.pod).count() + pod_object::ephemerals(inputs.pod).len();
    let share = MESSAGES_BYTES_MAX / count.max(1);
    let terminated = ContainerStateTerminated {
        container_id: Some(container_id(inputs, container)),
        exit_code: container.exit_code,
        reason: Some(container.reason.clone()).filter(|reason| !reason.is_empty()),
        message: Some(cut(&container.message, share)).filter(|message| !message.is_empty()),
        started_at: container.started_at.map(seconds),
        finished_at: container.finished_at.map(seconds),
        signal: None,
    };
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}

fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Tells why a container that is to run does not: its end becomes its last state.
fn overlay_waiting(inputs: &Inputs<'_>, status: &mut ContainerStatus) {
    let Some(why) = inputs.waiting.get(&status.name) else {
        return;
    };
    let state = status.state.take().unwrap_or_default();
    if state.running.is_some() {
        status.state = Some(state);
        return;
    }
    if state.terminated.is_some() {
        status.last_state = Some(state);
    }
    let message = Some(why.message.clone()).filter(|message| !message.is_empty());
    status.state = Some(waiting(&why.reason, message));
}

/// At the pod's end a container that waited to run again is told to have ended as it did last.
fn take_last_end(status: &mut ContainerStatus) {
    let ended = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    if !ended && has_ended_before(status) {
        status.state = status.last_state.take();
    }
}

fn end_in_the_open(status: &mut ContainerStatus) {
    let ended = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    if !ended {
        status.state = Some(unknown_end(status.container_id.clone(), GONE_AT_END_MESSAGE));
    }
}

/// Readiness, resources, mounts, user.
fn finish(inputs: &Inputs<'_>, kind: Kind, container: &Container, status: &mut ContainerStatus) {
    let running = inputs
        .observed
        .newest(&container.name)
        .filter(|newest| newest.state == Observed::Running && !inputs.state.has_ended())
        .filter(|_| !inputs.starting.contains(&container.name));
    let state = status.state.clone().unwrap_or_default();
    match running {
        // Nothing probes it, and nobody asks whether it serves.
        _ if kind == Kind::Ephemeral => {}
        Some(newest) => {
            let started = inputs.outcomes.started(container, &newest.id);
            status.started = Some(started);
            status.ready = kind != Kind::Init && inputs.outcomes.ready(container, &newest.id);
            let applied = inputs.resize.applied.containers.get(&container.name);
            status.resources = applied.or(container.resources.as_ref()).cloned();
            status.allocated_resources = container.resources.as_ref().and_then(|r| r.requests.clone());
        }
        None => {
            status.started = Some(false);
            status.ready = kind == Kind::Init && state.terminated.is_some_and(|t| t.exit_code == 0);
        }
    }
    let newest = inputs.observed.newest(&container.name);
    let told = newest.filter(|_| inputs.stop_signals);
    status.stop_signal = told.and_then(|newest| newest.stop_signal.clone());
    let user = newest.and_then(|newest| newest.user.clone());
    status.user = user.map(|(uid, gid, supplemental)| ContainerUser {
        linux: Some(LinuxContainerUser {
            uid,
            gid,
            supplemental_groups: Some(supplemental).filter(|s| !s.is_empty()),
        }),
    });
    status.volume_mounts = container.volume_mounts.as_ref().map(|mounts| {
        let told = |mount: &k8s_openapi::api::core::v1::VolumeMount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            recursive_read_only: mount.read_only.filter(|read_only| *read_only).map(|_| {
                let recursive = spec::recursive_read_only(mount, inputs.recursive_read_only);
                let mode = if recursive == Ok(true) { "Enabled" } else { "Disabled" };
                mode.to_owned()
            }),
            ..VolumeMountStatus::default()
        };
        mounts.iter().map(told).collect()
    });
}
