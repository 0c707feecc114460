//! What statuses, pods and plans count as.

use super::*;
use client::Key;
use prometheus_client::registry::Registry;
use serde_json::json;

fn job(extra: Value) -> Job {
    let mut value = json!({"metadata": {"name": "j", "namespace": "a"},
        "spec": {"completions": 5, "completionMode": "NonIndexed", "podReplacementPolicy": "TerminatingOrFailed", "template": {}}});
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

fn pod(phase: &str, extra: Value) -> Pod {
    let mut value = json!({"metadata": {"name": "p", "namespace": "a", "finalizers": ["batch.kubernetes.io/job-tracking"]},
        "status": {"phase": phase}});
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

/// The lines of counters that are not zero, without `job_controller_`.
fn counted(count: impl FnOnce(&Controllers)) -> Vec<String> {
    let metrics = crate::metrics::Metrics::default();
    count(&metrics.queue("q").controllers);
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("job_controller_"));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn what_a_status_says_anew_is_counted() {
    let indexed =
        json!({"spec": {"completionMode": "Indexed", "backoffLimitPerIndex": 1}, "status": {"completedIndexes": "0"}});
    let over = |kind: &str, reason: &str| json!([{"type": kind, "status": "True", "reason": reason}]);
    for (old, new, expected) in [
        (json!({}), json!({"active": 2}), vec![]),
        (
            json!({"status": {"succeeded": 1, "failed": 1}}),
            json!({"succeeded": 3, "failed": 2}),
            vec![
                "job_pods_finished_total{completion_mode=\"NonIndexed\",result=\"failed\"} 1",
                "job_pods_finished_total{completion_mode=\"NonIndexed\",result=\"succeeded\"} 2",
            ],
        ),
        (
            indexed,
            json!({"succeeded": 3, "completedIndexes": "0,2-3", "failedIndexes": "1"}),
            vec![
                "job_finished_indexes_total{status=\"failed\",backoffLimit=\"perIndex\"} 1",
                "job_finished_indexes_total{status=\"succeeded\",backoffLimit=\"perIndex\"} 2",
                "job_pods_finished_total{completion_mode=\"Indexed\",result=\"succeeded\"} 2",
            ],
        ),
        (
            json!({}),
            json!({"conditions": over("Complete", "CompletionsReached")}),
            vec![
                "jobs_finished_total{completion_mode=\"NonIndexed\",result=\"succeeded\",reason=\"CompletionsReached\"} 1",
            ],
        ),
        (
            json!({}),
            json!({"conditions": over("Failed", "BackoffLimitExceeded")}),
            vec![
                "jobs_finished_total{completion_mode=\"NonIndexed\",result=\"failed\",reason=\"BackoffLimitExceeded\"} 1",
            ],
        ),
        // It was over before, and reasons that are nobody's are no labels.
        (
            json!({"status": {"conditions": over("Failed", "x")}}),
            json!({"conditions": over("Failed", "x")}),
            vec![],
        ),
        (
            json!({}),
            json!({"conditions": over("Failed", "x")}),
            vec!["jobs_finished_total{completion_mode=\"NonIndexed\",result=\"failed\",reason=\"\"} 1"],
        ),
    ] {
        let found = counted(|counters| told(counters, &job(old.clone()), &json!({"status": new})));
        assert_eq!(found, expected, "{old} {new}");
    }
}

#[test]
fn creations_say_why() {
    for (extra, reason) in [
        (json!({}), "new"),
        (json!({"status": {"failed": 1}}), "recreate_terminating_or_failed"),
        (json!({"status": {"terminating": 1}}), "recreate_terminating_or_failed"),
        (
            json!({"status": {"uncountedTerminatedPods": {"failed": ["u"]}}}),
            "recreate_terminating_or_failed",
        ),
        (
            json!({"spec": {"podReplacementPolicy": "Failed"}, "status": {"failed": 1}}),
            "recreate_failed",
        ),
        (json!({"spec": {"podReplacementPolicy": "Failed"}}), "new"),
    ] {
        let found = counted(|counters| {
            created(counters, &job(extra.clone()), true);
            created(counters, &job(extra.clone()), false);
        });
        let line = |status: &str| format!("job_pods_creation_total{{reason=\"{reason}\",status=\"{status}\"}} 1");
        assert_eq!(found, [line("failed"), line("succeeded")], "{extra}");
    }
}

#[test]
fn looks_are_told_apart_by_what_was_done() {
    let write = |resource, verb| Write::new(resource, Key::new("a", "p"), verb);
    let create = || write(write::PODS, Verb::Create(Value::Null));
    let delete = || {
        write(
            write::PODS,
            Verb::Delete {
                uid: String::new(),
                revision: None,
                grace: None,
                propagation: None,
            },
        )
    };
    let status = || write(write::JOBS, Verb::ReplaceSub("status", Value::Null));
    let planned = |manages: bool| Planned {
        job: std::sync::Arc::new(job(json!({}))),
        done: std::collections::BTreeMap::new(),
        manages,
    };
    for (manages, writes, action) in [
        (true, vec![], "tracking"),
        (true, vec![status()], "tracking"),
        (true, vec![create()], "pods_created"),
        (true, vec![delete(), status()], "pods_deleted"),
        (false, vec![], "reconciling"),
        (false, vec![delete()], "reconciling"),
    ] {
        let found = sync(&planned(manages), &writes, false);
        assert_eq!(
            (found.action, found.result, found.completion_mode),
            (action, "success", "NonIndexed")
        );
    }
    assert_eq!(sync(&planned(true), &[], true).result, "error");
}

#[test]
fn failures_count_by_the_rule_that_fits() {
    let rule =
        |action: &str| json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let fits = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
    for (action, phase, extra, is_counted) in [
        ("Ignore", "Failed", fits.clone(), true),
        ("FailJob", "Failed", fits.clone(), true),
        ("Count", "Failed", fits.clone(), true),
        ("Count", "Succeeded", fits, false),
        ("Count", "Failed", json!({}), false),
    ] {
        let job = job(json!({"spec": {"podFailurePolicy": {"rules": [rule(action)]}}}));
        let found = counted(|counters| judged(counters, &job, &pod(phase, extra)));
        let line = format!("pod_failures_handled_by_failure_policy_total{{action=\"{action}\"}} 1");
        let expected: Vec<String> = is_counted.then_some(line).into_iter().collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn finalizers_of_what_is_over_come_and_go() {
    let runs = pod("Running", json!({}));
    let over = pod("Failed", json!({}));
    let free = pod("Failed", json!({"metadata": {"finalizers": null}}));
    let line = |event: &str| {
        vec![format!(
            "terminated_pods_tracking_finalizer_total{{event=\"{event}\"}} 1"
        )]
    };
    for (old, new, expected) in [
        (Some(&runs), Some(&over), line("add")),
        (None, Some(&over), line("add")),
        (Some(&over), Some(&free), line("delete")),
        (Some(&over), None, line("delete")),
        (Some(&over), Some(&over), vec![]),
        (Some(&runs), None, vec![]),
    ] {
        assert_eq!(counted(|counters| held(counters, old, new)), expected);
    }
}
