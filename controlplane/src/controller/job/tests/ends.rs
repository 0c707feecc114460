//! How Jobs end: reasons, messages, what is told before and after the last pod is gone.

use super::*;

/// The end of a Job as it is announced: condition, reason, message.
fn announced(job: &Job, pods: &[Arc<Pod>]) -> Option<(String, String, String)> {
    let decision = decide(job, pods);
    let write = decision.plan.writes.first()?;
    let Verb::ReplaceSub("status", body) = &write.verb else {
        return None;
    };
    let status: JobStatus = serde_json::from_value(body["status"].clone()).unwrap();
    let condition = status.conditions?.into_iter().next()?;
    Some((condition.type_, condition.reason.unwrap(), condition.message.unwrap()))
}

fn exited(name: &str, code: i32) -> Arc<Pod> {
    let state = json!({"terminated": {"exitCode": code}});
    pod(
        name,
        json!({"status": {"phase": "Failed", "containerStatuses": [
        {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}}),
    )
}

#[test]
fn reasons() {
    let policy = |rule: Value| json!({"spec": {"podFailurePolicy": {"rules": [rule]}}});
    let codes = |action: &str, operator: &str| {
        policy(json!({"action": action, "onExitCodes": {"operator": operator, "values": [42]}}))
    };
    let evicted =
        json!({"status": {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
    let restarting = json!({"status": {"containerStatuses": [
        {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 3}]}});
    let failure =
        |reason: &str, message: &str| Some(("FailureTarget".to_owned(), reason.to_owned(), message.to_owned()));
    for (what, job, pods, expected) in [
        (
            "too many failures",
            job(json!({"spec": {"backoffLimit": 0}})),
            vec![ended("a", "Failed")],
            failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
        ),
        (
            "as many as allowed",
            job(json!({"spec": {"backoffLimit": 1}})),
            vec![ended("a", "Failed")],
            None,
        ),
        (
            "restarts in place, once its pods are gone",
            job(json!({"spec": {"backoffLimit": 3, "template": {"spec": {"restartPolicy": "OnFailure"}}}})),
            vec![pod("a", {
                let mut it = restarting.clone();
                json_patch::merge(
                    &mut it,
                    &json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}),
                );
                it
            })],
            failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
        ),
        (
            "its time",
            job(json!({"spec": {"activeDeadlineSeconds": 60}})),
            vec![],
            failure("DeadlineExceeded", "Job was active longer than specified deadline"),
        ),
        (
            "a code",
            job(codes("FailJob", "In")),
            vec![exited("a", 42)],
            failure(
                "PodFailurePolicy",
                "Container c for pod default/a failed with exit code 42 matching FailJob rule at index 0",
            ),
        ),
        ("another code", job(codes("FailJob", "In")), vec![exited("a", 1)], None),
        (
            "not that code",
            job(codes("FailJob", "NotIn")),
            vec![exited("a", 42)],
            None,
        ),
        (
            "a condition",
            job(policy(
                json!({"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}),
            )),
            vec![pod("a", evicted.clone())],
            failure(
                "PodFailurePolicy",
                "Pod default/a has condition DisruptionTarget matching FailJob rule at index 0",
            ),
        ),
        (
            "a failed index",
            indexed(json!({"spec": {"completions": 1, "backoffLimitPerIndex": 0, "backoffLimit": 100}})),
            vec![at_index("a", 0, "Failed")],
            failure("FailedIndexes", "Job has failed indexes"),
        ),
        (
            "too many failed indexes",
            indexed(json!({"spec": {"backoffLimitPerIndex": 0, "backoffLimit": 100, "maxFailedIndexes": 0}})),
            vec![at_index("a", 0, "Failed")],
            failure(
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            ),
        ),
        (
            "success by policy",
            indexed(
                json!({"spec": {"successPolicy": {"rules": [{"succeededIndexes": "1-2"}, {"succeededIndexes": "0-1", "succeededCount": 1}]}}}),
            ),
            vec![at_index("a", 0, "Succeeded")],
            Some((
                "SuccessCriteriaMet".to_owned(),
                "SuccessPolicy".to_owned(),
                "Matched rules at index 1".to_owned(),
            )),
        ),
        (
            "success",
            job(json!({"spec": {"completions": 1}})),
            vec![ended("a", "Succeeded")],
            Some((
                "SuccessCriteriaMet".to_owned(),
                "CompletionsReached".to_owned(),
                "Reached expected number of succeeded pods".to_owned(),
            )),
        ),
        (
            "nothing to do",
            job(json!({"spec": {"completions": 0}})),
            vec![],
            Some((
                "SuccessCriteriaMet".to_owned(),
                "CompletionsReached".to_owned(),
                "Reached expected number of succeeded pods".to_owned(),
            )),
        ),
    ] {
        assert_eq!(announced(&job, &pods), expected, "{what}");
    }
}

#[test]
fn what_is_ignored_does_not_count() {
    let rules = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let ignoring = job(json!({"spec": {"backoffLimit": 0, "podFailurePolicy": rules}}));
    let pods = [exited("a", 42)];
    assert_eq!(
        words(&decide(&ignoring, &pods)),
        ["untrack a"],
        "let go of and not listed"
    );
    assert_eq!(
        announced(&ignoring, &[exited("b", 1)]).unwrap().1,
        "BackoffLimitExceeded"
    );
}

#[test]
fn an_end_is_announced_then_its_pods_end_then_it_is_told() {
    let mut job = job(json!({"spec": {"backoffLimit": 0}, "status": {"active": 1}}));
    let bad = ended("bad", "Failed");
    let decision = decide(&job, &[bad.clone(), pod("running", json!({}))]);
    assert_eq!(words(&decision), ["delete running"], "pods that run are ended first");
    let dying = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:10Z"}});
    let pods = [bad, pod("running", dying.clone())];
    let (status, _) = told(&decide(&job, &pods));
    assert_eq!(conditions(&status), ["FailureTarget"]);
    assert_eq!(
        status
            .uncounted_terminated_pods
            .as_ref()
            .unwrap()
            .failed
            .as_ref()
            .unwrap()
            .len(),
        2,
        "what is ended has failed"
    );
    job.status = Some(status);
    assert_eq!(words(&decide(&job, &pods)), ["untrack bad", "untrack running"]);
    let free = json!({"metadata": {"finalizers": null}});
    let free = |pod: &Arc<Pod>| {
        let mut value = serde_json::to_value(&**pod).unwrap();
        json_patch::merge(&mut value, &free);
        Arc::new(serde_json::from_value::<Pod>(value).unwrap())
    };
    let pods: Vec<Arc<Pod>> = pods.iter().map(free).collect();
    let (status, _) = told(&decide(&job, &pods));
    assert_eq!(
        (conditions(&status), status.failed),
        (vec!["FailureTarget"], Some(2)),
        "one still runs"
    );
    job.status = Some(status);
    let decision = decide(&job, &pods[..1]);
    let (status, event) = told(&decision);
    assert_eq!(conditions(&status), ["FailureTarget", "Failed"]);
    let event = event.unwrap();
    assert_eq!(
        (event.kind, event.reason, event.message.as_str()),
        (
            "Warning",
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit"
        )
    );
    assert_eq!(status.completion_time, None);
}

#[test]
fn completion_is_told_with_its_time() {
    let stored = json!({"succeeded": 1, "startTime": "1970-01-01T00:00:00Z", "conditions": [{"type": "SuccessCriteriaMet", "status": "True",
        "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}]});
    let one = job(json!({"spec": {"completions": 1}, "status": stored}));
    let decision = decide(&one, &[]);
    let (status, event) = told(&decision);
    assert_eq!(conditions(&status), ["SuccessCriteriaMet", "Complete"]);
    assert!(status.completion_time.is_some());
    let event = event.unwrap();
    assert_eq!(
        (event.kind, event.reason, event.message.as_str()),
        ("Normal", "Completed", "Job completed")
    );
    let mut many = one.clone();
    many.status.as_mut().unwrap().succeeded = Some(2);
    assert_eq!(decide(&many, &[]).plan.events[0].reason, "TooManySucceededPods");
}

#[test]
fn each_index_fails_for_itself() {
    let spec = json!({"spec": {"backoffLimitPerIndex": 1, "backoffLimit": 100, "parallelism": 3}});
    let mut job = indexed(spec);
    let failed = at_index("a", 0, "Failed");
    // The failed pod is kept until the next of its index is there, and inherits the count.
    let decision = decide(
        &job,
        &[failed.clone(), at_index("b", 1, "Running"), at_index("c", 2, "Running")],
    );
    let [write] = &decision.plan.writes[..] else {
        panic!("{decision:?}")
    };
    let Verb::Create(body) = &write.verb else {
        panic!("{write:?}")
    };
    assert_eq!(body["metadata"]["annotations"][INDEX], "0");
    assert_eq!(body["metadata"]["annotations"][view::INDEX_FAILURES], "1");
    let annotations = json!({INDEX: "0", view::INDEX_FAILURES: "1"});
    let second = |phase: &str| {
        pod(
            "a2",
            json!({"metadata": {"annotations": annotations}, "status": {"phase": phase}}),
        )
    };
    let pods = [
        failed.clone(),
        second("Running"),
        at_index("b", 1, "Running"),
        at_index("c", 2, "Running"),
    ];
    let (status, _) = told(&decide(&job, &pods));
    assert_eq!(
        status.uncounted_terminated_pods.unwrap().failed,
        Some(vec!["a".to_owned()])
    );
    let pods = [
        second("Failed"),
        at_index("b", 1, "Running"),
        at_index("c", 2, "Succeeded"),
    ];
    let (status, _) = told(&decide(&job, &pods));
    assert_eq!(
        (status.failed_indexes.as_deref(), status.completed_indexes.as_deref()),
        (Some("0"), Some("2"))
    );
    assert_eq!(status.succeeded, Some(1));
    // A failed index is not tried again.
    job.status = Some(status);
    let free = [at_index("b", 1, "Running")];
    assert!(!words(&decide(&job, &free)).contains(&"create".to_owned()));
}

#[test]
fn a_rule_fails_an_index_at_once() {
    let rules = json!({"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let job = indexed(json!({"spec": {"backoffLimitPerIndex": 5, "backoffLimit": 100, "podFailurePolicy": rules}}));
    let mut pod = Pod::clone(&exited("a", 42));
    pod.metadata.annotations = serde_json::from_value(json!({INDEX: "1"})).unwrap();
    let (status, _) = told(&decide(&job, &[Arc::new(pod)]));
    assert_eq!(status.failed_indexes.as_deref(), Some("1"));
}

#[test]
fn an_end_that_comes_by_itself_is_waited_for() {
    let limited = job(json!({"spec": {"activeDeadlineSeconds": 60, "parallelism": 1}, "status": {"active": 1}}));
    let decision = decide_at(&limited, &[pod("a", json!({}))], 20);
    assert_eq!(decision.plan.again_in, Some(Duration::from_secs(40)));
}

#[test]
fn pods_are_seen_to_until_the_end_is_near() {
    let runs = || vec![pod("a", json!({}))];
    let going = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
    let over = json!({"status": {"conditions": [{"type": "FailureTarget", "status": "True"}]}});
    for (what, extra, expected) in [
        ("it runs", json!({}), true),
        ("suspended", json!({"spec": {"suspend": true}}), true),
        ("an end is told", over, false),
        ("it is being deleted", going, false),
    ] {
        assert_eq!(decide(&job(extra), &runs()).manages, expected, "{what}");
    }
}
