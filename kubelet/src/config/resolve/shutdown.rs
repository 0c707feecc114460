//! How long pods may take to end before the machine goes down (KEP-2000, KEP-2712).

use super::Reader;
use crate::config::{KubeletConfiguration, duration};
use crate::node_shutdown::{Period, Periods};
use std::time::Duration;

/// Shorter than this nothing ends gracefully.
const SHORTEST: Duration = Duration::from_secs(1);
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";

pub(super) fn periods(reader: &mut Reader, written: &KubeletConfiguration) -> Periods {
    let all = time(reader, "shutdownGracePeriod", written.shutdown_grace_period.as_deref());
    let critical = written.shutdown_grace_period_critical_pods.as_deref();
    let critical = time(reader, "shutdownGracePeriodCriticalPods", critical);
    let by_priority = written
        .shutdown_grace_period_by_pod_priority
        .as_deref()
        .unwrap_or_default();
    let some_time = !all.is_zero() || !critical.is_zero();
    if critical > all {
        reader.wrong(
            "shutdownGracePeriodCriticalPods",
            format!("{critical:?} must be <= shutdownGracePeriod {all:?}"),
        );
    }
    if some_time && written.no_graceful_shutdown {
        let why = "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown";
        reader.wrong("shutdownGracePeriod", why);
    }
    if by_priority.is_empty() {
        return Periods::of_kinds(all, critical);
    }
    if written.no_shutdown_by_priority {
        let why = "requires feature gate GracefulNodeShutdownBasedOnPodPriority";
        reader.wrong(BY_PRIORITY, why);
    } else if some_time {
        reader.wrong(
            BY_PRIORITY,
            "cannot be specified at the same time as shutdownGracePeriod",
        );
    }
    let mut periods = Vec::new();
    for (at, period) in by_priority.iter().enumerate() {
        let field = format!("{BY_PRIORITY}[{at}].shutdownGracePeriodSeconds");
        let seconds = period.shutdown_grace_period_seconds;
        let seconds = reader.range(&field, Some(seconds), 0, 0, i64::from(i32::MAX));
        periods.push(Period {
            priority: period.priority,
            length: Duration::from_secs(seconds.unsigned_abs()),
        });
    }
    // Its gate turns all of it off, as upstream's does.
    match written.no_graceful_shutdown {
        true => Periods::default(),
        false => Periods::by_priority(periods),
    }
}

fn time(reader: &mut Reader, field: &str, text: Option<&str>) -> Duration {
    let time = match text.filter(|text| !text.is_empty()).map(duration::parse) {
        None => return Duration::ZERO,
        Some(Ok(time)) => time,
        Some(Err(why)) => {
            reader.wrong(field, why);
            return Duration::ZERO;
        }
    };
    if !time.is_zero() && time < SHORTEST {
        reader.wrong(field, format!("{time:?} must be either zero or otherwise >= 1 sec"));
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::ShutdownGracePeriodByPodPriority;

    fn written(all: &str, critical: &str, by_priority: &[(i32, i64)]) -> KubeletConfiguration {
        let period = |(priority, seconds): &(i32, i64)| ShutdownGracePeriodByPodPriority {
            priority: *priority,
            shutdown_grace_period_seconds: *seconds,
        };
        KubeletConfiguration {
            shutdown_grace_period: Some(all.to_owned()),
            shutdown_grace_period_critical_pods: Some(critical.to_owned()),
            shutdown_grace_period_by_pod_priority: Some(by_priority.iter().map(period).collect()),
            ..KubeletConfiguration::default()
        }
    }

    fn read(written: &KubeletConfiguration) -> Result<Periods, Vec<String>> {
        let mut reader = Reader::default();
        let periods = periods(&mut reader, written);
        match reader.mistakes.is_empty() {
            true => Ok(periods),
            false => Err(reader.mistakes),
        }
    }

    #[test]
    fn periods_are_read() {
        let seconds = Duration::from_secs;
        for (written, expected) in [
            (KubeletConfiguration::default(), Periods::default()),
            (written("0s", "", &[]), Periods::default()),
            (written("30s", "10s", &[]), Periods::of_kinds(seconds(30), seconds(10))),
            (written("1m", "0", &[]), Periods::of_kinds(seconds(60), seconds(0))),
        ] {
            assert_eq!(read(&written), Ok(expected), "{written:?}");
        }
        let by_priority = read(&written("", "0s", &[(1000, 5), (0, 60)])).expect("sound");
        assert_eq!((by_priority.total(), by_priority.is_empty()), (seconds(65), false));
        let mut off = written("", "", &[(0, 60)]);
        off.no_graceful_shutdown = true;
        assert_eq!(read(&off), Ok(Periods::default()), "its gate is off");
    }

    #[test]
    fn every_mistake_names_its_field() {
        let gates = |no_graceful_shutdown, no_shutdown_by_priority, written| KubeletConfiguration {
            no_graceful_shutdown,
            no_shutdown_by_priority,
            ..written
        };
        for (written, expected) in [
            (
                written("10s", "30s", &[]),
                vec!["shutdownGracePeriodCriticalPods: 30s must be <= shutdownGracePeriod 10s"],
            ),
            (
                written("500ms", "", &[]),
                vec!["shutdownGracePeriod: 500ms must be either zero or otherwise >= 1 sec"],
            ),
            (
                written("soon", "", &[]),
                vec!["shutdownGracePeriod: invalid duration \"soon\""],
            ),
            (
                written("10s", "", &[(0, 60)]),
                vec!["shutdownGracePeriodByPodPriority: cannot be specified at the same time as shutdownGracePeriod"],
            ),
            (
                written("", "", &[(0, 60), (5, -1)]),
                vec![
                    "shutdownGracePeriodByPodPriority[1].shutdownGracePeriodSeconds: -1 must be between 0 and 2147483647, inclusive",
                ],
            ),
            (
                gates(true, false, written("10s", "", &[])),
                vec![
                    "shutdownGracePeriod: specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown",
                ],
            ),
            (
                gates(false, true, written("", "", &[(0, 60)])),
                vec!["shutdownGracePeriodByPodPriority: requires feature gate GracefulNodeShutdownBasedOnPodPriority"],
            ),
        ] {
            let mistakes = read(&written).expect_err("a mistake");
            assert_eq!(mistakes, expected);
        }
    }
}
