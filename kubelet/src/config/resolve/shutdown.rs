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
    let by_priority = written.shutdown_grace_period_by_pod_priority.as_deref().unwrap_or_default();
    let some_time = !all.is_zero() || !critical.is_zero();
    if critical > all {
        reader.wrong("shutdownGracePeriodCriticalPods", format!("{critical:?} must be <= shutdownGracePeriod {all:?}"));
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
        reader.wrong(BY_PRIORITY, "cannot be specified at the same time as shutdownGracePeriod");
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
