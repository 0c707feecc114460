//! Where a pod is in its life on this node. States only move forward; this module alone makes them.
//!
//! ```text
//!   Syncing ──terminate──> Terminating ──stopped──> Terminated ──released──> Released ──(object gone)──> worker ends
//! ```

use super::grace;
use crate::node_shutdown::Phase;
use crate::pod_object;
use crate::reason;
use crate::runtime::observed::ObservedPod;
use crate::volume::{Ending, Failed};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

/// Reasons of pods that fail for the node's sake. What made them fail may be over when the next kubelet looks.
pub(super) const BY_NODE: [&str; 3] = [reason::pod::EVICTED, reason::pod::PREEMPTING, reason::pod::TERMINATED];

/// Why a pod must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its object has a deletion timestamp.
    Deleted,
    /// Its object is gone.
    Removed,
    /// Its containers are done: the phase follows from their exit codes.
    Completed,
    /// The node ends it, and it counts as failed, for this reason and with this message.
    Failed {
        /// Pod-level reason, such as `Evicted` or `DeadlineExceeded`.
        reason: String,
        /// Pod-level message.
        message: String,
    },
    /// It uses more of the node's storage than it may: failed as evicted, but nobody disrupted it.
    StorageExceeded {
        /// Pod-level message.
        message: String,
    },
    /// The runtime has it, no source does.
    Orphaned,
}

/// A pod's way to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    /// Why.
    pub cause: Cause,
    /// When it began.
    pub since: Timestamp,
    /// The grace its containers have from then on, seconds; it only ever shrinks.
    pub grace_seconds: i64,
}

/// The pod's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodState {
    /// It is to run.
    Syncing,
    /// Its containers are being stopped.
    Terminating(Termination),
    /// Nothing of it runs; its volumes and cgroup are being released.
    Terminated(Termination),
    /// Nothing is held for it but dead containers, their logs and the stopped sandbox.
    Released(Termination),
}

impl Termination {
    /// The mark by which the next kubelet goes on with it.
    pub(super) fn mark(&self) -> Ending {
        let storage_exceeded = match &self.cause {
            Cause::StorageExceeded { message } => Some(message.clone()),
            _ => None,
        };
        let failed = match &self.cause {
            Cause::Failed { reason, message } if BY_NODE.contains(&reason.as_str()) => Some(Failed {
                reason: reason.clone(),
                message: message.clone(),
            }),
            _ => None,
        };
        Ending {
            since: self.since,
            grace_seconds: self.grace_seconds,
            storage_exceeded,
            failed,
        }
    }
}

impl PodState {
    /// The termination, once there is one.
    pub fn termination(&self) -> Option<&Termination> {
        match self {
            Self::Syncing => None,
            Self::Terminating(t) | Self::Terminated(t) | Self::Released(t) => Some(t),
        }
    }

    /// Whether nothing of the pod can run any more, so that a terminal phase may be told.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Terminated(_) | Self::Released(_))
    }

    /// Moves to terminating, or shortens the grace of a termination under way; the first cause stays, except that
    /// deletion replaces whatever let the pod keep its object.
    pub fn terminate(&mut self, cause: Cause, pod: &Pod, override_seconds: Option<i64>, now: Timestamp) {
        let grace_seconds = grace::pod_seconds(pod, override_seconds);
        match self {
            Self::Syncing => {
                *self = Self::Terminating(Termination {
                    cause,
                    since: now,
                    grace_seconds,
                })
            }
            Self::Terminating(t) => {
                t.grace_seconds = grace::shorten(t.grace_seconds, t.since, grace_seconds, now);
            }
            Self::Terminated(_) | Self::Released(_) => {}
        }
    }

    /// Whether what an earlier kubelet marked is to go on. A pod of a file that ended because the machine went down runs again once
    /// that is up; that it is another boot shows in nothing of the pod running, and in the machine not going down any more.
    pub(super) fn resumes(mark: &Ending, pod: &Pod, observed: &ObservedPod, phase: Phase) -> bool {
        let by_shutdown = mark
            .failed
            .as_ref()
            .is_some_and(|failed| failed.reason == reason::pod::TERMINATED);
        !(by_shutdown && pod_object::is_static(pod) && observed.is_stopped() && phase == Phase::Up)
    }

    /// Goes on with an end that an earlier kubelet began: what has passed of its grace has passed. A pod that ends for no other
    /// reason ends for the one that is marked, if that is not seen again by itself.
    pub(super) fn resume(&mut self, mark: &Ending, pod: &Pod, now: Timestamp) {
        if let Some(message) = &mark.storage_exceeded {
            let message = message.clone();
            self.terminate(Cause::StorageExceeded { message }, pod, Some(mark.grace_seconds), now);
        }
        if let Some(Failed { reason, message }) = &mark.failed {
            let (reason, message) = (reason.clone(), message.clone());
            self.terminate(Cause::Failed { reason, message }, pod, Some(mark.grace_seconds), now);
        }
        if let Self::Terminating(t) = self
            && mark.since < t.since
        {
            t.grace_seconds = grace::shorten(mark.grace_seconds, mark.since, t.grace_seconds, now);
            t.since = mark.since;
        }
    }

    /// Everything stopped.
    pub(super) fn stopped(&mut self) {
        if let Self::Terminating(t) = self {
            *self = Self::Terminated(t.clone());
        }
    }

    /// Everything released.
    pub(super) fn released(&mut self) {
        if let Self::Terminated(t) = self {
            *self = Self::Released(t.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{at, observed, pod};

    #[test]
    fn what_a_shutdown_ended_of_a_file_is_not_ended_at_the_next_boot() {
        let of_api = pod("p").build();
        let mut of_file = of_api.clone();
        let annotation = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
        of_file.metadata.annotations = Some([annotation].into());
        let mark = |reason: &str| Ending {
            since: at(80),
            grace_seconds: 30,
            storage_exceeded: None,
            failed: Some(Failed {
                reason: reason.to_owned(),
                message: "the machine goes down".to_owned(),
            }),
        };
        let left = observed("p").sandbox(false).exited("c", 137, 90).build();
        let runs = observed("p").sandbox(true).running("c").build();
        for (pod, reason, observed, phase, expected) in [
            (&of_file, "Terminated", &left, Phase::Up, false),
            (&of_file, "Terminated", &left, Phase::ShuttingDown, true),
            (&of_file, "Terminated", &runs, Phase::Up, true),
            (&of_file, "Evicted", &left, Phase::Up, true),
            (&of_api, "Terminated", &left, Phase::Up, true),
        ] {
            assert_eq!(
                PodState::resumes(&mark(reason), pod, observed, phase),
                expected,
                "{reason} {expected}"
            );
        }
    }

    #[test]
    fn an_end_begun_before_a_restart_goes_on() {
        let pod = pod("p").build();
        let resumed = |state: &mut PodState, since, grace| {
            state.terminate(Cause::Deleted, &pod, None, at(100));
            let mark = Ending {
                since: at(since),
                grace_seconds: grace,
                storage_exceeded: None,
                failed: None,
            };
            state.resume(&mark, &pod, at(100));
            state.termination().map(|t| (t.since, t.grace_seconds))
        };
        assert_eq!(resumed(&mut PodState::Syncing, 80, 30), Some((at(80), 30)));
        assert_eq!(
            resumed(&mut PodState::Syncing, 80, 300),
            Some((at(80), 50)),
            "the pod's own grace is shorter by now"
        );
        assert_eq!(
            resumed(&mut PodState::Syncing, 200, 5),
            Some((at(100), 30)),
            "the clock went back: the mark says nothing"
        );
        let mut mark = Ending {
            since: at(80),
            grace_seconds: 30,
            storage_exceeded: None,
            failed: None,
        };
        let mut state = PodState::Syncing;
        state.resume(&mark, &pod, at(100));
        assert_eq!(state, PodState::Syncing, "what does not end is not ended");
        mark.storage_exceeded = Some("too much".to_owned());
        state.resume(&mark, &pod, at(100));
        assert_eq!(
            state.termination().map(Termination::mark),
            Some(mark),
            "but what was evicted is"
        );
    }

    #[test]
    fn a_pod_that_had_to_go_goes_on_though_the_node_recovered() {
        let pod = pod("p").build();
        let failed = |reason: &str| Cause::Failed {
            reason: reason.to_owned(),
            message: "the node was low".to_owned(),
        };
        let mut state = PodState::Syncing;
        state.terminate(failed("Evicted"), &pod, Some(1), at(100));
        let mark = state.termination().map(Termination::mark).expect("a mark");
        let mut next = PodState::Syncing;
        next.resume(&mark, &pod, at(200));
        let cause = next.termination().map(|t| t.cause.clone());
        assert_eq!(cause, Some(failed("Evicted")));
        let mut state = PodState::Syncing;
        state.terminate(failed("DeadlineExceeded"), &pod, None, at(100));
        assert_eq!(
            state.termination().and_then(|t| t.mark().failed),
            None,
            "seen again by itself"
        );
    }

    #[test]
    fn states_only_move_forward_and_grace_only_shrinks() {
        let pod = pod("p").build();
        let mut state = PodState::Syncing;
        state.terminate(Cause::Deleted, &pod, None, at(0));
        assert_eq!(state.termination().map(|t| t.grace_seconds), Some(30));
        state.terminate(Cause::Removed, &pod, Some(60), at(1));
        assert_eq!(state.termination().map(|t| t.grace_seconds), Some(30));
        state.terminate(Cause::Removed, &pod, Some(2), at(1));
        assert_eq!(
            state.termination().map(|t| (t.cause.clone(), t.grace_seconds)),
            Some((Cause::Deleted, 3))
        );
        state.released();
        assert!(matches!(state, PodState::Terminating(_)), "cannot skip a state");
        state.stopped();
        state.terminate(Cause::Removed, &pod, None, at(9));
        assert!(matches!(state, PodState::Terminated(_)));
        state.released();
        assert!(state.has_ended() && matches!(state, PodState::Released(_)));
    }
}
