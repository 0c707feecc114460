//! Which operations of a pod should be running now. Pure.
//!
//! [`plan`] is asked on every turn of the worker and always answers in full: an operation that is already running is named
//! again (and kept), one that is no longer named ends as its kind does. It never acts on an observation older than the last
//! operation: while [`Memory::stale`] stands it asks for a look and nothing else.

mod changes;
mod containers;
mod crash;
mod ending;
mod garbage;
mod resize;
mod restart_all;
mod sandbox;
mod stopping;
#[cfg(test)]
mod tests;

use super::backoff::Bounds;
use super::memory::{Change, Memory, Waiting};
use super::operation::{Key, Operation};
use super::state::PodState;
use crate::collect::Garbage;
use crate::pod_object;
use crate::probe::outcome::Outcomes;
use crate::runtime::observed::ObservedPod;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// An operation under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// For a stop and its hook: when its grace runs out.
    pub grace_ends: Option<Timestamp>,
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The desired pod, as last delivered.
    pub pod: &'a Pod,
    /// Whether its source still has it.
    pub present: bool,
    /// Where it is in its life.
    pub state: &'a PodState,
    /// What the runtime has of it; `None` before the first look.
    pub observed: Option<&'a ObservedPod>,
    /// Its probes' outcomes.
    pub outcomes: &'a Outcomes,
    /// The operations under way.
    pub in_flight: &'a BTreeMap<Key, InFlight>,
    /// The worker's memory.
    pub memory: &'a Memory,
    /// Whether pods with a network of their own can be started.
    pub network_ready: bool,
    /// When the pod was first accepted here (`status.startTime`).
    pub start_time: Option<Timestamp>,
    /// The bounds of crash back-offs.
    pub crash: Bounds,
    /// What of dead containers and sandboxes is to go, beside what is seen here.
    pub garbage: &'a Garbage,
    /// The time.
    pub now: Timestamp,
}

/// A step forward in the pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Its containers are done.
    Complete,
    /// It was active for longer than its deadline.
    DeadlineExceeded,
    /// Everything stopped.
    Stopped,
    /// Everything is released.
    Released,
    /// Nothing is left of it: the worker ends.
    Finished,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What should be running now.
    pub operations: Vec<Operation>,
    /// What the memory holds once those of them that are not running yet have begun.
    pub changes: Vec<Change>,
    /// When to ask again even if nothing happens.
    pub wake_at: Option<Timestamp>,
    /// A step forward to take, then ask again.
    pub advance: Option<Advance>,
    /// Why containers that should run do not, for the status.
    pub waiting: BTreeMap<String, Waiting>,
    /// Containers whose start is not over while their process runs: their postStart hook has not worked yet.
    pub starting: BTreeSet<String>,
    /// Whether containers or the pod's cgroup have other resources than the pod was given.
    pub resizing: bool,
    /// Whether nothing of that is under way or unknown.
    pub is_settled: bool,
}

/// Plans one turn.
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    let mut draft = Draft {
        inputs: *inputs,
        plan: Plan::default(),
        holds_starts: false,
    };
    let Some(observed) = inputs.observed else {
        draft.attempt(Operation::Observe);
        return draft.plan;
    };
    draft.plan.resizing = resize::differs(inputs, observed);
    if inputs.memory.stale {
        draft.attempt(Operation::Observe);
        draft.keep_in_flight();
        return draft.plan;
    }
    changes::forget_gone(&mut draft, observed);
    changes::note_interrupted(&mut draft, observed);
    match inputs.state {
        PodState::Syncing => draft.sync(observed),
        PodState::Terminating(termination) => ending::terminating(&mut draft, observed, termination),
        PodState::Terminated(_) => ending::terminated(&mut draft),
        PodState::Released(_) => ending::released(&mut draft, observed),
    }
    draft.plan
}

/// A plan being written.
struct Draft<'a> {
    inputs: Inputs<'a>,
    plan: Plan,
    /// A resize of the pod's cgroup comes before its containers' starts.
    holds_starts: bool,
}

impl<'a> Draft<'a> {
    fn sync(&mut self, observed: &'a ObservedPod) {
        if self.deadline_passed() {
            self.plan.advance = Some(Advance::DeadlineExceeded);
            return;
        }
        if restart_all::is_under_way(self.inputs.pod, observed) {
            restart_all::clear(self, observed);
            return;
        }
        if containers::is_done(&self.inputs, observed) || sandbox::is_lost_for_good(&self.inputs, observed) {
            self.plan.advance = Some(Advance::Complete);
            return;
        }
        if !self.inputs.memory.prepared {
            self.attempt(Operation::Prepare);
        }
        if !self.inputs.memory.volumes_ready && self.inputs.memory.prepared {
            self.attempt(Operation::Volumes);
        }
        let sandbox = sandbox::decide(self, observed);
        resize::resize(self, observed);
        containers::start_and_stop(self, observed, sandbox);
        garbage::prune(self, observed);
    }

    fn deadline_passed(&mut self) -> bool {
        let Some(limit) = pod_object::spec(self.inputs.pod).active_deadline_seconds else {
            return false;
        };
        let Some(start) = self.inputs.start_time else {
            return false;
        };
        let ends = start
            .saturating_add(SignedDuration::from_secs(limit))
            .unwrap_or(Timestamp::MAX);
        if self.inputs.now >= ends {
            return true;
        }
        self.wake(ends);
        false
    }

    /// Asks for an operation unless it failed a moment ago; then asks to be woken when it may be tried again.
    fn attempt(&mut self, operation: Operation) -> bool {
        let key = operation.key();
        if !self.is_running(&key)
            && let Some(again) = self.inputs.memory.not_before(&key, self.inputs.now)
        {
            self.wake(again);
            return false;
        }
        self.begin(operation);
        true
    }

    /// Names an operation, and what follows from it if it is not running yet.
    fn begin(&mut self, operation: Operation) {
        if !self.is_running(&operation.key()) {
            changes::note(self, &operation);
        }
        self.plan.operations.push(operation);
    }

    fn wake(&mut self, at: Timestamp) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn is_running(&self, key: &Key) -> bool {
        self.inputs.in_flight.contains_key(key)
    }

    /// Names what is in flight again where the plan cannot judge it, so that nothing is cancelled for lack of a look.
    fn keep_in_flight(&mut self) {
        for key in self.inputs.in_flight.keys() {
            if let Key::Image(container, image) = key {
                self.plan.operations.push(Operation::PrepareImage {
                    container: container.clone(),
                    image: image.clone(),
                });
            }
            if *key == Key::Volumes {
                self.plan.operations.push(Operation::Volumes);
            }
        }
    }
}

pub use containers::has_sandbox;
pub use restart_all::is_under_way as restarts_all;
