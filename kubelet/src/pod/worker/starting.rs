//! How long a pod took until it ran, told once. Pure but for the clock's readings it is given.

use crate::metrics::Start;
use std::time::Duration;
use tokio::time::Instant;

/// Measures one pod's start.
#[derive(Debug)]
pub(super) struct Starting {
    /// When this kubelet saw the pod first.
    seen: Instant,
    /// Since when some image of it is being had.
    pulling: Option<Instant>,
    /// How long that was before.
    pulled: Duration,
    /// Whether there is nothing (more) to tell.
    over: bool,
}

impl Starting {
    /// A pod that was just seen; one that had begun before this kubelet is none of its own starts.
    pub(super) fn new(seen: Instant, begun_before: bool) -> Self {
        Self {
            seen,
            pulling: None,
            pulled: Duration::ZERO,
            over: begun_before,
        }
    }

    /// Takes whether images are being had now.
    pub(super) fn note_pulls(&mut self, now: Instant, under_way: bool) {
        match (self.pulling, under_way) {
            (None, true) => self.pulling = Some(now),
            (Some(since), false) => {
                self.pulled += now - since;
                self.pulling = None;
            }
            _ => {}
        }
    }

    /// What is to be told when the pod is seen to be running, the first time; `since_created` where it was created by somebody.
    pub(super) fn runs(&mut self, now: Instant, since_created: Option<Duration>, own_network: bool) -> Option<Start> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        Some(Start {
            since_seen: now - self.seen,
            since_created,
            pulling: self.pulled + self.pulling.map_or(Duration::ZERO, |since| now - since),
            own_network,
        })
    }

    /// A pod that ended without ever having been seen to run is none to tell of.
    pub(super) fn ended(&mut self) {
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_told_once_with_the_time_its_images_took() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut starting = Starting::new(begun, false);
        for (second, under_way) in [(1, true), (2, true), (4, false), (5, false), (6, true)] {
            starting.note_pulls(at(second), under_way);
        }
        let start = starting.runs(at(8), Some(Duration::from_secs(9)), true).expect("told");
        assert_eq!(
            (start.since_seen, start.since_created, start.pulling),
            (
                Duration::from_secs(8),
                Some(Duration::from_secs(9)),
                Duration::from_secs(5)
            )
        );
        assert_eq!(starting.runs(at(9), None, true), None);
        assert_eq!(Starting::new(begun, true).runs(at(1), None, true), None);
        let mut never = Starting::new(begun, false);
        never.ended();
        assert_eq!(never.runs(at(1), None, true), None);
    }
}
