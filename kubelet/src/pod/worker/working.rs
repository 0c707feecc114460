//! How long a worker works at its pod: from the first thing under way to nothing being under way any more. Its turns themselves
//! wait for nothing, so that is what upstream's time of a sync is.

use super::{Desired, Worker};
use crate::metrics::Work;
use crate::pod::operation::Key;
use crate::pod::state::PodState;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;
use tokio::time::Instant;

/// How far the pod's life is: work of two stages is never one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Ending,
    Over,
}

fn stage_of(state: &PodState) -> Stage {
    match state {
        PodState::Syncing => Stage::Running,
        PodState::Terminating(_) => Stage::Ending,
        PodState::Terminated(_) | PodState::Released(_) => Stage::Over,
    }
}

/// Measures one worker's work.
#[derive(Debug, Default)]
pub(super) struct Working {
    /// Since when something is under way, and what for.
    since: Option<(Instant, Work, Stage)>,
    /// The revision of the pod that it worked at last, if it has worked; pods of files have none.
    at: Option<Option<String>>,
}

impl Working {
    /// Takes what is the case after a turn; returns what was done until now, if that is over.
    fn take(&mut self, now: Instant, busy: bool, state: &PodState, pod: &Pod) -> Option<(Work, Duration)> {
        let (stage, revision) = (stage_of(state), &pod.metadata.resource_version);
        let over = self.since.filter(|(.., begun_in)| !busy || *begun_in != stage);
        if over.is_some() {
            self.since = None;
        }
        if busy && self.since.is_none() {
            let work = match (stage, &self.at) {
                (Stage::Ending, _) => Work::Kill,
                (Stage::Over, _) => Work::Terminated,
                (Stage::Running, None) => Work::Create,
                (Stage::Running, Some(at)) if at == revision => Work::Sync,
                (Stage::Running, Some(_)) => Work::Update,
            };
            self.at = Some(revision.clone());
            self.since = Some((now, work, stage));
        }
        over.map(|(since, work, _)| (work, now - since))
    }
}

impl Worker {
    /// Counts work that is over.
    pub(super) fn count_work(&mut self, desired: &Desired) {
        let busy = self.running.keys().any(|key| *key != Key::Observe);
        if let Some((work, took)) = self.working.take(Instant::now(), busy, &self.state, &desired.pod) {
            self.shared.parts.metrics.pods.worked(work, took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::state::{Cause, Termination};

    #[test]
    fn work_is_named_by_what_it_is_for_and_told_when_it_is_over() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let (pod, mut newer) = (Pod::default(), Pod::default());
        newer.metadata.resource_version = Some("2".to_owned());
        let syncing = PodState::Syncing;
        let termination = Termination {
            cause: Cause::Deleted,
            since: jiff::Timestamp::UNIX_EPOCH,
            grace_seconds: 0,
        };
        let (ending, over) = (
            PodState::Terminating(termination.clone()),
            PodState::Terminated(termination),
        );
        let mut working = Working::default();
        let done = |work, seconds| Some((work, Duration::from_secs(seconds)));
        for (second, busy, state, pod, expected) in [
            (0, false, &syncing, &pod, None),
            (1, true, &syncing, &pod, None),
            (2, true, &syncing, &pod, None),
            (4, false, &syncing, &pod, done(Work::Create, 3)),
            (5, true, &syncing, &pod, None),
            (6, false, &syncing, &pod, done(Work::Sync, 1)),
            (7, true, &syncing, &newer, None),
            (9, false, &syncing, &newer, done(Work::Update, 2)),
            (10, false, &syncing, &newer, None),
            (11, true, &ending, &newer, None),
            // What follows without a pause is other work.
            (14, true, &over, &newer, done(Work::Kill, 3)),
            (15, false, &over, &newer, done(Work::Terminated, 1)),
        ] {
            assert_eq!(working.take(at(second), busy, state, pod), expected, "second {second}");
        }
    }
}
