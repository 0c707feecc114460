use super::*;
use serde_json::Value;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn quota(spec: Value, status: Value) -> ResourceQuota {
    let object = json!({"metadata": {"name": "q", "namespace": "a", "uid": "u"}, "spec": spec, "status": status});
    serde_json::from_value(object).unwrap()
}

fn pod(extra: Value) -> Arc<Pod> {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}});
    json_patch::merge(&mut pod, &extra);
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// The status written of three pods, one of which is over, and four Secrets.
fn written(quota: &ResourceQuota) -> Option<Value> {
    let pods = [
        pod(json!({})),
        pod(json!({"spec": {"activeDeadlineSeconds": 5}})),
        pod(json!({"status": {"phase": "Failed"}})),
    ];
    let numbers = BTreeMap::from([("secrets".to_owned(), 4)]);
    let contents = Contents {
        pods: &pods,
        services: &[],
        claims: &[],
        numbers: &numbers,
    };
    let write = status(quota, &contents, now())?;
    assert_eq!((write.key.name.as_str(), write.key.namespace.as_str()), ("q", "a"));
    let Verb::ReplaceSub("status", body) = write.verb else {
        panic!("{write:?}");
    };
    assert_eq!(
        body["metadata"],
        json!({"name": "q", "namespace": "a", "uid": "u"}),
        "over no revision"
    );
    Some(body["status"].clone())
}

#[test]
fn what_is_used_is_counted_under_the_names_that_are_bounded() {
    let hard = json!({"pods": "5", "requests.cpu": "1", "secrets": "9", "services": "1", "count/jobs.batch": "1"});
    let told = written(&quota(json!({"hard": hard}), json!({}))).unwrap();
    assert_eq!(told["hard"], hard);
    assert_eq!(
        told["used"],
        json!({"pods": "2", "requests.cpu": "200m", "secrets": "4", "services": "0"}),
        "Jobs could not be asked for"
    );
}

#[test]
fn what_cannot_be_counted_stays_as_it_was_and_what_is_bounded_no_more_goes() {
    let status = json!({"hard": {"pods": "1"}, "used": {"count/jobs.batch": "3", "pods": "7"}});
    let told = written(&quota(json!({"hard": {"count/jobs.batch": "5"}}), status)).unwrap();
    assert_eq!(
        told,
        json!({"hard": {"count/jobs.batch": "5"}, "used": {"count/jobs.batch": "3"}})
    );
}

#[test]
fn scopes_leave_the_rest_out() {
    let spec = json!({"hard": {"pods": "5", "secrets": "5"}, "scopes": ["Terminating"]});
    assert_eq!(
        written(&quota(spec, json!({}))).unwrap()["used"],
        json!({"pods": "1", "secrets": "0"})
    );
}

#[test]
fn a_status_that_is_right_is_not_written_again() {
    let hard = json!({"pods": "5"});
    let right = json!({"hard": {"pods": "5"}, "used": {"pods": "2"}});
    assert_eq!(written(&quota(json!({"hard": hard}), right)), None);
    assert!(
        written(&quota(json!({}), json!({}))).is_some(),
        "a quota of nothing is told so, once"
    );
    assert_eq!(written(&quota(json!({}), json!({"hard": {}, "used": {}}))), None);
}

#[test]
fn charges_wake_nobody() {
    let hard = json!({"hard": {"pods": "5"}});
    let with = |spec: &Value, used: Value| {
        Some(Arc::new(quota(
            spec.clone(),
            json!({"hard": {"pods": "5"}, "used": used}),
        )))
    };
    let wakes = |old: Option<Arc<ResourceQuota>>, new: Option<Arc<ResourceQuota>>| {
        is_to_be_counted(&Change {
            key: Key::new("a", "q"),
            old,
            new,
        })
    };
    let one = || with(&hard, json!({"pods": "1"}));
    assert!(wakes(None, one()));
    assert!(wakes(one(), None));
    assert!(!wakes(one(), with(&hard, json!({"pods": "2"}))));
    assert!(wakes(
        one(),
        with(&json!({"hard": {"pods": "6"}}), json!({"pods": "1"}))
    ));
    assert!(wakes(one(), with(&hard, json!({}))));
}

#[test]
fn what_frees_something_wakes_the_quotas() {
    let change = |old: Option<Arc<Pod>>, new: Option<Arc<Pod>>| {
        frees(
            &Change {
                key: Key::new("a", "p"),
                old,
                new,
            },
            now(),
        )
    };
    let running = || Some(pod(json!({"status": {"phase": "Running"}})));
    assert!(change(running(), None));
    assert!(change(running(), Some(pod(json!({"status": {"phase": "Failed"}})))));
    assert!(!change(running(), Some(pod(json!({"status": {"phase": "Pending"}})))));
    assert!(!change(None, running()), "it was charged when it was made");
    let resized = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "50m"}}}]}});
    assert!(change(running(), Some(pod(resized))));
}
