//! Which moment of a CronJob's is due, and when the next is. Pure.

use super::{SCHEDULED, Timetable, View, event, job_name};
use crate::controller::job::view::finished;
use crate::controller::write::EventText;
use crate::cron::{Schedule, zone};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use std::time::Duration;

/// More misses than these are told.
const MANY: i64 = 100;
/// Clocks of control planes may be so far apart.
const SKEW: SignedDuration = SignedDuration::from_secs(60);

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing now.
    Nothing,
    /// The Job of this moment.
    Start(Timestamp),
}

/// What is due, when to look again, what to tell.
#[derive(Debug)]
pub struct Found {
    /// What is due.
    pub what: Due,
    /// How long until the next moment; `None` if there is none.
    pub next_in: Option<Duration>,
    /// What to tell.
    pub events: Vec<EventText>,
}

/// The moments since a CronJob last started something.
struct Missed {
    /// From where they are counted.
    since: Timestamp,
    /// The latest of them.
    latest: Option<Timestamp>,
    /// How many there are, about.
    count: i64,
}

fn found(what: Due, next_in: Option<Duration>, events: Vec<EventText>) -> Found {
    Found { what, next_in, events }
}

/// What is due now. `status`: as it will be once finished Jobs are noted.
pub fn due(view: &View<'_>, status: &CronJobStatus, timetable: &Timetable) -> Found {
    let (cron, spec, now) = (view.cron, view.spec, view.now);
    let tell = |kind, reason, message: String| vec![event(cron, kind, reason, message)];
    let unknown_zone = matches!(timetable, Err(("UnknownTimeZone", _)));
    if spec.suspend == Some(true) && !unknown_zone {
        return found(Due::Nothing, None, vec![]);
    }
    let (schedule, zone) = match timetable {
        Ok(timetable) => timetable,
        Err((reason, message)) => return found(Due::Nothing, None, tell("Warning", reason, message.clone())),
    };
    let missed = match missed(cron, spec.starting_deadline_seconds, now, schedule, zone) {
        Ok(missed) => missed,
        Err(problem) => {
            let message = format!("invalid schedule: {} : {problem}", spec.schedule);
            return found(Due::Nothing, None, tell("Warning", "InvalidSchedule", message));
        }
    };
    let next_in = next_in(cron, now, schedule, zone);
    let Some(scheduled) = missed.latest else {
        let events = waits_for(&missed, cron, now).map(|message| tell("Warning", "ScheduleTimeInFuture", message));
        return found(Due::Nothing, next_in, events.unwrap_or_default());
    };
    let mut events = Vec::new();
    if missed.count > MANY {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        events = tell("Warning", "TooManyMissedTimes", message.to_owned());
    }
    let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    if deadline.is_some_and(|deadline| scheduled.checked_add(deadline).is_ok_and(|last| last < now)) {
        let at = scheduled.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {at}");
        events.extend(tell("Warning", "MissSchedule", message));
        return found(Due::Nothing, next_in, events);
    }
    let name = job_name(cron, scheduled);
    let active = status.active.as_deref().unwrap_or_default();
    let is_done = status
        .last_schedule_time
        .as_ref()
        .is_some_and(|last| last.0 == scheduled);
    if is_done || active.iter().any(|other| other.name.as_deref() == Some(&name)) {
        return found(Due::Nothing, next_in, events);
    }
    // One that was made and not noted (a crash came between) runs all the same; of this very moment it is the one to note.
    let runs =
        |job: &Job| finished(job).is_none() && job.annotations().contains_key(SCHEDULED) && job.name_any() != name;
    let is_running = !active.is_empty() || view.jobs.iter().any(|job| runs(job));
    if spec.concurrency_policy.as_deref() == Some("Forbid") && is_running {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        events.extend(tell("Normal", "JobAlreadyActive", message.to_owned()));
        return found(Due::Nothing, next_in, events);
    }
    found(Due::Start(scheduled), next_in, events)
}

/// What is told where moments pass because the last start, or the creation, is in the future: a clock was ahead when it was noted. Nothing is
/// started before then, as upstream, which tells nobody; each moment that passes is told of here.
fn waits_for(missed: &Missed, cron: &CronJob, now: Timestamp) -> Option<String> {
    if missed.since.duration_since(now) <= SKEW {
        return None;
    }
    let started = cron
        .status
        .as_ref()
        .and_then(|status| status.last_schedule_time.as_ref());
    let (field, mend) = match started {
        Some(_) => ("status.lastScheduleTime", " or remove it"),
        None => ("metadata.creationTimestamp", ""),
    };
    let until = rfc3339(missed.since, None);
    Some(format!(
        "Not starting jobs before {until}: {field} is in the future. Check clock skew{mend}"
    ))
}

/// The last moment until `now`; `first` is one, the next is so much later.
///
/// Between two moments there may be a year, and a minute between the next two, so moments are not walked: the time in which the
/// last one lies is halved, until it is a second.
fn last(schedule: &Schedule, zone: &TimeZone, first: Timestamp, between: i64, now: Timestamp) -> Timestamp {
    if let Schedule::Every(_) = schedule {
        let steps = (now.as_second() - first.as_second()) / between;
        let since = SignedDuration::from_secs(steps.saturating_mul(between));
        return first.checked_add(since).unwrap_or(first);
    }
    let (mut found, mut beyond) = (first.as_second(), now.as_second() + 1);
    while beyond - found > 1 {
        let middle = found + (beyond - found) / 2;
        // The moment itself counts, so it is asked what comes after the second before.
        let next = Timestamp::from_second(middle - 1)
            .ok()
            .and_then(|at| schedule.next(at, zone));
        match next.filter(|next| *next <= now) {
            Some(next) => found = next.as_second(),
            None => beyond = middle,
        }
    }
    Timestamp::from_second(found).unwrap_or(first)
}

/// The moments from the last start (or creation, or the earliest that is not too late) until now.
fn missed(
    cron: &CronJob,
    deadline_seconds: Option<i64>,
    now: Timestamp,
    schedule: &Schedule,
    zone: &TimeZone,
) -> Result<Missed, String> {
    let next = |after: Timestamp| schedule.next(after, zone);
    let created = cron.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let started = cron
        .status
        .as_ref()
        .and_then(|status| status.last_schedule_time.as_ref());
    let mut since = started.map_or(created, |time| time.0);
    let earliest = deadline_seconds.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    since = since.max(earliest.unwrap_or(since));
    let impossible = || "time difference between two schedules is less than 1 second".to_owned();
    let first = next(since).ok_or_else(impossible)?;
    if now < first {
        return Ok(Missed {
            since,
            latest: None,
            count: 0,
        });
    }
    let second = next(first).filter(|second| *second <= now);
    let Some(second) = second else {
        return Ok(Missed {
            since,
            latest: Some(first),
            count: 1,
        });
    };
    let between = second.as_second() - first.as_second();
    if between < 1 {
        return Err(impossible());
    }
    let count = (now.as_second() - first.as_second()) / between + 1;
    Ok(Missed {
        since,
        latest: Some(last(schedule, zone, first, between, now)),
        count,
    })
}

/// How long until the next moment.
fn next_in(cron: &CronJob, now: Timestamp, schedule: &Schedule, zone: &TimeZone) -> Option<Duration> {
    // From a start that is in the future on the clock is not waited for: it may have been ahead, and moments that pass are told of.
    let base = match missed(cron, None, now, schedule, zone) {
        Ok(missed) => missed.latest.unwrap_or(missed.since).min(now),
        Err(_) => now,
    };
    let left = schedule.next(base, zone)?.duration_since(now);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

/// How long until a CronJob is first due by a schedule it was just given; at once if that cannot be said.
pub fn first_in(cron: &CronJob, now: Timestamp) -> Duration {
    let timetable = super::timetable(&cron.spec).ok();
    let next = timetable.and_then(|(schedule, zone)| next_in(cron, now, &schedule, &zone));
    next.map_or(Duration::ZERO, |next| next + super::PADDING)
}

/// A moment as RFC 3339 has it, in a time zone.
pub fn rfc3339(moment: Timestamp, name: Option<&str>) -> String {
    let zone = name.and_then(|name| zone::find(name).ok()).unwrap_or(TimeZone::UTC);
    let offset = zone.to_offset(moment);
    if offset.is_zero() {
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    }
    moment.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn cron(since: Timestamp) -> CronJob {
        let cron = json!({"metadata": {"name": "c", "namespace": "n", "creationTimestamp": since.to_string()},
            "spec": {"schedule": "* * * * *", "jobTemplate": {}}});
        serde_json::from_value(cron).unwrap()
    }

    fn found(schedule: &str, zone: &str, since: Timestamp, now: Timestamp) -> Missed {
        let (schedule, zone) = (Schedule::parse(schedule).unwrap(), zone::find(zone).unwrap());
        missed(&cron(since), None, now, &schedule, &zone).unwrap()
    }

    #[test]
    fn the_last_moment_is_found_however_uneven_they_are() {
        let cases = [
            // From a minute to 16 days, and to minutes again: the first two say nothing of the others.
            (
                "* * 1-15 * *",
                "2026-01-15T23:58:00Z",
                "2026-02-14T12:00:30Z",
                "2026-02-14T12:00:00Z",
            ),
            (
                "* * 1-15 * *",
                "2026-01-15T23:58:00Z",
                "2026-02-25T12:00:00Z",
                "2026-02-15T23:59:00Z",
            ),
            (
                "* * 1-15 * *",
                "2026-01-03T00:00:00Z",
                "2026-01-25T12:00:00Z",
                "2026-01-15T23:59:00Z",
            ),
            (
                "0,1 0 1 1 *",
                "2020-01-01T00:00:30Z",
                "2026-07-01T00:00:00Z",
                "2026-01-01T00:01:00Z",
            ),
            (
                "0 0 29 2 *",
                "2016-01-01T00:00:00Z",
                "2026-07-01T00:00:00Z",
                "2024-02-29T00:00:00Z",
            ),
            (
                "* * * * *",
                "1996-01-01T00:00:00Z",
                "2026-07-01T00:00:59Z",
                "2026-07-01T00:00:00Z",
            ),
            (
                "@every 7s",
                "2026-01-01T00:00:00Z",
                "2026-01-01T01:00:00Z",
                "2026-01-01T00:59:58Z",
            ),
        ];
        for (schedule, since, now, expected) in cases {
            let found = found(schedule, "UTC", since.parse().unwrap(), now.parse().unwrap());
            assert_eq!(found.latest, Some(expected.parse().unwrap()), "{schedule} {now}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_last_moment_is_that_of_a_walk(
            schedule in prop::sample::select(vec![
                "*/7 * 1-3 * *", "0 3,4 * * 1", "59 23 15 * *", "0,1 0 1 * *", "30 1,2 * * *", "@every 11h", "0 */5 1-15 1,6 5",
            ]),
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York"]),
            since in 1_767_225_600..1_798_761_600i64,
            after in 0..4_000_000i64,
        ) {
            let (since, now) = (Timestamp::from_second(since).unwrap(), Timestamp::from_second(since + after).unwrap());
            let (parsed, there) = (Schedule::parse(schedule).unwrap(), zone::find(zone).unwrap());
            let next = |at: &Timestamp| parsed.next(*at, &there).filter(|next| *next <= now);
            let walk = std::iter::successors(next(&since), next).last();
            prop_assert_eq!(found(schedule, zone, since, now).latest, walk);
        }
    }
}
