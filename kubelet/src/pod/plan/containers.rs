//! Which containers to start, to keep, to stop, to wait for.

use super::stopping::{self, Wanted};
use super::{Draft, Inputs, crash, sandbox};
use crate::id::ContainerId;
use crate::planted::{self, Fault};
use crate::pod::hook::declared;
use crate::pod::memory::{ImageFailure, ImageState, PostStart, Waiting};
use crate::pod::operation::{Key, Operation, StopReason};
use crate::pod::spec::container_hash;
use crate::pod::{grace, state};
use crate::pod_object::{self, Kind};
use crate::probe::outcome::Kind as ProbeKind;
use crate::reason;
use crate::runtime::observed::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox};
use client::ordered::CollectOrdered;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeSet;

/// How long a failed pull is told as itself before it is told as a back-off.
const PULL_ERROR_SHOWN: SignedDuration = SignedDuration::from_secs(2);

/// How a pull fails; other reasons are about an image that was never asked for.
const PULL_FAILURES: [&str; 3] = [
    reason::waiting::ERR_IMAGE_PULL,
    reason::waiting::REGISTRY_UNAVAILABLE,
    reason::waiting::SIGNATURE_VALIDATION_FAILED,
];

/// What is to happen to one container.
#[derive(Debug)]
enum Fate {
    /// It runs, and goes on.
    Keep,
    /// An operation on it is under way.
    Busy,
    /// It runs, but its start is over only with its postStart hook.
    Hook,
    /// It is to be started.
    Start,
    /// It is to be started at that time.
    Wait(Timestamp, Waiting),
    /// It is to be stopped.
    Stop(StopReason),
    /// It ended for good.
    Done(i32),
}

/// Whether every container ended for good, or an init container did in failure.
pub(super) fn is_done(inputs: &Inputs<'_>, observed: &ObservedPod) -> bool {
    if inputs.in_flight.keys().any(Key::starts_something) {
        return false;
    }
    let regulars = pod_object::regulars(inputs.pod);
    let ended = |container: &Container| {
        matches!(
            fate(inputs, Kind::Regular, container, observed.newest(&container.name)),
            Fate::Done(_)
        )
    };
    if !regulars.is_empty() && regulars.iter().all(ended) {
        return true;
    }
    let any_regular_ran = regulars.iter().any(|c| observed.newest(&c.name).is_some());
    !any_regular_ran
        && pod_object::inits(inputs.pod).iter().any(|container| {
            let kind = pod_object::kind_of_init(container);
            let newest = observed.newest(&container.name);
            matches!(fate(inputs, kind, container, newest), Fate::Done(code) if code != 0)
        })
}

/// Starts what should run and may, in order, and stops what should not.
pub(super) fn start_and_stop(draft: &mut Draft<'_>, observed: &ObservedPod, sandbox: Option<&ObservedSandbox>) {
    let mut walk = Walk {
        draft,
        observed,
        sandbox,
        blocked: false,
    };
    walk.look_in();
    if walk.initialize() {
        for container in pod_object::regulars(walk.draft.inputs.pod) {
            walk.step(Kind::Regular, container);
        }
    }
}

struct Walk<'d, 'a, 'o> {
    draft: &'d mut Draft<'a>,
    observed: &'o ObservedPod,
    sandbox: Option<&'o ObservedSandbox>,
    /// An earlier container is still on its way, so later ones are not started yet.
    blocked: bool,
}

impl<'o> Walk<'_, '_, 'o> {
    /// Starts ephemeral containers that never were, one after the other. They wait for nobody else, initialised or not, and
    /// nobody else waits for them.
    fn look_in(&mut self) {
        let ephemerals = pod_object::ephemerals(self.draft.inputs.pod);
        if self.sandbox.is_none() || ephemerals.is_empty() {
            return;
        }
        let seen: BTreeSet<&str> = self
            .observed
            .containers
            .iter()
            .map(|c| c.name.as_str())
            .collect_ordered();
        let starts = |name: &str| self.draft.is_running(&Key::Start(name.to_owned()));
        let new = ephemerals
            .iter()
            .filter(|ephemeral| !seen.contains(ephemeral.name.as_str()));
        let (under_way, new): (Vec<_>, Vec<_>) = new.partition(|ephemeral| starts(&ephemeral.name));
        self.blocked = !under_way.is_empty();
        for ephemeral in new {
            self.start(Kind::Ephemeral, &pod_object::of_ephemeral(ephemeral), None);
        }
        self.blocked = false;
    }

    /// Walks the init containers; tells whether regular containers may start.
    fn initialize(&mut self) -> bool {
        let pod = self.draft.inputs.pod;
        let inits = pod_object::inits(pod);
        let regular_alive = pod_object::regulars(pod).iter().any(|container| {
            self.here(&container.name)
                .is_some_and(|c| matches!(c.state, ContainerState::Created | ContainerState::Running))
        });
        let last = inits.iter().rposition(|container| self.here(&container.name).is_some());
        let regular_ran = pod_object::regulars(pod)
            .iter()
            .any(|container| self.here(&container.name).is_some());
        // Whatever was removed by hand below a pod that has come this far is not run again.
        let initialized = regular_alive || (last.is_none() && regular_ran);
        for (index, container) in inits.iter().enumerate() {
            let kind = pod_object::kind_of_init(container);
            let passed = initialized || last.is_some_and(|last| index < last);
            if kind == Kind::Init {
                if passed || self.is_over(container) {
                    continue;
                }
                self.step(kind, container);
                if planted::is(Fault::InitLeftOut) {
                    continue;
                }
                return false;
            }
            self.step(kind, container);
            if !passed && !self.is_started(container) {
                return false;
            }
            self.blocked = false;
        }
        true
    }

    /// The newest container of that name in the current sandbox: a new sandbox initialises anew.
    fn here(&self, name: &str) -> Option<&'o ObservedContainer> {
        let sandbox = self.sandbox?;
        self.observed
            .containers
            .iter()
            .find(|c| c.name == name && c.sandbox.as_ref().is_none_or(|id| *id == sandbox.id))
    }

    /// Whether an init container has done its work.
    fn is_over(&self, container: &Container) -> bool {
        // One that was stopped to be started anew did not do its work, however politely it ended.
        let again = self.draft.inputs.memory.restart_wanted.contains(&container.name);
        !again
            && !self.draft.is_running(&Key::Start(container.name.clone()))
            && self
                .here(&container.name)
                .is_some_and(|c| c.state == ContainerState::Exited && c.exit_code == 0)
    }

    /// Whether a sidecar has come far enough for the next container.
    fn is_started(&self, container: &Container) -> bool {
        let inputs = &self.draft.inputs;
        self.here(&container.name).is_some_and(|c| {
            c.state == ContainerState::Running
                && inputs.memory.post_start(&c.name, &c.id).is_none()
                && inputs.outcomes.started(container, &c.id)
        })
    }

    fn step(&mut self, kind: Kind, container: &Container) {
        let newest = match kind {
            Kind::Regular | Kind::Ephemeral => self.observed.newest(&container.name),
            Kind::Init | Kind::Sidecar => self.here(&container.name),
        };
        match fate(&self.draft.inputs, kind, container, newest) {
            Fate::Keep | Fate::Done(_) => {}
            Fate::Busy => {
                let key = Key::Start(container.name.clone());
                self.blocked |= self.draft.is_running(&key);
                if declared::post_start(container).is_some() {
                    self.draft.plan.starting.insert(container.name.clone());
                }
            }
            Fate::Hook => self.hook(container, newest),
            Fate::Wait(until, waiting) => {
                self.draft.wake(until);
                self.draft.plan.waiting.insert(container.name.clone(), waiting);
            }
            Fate::Stop(reason) => {
                if let Some(observed) = newest {
                    self.stop(container, observed, reason);
                }
            }
            Fate::Start => self.start(kind, container, newest),
        }
    }

    /// Runs the postStart hook; until it worked the container's start is not over, and others wait for their turn.
    fn hook(&mut self, container: &Container, newest: Option<&ObservedContainer>) {
        let Some(newest) = newest else { return };
        self.tell_last_error(&container.name);
        self.draft.plan.starting.insert(container.name.clone());
        self.draft.attempt(Operation::PostStart {
            id: newest.id.clone(),
            container: container.name.clone(),
        });
        self.blocked = true;
    }

    fn stop(&mut self, container: &Container, observed: &ObservedContainer, reason: StopReason) {
        if reason == StopReason::PostStart {
            self.draft.plan.starting.insert(container.name.clone());
            self.tell_last_error(&container.name);
        }
        let wanted = Wanted {
            container: observed,
            since: None,
            grace_seconds: probe_grace(self.draft.inputs.pod, container, &reason),
            reason,
            waits: false,
        };
        stopping::stop(self.draft, &wanted);
    }

    /// Brings a container that should start one step nearer: its image first, then the start when its turn comes.
    fn start(&mut self, kind: Kind, container: &Container, newest: Option<&ObservedContainer>) {
        let name = &container.name;
        let inputs = self.draft.inputs;
        if let Some(again) = inputs.memory.not_before(&Key::Start(name.clone()), inputs.now) {
            self.draft.wake(again);
            self.tell_last_error(name);
            return;
        }
        if self.lacks_image(container) {
            return;
        }
        self.tell_last_error(name);
        let Some(sandbox) = self.sandbox else { return };
        if self.blocked || self.draft.holds_starts || !inputs.memory.volumes_ready {
            return;
        }
        if kind == Kind::Ephemeral && self.lacks_volume(container) {
            self.draft.attempt(Operation::Volumes);
            return;
        }
        let counted = newest
            .or_else(|| self.observed.newest(name))
            .map(|c| c.restart_count.saturating_add(1));
        let least = inputs.memory.restart_count_min.get(name).copied();
        self.draft.attempt(Operation::StartContainer {
            container: name.clone(),
            kind,
            sandbox: sandbox.id.clone(),
            restart_count: counted.max(least),
        });
        self.blocked = true;
    }

    /// Has the images there that the container is made from and mounts; tells whether one is missing.
    fn lacks_image(&mut self, container: &Container) -> bool {
        let inputs = self.draft.inputs;
        let volumes = pod_object::image_volumes(inputs.pod, container);
        let mut missing = false;
        for user in std::iter::once(container).chain(&volumes) {
            match inputs.memory.image(user, inputs.now) {
                ImageState::Ready(_) => {}
                ImageState::Failed(failure) => {
                    self.draft.wake(failure.again);
                    self.tell_pull(&container.name, user, failure);
                    return true;
                }
                ImageState::Unknown => {
                    self.draft.attempt(Operation::PrepareImage {
                        container: user.name.clone(),
                        image: user.image.clone().unwrap_or_default(),
                    });
                    missing = true;
                }
            }
        }
        if missing {
            self.tell_last_error(&container.name);
            self.blocked = true;
        }
        missing
    }

    /// Whether the container came to a pod whose volumes were ready before, and mounts one that nobody did.
    fn lacks_volume(&self, container: &Container) -> bool {
        let mounted = &self.draft.inputs.memory.mounted;
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.any(|mount| !mounted.contains(&mount.name))
    }

    fn tell_last_error(&mut self, name: &str) {
        if let Some(waiting) = self.draft.inputs.memory.waiting.get(name) {
            self.draft.plan.waiting.insert(name.to_owned(), waiting.clone());
        }
    }

    /// A failed pull is first told as it failed, then as a back-off with the same text.
    fn tell_pull(&mut self, name: &str, user: &Container, failure: &ImageFailure) {
        let ImageFailure { reason, message, .. } = failure;
        let backs_off_at = failure.at.saturating_add(PULL_ERROR_SHOWN).unwrap_or(Timestamp::MAX);
        let pulled = PULL_FAILURES.contains(reason);
        let waiting = if self.draft.inputs.now < backs_off_at || !pulled {
            if pulled {
                self.draft.wake(backs_off_at);
            }
            Waiting {
                reason: (*reason).to_owned(),
                message: message.clone(),
            }
        } else {
            let image = user.image.as_deref().unwrap_or_default();
            Waiting {
                reason: reason::waiting::IMAGE_PULL_BACK_OFF.to_owned(),
                message: format!("Back-off pulling image \"{image}\": {reason}: {message}"),
            }
        };
        self.draft.plan.waiting.insert(name.to_owned(), waiting);
    }
}

fn fate(inputs: &Inputs<'_>, kind: Kind, container: &Container, newest: Option<&ObservedContainer>) -> Fate {
    if inputs.in_flight.contains_key(&Key::Start(container.name.clone())) {
        return Fate::Busy;
    }
    let Some(newest) = newest else {
        let ended = inputs.memory.ended.get(&container.name);
        let ended = ended.filter(|_| kind == Kind::Regular && !planted::is(Fault::EndForgotten));
        return ended.map_or(Fate::Start, |code| Fate::Done(*code));
    };
    match newest.state {
        ContainerState::Created => Fate::Start,
        ContainerState::Unknown => Fate::Stop(StopReason::Unknown),
        ContainerState::Running if newest.restart_count == 0 && planted::is(Fault::StartedTwice) => Fate::Start,
        ContainerState::Running => running(inputs, container, newest),
        ContainerState::Exited => exited(inputs, kind, container, newest),
    }
}

fn running(inputs: &Inputs<'_>, container: &Container, newest: &ObservedContainer) -> Fate {
    // A container that was told to end by its hook ends, even if it would be let live now.
    if let Some(stop) = inputs.memory.stops.get(&newest.id).filter(|stop| stop.hook) {
        return Fate::Stop(stop.reason.clone());
    }
    match inputs.memory.post_start(&container.name, &newest.id) {
        Some(PostStart::Due) => return Fate::Hook,
        Some(PostStart::Failed) => return Fate::Stop(StopReason::PostStart),
        None => {}
    }
    let changed = newest
        .hash
        .as_ref()
        .is_some_and(|hash| *hash != container_hash(container));
    if changed {
        return Fate::Stop(StopReason::Changed);
    }
    if inputs.memory.applied.needs_restart(container) {
        return Fate::Stop(StopReason::Resize);
    }
    match inputs.outcomes.failed(container, &newest.id) {
        Some(ProbeKind::Startup) => Fate::Stop(StopReason::Startup),
        Some(_) => Fate::Stop(StopReason::Liveness),
        None => Fate::Keep,
    }
}

fn exited(inputs: &Inputs<'_>, kind: Kind, container: &Container, newest: &ObservedContainer) -> Fate {
    if is_interrupted(inputs, newest) {
        return Fate::Start;
    }
    let wanted = inputs.memory.restart_wanted.contains(&container.name);
    if !wanted && !pod_object::restarts(inputs.pod, kind, container, newest.exit_code) {
        return Fate::Done(newest.exit_code);
    }
    match crash::wait(inputs, container, newest) {
        Some((until, waiting)) => Fate::Wait(until, waiting),
        None => Fate::Start,
    }
}

/// Whether a container never ran because an earlier kubelet died over its start, which the runtime then gave up: nothing failed in this
/// kubelet, and nobody was told of an end. Its policy is about ends, and this was none.
pub(super) fn is_interrupted(inputs: &Inputs<'_>, container: &ObservedContainer) -> bool {
    let ObservedContainer { id, name, .. } = container;
    if container.state != ContainerState::Exited || container.started_at.is_some() {
        return false;
    }
    let failed_here =
        inputs.in_flight.contains_key(&Key::Start(name.clone())) || inputs.memory.waiting.contains_key(name);
    inputs.memory.interrupted.contains(id) || !(failed_here || is_told(inputs.pod, id))
}

/// Whether the end of a container stands in the pod's status.
fn is_told(pod: &Pod, id: &ContainerId) -> bool {
    let status = pod.status.iter();
    let statuses = status.flat_map(|s| s.init_container_statuses.iter().chain(&s.container_statuses).flatten());
    let mut states = statuses.flat_map(|status| status.state.iter().chain(&status.last_state));
    states.any(|state| {
        let ended = state.terminated.as_ref().and_then(|end| end.container_id.as_deref());
        ended.is_some_and(|ended| ended.ends_with(id.as_str()))
    })
}

/// The grace of a stop that is not the pod's end.
fn probe_grace(pod: &Pod, container: &Container, reason: &StopReason) -> i64 {
    let probe = match reason {
        StopReason::Liveness => container.liveness_probe.as_ref(),
        StopReason::Startup => container.startup_probe.as_ref(),
        _ => None,
    };
    let own = probe.and_then(|probe| probe.termination_grace_period_seconds);
    own.unwrap_or_else(|| grace::pod_seconds(pod, None))
}

/// Whether the pod can be told to be ready for containers: it needs no new sandbox.
pub fn has_sandbox(pod: &Pod, state: &state::PodState, observed: &ObservedPod) -> bool {
    !state.has_ended() && sandbox::usable(pod, observed).is_some()
}
