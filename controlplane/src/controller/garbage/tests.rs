use super::graph::{Action, FOREGROUND, Graph, ORPHAN, Owner};
use crate::controller::informers::MetadataChange;
use crate::controller::write::PODS;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

fn owner(uid: &str, blocking: bool) -> OwnerReference {
    OwnerReference {
        uid: uid.into(),
        name: uid.into(),
        block_owner_deletion: Some(blocking),
        ..OwnerReference::default()
    }
}

fn meta(uid: &str, owners: Vec<OwnerReference>, deleting: bool, finalizers: &[&str]) -> ObjectMeta {
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH);
    ObjectMeta {
        uid: Some(uid.into()),
        name: Some(uid.into()),
        namespace: Some("default".into()),
        owner_references: Some(owners),
        deletion_timestamp: deleting.then_some(now),
        finalizers: Some(finalizers.iter().map(|f| (*f).to_owned()).collect()),
        resource_version: Some("1".into()),
        ..ObjectMeta::default()
    }
}

fn put(graph: &mut Graph, meta: ObjectMeta) -> Vec<String> {
    let key = Key::new("default", meta.uid.clone().unwrap());
    let change = MetadataChange {
        key,
        old: None,
        new: Some(meta),
    };
    graph.observe(&PODS, &change)
}

fn remove(graph: &mut Graph, uid: &str) -> Vec<String> {
    let change = MetadataChange {
        key: Key::new("default", uid),
        old: Some(meta(uid, vec![], false, &[])),
        new: None,
    };
    graph.observe(&PODS, &change)
}

fn decide(graph: &Graph, uid: &str) -> String {
    match graph.decide(uid, |_| Owner::Absent) {
        Action::Nothing => "nothing".into(),
        Action::Wake(uids) => format!("wake {}", uids.join(",")),
        Action::Delete { object, propagation } => format!("delete {} {propagation}", object.uid),
        Action::SetOwners { owners, .. } => {
            format!(
                "owners {}",
                owners.iter().map(|o| o.uid.as_str()).collect::<Vec<_>>().join(",")
            )
        }
        Action::SetFinalizers { finalizers, .. } => format!("finalizers {}", finalizers.join(",")),
        Action::Orphan {
            dependents, finalizers, ..
        } => {
            let names: Vec<_> = dependents
                .iter()
                .map(|(d, _, left)| format!("{}:{}", d.uid, left.len()))
                .collect();
            format!("orphan {} finalizers {}", names.join(","), finalizers.join(","))
        }
    }
}

#[test]
fn dependents_of_a_removed_owner_are_looked_at_and_go() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], false, &[]));
    assert_eq!(put(&mut graph, meta("d", vec![owner("o", true)], false, &[])), ["d"]);
    assert_eq!(decide(&graph, "d"), "nothing");
    assert_eq!(remove(&mut graph, "o"), ["d"]);
    assert_eq!(graph.unknown_owners("d").len(), 1);
    assert_eq!(graph.decide("d", |_| Owner::Present), Action::Nothing);
    assert_eq!(decide(&graph, "d"), "delete d Background");
}

#[test]
fn a_solid_owner_keeps_the_object_and_dead_references_go() {
    let mut graph = Graph::default();
    put(&mut graph, meta("solid", vec![], false, &[]));
    put(
        &mut graph,
        meta("d", vec![owner("solid", false), owner("dead", false)], false, &[]),
    );
    assert_eq!(decide(&graph, "d"), "owners solid");
}

#[test]
fn foreground_deletes_blocking_dependents_first() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], false, &[]));
    put(&mut graph, meta("blocking", vec![owner("o", true)], false, &[]));
    put(&mut graph, meta("other", vec![owner("o", false)], false, &[]));
    assert_eq!(put(&mut graph, meta("o", vec![], true, &[FOREGROUND, "x"])), ["o"]);
    assert_eq!(decide(&graph, "o"), "wake blocking");
    assert_eq!(decide(&graph, "blocking"), "delete blocking Background");
    assert_eq!(decide(&graph, "other"), "nothing");
    put(&mut graph, meta("blocking", vec![owner("o", true)], true, &[]));
    assert_eq!(decide(&graph, "o"), "wake ");
    assert_eq!(remove(&mut graph, "blocking"), ["o"]);
    assert_eq!(decide(&graph, "o"), "finalizers x");
}

#[test]
fn foreground_goes_down_the_tree() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], true, &[FOREGROUND]));
    put(&mut graph, meta("middle", vec![owner("o", true)], false, &[]));
    put(&mut graph, meta("leaf", vec![owner("middle", true)], false, &[]));
    assert_eq!(decide(&graph, "middle"), "delete middle Foreground");
    assert_eq!(decide(&graph, "leaf"), "nothing");
}

#[test]
fn orphaning_strips_the_reference_from_dependents() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], true, &[ORPHAN]));
    put(
        &mut graph,
        meta("d", vec![owner("o", true), owner("p", false)], false, &[]),
    );
    assert_eq!(decide(&graph, "o"), "orphan d:1 finalizers ");
}

#[test]
fn owners_in_other_namespaces_are_none() {
    let mut graph = Graph::default();
    let far = MetadataChange {
        key: Key::new("elsewhere", "o"),
        old: None,
        new: Some(meta("o", vec![], false, &[])),
    };
    graph.observe(&PODS, &far);
    put(&mut graph, meta("d", vec![owner("o", false)], false, &[]));
    assert_eq!(graph.unknown_owners("d").len(), 1);
}

#[test]
fn an_object_being_deleted_is_left_alone() {
    let mut graph = Graph::default();
    put(&mut graph, meta("d", vec![owner("gone", false)], true, &["x"]));
    assert_eq!(decide(&graph, "d"), "nothing");
}

#[test]
fn a_cycle_does_not_wait_for_itself() {
    let mut graph = Graph::default();
    put(&mut graph, meta("a", vec![owner("b", true)], true, &[FOREGROUND]));
    put(&mut graph, meta("b", vec![owner("a", true)], false, &[]));
    assert_eq!(decide(&graph, "b"), "delete b Background");
}
