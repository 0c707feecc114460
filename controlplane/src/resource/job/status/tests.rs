use super::*;

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-01T00:10:00Z";

fn job(spec: &Value, status: &Value) -> Value {
    json!({"metadata": {"name": "j"}, "spec": spec, "status": status})
}

/// A status with these conditions, all true.
fn with(conditions: &[&str], rest: Value) -> Value {
    let all: Vec<Value> = conditions
        .iter()
        .map(|kind| json!({"type": kind, "status": "True"}))
        .collect();
    let mut status = json!({"startTime": EARLY, "conditions": all});
    json_patch::merge(&mut status, &rest);
    status
}

fn errors(spec: &Value, old: &Value, new: &Value) -> Vec<String> {
    let found = validate_update(&job(spec, new), &job(spec, old));
    found.iter().map(ToString::to_string).collect()
}

fn refuses(spec: Value, old: Value, new: Value, expected: &[&str]) {
    assert_eq!(errors(&spec, &old, &new), expected, "{spec} {old} {new}");
}

#[test]
fn the_steps_of_a_controller_are_taken() {
    let indexed = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 5, "backoffLimitPerIndex": 1});
    let steps = [
        json!({}),
        json!({"startTime": EARLY, "active": 2, "ready": 0, "uncountedTerminatedPods": {}}),
        json!({"startTime": EARLY, "active": 2, "ready": 2, "succeeded": 1, "completedIndexes": "0", "failedIndexes": "1",
            "uncountedTerminatedPods": {"failed": ["a"]}}),
        with(
            &["SuccessCriteriaMet"],
            json!({"succeeded": 4, "failed": 1, "completedIndexes": "0,2-4", "failedIndexes": "1"}),
        ),
        with(
            &["SuccessCriteriaMet", "Complete"],
            json!({"completionTime": LATE, "succeeded": 4, "failed": 1, "completedIndexes": "0,2-4", "failedIndexes": "1"}),
        ),
    ];
    for step in steps.windows(2) {
        refuses(indexed.clone(), step[0].clone(), step[1].clone(), &[]);
    }
    let failing = [
        json!({"startTime": EARLY}),
        with(&["FailureTarget"], json!({})),
        with(&["FailureTarget", "Failed"], json!({})),
    ];
    for step in failing.windows(2) {
        refuses(json!({}), step[0].clone(), step[1].clone(), &[]);
    }
    // One whose two numbers are one may have got smaller; one that is suspended has no start.
    refuses(
        indexed,
        json!({"succeeded": 2, "completedIndexes": "3,4"}),
        json!({"succeeded": 0}),
        &[],
    );
    let suspended = json!({"suspend": true});
    refuses(suspended.clone(), json!({"startTime": EARLY}), json!({}), &[]);
    refuses(
        suspended,
        with(&["FailureTarget"], json!({"startTime": null})),
        with(&["FailureTarget", "Failed"], json!({"startTime": null})),
        &[],
    );
}

#[test]
fn what_contradicts_itself_is_refused() {
    let none = || json!({});
    let conditions = |why: &str| format!("status.conditions: Invalid value: {why}");
    let both = conditions("cannot set Complete=True and Failed=true conditions");
    let target = conditions("cannot set Complete=True and FailureTarget=true conditions");
    let unannounced = conditions("cannot set Failed=True condition without the FailureTarget=true condition");
    let unmet = conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    let met_failed = conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions");
    let met_target = conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    let all = ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"];
    refuses(
        none(),
        none(),
        with(&all, json!({"completionTime": LATE})),
        &[&both, &target, &met_failed, &met_target],
    );
    refuses(none(), none(), with(&["Failed"], none()), &[&unannounced]);
    refuses(
        none(),
        none(),
        with(&["Complete"], json!({"completionTime": LATE})),
        &[&unmet],
    );
    let done = ["SuccessCriteriaMet", "Complete"];
    refuses(
        none(),
        none(),
        with(&done, none()),
        &["status.completionTime: Required value: completionTime is required for Complete jobs"],
    );
    let time = |why: &str, time: &str| format!("status.completionTime: Invalid value: \"{time}\": {why}");
    let early = time(
        "cannot set completionTime when there is no Complete=True condition",
        LATE,
    );
    refuses(
        none(),
        none(),
        json!({"startTime": EARLY, "completionTime": LATE}),
        &[&early],
    );
    let before = time("completionTime cannot be set before startTime", EARLY);
    refuses(
        none(),
        none(),
        with(&done, json!({"startTime": LATE, "completionTime": EARLY})),
        &[&before],
    );
    let running = with(
        &done,
        json!({"completionTime": LATE, "startTime": null, "active": 1, "terminating": 2, "ready": 3,
        "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a", ""]}}),
    );
    refuses(
        none(),
        none(),
        running,
        &[
            "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
            "status.uncountedTerminatedPods.failed[1]: Invalid value: \"\": must not be empty",
            "status.active: Invalid value: 1: active>0 is invalid for finished job",
            "status.startTime: Required value: startTime is required for finished job",
            "status.uncountedTerminatedPods: Invalid value: {\"failed\":[\"a\",\"\"],\"succeeded\":[\"a\"]}: uncountedTerminatedPods \
             needs to be empty for finished job",
            "status.terminating: Invalid value: 2: terminating>0 is invalid for finished job",
            "status.ready: Invalid value: 3: cannot set more ready pods than active",
        ],
    );
}

#[test]
fn indexes_are_read_and_are_of_one_kind() {
    let indexed = || json!({"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1});
    let both = |done: &str, lost: &str| json!({"completedIndexes": done, "failedIndexes": lost});
    let none = || json!({});
    refuses(indexed(), none(), both("0-2,4", "3"), &[]);
    refuses(indexed(), none(), both("", ""), &[]);
    let overlap =
        "status.failedIndexes: Invalid value: \"1,3-4\": failedIndexes and completedIndexes overlap at index: 4";
    refuses(indexed(), none(), both("0,2,4", "1,3-4"), &[overlap]);
    let large = "status.completedIndexes: Invalid value: \"5\": error parsing completedIndexes: too large index: \"5\"";
    let order = "status.failedIndexes: Invalid value: \"2,1\": error parsing failedIndexes: non-increasing order, previous: 2, current: 1";
    refuses(indexed(), none(), both("5", "2,1"), &[large, order]);
    // What is there already is in nobody's way.
    refuses(
        indexed(),
        both("5", "2,1"),
        json!({"completedIndexes": "5", "failedIndexes": "2,1", "active": 1}),
        &[],
    );
    let plain = "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode";
    let limitless = "status.failedIndexes: Invalid value: \"1\": cannot set non-null failedIndexes when backoffLimitPerIndex is null";
    refuses(json!({"completions": 5}), none(), both("0", "1"), &[plain, limitless]);
}

#[test]
fn nothing_is_taken_back() {
    let none = || json!({});
    let conditions = |why: &str| format!("status.conditions: Invalid value: {why}");
    let failed = conditions("cannot disable the terminal Failed=True condition");
    let target = conditions("cannot disable the terminal FailureTarget=True condition");
    refuses(
        none(),
        with(&["FailureTarget", "Failed"], none()),
        with(&[], none()),
        &[&failed, &target],
    );
    let complete = conditions("cannot disable the terminal Complete=True condition");
    let met = conditions("cannot disable the SuccessCriteriaMet=True condition");
    let done = with(&["SuccessCriteriaMet", "Complete"], json!({"completionTime": LATE}));
    refuses(none(), done.clone(), with(&[], none()), &[&complete, &met]);
    let moved = "status.completionTime: Invalid value: \"2026-01-01T00:20:00Z\": completionTime cannot be mutated";
    let later = with(
        &["SuccessCriteriaMet", "Complete"],
        json!({"completionTime": "2026-01-01T00:20:00Z"}),
    );
    refuses(none(), done, later, &[moved]);
    let fewer = [
        "status.failed: Invalid value: 1: cannot decrease the failed counter",
        "status.succeeded: Invalid value: 2: cannot decrease the succeeded counter",
    ];
    refuses(
        none(),
        json!({"failed": 2, "succeeded": 3}),
        json!({"failed": 1, "succeeded": 2}),
        &fewer,
    );
    let removed = "status.startTime: Required value: startTime cannot be removed for unsuspended job";
    refuses(
        none(),
        json!({"startTime": EARLY}),
        json!({"startTime": LATE}),
        &[removed],
    );
    let stored = with(&["Complete"], json!({"completionTime": LATE}));
    let late = conditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    refuses(
        none(),
        stored,
        with(&["Complete", "SuccessCriteriaMet"], json!({"completionTime": LATE})),
        &[&late],
    );
}
