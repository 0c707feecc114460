//! One step after another: what is made, listed, let go of, counted.

use super::*;

/// The bodies of the pods that a step makes.
fn created(decision: &Decision) -> Vec<Value> {
    let bodies = decision.plan.writes.iter().map(|write| match &write.verb {
        Verb::Create(body) => body.clone(),
        other => panic!("{other:?}"),
    });
    bodies.collect()
}

#[test]
fn pods_are_made_tracked_and_named() {
    let decision = decide(&job(json!({})), &[]);
    let pods = created(&decision);
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        let meta = &pod["metadata"];
        assert_eq!(meta["generateName"], "j-");
        assert_eq!(meta["finalizers"], json!([FINALIZER]));
        assert_eq!(meta["labels"]["job-name"], "j");
        assert_eq!(meta["ownerReferences"][0]["uid"], "job");
        assert!(meta["name"].as_str().unwrap().starts_with("j-") && meta["name"].as_str().unwrap().len() == 7);
    }
    assert_ne!(pods[0]["metadata"]["name"], pods[1]["metadata"]["name"]);
    assert_eq!(
        decision.plan.writes[0].on_success.as_ref().unwrap().message,
        "Created pod: {}"
    );
    // Asked again, the same; once one is there, the other and a new one.
    assert_eq!(created(&decide(&job(json!({})), &[])), pods);
    let first = pod(pods[0]["metadata"]["name"].as_str().unwrap(), json!({}));
    let rest = created(&decide(&job(json!({})), &[first]));
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["metadata"]["name"], pods[1]["metadata"]["name"]);
}

#[test]
fn pods_of_an_indexed_job_know_their_index() {
    let name = "a-name-that-is-so-long-that-an-index-hardly-fits-behind-it-ab";
    let pods = created(&decide(&indexed(json!({"metadata": {"name": name}})), &[]));
    let pod = &pods[1];
    assert_eq!(pod["metadata"]["annotations"][INDEX], "1");
    assert_eq!(pod["metadata"]["labels"][INDEX], "1");
    assert_eq!(pod["spec"]["hostname"], format!("{name}-1"));
    let variable = &pod["spec"]["containers"][0]["env"][0];
    assert_eq!(variable["name"], "JOB_COMPLETION_INDEX");
    assert_eq!(
        variable["valueFrom"]["fieldRef"]["fieldPath"],
        format!("metadata.labels['{INDEX}']")
    );
    let prefix = pod["metadata"]["generateName"].as_str().unwrap();
    assert!(prefix.ends_with("-1-") && prefix.len() == 58, "{prefix}");
}

#[test]
fn how_many_pods_are_made() {
    let many = |count: usize, phase: &str| -> Vec<Arc<Pod>> {
        let listed = json!({"metadata": {"finalizers": null}, "status": {"phase": phase}});
        (0..count).map(|i| pod(&format!("p{i}"), listed.clone())).collect()
    };
    for (what, extra, pods, expected) in [
        (
            "no more than are missing",
            json!({"status": {"succeeded": 2}}),
            many(0, ""),
            1,
        ),
        ("none beside those that run", json!({}), many(2, "Running"), 0),
        (
            "no more than 500",
            json!({"spec": {"parallelism": 10_000, "completions": 10_000}}),
            many(0, ""),
            500,
        ),
        (
            "as many as parallelism, without a goal",
            json!({"spec": {"completions": null}}),
            many(1, "Running"),
            1,
        ),
        (
            "no others, once one succeeded",
            json!({"spec": {"completions": null}, "status": {"succeeded": 1}}),
            many(1, "Running"),
            0,
        ),
        (
            "none while suspended",
            json!({"spec": {"suspend": true}}),
            many(0, ""),
            0,
        ),
        (
            "none of a Job that goes",
            json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}),
            many(0, ""),
            0,
        ),
        (
            "none at no parallelism",
            json!({"spec": {"parallelism": 0}}),
            many(0, ""),
            0,
        ),
    ] {
        let words = words(&decide(&job(extra), &pods));
        assert_eq!(
            words.iter().filter(|word| *word == "create").count(),
            expected,
            "{what}: {words:?}"
        );
    }
}

#[test]
fn an_end_is_listed_let_go_of_and_counted() {
    let (good, bad) = (ended("good", "Succeeded"), ended("bad", "Failed"));
    let mut job = job(json!({"spec": {"parallelism": 1}}));
    let decision = decide(&job, &[good.clone(), bad.clone()]);
    let (status, _) = told(&decision);
    let listed = status.uncounted_terminated_pods.clone().unwrap();
    assert_eq!(listed.succeeded, Some(vec!["good".to_owned()]));
    assert_eq!(listed.failed, Some(vec!["bad".to_owned()]));
    assert_eq!((status.succeeded, status.failed), (None, None));
    job.status = Some(status);
    assert_eq!(words(&decide(&job, &[good, bad])), ["untrack bad", "untrack good"]);
    let free = |name, phase| {
        pod(
            name,
            json!({"metadata": {"finalizers": null}, "status": {"phase": phase}}),
        )
    };
    let pods = [free("good", "Succeeded"), free("bad", "Failed")];
    let (status, _) = told(&decide(&job, &pods));
    assert_eq!((status.succeeded, status.failed), (Some(1), Some(1)));
    assert_eq!(plain_lists(&status), (0, 0));
    job.status = Some(status);
    assert_eq!(words(&decide(&job, &pods)), ["create"]);
    // Gone altogether is let go of, too.
    job.status = serde_json::from_value(json!({"uncountedTerminatedPods": {"failed": ["x"]}, "failed": 2})).unwrap();
    assert_eq!(told(&decide(&job, &[])).0.failed, Some(3));
}

fn plain_lists(status: &JobStatus) -> (usize, usize) {
    let lists = status.uncounted_terminated_pods.clone().unwrap_or_default();
    (
        lists.succeeded.unwrap_or_default().len(),
        lists.failed.unwrap_or_default().len(),
    )
}

#[test]
fn at_most_five_hundred_are_listed_and_all_are_counted() {
    let pods: Vec<Arc<Pod>> = (0..1200).map(|i| ended(&format!("p{i:04}"), "Succeeded")).collect();
    let mut job = job(json!({"spec": {"parallelism": 1200, "completions": 2000}}));
    let (status, _) = told(&decide(&job, &pods));
    assert_eq!(plain_lists(&status), (500, 0));
    job.status = Some(status);
    assert_eq!(words(&decide(&job, &pods)).len(), 500);
    let mut pods = pods;
    for (i, pod) in pods.iter_mut().enumerate() {
        if i < 500 {
            Arc::make_mut(pod).metadata.finalizers = None;
        }
    }
    let (status, _) = told(&decide(&job, &pods));
    assert_eq!((status.succeeded, plain_lists(&status)), (Some(500), (500, 0)));
}

#[test]
fn a_deleted_pod_has_failed_or_is_waited_for() {
    let dying = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:10Z", "deletionGracePeriodSeconds": 5}});
    let pods = [pod("dying", dying)];
    let (status, _) = told(&decide(&job(json!({})), &pods));
    assert_eq!((plain_lists(&status), status.terminating), ((0, 1), Some(1)));
    let waiting = job(json!({"spec": {"podReplacementPolicy": "Failed"}}));
    let decision = decide(&waiting, &pods);
    assert_eq!(words(&decision), ["create"], "one is replaced only when it has ended");
}

#[test]
fn surplus_pods_are_let_go_of_and_deleted() {
    let job_of_one = job(json!({"spec": {"parallelism": 1}}));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let decision = decide(&job_of_one, &[pod("a", ready), pod("b", json!({}))]);
    assert_eq!(words(&decision), ["untrack b", "delete b"]);
    let suspended = job(json!({"spec": {"suspend": true}}));
    let decision = decide(
        &suspended,
        &[pod("a", json!({})), pod("b", json!({"metadata": {"finalizers": null}}))],
    );
    let mut found = words(&decision);
    found.sort();
    assert_eq!(found, ["delete a", "delete b", "untrack a"]);
    // Of an indexed Job: those without an index, beyond the last, and all but one of each.
    let pods = [
        at_index("a", 0, "Running"),
        at_index("b", 0, "Pending"),
        at_index("c", 7, "Running"),
        pod("d", json!({})),
    ];
    let mut found = words(&decide(&indexed(json!({"spec": {"parallelism": 3}})), &pods));
    found.sort();
    assert_eq!(
        found,
        [
            "delete b",
            "delete c",
            "delete d",
            "untrack b",
            "untrack c",
            "untrack d"
        ]
    );
}

#[test]
fn suspended_and_resumed() {
    let suspended = job(json!({"spec": {"suspend": true}}));
    let decision = decide(&suspended, &[]);
    let (status, event) = told(&decision);
    assert_eq!(
        (conditions(&status), status.start_time.clone()),
        (vec!["Suspended"], None)
    );
    let event = event.unwrap();
    assert_eq!(
        (event.kind, event.reason, event.message.as_str()),
        ("Normal", "Suspended", "Job suspended")
    );
    let mut resumed = job(json!({}));
    resumed.status = Some(status);
    resumed.spec.as_mut().unwrap().parallelism = Some(0);
    let decision = decide(&resumed, &[]);
    let (status, event) = told(&decision);
    let condition = &status.conditions.as_ref().unwrap()[0];
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_deref()),
        ("False", Some("JobResumed"))
    );
    assert_eq!(
        status.start_time.as_ref().map(|time| time.0),
        Some(at(1_000_000)),
        "the time it may run begins anew"
    );
    assert_eq!(
        (event.unwrap().reason, event.unwrap().message.as_str()),
        ("Resumed", "Job resumed")
    );
    resumed.status = Some(status);
    assert!(decide(&resumed, &[]).plan.writes.is_empty(), "told once");
}

#[test]
fn failures_put_off_the_next_pods() {
    let failed = |name: &str, second: i64| {
        let end = at(second).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let state = json!({"terminated": {"exitCode": 1, "finishedAt": end}});
        pod(
            name,
            json!({"metadata": {"finalizers": null}, "status": {"phase": "Failed", "containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}}),
        )
    };
    let stored = json!({"status": {"failed": 3, "active": 0}});
    for (what, pods, now, wait) in [
        ("one: 10 s", vec![failed("a", 100)], 104, Some(6)),
        ("no less than a second", vec![failed("a", 100)], 109, Some(1)),
        ("passed", vec![failed("a", 100)], 110, None),
        ("two: 20 s", vec![failed("a", 90), failed("b", 100)], 101, Some(19)),
        (
            "eight: 10 min at most",
            (0..8).map(|i| failed(&format!("p{i}"), 100 + i)).collect(),
            107,
            Some(600),
        ),
    ] {
        let decision = decide_at(&job(stored.clone()), &pods, now);
        let expected = wait.map(Duration::from_secs);
        assert_eq!(decision.plan.again_in, expected, "{what}");
        assert_eq!(decision.plan.writes.is_empty(), wait.is_some(), "{what}");
    }
    let mut pods = vec![failed("a", 100), failed("b", 200)];
    pods.push(pod("good", json!({"metadata": {"finalizers": null, "creationTimestamp": "1970-01-01T00:02:30Z"}, "status": {"phase": "Succeeded"}})));
    let job = job(json!({"status": {"failed": 2, "succeeded": 1}}));
    assert_eq!(
        decide_at(&job, &pods, 201).plan.again_in,
        Some(Duration::from_secs(9)),
        "a success ends the count"
    );
}

#[test]
fn a_status_is_there_for_when_pods_cannot_be_made() {
    let decision = decide(&job(json!({"status": null})), &[]);
    assert_eq!(words(&decision), ["create", "create"]);
    assert!(matches!(decision.status.unwrap().verb, Verb::ReplaceSub("status", _)));
}

#[test]
fn orphans() {
    let over = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    let dying = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:10Z"}});
    for (what, pod, job, expected) in [
        ("its Job runs", pod("p", json!({})), Some(job(json!({}))), false),
        ("its Job is over", pod("p", json!({})), Some(job(over.clone())), true),
        (
            "its Job is somebody else's",
            pod("p", json!({})),
            Some(job(
                json!({"spec": {"managedBy": "example.org/other"}, "status": over["status"]}),
            )),
            false,
        ),
        ("its Job is not known", pod("p", json!({})), None, false),
        ("and it is being deleted", pod("p", dying.clone()), None, true),
        (
            "its Job is another of that name",
            pod("p", dying),
            Some(job(json!({"metadata": {"uid": "other"}}))),
            true,
        ),
        (
            "nobody controls it",
            pod("p", json!({"metadata": {"ownerReferences": null}})),
            None,
            true,
        ),
        (
            "nothing holds it",
            pod("p", json!({"metadata": {"finalizers": null, "ownerReferences": null}})),
            None,
            false,
        ),
    ] {
        assert_eq!(orphan::is_orphan(&pod, |_| job.map(Arc::new)), expected, "{what}");
    }
    let free = pod("free", json!({"metadata": {"ownerReferences": null}}));
    for (pod, expected) in [(free, 1), (ended("ended", "Failed"), 1), (pod("late", json!({})), 2)] {
        assert_eq!(orphan::release(&pod).len(), expected, "{}", pod.name_any());
    }
}
