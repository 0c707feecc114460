use super::*;
use serde_json::{Value, json};

fn at(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().unwrap()
}

fn cron(extra: Value) -> CronJob {
    let mut value = json!({
        "metadata": {"name": "c", "namespace": "default", "uid": "cron", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedule": "0 * * * *", "concurrencyPolicy": "Allow", "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}}, "spec": {"template": {}}}},
    });
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

/// One of its Jobs, finished with that condition if there is one.
fn job(name: &str, condition: Option<&str>, extra: Value) -> Arc<Job> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": {SCHEDULED: ""},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "cron", "controller": true}]},
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    });
    if let Some(condition) = condition {
        value["status"]["conditions"] = json!([{"type": condition, "status": "True"}]);
        if condition == "Complete" {
            value["status"]["completionTime"] = json!("2026-01-01T00:30:00Z");
        }
    }
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

/// The status of a CronJob that lists a Job as active.
fn active(name: &str, last: &str) -> Value {
    json!({"status": {"active": [{"kind": "Job", "apiVersion": "batch/v1", "name": name, "namespace": "default", "uid": name}],
        "lastScheduleTime": format!("2026-01-01T{last}Z")}})
}

fn decide(cron: &CronJob, jobs: &[Arc<Job>], now: &str) -> Decision {
    let view = View {
        cron,
        spec: &cron.spec,
        jobs: jobs.to_vec(),
        is_current: true,
        replaced: BTreeSet::new(),
        now: at(now),
    };
    let holder = |name: &str| jobs.iter().find(|job| job.name_any() == name).cloned();
    plan(&view, &timetable(&cron.spec), &holder)
}

fn words(decision: &Decision) -> Vec<String> {
    let word = |write: &Write| match &write.verb {
        Verb::Create(body) => format!("create {}", body["metadata"]["name"].as_str().unwrap()),
        Verb::Delete { .. } => format!("delete {}", write.key.name),
        Verb::ReplaceSub("status", _) => "status".to_owned(),
        other => panic!("{other:?}"),
    };
    decision.plan.writes.iter().map(word).collect()
}

fn events(decision: &Decision) -> Vec<(&'static str, String)> {
    decision
        .plan
        .events
        .iter()
        .map(|event| (event.reason, event.message.clone()))
        .collect()
}

fn status(decision: &Decision) -> CronJobStatus {
    let Some(Write {
        verb: Verb::ReplaceSub("status", body),
        ..
    }) = decision.status.clone()
    else {
        panic!("{decision:?}")
    };
    serde_json::from_value(body["status"].clone()).unwrap()
}

/// 2026-01-01T01:00:00Z in minutes.
const ONE: &str = "c-29453820";
/// An hour later.
const TWO: &str = "c-29453880";

#[test]
fn a_job_is_made_when_it_is_due_and_then_noted() {
    let after = cron(active(ONE, "01:00:00"));
    let cron = cron(json!({}));
    let early = decide(&cron, &[], "00:59:59");
    assert_eq!(words(&early), Vec::<String>::new());
    assert_eq!(early.plan.again_in, Some(Duration::from_millis(1100)));
    let due = decide(&cron, &[], "01:00:00");
    assert_eq!(words(&due), [format!("create {ONE}")]);
    let Verb::Create(body) = &due.plan.writes[0].verb else {
        panic!()
    };
    assert_eq!(
        body["metadata"]["annotations"],
        json!({"x": "y", SCHEDULED: "2026-01-01T01:00:00Z"})
    );
    assert_eq!(
        (
            &body["metadata"]["labels"],
            &body["metadata"]["ownerReferences"][0]["kind"]
        ),
        (&json!({"a": "b"}), &json!("CronJob"))
    );
    assert_eq!(
        due.plan.writes[0].on_success.as_ref().unwrap().message,
        "Created job {}"
    );
    let made = [job(ONE, None, json!({}))];
    let noted = decide(&cron, &made, "01:00:01");
    assert_eq!((words(&noted), events(&noted)), (vec!["status".to_owned()], vec![]));
    let status = status(&noted);
    assert_eq!(status.last_schedule_time.unwrap().0, at("01:00:00"));
    assert_eq!(status.active.unwrap()[0].name.as_deref(), Some(ONE));
    assert_eq!(words(&decide(&after, &made, "01:30:00")), Vec::<String>::new());
}

#[test]
fn what_is_made_of_what_is_due() {
    let with = |spec: Value| {
        let mut value = active(ONE, "01:00:00");
        value["spec"] = spec;
        cron(value)
    };
    let running = || vec![job(ONE, None, json!({}))];
    let forbidden = "Not starting job because prior execution is running and concurrency policy is Forbid";
    for (what, cron, jobs, now, expected, told) in [
        (
            "beside the one before",
            with(json!({})),
            running(),
            "02:00:00",
            vec![format!("create {TWO}")],
            None,
        ),
        (
            "not beside it",
            with(json!({"concurrencyPolicy": "Forbid"})),
            running(),
            "02:00:00",
            vec![],
            Some(("JobAlreadyActive", forbidden)),
        ),
        (
            "not beside one that was not noted",
            cron(
                json!({"spec": {"concurrencyPolicy": "Forbid"}, "status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}}),
            ),
            running(),
            "02:00:00",
            vec![],
            Some(("JobAlreadyActive", forbidden)),
        ),
        (
            "in its place",
            with(json!({"concurrencyPolicy": "Replace"})),
            running(),
            "02:00:00",
            vec![format!("delete {ONE}"), format!("create {TWO}")],
            None,
        ),
        (
            "not while suspended",
            with(json!({"suspend": true})),
            running(),
            "02:00:00",
            vec![],
            None,
        ),
        (
            "not too late",
            with(json!({"startingDeadlineSeconds": 100})),
            running(),
            "02:01:41",
            vec![],
            None,
        ),
        (
            "not once it goes",
            {
                let mut it = with(json!({}));
                it.metadata.deletion_timestamp = Some(Time(at("01:30:00")));
                it
            },
            running(),
            "02:00:00",
            vec![],
            None,
        ),
        (
            "in no such place",
            with(json!({"timeZone": "Mars/Olympus"})),
            running(),
            "02:00:00",
            vec![],
            Some((
                "UnknownTimeZone",
                "invalid timeZone: \"Mars/Olympus\": unknown time zone Mars/Olympus",
            )),
        ),
        (
            "at no such time",
            with(json!({"schedule": "0 0 31 2 *"})),
            running(),
            "02:00:00",
            vec![],
            Some((
                "InvalidSchedule",
                "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second",
            )),
        ),
        (
            "at no time",
            with(json!({"schedule": "sometimes"})),
            running(),
            "02:00:00",
            vec![],
            Some((
                "UnparseableSchedule",
                "unparseable schedule: \"sometimes\" : expected exactly 5 fields, found 1: [sometimes]",
            )),
        ),
    ] {
        let decision = decide(&cron, &jobs, now);
        let told_now: Vec<_> = events(&decision)
            .into_iter()
            .filter(|(reason, _)| *reason != "UnexpectedJob")
            .collect();
        assert_eq!(words(&decision), expected, "{what}");
        let expected: Vec<_> = told
            .into_iter()
            .map(|(reason, message)| (reason, message.to_owned()))
            .collect();
        assert_eq!(told_now, expected, "{what}");
    }
}

#[test]
fn missed_moments() {
    let every = |last: &str, extra: Value| {
        let mut value =
            json!({"spec": {"schedule": "* * * * *"}, "status": {"lastScheduleTime": format!("2026-01-01T{last}Z")}});
        json_patch::merge(&mut value, &extra);
        cron(value)
    };
    let few = decide(&every("00:00:00", json!({})), &[], "01:30:30");
    assert_eq!(words(&few), ["create c-29453850"], "the latest of them");
    assert_eq!(events(&few), []);
    let many = decide(&every("00:00:00", json!({})), &[], "02:00:30");
    assert_eq!(words(&many), [format!("create {TWO}")]);
    assert_eq!(events(&many)[0].0, "TooManyMissedTimes");
    let window = json!({"spec": {"startingDeadlineSeconds": 200}});
    assert_eq!(
        events(&decide(&every("00:00:00", window), &[], "02:00:30")),
        [],
        "those before the deadline are not counted"
    );
    // An hourly one whose time is over.
    let late = cron(json!({"spec": {"schedule": "0 1-2 * * *", "startingDeadlineSeconds": 7200}}));
    assert_eq!(words(&decide(&late, &[], "03:30:00")), [format!("create {TWO}")]);
}

/// What a clock that was ahead has left: nothing is started before then, each moment that passes is told of, and it is not looked at more often.
#[test]
fn a_start_that_is_in_the_future_is_waited_for_and_told_of() {
    let ahead = |spec: Value| {
        let status = json!({"lastScheduleTime": "2036-01-01T00:00:00Z"});
        cron(json!({"spec": spec, "status": status}))
    };
    let told = |field: &str, until: &str, mend: &str| {
        let message = format!("Not starting jobs before {until}: {field} is in the future. Check clock skew{mend}");
        vec![("ScheduleTimeInFuture", message)]
    };
    let last = || told("status.lastScheduleTime", "2036-01-01T00:00:00Z", " or remove it");
    for spec in [json!({}), json!({"startingDeadlineSeconds": 100})] {
        let decision = decide(&ahead(spec), &[], "00:10:00");
        assert_eq!((words(&decision).len(), events(&decision)), (0, last()));
        let next = Duration::from_secs(50 * 60) + PADDING;
        assert_eq!(decision.plan.again_in, Some(next), "with the next moment");
    }
    let suspended = decide(&ahead(json!({"suspend": true})), &[], "00:10:00");
    assert_eq!((events(&suspended).len(), suspended.plan.again_in), (0, None));
    let created = cron(json!({"metadata": {"creationTimestamp": "2026-01-02T00:00:00Z"}}));
    let decision = decide(&created, &[], "00:10:00");
    let until = "2026-01-02T00:00:00Z";
    assert_eq!(events(&decision), told("metadata.creationTimestamp", until, ""));
    // Another clock was some seconds ahead, and nobody missed anything.
    let near = cron(json!({"status": {"lastScheduleTime": "2026-01-01T01:00:00Z"}}));
    let decision = decide(&near, &[], "00:59:55");
    assert_eq!((words(&decision).len(), events(&decision).len()), (0, 0));
    assert_eq!(decision.plan.again_in, Some(Duration::from_secs(5) + PADDING));
    let past = decide(&near, &[], "01:00:01");
    assert_eq!((words(&past).len(), events(&past).len()), (0, 0));
    // Its schedule is changed: that is looked at with its first moment, too.
    assert_eq!(
        due::first_in(&ahead(json!({})), at("00:10:00")),
        Duration::from_secs(50 * 60) + PADDING
    );
}

#[test]
fn ends_are_noted() {
    let cron = cron(active(ONE, "01:00:00"));
    let done = decide(&cron, &[job(ONE, Some("Complete"), json!({}))], "01:30:00");
    let told = status(&done);
    assert_eq!(
        (told.active, told.last_successful_time.unwrap().0),
        (Some(vec![]), at("00:30:00"))
    );
    assert_eq!(
        events(&done),
        [(
            "SawCompletedJob",
            format!("Saw completed job: {ONE}, condition: Complete")
        )]
    );
    let failed = decide(&cron, &[job(ONE, Some("Failed"), json!({}))], "01:30:00");
    assert_eq!(status(&failed).last_successful_time, None);
    let gone = decide(&cron, &[], "01:30:00");
    assert_eq!(status(&gone).active, Some(vec![]));
    assert_eq!(
        events(&gone),
        [("MissingJob", format!("Active job went missing: {ONE}"))]
    );
    // Not while the Jobs may be older than what lists them, and nothing is said of one that was replaced.
    let mut view = View {
        cron: &cron,
        spec: &cron.spec,
        jobs: vec![],
        is_current: false,
        replaced: BTreeSet::from([ONE.to_owned()]),
        now: at("01:30:00"),
    };
    assert_eq!(plan(&view, &timetable(&cron.spec), &|_| None).plan.writes, []);
    view.is_current = true;
    let decision = plan(&view, &timetable(&cron.spec), &|_| None);
    assert_eq!(
        (words(&decision), events(&decision)),
        (vec!["status".to_owned()], vec![])
    );
    let stranger = job("by-hand", None, json!({}));
    let decision = decide(&cron, &[job(ONE, None, json!({})), stranger], "01:30:00");
    assert_eq!(
        events(&decision),
        [(
            "UnexpectedJob",
            "Saw a job that the controller did not create or forgot: by-hand".to_owned()
        )]
    );
}

#[test]
fn the_oldest_of_each_end_go() {
    let started = |name: &str, minute: u32, condition: &str| {
        job(
            name,
            Some(condition),
            json!({"status": {"startTime": format!("2026-01-01T00:{minute:02}:00Z")}}),
        )
    };
    let jobs = [
        started("a", 5, "Complete"),
        started("b", 1, "Complete"),
        started("c", 2, "Complete"),
        started("d", 3, "Failed"),
        started("e", 4, "Failed"),
        job("f", None, json!({})),
    ];
    let old = |cron: &CronJob| -> Vec<String> {
        let old = history::old(cron, &jobs).into_iter();
        old.map(|job| job.name_any()).collect()
    };
    assert_eq!(old(&cron(json!({}))), ["b", "c", "d"]);
    let none = json!({"spec": {"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": null}});
    assert_eq!(old(&cron(none)), ["b", "c", "a"]);
    assert_eq!(
        old(&cron(active("c", "00:02:00"))),
        ["b", "d"],
        "that it is over has not been noted yet"
    );
}

/// Whoever refuses a deletion (a webhook, say) keeps no Job from being started.
#[test]
fn what_is_over_is_removed_apart_from_what_is_started() {
    let jobs = ["a", "b"].map(|name| job(name, Some("Failed"), json!({})));
    let decision = decide(&cron(json!({})), &jobs, "01:00:00");
    assert_eq!(words(&decision), [format!("create {ONE}")]);
}

#[test]
fn moments_are_told_in_their_zone() {
    for (zone, expected) in [
        (None, "2026-01-01T01:00:00Z"),
        (Some("Europe/London"), "2026-01-01T01:00:00Z"),
        (Some("Asia/Kolkata"), "2026-01-01T06:30:00+05:30"),
    ] {
        assert_eq!(due::rfc3339(at("01:00:00"), zone), expected);
    }
}

#[test]
fn a_new_schedule_waits_for_its_first_moment() {
    let mut changed =
        cron(json!({"spec": {"schedule": "30 * * * *"}, "status": {"lastScheduleTime": "2026-01-01T03:00:00Z"}}));
    assert_eq!(
        due::first_in(&changed, at("03:10:00")),
        Duration::from_millis(20 * 60_000 + 100)
    );
    changed.spec.schedule = "nonsense".to_owned();
    assert_eq!(due::first_in(&changed, at("03:10:00")), Duration::ZERO);
}
