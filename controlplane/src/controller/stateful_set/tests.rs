use super::*;
use crate::controller::history::{HASH_LABEL, REVISION_LABEL};
use crate::controller::write::PatchKind;
use serde_json::{Value, json};

mod broken;
mod claims;
mod properties;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn set(extra: Value) -> Arc<StatefulSet> {
    let mut value = json!({
        "metadata": {"name": "s", "namespace": "default", "uid": "set", "generation": 2, "resourceVersion": "1"},
        "spec": {"replicas": 3, "serviceName": "svc", "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "s"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": "new"}]}}},
        "status": {"replicas": 0, "currentRevision": "s-old"},
    });
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn revision(name: &str, number: i64, image: &str) -> Arc<Revision> {
    let value = json!({"revision": number,
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "s"}, "ownerReferences": [owner()]},
        "data": {"spec": {"template": {"$patch": "replace", "metadata": {"labels": {"app": "s"}},
            "spec": {"containers": [{"name": "c", "image": image}]}}}}});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn owner() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "set", "controller": true})
}

/// A pod that serves since second 0.
fn pod(ordinal: i64, revision: &str, extra: Value) -> Arc<Pod> {
    let name = format!("s-{ordinal}");
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner()],
            "labels": {"app": "s", identity::NAME_LABEL: name, REVISION_LABEL: revision}},
        "spec": {"containers": [], "nodeName": "n"},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
    });
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn unready() -> Value {
    json!({"status": {"conditions": []}})
}

fn going() -> Value {
    json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}})
}

fn ended(phase: &str) -> Value {
    json!({"status": {"phase": phase, "conditions": []}})
}

fn both() -> Vec<Arc<Revision>> {
    vec![revision("s-old", 1, "old"), revision("s-new", 2, "new")]
}

fn seen(set: &Arc<StatefulSet>, pods: &[Arc<Pod>]) -> Seen {
    Seen::new(set.clone(), (pods.to_vec(), vec![]), (both(), vec![])).unwrap()
}

/// The plan in words: `+s-0` creates, `-s-0` deletes, `~s-0` patches.
fn words(plan: &Plan) -> Vec<String> {
    let word = |w: &Write| match &w.verb {
        Verb::Create(body) => format!("+{}", body["metadata"]["name"].as_str().unwrap()),
        Verb::Delete { .. } => format!("-{}", w.key.name),
        _ => format!("~{}", w.key.name),
    };
    plan.writes.iter().map(word).collect()
}

fn steps(set: &Arc<StatefulSet>, pods: &[Arc<Pod>]) -> Vec<String> {
    words(&seen(set, pods).plan(&|_| None, at(100)))
}

#[test]
fn pods_start_in_order_and_stop_in_the_other() {
    let old = |n| pod(n, "s-new", json!({}));
    let two = || json!({"spec": {"replicas": 2}});
    let nothing: &[&str] = &[];
    for (name, extra, pods, want) in [
        ("the first", json!({}), vec![], &["+s-0"][..]),
        ("the next once the last serves", json!({}), vec![old(0)], &["+s-1"]),
        (
            "nothing while one starts",
            json!({}),
            vec![pod(0, "s-new", unready())],
            nothing,
        ),
        (
            "nothing while one is unscheduled",
            json!({}),
            vec![pod(0, "s-new", ended("Pending"))],
            nothing,
        ),
        ("a hole first", json!({}), vec![old(0), old(2)], &["+s-1"]),
        (
            "what ended is deleted",
            json!({}),
            vec![old(0), pod(1, "s-new", ended("Failed"))],
            &["-s-1"],
        ),
        (
            "whatever it ended with",
            json!({}),
            vec![pod(0, "s-new", ended("Succeeded"))],
            &["-s-0"],
        ),
        (
            "what goes is waited for",
            json!({}),
            vec![old(0), pod(1, "s-new", going())],
            nothing,
        ),
        (
            "the highest goes first",
            two(),
            vec![old(0), old(1), old(2), old(3)],
            &["-s-3"],
        ),
        (
            "and is waited for",
            two(),
            vec![old(0), old(1), old(2), pod(3, "s-new", going())],
            nothing,
        ),
        (
            "nothing goes while a wanted one is not well",
            two(),
            vec![old(0), pod(1, "s-new", unready()), old(2)],
            nothing,
        ),
        (
            "one that is not well goes if it is the first such",
            two(),
            vec![old(0), old(1), old(2), pod(3, "s-new", unready())],
            &["-s-3"],
        ),
        (
            "another such before it is waited for",
            two(),
            vec![old(0), old(1), pod(2, "s-new", unready()), pod(3, "s-new", unready())],
            nothing,
        ),
        (
            "from the first ordinal on",
            json!({"spec": {"ordinals": {"start": 5}}}),
            vec![old(5)],
            &["+s-6"],
        ),
        (
            "what is below it goes",
            json!({"spec": {"replicas": 1, "ordinals": {"start": 1}}}),
            vec![old(0), old(1)],
            &["-s-0"],
        ),
        (
            "nothing is left to do",
            json!({}),
            vec![old(0), old(1), old(2)],
            nothing,
        ),
    ] {
        assert_eq!(steps(&set(extra), &pods), want, "{name}");
    }
}

#[test]
fn a_pod_counts_once_it_was_ready_long_enough() {
    let slow = set(json!({"spec": {"minReadySeconds": 30}}));
    let pods = [pod(0, "s-new", json!({}))];
    let plan = seen(&slow, &pods).plan(&|_| None, at(10));
    assert_eq!(
        (words(&plan), plan.again_in),
        (vec![], Some(std::time::Duration::from_secs(20)))
    );
    assert_eq!(words(&seen(&slow, &pods).plan(&|_| None, at(30))), ["+s-1"]);
}

#[test]
fn in_parallel_starting_and_stopping_wait_for_nothing() {
    let parallel = |extra: Value| {
        let mut value = json!({"spec": {"podManagementPolicy": "Parallel"}});
        json_patch::merge(&mut value, &extra);
        set(value)
    };
    let new = |n, extra| pod(n, "s-new", extra);
    assert_eq!(steps(&parallel(json!({})), &[]), ["+s-0", "+s-1", "+s-2"]);
    assert_eq!(
        steps(&parallel(json!({})), &[new(0, unready()), new(1, ended("Failed"))]),
        ["-s-1", "+s-2"]
    );
    let one = parallel(json!({"spec": {"replicas": 1}}));
    assert_eq!(
        steps(&one, &[new(0, unready()), new(1, unready()), new(2, json!({}))]),
        ["-s-2", "-s-1"]
    );
    let many = parallel(json!({"spec": {"replicas": 2_147_483_647}}));
    assert_eq!(
        steps(&many, &[]).len(),
        500,
        "so many at most, however many are asked for"
    );
}

#[test]
fn pods_of_old_revisions_are_replaced_from_above_down_to_the_partition() {
    let (old, new) = (|n| pod(n, "s-old", json!({})), |n| pod(n, "s-new", json!({})));
    let partition = |n: i64| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": n}}}});
    let unavailable = |n: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": n}}}});
    let parallel = json!({"spec": {"podManagementPolicy": "Parallel"}});
    let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
    let nothing: &[&str] = &[];
    for (name, extra, pods, want) in [
        ("the highest", json!({}), vec![old(0), old(1), old(2)], &["-s-2"][..]),
        ("then the next", json!({}), vec![old(0), old(1), new(2)], &["-s-1"]),
        (
            "not before it serves",
            json!({}),
            vec![old(0), old(1), pod(2, "s-new", unready())],
            nothing,
        ),
        (
            "to the partition",
            partition(2),
            vec![old(0), old(1), old(2)],
            &["-s-2"],
        ),
        ("and no further", partition(2), vec![old(0), old(1), new(2)], nothing),
        (
            "a partition above all",
            partition(7),
            vec![old(0), old(1), old(2)],
            nothing,
        ),
        (
            "counted from the first ordinal",
            json!({"spec": {"replicas": 2, "ordinals": {"start": 3},
            "updateStrategy": {"rollingUpdate": {"partition": 1}}}}),
            vec![old(3), old(4)],
            &["-s-4"],
        ),
        (
            "several at a time",
            unavailable(json!(2)),
            vec![old(0), old(1), old(2)],
            &["-s-2", "-s-1"],
        ),
        (
            "a share, at least one",
            unavailable(json!("10%")),
            vec![old(0), old(1), old(2)],
            &["-s-2"],
        ),
        ("on deletion only", on_delete, vec![old(0), old(1), old(2)], nothing),
        (
            "in parallel one that is not well stops it",
            parallel.clone(),
            vec![old(0), old(1), pod(2, "s-new", unready())],
            nothing,
        ),
        (
            "an old one that is not well goes, too",
            parallel,
            vec![old(0), old(1), pod(2, "s-old", unready())],
            &["-s-2"],
        ),
    ] {
        assert_eq!(steps(&set(extra), &pods), want, "{name}");
    }
    let two = set(json!({"spec": {"podManagementPolicy": "Parallel",
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}}));
    let pods = [old(0), old(1), pod(2, "s-new", unready())];
    assert_eq!(steps(&two, &pods), ["-s-1"], "one is unavailable already");
}

#[test]
fn a_pod_has_its_identity_and_the_revision_of_its_place() {
    let partitioned = set(json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}));
    let image = |write: &Write| {
        let Verb::Create(body) = &write.verb else { panic!() };
        let revision = body["metadata"]["labels"][REVISION_LABEL].clone();
        (body["spec"]["containers"][0]["image"].clone(), revision)
    };
    let first = seen(&partitioned, &[]).plan(&|_| None, at(0));
    assert_eq!(
        image(&first.writes[0]),
        (json!("old"), json!("s-old")),
        "below the partition"
    );
    let next = seen(&partitioned, &[pod(0, "s-old", json!({}))]).plan(&|_| None, at(0));
    assert_eq!(image(&next.writes[0]), (json!("new"), json!("s-new")), "above it");
    let Verb::Create(body) = &next.writes[0].verb else {
        panic!()
    };
    assert_eq!(
        (&body["metadata"]["name"], &body["metadata"]["generateName"]),
        (&json!("s-1"), &json!("s-"))
    );
    assert_eq!(
        (&body["spec"]["hostname"], &body["spec"]["subdomain"]),
        (&json!("s-1"), &json!("svc"))
    );
    let labels = json!({"app": "s", "statefulset.kubernetes.io/pod-name": "s-1", "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": "s-new"});
    assert_eq!(body["metadata"]["labels"], labels);
    let told = next.writes[0].on_success.as_ref().unwrap();
    assert_eq!(
        (told.reason, told.message.as_str()),
        ("SuccessfulCreate", "create Pod s-1 in StatefulSet s successful")
    );
    let failed = next.writes[0].on_failure.as_ref().unwrap();
    assert_eq!(
        (failed.reason, failed.message.as_str()),
        ("FailedCreate", "create Pod s-1 in StatefulSet s failed error: {}")
    );
}

#[test]
fn names_tell_members() {
    for (name, is_member) in [
        ("s-0", true),
        ("s-10", true),
        ("s-2147483647", true),
        ("s-01", false),
        ("s-", false),
        ("s--1", false),
        ("s-+1", false),
        ("t-0", false),
        ("s-s-0", false),
        ("s", false),
        ("s-99999999999", false),
    ] {
        assert_eq!(identity::is_member("s", name), is_member, "{name}");
    }
}

#[test]
fn a_pod_that_lost_its_label_gets_it_back() {
    let bare = pod(
        0,
        "s-new",
        json!({"metadata": {"labels": {identity::NAME_LABEL: null}}}),
    );
    let plan = seen(&set(json!({})), &[bare]).plan(&|_| None, at(100));
    assert_eq!(words(&plan), ["~s-0"]);
    let Verb::Patch(PatchKind::Merge, "", body) = &plan.writes[0].verb else {
        panic!()
    };
    assert_eq!(body["metadata"]["labels"][identity::NAME_LABEL], "s-0");
}

#[test]
fn orphans_of_its_names_are_adopted_and_strangers_released() {
    let orphan = |n| pod(n, "s-new", json!({"metadata": {"ownerReferences": null}}));
    let other = pod(
        7,
        "s-new",
        json!({"metadata": {"name": "other-7", "ownerReferences": null}}),
    );
    let stranger = pod(1, "s-new", json!({"metadata": {"labels": {"app": "t"}}}));
    let look = |extra: Value| {
        let pods = (vec![stranger.clone()], vec![orphan(0), other.clone()]);
        let mut loose = Revision::clone(&revision("s-old", 1, "old"));
        loose.metadata.owner_references = None;
        Seen::new(set(extra), pods, (vec![], vec![Arc::new(loose)]))
            .unwrap()
            .plan(&|_| None, at(0))
    };
    assert_eq!(words(&look(json!({}))), ["~s-1", "~s-0", "~s-old"]);
    let deleted = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
    assert_eq!(words(&look(deleted)), Vec::<String>::new());
}

#[test]
fn revisions_are_made_numbered_anew_and_forgotten() {
    let plan = |revisions: Vec<Arc<Revision>>, extra: Value| {
        let seen = Seen::new(set(extra), (vec![], vec![]), (revisions, vec![])).unwrap();
        seen.plan(&|_| None, at(0))
    };
    let first = plan(vec![], json!({}));
    let Verb::Create(body) = &first.writes[0].verb else {
        panic!()
    };
    assert_eq!(body["revision"], 1);
    let name = body["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        name,
        format!("s-{}", body["metadata"]["labels"][HASH_LABEL].as_str().unwrap())
    );
    let collided = plan(vec![], json!({"status": {"collisionCount": 1}}));
    assert_ne!(collided.writes[0].key.name, name, "another hash after a collision");
    // The template is that of an older revision again.
    let back = plan(vec![revision("s-a", 1, "new"), revision("s-b", 2, "old")], json!({}));
    let Verb::Patch(_, _, body) = &back.writes[0].verb else {
        panic!()
    };
    assert_eq!(
        (back.writes[0].key.name.as_str(), &body["revision"]),
        ("s-a", &json!(3))
    );
    let many: Vec<_> = (1..=4)
        .map(|n| revision(&format!("s-{n}x"), n, &format!("i{n}")))
        .chain(both())
        .collect();
    let many: Vec<_> = many
        .into_iter()
        .enumerate()
        .map(|(n, r)| {
            let mut r = Revision::clone(&r);
            r.number = i64::try_from(n).unwrap();
            Arc::new(r)
        })
        .collect();
    let limited = set(json!({"spec": {"replicas": 1, "revisionHistoryLimit": 1}}));
    let pods = vec![pod(0, "s-new", json!({})), pod(1, "s-1x", going())];
    let seen = Seen::new(limited, (pods, vec![]), (many, vec![])).unwrap();
    assert_eq!(
        words(&seen.plan(&|_| None, at(0))),
        ["-s-2x", "-s-3x"],
        "one is kept, and those in use"
    );
}

#[test]
fn the_current_revision_is_on_record_before_there_is_a_pod() {
    let fresh = set(json!({"status": null}));
    let plan = seen(&fresh, &[]).plan(&|_| None, at(0));
    let Verb::ReplaceSub("status", body) = &plan.writes[0].verb else {
        panic!()
    };
    assert_eq!(
        (&body["status"]["currentRevision"], &body["status"]["updateRevision"]),
        (&json!("s-new"), &json!("s-new"))
    );
}

#[test]
fn status_counts() {
    let pods = [
        pod(0, "s-old", json!({})),
        pod(1, "s-new", unready()),
        pod(2, "s-new", going()),
    ];
    let status_of = |set: &Arc<StatefulSet>, pods: &[Arc<Pod>], now: i64| {
        let write = seen(set, pods).report(at(now), None, None).unwrap();
        let Verb::ReplaceSub("status", body) = write.verb else {
            panic!()
        };
        body["status"].clone()
    };
    let slow = set(json!({"spec": {"minReadySeconds": 50}}));
    assert_eq!(
        status_of(&slow, &pods, 10),
        json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 0, "currentReplicas": 1, "updatedReplicas": 1,
            "currentRevision": "s-old", "updateRevision": "s-new", "collisionCount": 0, "observedGeneration": 2})
    );
    let new = [0, 1, 2].map(|n| pod(n, "s-new", json!({})));
    let done = status_of(&set(json!({})), &new, 100);
    assert_eq!(
        (&done["currentRevision"], &done["currentReplicas"]),
        (&json!("s-new"), &json!(3)),
        "the rollout is over"
    );
    let reported = set(json!({"status": done}));
    assert_eq!(seen(&reported, &new).report(at(100), None, None), None, "no news");
}

#[test]
fn a_taken_name_makes_the_next_hash_another() {
    let failure = Failure {
        resource: "controllerrevisions".into(),
        creating: true,
        deleting: false,
        code: 409,
        reason: "AlreadyExists".into(),
        message: String::new(),
    };
    let fresh = Seen::new(set(json!({})), (vec![], vec![]), (vec![], vec![])).unwrap();
    let holder = revision("s-taken", 1, "another");
    let write = fresh.report(at(0), Some(&failure), Some(&holder)).unwrap();
    let Verb::ReplaceSub("status", body) = write.verb else {
        panic!()
    };
    assert_eq!(body["status"]["collisionCount"], 1);
    assert_eq!(fresh.report(at(0), Some(&failure), None), None, "not seen yet");
}
