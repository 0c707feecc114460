use super::*;
use crate::controller::tests::world::informers_of;
use crate::controller::write::Verb;
use serde_json::{Value, json};
use std::collections::BTreeMap;

mod properties;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn set(replicas: i32, extra: Value) -> ReplicaSet {
    let mut value = json!({
        "metadata": {"name": "web-1", "namespace": "default", "uid": "rs", "generation": 2},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}},
    });
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, extra: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
            "creationTimestamp": "1970-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": true}]},
        "spec": {"containers": [], "nodeName": "n1"},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
    });
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn names(writes: &[Write]) -> Vec<&str> {
    writes.iter().map(|w| w.key.name.as_str()).collect()
}

#[test]
fn missing_pods_are_created_from_the_template() {
    let rs = set(3, json!({}));
    let writes = plan(&write::REPLICA_SETS, &rs, &[pod("a", json!({}))], Vec::new, at(0));
    assert_eq!(writes.len(), 2);
    let Verb::Create(body) = &writes[0].verb else { panic!() };
    assert_eq!(body["metadata"]["generateName"], "web-1-");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "rs");
    assert_eq!(body["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], true);
    assert_eq!(body["kind"], "Pod");
    assert_eq!(writes[0].on_success.as_ref().unwrap().message, "Created pod: {}");
}

#[test]
fn a_turn_creates_at_most_five_hundred() {
    assert_eq!(
        plan(&write::REPLICA_SETS, &set(10_000, json!({})), &[], Vec::new, at(0)).len(),
        500
    );
}

#[test]
fn a_turn_creates_fewer_pods_of_a_large_template() {
    let large = json!({"spec": {"template": {"metadata": {"annotations": {"a": "x".repeat(2 << 20)}}}}});
    let writes = plan(&write::REPLICA_SETS, &set(10_000, large), &[], Vec::new, at(0));
    assert_eq!(writes.len(), 16);
}

#[test]
fn pods_that_end_are_replaced() {
    let gone = [
        json!({"status": {"phase": "Failed"}}),
        json!({"status": {"phase": "Succeeded"}}),
        json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}),
    ];
    for extra in gone {
        assert_eq!(
            plan(
                &write::REPLICA_SETS,
                &set(1, json!({})),
                &[pod("a", extra)],
                Vec::new,
                at(0)
            )
            .len(),
            1
        );
    }
}

#[test]
fn a_deleted_set_neither_creates_nor_deletes() {
    let rs = set(3, json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}));
    assert_eq!(plan(&write::REPLICA_SETS, &rs, &[], Vec::new, at(0)), vec![]);
}

#[test]
fn deletion_order_table() {
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let ready_at =
        |t: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": t}]}});
    let restarts = |n: i32| json!({"status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": n}]}});
    let cost = |c: &str| json!({"metadata": {"annotations": {order::DELETION_COST: c}}});
    let table = [
        (
            "unassigned first",
            pod("b", json!({"spec": {"nodeName": ""}, "status": {"phase": "Pending"}})),
            pod("a", not_ready.clone()),
        ),
        (
            "pending first",
            pod("b", json!({"status": {"phase": "Pending"}})),
            pod("a", json!({"status": {"phase": "Unknown"}})),
        ),
        ("not ready first", pod("b", not_ready), pod("a", json!({}))),
        ("cheap first", pod("b", cost("-5")), pod("a", json!({}))),
        ("invalid cost is zero", pod("a", cost("abc")), pod("b", cost("1"))),
        (
            "younger ready first",
            pod("b", ready_at("1970-01-01T00:15:00Z")),
            pod("a", ready_at("1970-01-01T00:00:00Z")),
        ),
        ("restarts first", pod("b", restarts(3)), pod("a", restarts(1))),
        (
            "younger first",
            pod("b", json!({"metadata": {"creationTimestamp": "1970-01-01T00:16:00Z"}})),
            pod("a", json!({})),
        ),
        ("uid decides", pod("a", json!({})), pod("b", json!({}))),
    ];
    for (name, first, second) in table {
        for pods in [[first.clone(), second.clone()], [second.clone(), first.clone()]] {
            let writes = plan(&write::REPLICA_SETS, &set(1, json!({})), &pods, Vec::new, at(1000));
            assert_eq!(names(&writes), vec![first.metadata.name.as_deref().unwrap()], "{name}");
        }
    }
}

#[test]
fn crowded_nodes_lose_pods_first() {
    let owned = [
        pod("a", json!({})),
        pod("b", json!({"spec": {"nodeName": "n2"}})),
        pod("c", json!({"spec": {"nodeName": "n2"}})),
    ];
    let writes = plan(
        &write::REPLICA_SETS,
        &set(2, json!({})),
        &owned,
        || owned.to_vec(),
        at(1000),
    );
    assert_eq!(names(&writes), vec!["b"]);
}

#[test]
fn status_counts() {
    let rs = set(3, json!({"spec": {"minReadySeconds": 10}}));
    let owned = [
        pod("a", json!({})),
        pod(
            "b",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:15Z"}]}}),
        ),
        pod(
            "c",
            json!({"status": {"conditions": []}, "metadata": {"labels": {"app": null}}}),
        ),
        pod("d", json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}})),
    ];
    let status = status::status(&rs, &owned, None, at(20));
    let counts = (
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
        status.fully_labeled_replicas,
    );
    assert_eq!(counts, (3, Some(2), Some(1), Some(2)));
    assert_eq!(
        (status.terminating_replicas, status.observed_generation),
        (Some(1), Some(2))
    );
    assert_eq!(
        status::available_in(&rs, &owned, at(20)),
        Some(std::time::Duration::from_secs(5))
    );
}

#[test]
fn failures_become_a_condition_and_go_again() {
    let failure = Failure {
        resource: "pods".into(),
        creating: true,
        deleting: false,
        code: 403,
        reason: "Forbidden".into(),
        message: "exceeded quota".into(),
    };
    let mut rs = set(1, json!({}));
    let failed = status::status(&rs, &[], Some(&failure), at(1));
    let condition = &failed.conditions.as_ref().unwrap()[0];
    assert_eq!(
        (condition.type_.as_str(), condition.reason.as_deref()),
        ("ReplicaFailure", Some("FailedCreate"))
    );
    rs.status = Some(failed.clone());
    assert_eq!(
        status::status(&rs, &[], Some(&failure), at(9)),
        failed,
        "same failure, same transition time"
    );
    let again = Failure {
        message: "exceeded quota for a pod of another name".into(),
        ..failure
    };
    assert_eq!(
        status::status(&rs, &[], Some(&again), at(9)),
        failed,
        "a status that changed with every try would wake the set for the next"
    );
    assert_eq!(status::status(&rs, &[], None, at(9)).conditions, None);
}

#[test]
fn a_pod_that_cannot_be_adopted_is_no_failure_to_make_or_delete_one() {
    let failure = |creating: bool, deleting: bool| Failure {
        resource: "pods".into(),
        creating,
        deleting,
        code: 403,
        reason: "Forbidden".into(),
        message: "a webhook says no".into(),
    };
    let mut rs = set(1, json!({}));
    for (failure, expected) in [
        (failure(false, false), None),
        (failure(false, true), Some("FailedDelete")),
        (failure(false, false), Some("FailedDelete")),
    ] {
        let status = status::status(&rs, &[], Some(&failure), at(1));
        let told = status.conditions.as_ref().map(|all| all[0].reason.as_deref().unwrap());
        assert_eq!(told, expected, "what was told before stands");
        rs.status = Some(status);
    }
}

#[test]
fn ownership() {
    let rs = set(1, json!({}));
    let selector = selector(&rs).unwrap();
    let stranger = pod("stranger", json!({"metadata": {"labels": {"app": "db"}}}));
    let orphan = pod("orphan", json!({"metadata": {"ownerReferences": null}}));
    let other = pod(
        "other",
        json!({"metadata": {"ownerReferences": null, "labels": {"app": "db"}}}),
    );
    let claim = |rs: &ReplicaSet| {
        let controlled = vec![pod("mine", json!({})), stranger.clone()];
        owner::claim(
            (&write::REPLICA_SETS, rs),
            &selector,
            &write::PODS,
            controlled,
            vec![orphan.clone(), other.clone()],
        )
    };
    let claims = claim(&rs);
    assert_eq!(claims.owned.len(), 1);
    assert_eq!(names(&claims.writes), vec!["stranger", "orphan"]);
    let Verb::Patch(_, _, release) = &claims.writes[0].verb else {
        panic!()
    };
    assert_eq!(release["metadata"]["ownerReferences"][0]["$patch"], "delete");
    let Verb::Patch(_, _, adopt) = &claims.writes[1].verb else {
        panic!()
    };
    assert_eq!(adopt["metadata"]["ownerReferences"][0]["controller"], true);
    let deleted = set(1, json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}));
    assert_eq!(claim(&deleted).writes, vec![]);
}

#[tokio::test(start_paused = true)]
async fn what_names_a_set_in_another_namespace_is_not_its_own() {
    let there = json!({"metadata": {"namespace": "other"}});
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true}]);
    let rs = set(2, json!({"metadata": {"ownerReferences": owner}}));
    let mut stranger = set(1, there.clone());
    stranger.metadata.uid = Some("rs-2".to_owned());
    stranger.metadata.owner_references = rs.metadata.owner_references.clone();
    let mut theirs = Pod::clone(&pod("theirs", there.clone()));
    theirs.metadata.owner_references.as_mut().unwrap()[0].uid = "rs-2".to_owned();
    let pods = [pod("mine", json!({})), pod("foreign", there), Arc::new(theirs)];
    let informers = informers_of(BTreeMap::from([
        ("pods", pods.iter().map(|pod| json!(**pod)).collect()),
        ("replicasets", vec![json!(rs), json!(stranger)]),
    ]));
    informers.synced().await;
    let controller = ReplicaSets { informers };
    let writes = controller.plan(&Key::of(&rs), at(0)).writes;
    assert_eq!(writes.len(), 1, "one of the two is missing");
    assert!(matches!(writes[0].verb, Verb::Create(_)), "{writes:?}");
    let siblings = controller.siblings(&rs);
    let siblings: Vec<String> = siblings.iter().map(|pod| pod.name_any()).collect();
    assert_eq!(siblings, ["mine"]);
}
