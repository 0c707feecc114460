//! Grace arithmetic (kubelet contract §4.2, §4.3): floors, and that grace only ever decreases. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

/// The least grace a pod ends with, seconds.
pub const POD_SECONDS_MIN: i64 = 1;
/// The least grace handed to StopContainer, seconds.
pub const STOP_SECONDS_MIN: i64 = 2;
/// The grace of a pod that names none; the API server defaults it, static pods may lack it.
const POD_SECONDS_DEFAULT: i64 = 30;

/// The grace a pod ends with: its deletion's, else its spec's, no more than `override_seconds`, at least one second.
pub fn pod_seconds(pod: &Pod, override_seconds: Option<i64>) -> i64 {
    let spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let own = pod
        .metadata
        .deletion_grace_period_seconds
        .or(spec)
        .unwrap_or(POD_SECONDS_DEFAULT);
    override_seconds
        .map_or(own, |limit| limit.min(own))
        .max(POD_SECONDS_MIN)
}

/// The grace of a termination that began at `since` with `current` seconds, when `wanted` seconds are to pass from now:
/// never later than before.
pub fn shorten(current: i64, since: Timestamp, wanted: i64, now: Timestamp) -> i64 {
    let elapsed = elapsed_seconds(since, now);
    current.min(elapsed + wanted)
}

/// What is left of a termination's grace for StopContainer, with its floor.
pub fn stop_seconds(grace: i64, since: Timestamp, now: Timestamp) -> i64 {
    (grace - elapsed_seconds(since, now)).max(STOP_SECONDS_MIN)
}

fn elapsed_seconds(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).as_secs().max(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{at, pod};

    #[test]
    fn pod_grace_prefers_the_deletions_and_has_a_floor() {
        let case = |deletion, spec, limit| {
            let mut p = pod("p").build();
            p.metadata.deletion_grace_period_seconds = deletion;
            p.spec.as_mut().expect("spec").termination_grace_period_seconds = spec;
            pod_seconds(&p, limit)
        };
        assert_eq!(case(None, Some(45), None), 45);
        assert_eq!(case(Some(5), Some(45), None), 5);
        assert_eq!(case(Some(0), Some(45), None), 1);
        assert_eq!(case(None, None, None), 30);
        assert_eq!(case(None, Some(45), Some(7)), 7);
        assert_eq!(case(Some(5), Some(45), Some(7)), 5);
        assert_eq!(case(None, Some(45), Some(0)), 1);
    }

    #[test]
    fn a_container_gets_what_is_left_but_two_seconds() {
        assert_eq!(stop_seconds(30, at(0), at(10)), 20);
        assert_eq!(stop_seconds(30, at(0), at(29)), 2);
        assert_eq!(stop_seconds(1, at(0), at(0)), 2);
        assert_eq!(
            stop_seconds(30, at(10), at(0)),
            30,
            "a clock that went back takes nothing away"
        );
    }

    proptest::proptest! {
        #[test]
        fn shortening_never_lengthens(current in 1i64..1000, wanted in 1i64..1000, passed in 0i64..1000) {
            let shorter = shorten(current, at(0), wanted, at(passed));
            proptest::prop_assert!(shorter <= current && shorter >= 1);
        }
    }
}
