//! Whose turn it is to end, and for how long is waited (kubelet contract §10, KEP-2000, KEP-2712). Pure.
//!
//! Pods end group by group, those of the lowest priority first. A group has its period, and all of them together have no longer
//! than the periods' sum from the beginning on, whatever kubelets were in between: that is what logind grants.

use crate::id::PodUid;
use client::ordered::Arrange;
use std::time::Duration;

/// Where priorities of the cluster's own pods begin (`system-cluster-critical`).
const CRITICAL: i32 = 2_000_000_000;

/// The time that pods from one priority on have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The lowest priority it is for. Pods below every period's are in the first.
    pub priority: i32,
    /// How long they may take, and the next are waited with; whole seconds.
    pub length: Duration,
}

/// The periods in their order; none: machines go down without their pods being ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Periods(Vec<Period>);

/// A pod that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) uid: PodUid,
    pub(super) priority: i32,
}

/// How far a shutdown is. Times are since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Course {
    /// The group that ends now.
    group: usize,
    /// Since when.
    since: Duration,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// Whom to end, with which grace at most, seconds.
    pub(super) ends: Vec<(PodUid, i64)>,
    /// How long is waited for them at most; nothing once there is nobody left to wait for.
    pub(super) until: Option<Duration>,
    /// Those that nobody waits for any more.
    pub(super) given_up: Vec<PodUid>,
}

impl Course {
    /// That of a kubelet that begins now, or takes up what another began.
    pub(super) fn since(elapsed: Duration) -> Self {
        Self {
            group: 0,
            since: elapsed,
        }
    }
}

impl Periods {
    /// `shutdownGracePeriodByPodPriority`.
    pub fn by_priority(mut periods: Vec<Period>) -> Self {
        periods.arrange_by_key(|period| period.priority);
        Self(periods)
    }

    /// `shutdownGracePeriod` in all, of which `shutdownGracePeriodCriticalPods` are for critical pods.
    pub fn of_kinds(all: Duration, critical: Duration) -> Self {
        let Some(others) = all.checked_sub(critical).filter(|_| !all.is_zero()) else {
            return Self::default();
        };
        let period = |priority, length: Duration| Period {
            priority,
            length: Duration::from_secs(length.as_secs()),
        };
        Self(vec![period(0, others), period(CRITICAL, critical)])
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them together: what logind must grant.
    pub fn total(&self) -> Duration {
        self.0.iter().map(|period| period.length).sum()
    }

    /// The group of a priority: that of the nearest period at or below it, or the first.
    fn group_of(&self, priority: i32) -> usize {
        let above = self.0.partition_point(|period| period.priority < priority);
        match self.0.get(above) {
            Some(period) if period.priority == priority => above,
            _ => above.saturating_sub(1),
        }
    }

    /// When the group's time is over that ends since then.
    fn deadline(&self, course: &Course) -> Duration {
        let length = self.0.get(course.group).map_or(Duration::ZERO, |period| period.length);
        let together: Duration = self.0.iter().take(course.group + 1).map(|period| period.length).sum();
        (course.since + length).min(together.max(course.since))
    }
}

/// Goes on with a shutdown that began `elapsed` ago: past every group that has ended or had its time. Whoever has not ended and had
/// its turn is told each time, so that nobody is forgotten who was let in at the last moment.
pub(super) fn turn(periods: &Periods, course: &mut Course, pods: &[Candidate], elapsed: Duration) -> Turn {
    let in_group = |group: usize| {
        let of_group = move |pod: &&Candidate| periods.group_of(pod.priority) == group;
        pods.iter().filter(of_group)
    };
    let mut turn = Turn {
        ends: Vec::new(),
        until: None,
        given_up: Vec::new(),
    };
    for (group, period) in periods.0.iter().enumerate().take(course.group) {
        let grace_seconds = i64::try_from(period.length.as_secs()).unwrap_or(i64::MAX);
        turn.ends
            .extend(in_group(group).map(|pod| (pod.uid.clone(), grace_seconds)));
    }
    while course.group < periods.0.len() {
        let deadline = periods.deadline(course);
        let grace = deadline.saturating_sub(course.since);
        let grace_seconds = i64::try_from(grace.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let ends = in_group(course.group).map(|pod| (pod.uid.clone(), grace_seconds));
        turn.ends.extend(ends);
        let some_left = in_group(course.group).next().is_some();
        if some_left && elapsed < deadline {
            turn.until = Some(deadline);
            return turn;
        }
        turn.given_up.extend(in_group(course.group).map(|pod| pod.uid.clone()));
        *course = Course {
            group: course.group + 1,
            since: elapsed,
        };
    }
    turn
}

#[cfg(test)]
mod tests;
