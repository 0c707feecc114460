//! What a candidate does about a Lease. Pure: what was seen and the own clock in, an action out.
//!
//! A Lease is another's for as long as it has been seen to change within its duration, measured by the reader's own clock from the moment it
//! *saw* the change. Clocks that differ or jump thus move nothing; one that runs so much slower that ten of the leader's seconds are
//! fifteen of a candidate's would.

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// How long the Lease of a leader that ended cleanly counts.
const RELEASED_SECONDS: i32 = 1;
/// The longest that another's Lease is believed for, whatever it says.
const BELIEVED_MAX: Duration = Duration::from_secs(3600);

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A Lease that did not change for so long is nobody's.
    pub lease: Duration,
    /// A leader that could not renew for so long ends its work.
    pub renew: Duration,
    /// Between two tries.
    pub retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Times {
    /// What is wrong with them, in upstream's terms.
    ///
    /// # Errors
    /// The time that does not go with the others, and why.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.lease < Duration::from_secs(1) {
            return Err(("lease-duration", "must be at least one second"));
        }
        if self.lease > BELIEVED_MAX {
            return Err(("lease-duration", "must be at most an hour"));
        }
        if self.renew >= self.lease {
            return Err(("renew-deadline", "must be less than the lease duration"));
        }
        if self.retry.is_zero() {
            return Err(("retry-period", "must be greater than zero"));
        }
        // Upstream's tries are up to 1.2 times the period apart.
        if self.renew <= self.retry.mul_f64(1.2) {
            return Err((
                "retry-period",
                "must be so short that the renew deadline is more than 1.2 times as long",
            ));
        }
        Ok(())
    }
}

/// A Lease as last seen. Times are of the reader's own clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// What it says; `None` if there is none.
    spec: Option<LeaseSpec>,
    /// When it was first seen to say so.
    since: Duration,
    /// Who may still believe in a Lease that is not there any more, and until when.
    lingering: Option<(String, Duration)>,
}

impl Observation {
    /// Takes in what was read at `now`.
    pub fn see(&mut self, spec: Option<LeaseSpec>, now: Duration) {
        if self.spec == spec {
            return;
        }
        if spec.is_none() {
            self.lingering = self.held_until().map(|until| (self.holder().to_owned(), until));
        }
        (self.spec, self.since) = (spec, now);
    }

    /// Who holds it; empty if nobody does.
    pub fn holder(&self) -> &str {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default()
    }

    /// What it says.
    pub fn spec(&self) -> Option<&LeaseSpec> {
        self.spec.as_ref()
    }

    /// When the holder's time is over, if there is one.
    fn held_until(&self) -> Option<Duration> {
        let spec = self.spec.as_ref().filter(|_| !self.holder().is_empty())?;
        let seconds = spec.lease_duration_seconds.unwrap_or_default();
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(BELIEVED_MAX);
        Some(self.since + duration)
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Make a Lease.
    Create,
    /// Write it anew: it is one's own.
    Renew,
    /// Write oneself into it: it is nobody's.
    Take,
    /// It is another's, until then at least.
    Wait(Duration),
}

/// What `own` does now about what it has seen.
pub fn decide(seen: &Observation, own: &str, now: Duration) -> Act {
    if seen.spec.is_none() {
        let lingering = seen
            .lingering
            .as_ref()
            .filter(|(holder, until)| holder != own && *until > now);
        return lingering.map_or(Act::Create, |(_, until)| Act::Wait(*until));
    }
    if seen.holder() == own {
        return Act::Renew;
    }
    match seen.held_until() {
        Some(until) if until > now => Act::Wait(until),
        _ => Act::Take,
    }
}

/// What the Lease says after `act`; `None` after waiting.
pub fn written(act: Act, seen: &Observation, own: &str, times: &Times, wall: Timestamp) -> Option<LeaseSpec> {
    let old = seen.spec.clone().unwrap_or_default();
    let is_new = match act {
        Act::Wait(_) => return None,
        Act::Create | Act::Take => true,
        Act::Renew => false,
    };
    let before = old.lease_transitions.unwrap_or(0);
    let seconds = times.lease.as_secs() + u64::from(times.lease.subsec_nanos() > 0);
    Some(LeaseSpec {
        holder_identity: Some(own.to_owned()),
        lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
        acquire_time: match is_new {
            true => Some(MicroTime(wall)),
            false => old.acquire_time.clone(),
        },
        renew_time: Some(MicroTime(wall)),
        lease_transitions: Some(match act {
            Act::Take => before.saturating_add(1),
            _ => before,
        }),
        ..old
    })
}

/// What the Lease says once its holder has ended: the next may begin at once.
pub fn released(old: &LeaseSpec, wall: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(RELEASED_SECONDS),
        acquire_time: Some(MicroTime(wall)),
        renew_time: Some(MicroTime(wall)),
        ..old.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn held(by: &str, seconds: i32, renewed: i64) -> Option<LeaseSpec> {
        Some(LeaseSpec {
            holder_identity: Some(by.to_owned()),
            lease_duration_seconds: Some(seconds),
            renew_time: Some(MicroTime(wall(renewed))),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        })
    }

    fn seen(history: &[(u64, Option<LeaseSpec>)]) -> Observation {
        let mut observation = Observation::default();
        for (when, spec) in history {
            observation.see(spec.clone(), at(*when));
        }
        observation
    }

    #[test]
    fn only_what_was_observed_counts() {
        let table = [
            ("nothing was ever there", vec![(5, None)], 5, Act::Create),
            ("one's own", vec![(5, held("me", 15, 0))], 500, Act::Renew),
            ("released", vec![(5, held("", 1, 0))], 5, Act::Take),
            (
                "seen for the first time",
                vec![(5, held("you", 15, 0))],
                5,
                Act::Wait(at(20)),
            ),
            (
                "written in the past",
                vec![(5, held("you", 15, -9999))],
                19,
                Act::Wait(at(20)),
            ),
            ("written in the future", vec![(5, held("you", 15, 9999))], 20, Act::Take),
            (
                "read again without a change",
                vec![(5, held("you", 15, 1)), (19, held("you", 15, 1))],
                20,
                Act::Take,
            ),
            (
                "renewed",
                vec![(5, held("you", 15, 1)), (19, held("you", 15, 2))],
                20,
                Act::Wait(at(34)),
            ),
            (
                "renewed with a time that went back",
                vec![(5, held("you", 15, 9)), (19, held("you", 15, 2))],
                20,
                Act::Wait(at(34)),
            ),
            (
                "of the holder's own duration",
                vec![(5, held("you", 60, 1))],
                60,
                Act::Wait(at(65)),
            ),
            (
                "held for ever, it says",
                vec![(5, held("you", i32::MAX, 1))],
                3604,
                Act::Wait(at(3605)),
            ),
            ("of no duration", vec![(5, held("you", -1, 1))], 5, Act::Take),
            (
                "deleted while it was another's",
                vec![(5, held("you", 15, 1)), (6, None)],
                19,
                Act::Wait(at(20)),
            ),
            (
                "deleted long ago",
                vec![(5, held("you", 15, 1)), (6, None)],
                20,
                Act::Create,
            ),
            (
                "deleted while it was one's own",
                vec![(5, held("me", 15, 1)), (6, None)],
                6,
                Act::Create,
            ),
            (
                "deleted while it was nobody's",
                vec![(5, held("", 15, 1)), (6, None)],
                6,
                Act::Create,
            ),
        ];
        for (what, history, now, expected) in table {
            assert_eq!(decide(&seen(&history), "me", at(now)), expected, "{what}");
        }
    }

    #[test]
    fn what_is_written() {
        let times = Times::default();
        let write = |act, seen: &Observation| written(act, seen, "me", &times, wall(100));
        let taken = write(Act::Take, &seen(&[(0, held("you", 60, 1))])).unwrap();
        assert_eq!(taken.holder_identity.as_deref(), Some("me"));
        assert_eq!(
            (taken.lease_duration_seconds, taken.lease_transitions),
            (Some(15), Some(4))
        );
        assert_eq!(taken.acquire_time, taken.renew_time);
        let renewed = written(Act::Renew, &seen(&[(0, Some(taken.clone()))]), "me", &times, wall(102));
        let renewed = renewed.unwrap();
        assert_eq!(renewed.acquire_time, taken.acquire_time);
        assert_eq!(renewed.renew_time, Some(MicroTime(wall(102))));
        assert_eq!(renewed.lease_transitions, Some(4));
        let made = write(Act::Create, &Observation::default()).unwrap();
        assert_eq!(made.lease_transitions, Some(0));
        assert_eq!(write(Act::Wait(at(1)), &Observation::default()), None);
        let ended = released(&renewed, wall(103));
        assert_eq!(
            (ended.holder_identity.as_deref(), ended.lease_transitions),
            (Some(""), Some(4))
        );
        assert_eq!(ended.lease_duration_seconds, Some(1));
    }

    #[test]
    fn times_must_go_together() {
        let of = |lease: u64, renew: u64, retry: u64| Times {
            lease: Duration::from_millis(lease),
            renew: Duration::from_millis(renew),
            retry: Duration::from_millis(retry),
        };
        assert_eq!(Times::default().check(), Ok(()));
        let table = [
            (of(999, 500, 100), "lease-duration"),
            (of(4_000_000, 500, 100), "lease-duration"),
            (of(10_000, 10_000, 100), "renew-deadline"),
            (of(10_000, 5_000, 0), "retry-period"),
            (of(10_000, 1_200, 1_000), "retry-period"),
        ];
        for (times, field) in table {
            assert_eq!(times.check().unwrap_err().0, field, "{times:?}");
        }
    }
}
