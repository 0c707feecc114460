//! Which member of the cluster is asked: the one that answered last, and after a failure the next, with a pause for those that fail.
//! One that answers late is left for the next, too, but asked again whenever the others are no better.
//!
//! Owns what is known of each member's health; pure but for the clock it is given.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Pause after a failure: the first, and the longest.
const REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Who takes so long for an answer is slow: what is asked takes milliseconds, a disk's or an election's bad moment apart.
const SLOW: Duration = Duration::from_secs(1);

/// The health of the members, by their number.
pub(crate) struct Members {
    state: Mutex<State>,
}

struct State {
    preferred: usize,
    /// Until when each is not asked, and its last pause.
    resting: Vec<Option<(Instant, Duration)>>,
    /// Whether its last answer was late.
    is_slow: Vec<bool>,
    /// Whether it has other data than the others.
    is_out: Vec<bool>,
}

impl Members {
    /// So many, none of which is known to be ill.
    pub(crate) fn new(count: usize) -> Self {
        let state = State {
            preferred: 0,
            resting: vec![None; count],
            is_slow: vec![false; count],
            is_out: vec![false; count],
        };
        Self {
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom to ask now, or the one that may be asked first and when.
    pub(crate) fn choose(&self, now: Instant) -> (usize, Instant) {
        let state = self.state();
        let count = state.resting.len();
        let order = (0..count).map(|offset| (state.preferred + offset) % count);
        let free = |member: usize| state.resting[member].map_or(now, |(until, _)| until.max(now));
        // The first of those that are free soonest; who is left out, only where there is nobody else.
        let chosen = order.min_by_key(|member| (state.is_out[*member], free(*member)));
        let chosen = chosen.unwrap_or(0);
        (chosen, free(chosen))
    }

    /// It answered so long after it was asked, whatever it said.
    pub(crate) fn answered(&self, member: usize, took: Duration) {
        let mut state = self.state();
        state.resting[member] = None;
        state.is_slow[member] = took >= SLOW;
        if took < SLOW {
            state.preferred = member;
        } else if state.preferred == member {
            // Where all are slow each has a turn: none of them is to blame, or nobody knows who is.
            state.preferred = (member + 1) % state.resting.len();
        }
    }

    /// Whether a member is slow, and another is asked for that.
    pub(crate) fn is_left(&self, member: usize) -> bool {
        let state = self.state();
        state.is_slow[member] && !state.is_slow[state.preferred]
    }

    /// Leaves a member out, or takes it back; whether that is new.
    pub(crate) fn leave_out(&self, member: usize, is_out: bool) -> bool {
        let mut state = self.state();
        std::mem::replace(&mut state.is_out[member], is_out) != is_out
    }

    /// Whether a member is left out.
    pub(crate) fn is_out(&self, member: usize) -> bool {
        self.state().is_out[member]
    }

    /// It did not answer, or cannot serve.
    pub(crate) fn failed(&self, member: usize, now: Instant) {
        let mut state = self.state();
        if state.preferred == member {
            state.preferred = (member + 1) % state.resting.len();
        }
        if state.resting[member].is_some_and(|(until, _)| now < until) {
            // Begun before it failed the last time: requests that fail together are one failure.
            return;
        }
        let pause = state.resting[member].map_or(REST.0, |(_, pause)| (pause * 2).min(REST.1));
        state.resting[member] = Some((now + pause, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_that_fail_rest_ever_longer_and_one_that_answers_is_kept() {
        let members = Members::new(3);
        let start = Instant::now();
        assert_eq!(members.choose(start), (0, start));
        members.failed(0, start);
        assert_eq!(members.choose(start), (1, start));
        members.answered(1, Duration::ZERO);
        assert_eq!(
            members.choose(start + REST.1),
            (1, start + REST.1),
            "not back to the first"
        );
        for member in [1, 2] {
            members.failed(member, start);
        }
        let until = start + REST.0;
        assert_eq!(
            members.choose(start),
            (0, until),
            "all rest: the one that is free first"
        );
        members.failed(0, until);
        members.failed(0, until);
        assert_eq!(members.choose(start), (1, until));
        let free = || members.state().resting[0].unwrap().0;
        assert_eq!(free(), until + REST.0 * 2, "those that fail together count once");
        members.failed(0, free());
        assert_eq!(free(), until + REST.0 * 6, "twice as long");
        for _ in 0..20 {
            members.failed(0, free());
        }
        let last = free();
        members.failed(0, last);
        assert_eq!(free(), last + REST.1, "no pause is longer");
        members.answered(0, Duration::ZERO);
        assert_eq!(members.choose(start), (0, start));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_left_out_is_not_asked_however_long_the_others_rest() {
        let members = Members::new(3);
        let now = Instant::now();
        assert!(members.leave_out(0, true) && !members.leave_out(0, true));
        assert_eq!(members.choose(now), (1, now));
        members.failed(1, now);
        members.failed(2, now);
        assert_eq!(members.choose(now), (1, now + REST.0));
        assert!(members.leave_out(0, false) && members.choose(now) == (0, now));
    }

    #[tokio::test(start_paused = true)]
    async fn who_answers_late_is_left_for_who_does_not() {
        let members = Members::new(3);
        let now = Instant::now();
        members.answered(0, SLOW - Duration::from_millis(1));
        assert!(members.choose(now) == (0, now) && !members.is_left(0));
        members.answered(0, SLOW);
        assert_eq!(members.choose(now), (1, now), "and nobody waits for it");
        assert!(members.is_left(0) && !members.is_left(1));
        // Asked before, and answered by then: it is no better for that.
        members.answered(0, SLOW * 3);
        assert_eq!(members.choose(now), (1, now));
        members.answered(1, SLOW);
        members.answered(2, SLOW);
        assert_eq!(members.choose(now), (0, now), "all are slow: each has a turn");
        assert!((0..3).all(|member| !members.is_left(member)), "and none is better");
        members.answered(0, Duration::ZERO);
        assert!(!members.is_left(0) && members.is_left(1) && members.is_left(2));
        let alone = Members::new(1);
        alone.answered(0, SLOW);
        assert!(alone.choose(now) == (0, now) && !alone.is_left(0));
    }
}
