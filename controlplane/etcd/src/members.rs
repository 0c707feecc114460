//! Which member of the cluster is asked: the one that answered last, and after a failure the next, with a pause for those that fail.
//!
//! Owns what is known of each member's health; pure but for the clock it is given.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Pause after a failure: the first, and the longest.
const REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The health of the members, by their number.
pub(crate) struct Members {
    state: Mutex<State>,
}

struct State {
    preferred: usize,
    /// Until when each is not asked, and its last pause.
    resting: Vec<Option<(Instant, Duration)>>,
}

impl Members {
    /// So many, none of which is known to be ill.
    pub(crate) fn new(count: usize) -> Self {
        let state = State {
            preferred: 0,
            resting: vec![None; count],
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
        // The first of those that are free soonest.
        let chosen = order.min_by_key(|member| free(*member)).unwrap_or(0);
        (chosen, free(chosen))
    }

    /// It answered, whatever it said.
    pub(crate) fn answered(&self, member: usize) {
        let mut state = self.state();
        state.preferred = member;
        state.resting[member] = None;
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
        members.answered(1);
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
        members.answered(0);
        assert_eq!(members.choose(start), (0, start));
    }
}
