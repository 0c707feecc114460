//! Claims: made before pods, kept after them, owned as the retention policy says.

use super::*;

fn with_claims(extra: Value) -> Arc<StatefulSet> {
    let mut value = json!({"spec": {"replicas": 1, "volumeClaimTemplates": [
        {"metadata": {"name": "data", "labels": {"tier": "disk"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}});
    json_patch::merge(&mut value, &extra);
    set(value)
}

fn claim(ordinal: i64, extra: Value) -> Arc<PersistentVolumeClaim> {
    let mut value = json!({"metadata": {"name": format!("data-s-{ordinal}"), "namespace": "default", "uid": format!("c{ordinal}"),
        "resourceVersion": "5"}, "spec": {"volumeName": "kept"}});
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn policy(when_deleted: &str, when_scaled: &str) -> Value {
    json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_scaled}}})
}

fn plan(set: &Arc<StatefulSet>, pods: &[Arc<Pod>], claims: &[Arc<PersistentVolumeClaim>]) -> Plan {
    let find = |name: &str| {
        claims
            .iter()
            .find(|c| c.metadata.name.as_deref() == Some(name))
            .cloned()
    };
    seen(set, pods).plan(&find, at(100))
}

fn owned_by(kind: &str, name: &str, uid: &str) -> Value {
    let api = if kind == "Pod" { "v1" } else { "apps/v1" };
    json!({"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
}

fn owners(claim_extra: Value) -> Value {
    json!({"metadata": {"ownerReferences": claim_extra}})
}

#[test]
fn a_claim_is_made_before_its_pod_and_mounted_by_it() {
    let set = with_claims(json!({"spec": {"template": {"spec": {"volumes": [
        {"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}}}}));
    // The template has another revision now; its data do not matter here.
    let made = Seen::new(set.clone(), (vec![], vec![]), (vec![], vec![])).unwrap();
    let Verb::Create(body) = made.plan(&|_| None, at(0)).writes.remove(0).verb else {
        panic!()
    };
    let revision: Arc<Revision> = Arc::new(serde_json::from_value(body).unwrap());
    let plan = |claims: &[Arc<PersistentVolumeClaim>]| {
        let find = |name: &str| {
            claims
                .iter()
                .find(|c| c.metadata.name.as_deref() == Some(name))
                .cloned()
        };
        let seen = Seen::new(set.clone(), (vec![], vec![]), (vec![revision.clone()], vec![])).unwrap();
        seen.plan(&find, at(0))
    };
    let first = plan(&[]);
    assert_eq!(words(&first), ["+data-s-0"]);
    let Verb::Create(body) = &first.writes[0].verb else {
        panic!()
    };
    assert_eq!(body["metadata"]["labels"], json!({"tier": "disk", "app": "s"}));
    assert_eq!(body["kind"], "PersistentVolumeClaim");
    assert_eq!(
        first.writes[0].on_success.as_ref().unwrap().message,
        "create Claim data-s-0 Pod s-0 in StatefulSet s success"
    );
    let second = plan(&[claim(0, json!({}))]);
    assert_eq!(words(&second), ["+s-0"]);
    let Verb::Create(body) = &second.writes[0].verb else {
        panic!()
    };
    assert_eq!(
        body["spec"]["volumes"],
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-s-0"}}, {"name": "tmp", "emptyDir": {}}])
    );
    let going = plan(&[claim(
        0,
        json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}),
    )]);
    assert_eq!(words(&going), Vec::<String>::new());
    assert_eq!(
        going.events[0].message,
        "create Pod s-0 in StatefulSet s failed error: pvc data-s-0 is being deleted"
    );
}

#[test]
fn a_pending_pod_gets_the_claims_it_lacks() {
    let waiting = pod(0, "s-new", ended("Pending"));
    assert_eq!(words(&plan(&with_claims(json!({})), &[waiting], &[])), ["+data-s-0"]);
}

#[test]
fn claims_are_owned_as_the_policy_says() {
    let (set_ref, pod_ref) = (owned_by("StatefulSet", "s", "set"), owned_by("Pod", "s-0", "s-0"));
    let other = owned_by("Backup", "b", "b");
    let loose = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "set"});
    let earlier = owned_by("StatefulSet", "s", "gone");
    let unchanged = Value::Null;
    for (name, when_deleted, when_scaled, replicas, before, after) in [
        ("kept", "Retain", "Retain", 1, json!([]), unchanged.clone()),
        ("kept again", "Retain", "Retain", 1, json!([set_ref]), json!([])),
        ("with the set", "Delete", "Retain", 1, json!([]), json!([set_ref])),
        ("already", "Delete", "Retain", 1, json!([set_ref]), unchanged.clone()),
        ("in name only", "Delete", "Retain", 1, json!([loose]), json!([set_ref])),
        (
            "with scaling, wanted",
            "Retain",
            "Delete",
            1,
            json!([]),
            unchanged.clone(),
        ),
        (
            "with scaling, condemned",
            "Retain",
            "Delete",
            0,
            json!([]),
            json!([pod_ref]),
        ),
        ("with both, wanted", "Delete", "Delete", 1, json!([]), json!([set_ref])),
        (
            "with both, condemned",
            "Delete",
            "Delete",
            0,
            json!([set_ref]),
            json!([pod_ref]),
        ),
        (
            "wanted again",
            "Delete",
            "Delete",
            1,
            json!([pod_ref]),
            json!([set_ref]),
        ),
        (
            "another controls it",
            "Delete",
            "Retain",
            1,
            json!([other, set_ref]),
            json!([other]),
        ),
        ("and keeps it", "Delete", "Retain", 1, json!([other]), unchanged.clone()),
        ("of an earlier set", "Delete", "Retain", 1, json!([earlier]), unchanged),
    ] {
        let mut extra = policy(when_deleted, when_scaled);
        extra["spec"]["replicas"] = json!(replicas);
        let pods = [pod(0, "s-new", json!({}))];
        let done = plan(&with_claims(extra), &pods, &[claim(0, owners(before))]);
        let written = done.writes.iter().find(|w| w.resource == write::CLAIMS);
        let written = written.map(|w| {
            let Verb::Replace(body) = &w.verb else { panic!("{name}") };
            assert_eq!(
                (&body["spec"]["volumeName"], &body["metadata"]["resourceVersion"]),
                (&json!("kept"), &json!("5"))
            );
            match &body["metadata"]["ownerReferences"] {
                Value::Null => json!([]),
                owners => owners.clone(),
            }
        });
        assert_eq!(written.unwrap_or_default(), after, "{name}");
        let told = done
            .writes
            .iter()
            .filter_map(|w| w.on_success.as_ref())
            .any(|e| e.reason == "ConflictingController");
        assert_eq!(told, name == "another controls it", "{name}");
    }
}

#[test]
fn a_claim_that_goes_with_an_earlier_pod_is_waited_for() {
    let set = with_claims(policy("Retain", "Delete"));
    let old = claim(0, owners(json!([owned_by("Pod", "s-0", "earlier")])));
    assert_eq!(
        words(&plan(&set, &[], std::slice::from_ref(&old))),
        Vec::<String>::new()
    );
    let kept = with_claims(policy("Retain", "Retain"));
    assert_eq!(words(&plan(&kept, &[], &[old])), ["+s-0"], "kept claims are used again");
}
