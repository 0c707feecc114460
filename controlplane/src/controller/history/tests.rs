use super::*;
use crate::controller::write::Verb;
use k8s_openapi::api::apps::v1::StatefulSet;

fn template(image: &str) -> PodTemplateSpec {
    serde_json::from_value(json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}], "volumes": [{"name": "v", "emptyDir": {}}]}}))
    .unwrap()
}

fn revision(name: &str, number: i64, data: Value) -> Arc<Revision> {
    let value = json!({"kind": "ControllerRevision", "apiVersion": "apps/v1", "revision": number, "data": data,
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "7",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]}});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn owner() -> StatefulSet {
    serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "default", "uid": "u",
        "annotations": {"kubernetes.io/change-cause": "why"}}}))
    .unwrap()
}

#[test]
fn a_revision_is_a_patch_that_puts_its_template_back() {
    let write = create((&write::STATEFUL_SETS, &owner()), &template("a"), (HASH_LABEL, "h"), 3);
    let Verb::Create(body) = &write.verb else { panic!() };
    assert_eq!(body["metadata"]["name"], "web-h");
    assert_eq!(body["metadata"]["labels"], json!({"app": "web", HASH_LABEL: "h"}));
    assert_eq!(body["metadata"]["annotations"]["kubernetes.io/change-cause"], "why");
    assert_eq!(body["revision"], 3);
    assert_eq!(body["data"]["spec"]["template"]["$patch"], "replace");
    let made: Revision = serde_json::from_value(body.clone()).unwrap();
    assert!(made.is_of(&Spelling::of(&template("a"))) && !made.is_of(&Spelling::of(&template("b"))));
    assert_eq!(made.template(), Some(template("a")));
}

#[test]
fn data_of_other_writers_is_recognised() {
    // As Go writes it: nulls for absent times, keys in any order.
    let data = json!({"spec": {"template": {"spec": {"volumes": [{"emptyDir": {}, "name": "v"}],
        "containers": [{"image": "a", "name": "c"}]}, "$patch": "replace",
        "metadata": {"labels": {"app": "web"}, "creationTimestamp": null}}}});
    let theirs = revision("web-1", 1, data);
    assert!(theirs.is_of(&Spelling::of(&template("a"))));
    let unreadable = revision("web-2", 1, json!({"spec": 5}));
    assert!(!unreadable.is_of(&Spelling::of(&template("a"))));
    assert_eq!(unreadable.template(), None);
    assert_eq!(revision("web-3", 1, Value::Null).template(), None);
}

#[test]
fn the_hash_is_upstreams() {
    // FNV-1 of "a0", and of nothing but the collision count.
    assert_eq!(hash(&json!("a"), 0), hash(&json!("a"), 0));
    assert_ne!(hash(&json!("a"), 0), hash(&json!("a"), 1));
    // FNV-1 (not 1a) of the text {}0, in the alphabet of names.
    let fnv1 = "{}0".bytes().fold(2_166_136_261_u64, |h, b| {
        ((h * 16_777_619) & 0xffff_ffff) ^ u64::from(b)
    });
    assert_eq!(hash(&json!({}), 0), names::safe_encode(&fnv1.to_string()));
}

#[test]
fn names_fit() {
    assert_eq!(name("web", "h"), "web-h");
    assert_eq!(name(&"x".repeat(250), "0123456789").len(), 234);
}

#[test]
fn revisions_are_sorted_by_number_age_and_name() {
    let aged = |name: &str, number: i64, time: &str| {
        let mut r = Revision::clone(&revision(name, number, Value::Null));
        r.metadata.creation_timestamp = serde_json::from_value(json!(time)).unwrap();
        Arc::new(r)
    };
    let mut all = [
        aged("d", 2, "2026-01-01T00:00:00Z"),
        aged("b", 1, "2026-01-02T00:00:00Z"),
        aged("a", 1, "2026-01-02T00:00:00Z"),
        aged("c", 1, "2026-01-01T00:00:00Z"),
    ];
    sort(&mut all);
    assert_eq!(all.each_ref().map(|r| r.name()), ["c", "a", "b", "d"]);
}

#[test]
fn only_a_stranger_of_the_same_name_is_a_collision() {
    let failure = |reason: &str, resource: &str| Failure {
        resource: resource.to_owned(),
        creating: true,
        deleting: false,
        code: 409,
        reason: reason.to_owned(),
        message: String::new(),
    };
    let taken = failure("AlreadyExists", "controllerrevisions");
    let other = revision("web-h", 1, json!({"spec": {"template": {}}}));
    let own = revision("web-h", 1, data_of(&template("a")));
    assert!(collides(&taken, Some(&other), "u", &Spelling::of(&template("a"))));
    assert!(collides(&taken, Some(&own), "another", &Spelling::of(&template("a"))));
    assert!(
        !collides(&taken, Some(&own), "u", &Spelling::of(&template("a"))),
        "an answer got lost"
    );
    assert!(
        !collides(&taken, None, "u", &Spelling::of(&template("a"))),
        "not seen yet"
    );
    assert!(!collides(
        &failure("AlreadyExists", "pods"),
        Some(&other),
        "u",
        &Spelling::of(&template("a"))
    ));
    assert!(!collides(
        &failure("Conflict", "controllerrevisions"),
        Some(&other),
        "u",
        &Spelling::of(&template("a"))
    ));
}

#[test]
fn the_oldest_that_nobody_uses_expire() {
    let all: Vec<_> = (1..=5).map(|n| revision(&format!("r{n}"), n, Value::Null)).collect();
    let names = |writes: Vec<Write>| writes.into_iter().map(|w| w.key.name).collect::<Vec<_>>();
    let live = BTreeSet::from(["r1"]);
    assert_eq!(names(expire(&all, 2, &live, false)), ["r2", "r3"]);
    assert_eq!(
        names(expire(&all, 2, &live, true)),
        ["r2", "r3", "r4"],
        "upstream's DaemonSet counts what lives"
    );
    assert_eq!(names(expire(&all, 10, &live, false)), Vec::<String>::new());
    assert_eq!(names(expire(&all, -1, &live, false)), Vec::<String>::new());
    assert_eq!(names(expire(&all, 0, &live, false)).len(), 4);
}
