use super::*;
use crate::resource::Registry;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn kind(group: &str, plural: &str) -> &'static Kind {
    Registry::built_in().by_resource(group, "v1", plural).unwrap()
}

fn pod(node: &str, phase: &str) -> Value {
    json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30},
        "status": {"phase": phase}})
}

fn with_grace(seconds: i64) -> Options {
    Options {
        grace_seconds: Some(seconds),
        ..Options::default()
    }
}

fn written(step: Step) -> Value {
    match step {
        Step::Write(new) => new,
        other => panic!("expected a write, got {other:?}"),
    }
}

#[test]
fn pods_end_by_grace_and_only_ever_sooner() {
    let pods = kind("", "pods");
    assert_eq!(
        decide(pods, &pod("", "Pending"), &with_grace(60), now()),
        Step::Remove,
        "unscheduled"
    );
    assert_eq!(
        decide(pods, &pod("n", "Succeeded"), &Options::default(), now()),
        Step::Remove
    );
    assert_eq!(decide(pods, &pod("n", "Running"), &with_grace(0), now()), Step::Remove);
    let first = written(decide(pods, &pod("n", "Running"), &Options::default(), now()));
    assert_eq!(first["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(first["metadata"]["generation"], 2);
    assert_eq!(decide(pods, &first, &with_grace(60), now()), Step::Keep);
    assert_eq!(decide(pods, &first, &Options::default(), now()), Step::Keep);
    let sooner = written(decide(pods, &first, &with_grace(-5), now()));
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-01T00:00:01Z");
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 1);
    assert_eq!(sooner["metadata"]["generation"], 2, "only the first mark raises it");
    assert_eq!(
        decide(pods, &sooner, &with_grace(0), now()),
        Step::Remove,
        "the kubelet's last word"
    );
}

#[test]
fn finalizers_hold_an_object_back() {
    let mut held = pod("n", "Running");
    held["metadata"]["finalizers"] = json!(["a.example/x"]);
    let step = written(decide(kind("", "pods"), &held, &with_grace(0), now()));
    assert_eq!(step["metadata"]["deletionGracePeriodSeconds"], 0);
    let secret = json!({"metadata": {"name": "s", "finalizers": ["a.example/x"]}});
    let marked = written(decide(kind("", "secrets"), &secret, &Options::default(), now()));
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(
        decide(kind("", "secrets"), &marked, &Options::default(), now()),
        Step::Keep
    );
}

#[test]
fn propagation_sets_the_collectors_finalizers() {
    let object = json!({"metadata": {"name": "d", "generation": 3}});
    let asked = |propagation| Options {
        propagation: Some(propagation),
        ..Options::default()
    };
    let deployments = kind("apps", "deployments");
    let jobs = kind("batch", "jobs");
    assert_eq!(
        decide(deployments, &object, &asked(Propagation::Background), now()),
        Step::Remove
    );
    assert_eq!(decide(deployments, &object, &Options::default(), now()), Step::Remove);
    let foreground = written(decide(deployments, &object, &asked(Propagation::Foreground), now()));
    assert_eq!(foreground["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(foreground["metadata"]["generation"], 4);
    let orphaned = written(decide(jobs, &object, &Options::default(), now()));
    assert_eq!(
        orphaned["metadata"]["finalizers"],
        json!(["orphan"]),
        "jobs orphan by default"
    );
    assert_eq!(
        decide(jobs, &object, &asked(Propagation::Background), now()),
        Step::Remove
    );
    assert_eq!(
        decide(deployments, &foreground, &asked(Propagation::Background), now()),
        Step::Remove,
        "a later policy replaces the earlier"
    );
}

#[test]
fn namespaces_stay_while_content_finalizers_are_there() {
    let namespaces = kind("", "namespaces");
    let full =
        json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    let marked = written(decide(namespaces, &full, &Options::default(), now()));
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(decide(namespaces, &marked, &Options::default(), now()), Step::Keep);
    let mut empty = marked;
    empty["spec"]["finalizers"] = json!([]);
    assert_eq!(decide(namespaces, &empty, &Options::default(), now()), Step::Remove);
}
