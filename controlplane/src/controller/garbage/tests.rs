//! What follows from who owns whom, by examples; [`properties`] has whatever else there may be.

mod properties;

use super::graph::{Action, FOREGROUND, Graph, Listed, ORPHAN, Observed, Owner};
use super::misplaced;
use crate::controller::informers::MetadataChange;
use crate::controller::write::{CONFIG_MAPS, PODS};
use crate::tests::room::held;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

fn owner(uid: &str, blocking: bool) -> OwnerReference {
    OwnerReference {
        uid: uid.into(),
        name: uid.into(),
        kind: "Pod".into(),
        api_version: "v1".into(),
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
    put_in("default", graph, meta).wake
}

fn put_in(namespace: &str, graph: &mut Graph, meta: ObjectMeta) -> Observed {
    let key = Key::new(namespace, meta.uid.clone().unwrap());
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
    graph.observe(&PODS, &change).wake
}

fn decide(graph: &Graph, uid: &str) -> String {
    match graph.decide(uid, |_| Owner::Absent) {
        Action::Nothing => "nothing".into(),
        Action::Wake(uids) => format!("wake {}", uids.join(",")),
        Action::Delete {
            object, propagation, ..
        } => format!("delete {} {propagation}", object.uid),
        Action::SetOwners { owners, .. } => {
            let name = |o: &OwnerReference| match o.block_owner_deletion {
                Some(true) => o.uid.clone(),
                _ => format!("({})", o.uid),
            };
            format!("owners {}", owners.iter().map(name).collect::<Vec<_>>().join(","))
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

fn unknown(graph: &Graph, uid: &str) -> Vec<String> {
    let (_, owners) = graph.unknown_owners(uid).unwrap();
    owners.into_iter().map(|o| o.uid).collect()
}

#[test]
fn dependents_of_a_removed_owner_are_looked_at_and_go() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], false, &[]));
    assert_eq!(put(&mut graph, meta("d", vec![owner("o", true)], false, &[])), ["d"]);
    assert_eq!(decide(&graph, "d"), "nothing");
    assert_eq!(remove(&mut graph, "o"), ["d"]);
    assert_eq!(unknown(&graph, "d"), ["o"]);
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
    assert_eq!(decide(&graph, "d"), "owners (solid)");
}

#[test]
fn foreground_deletes_dependents_and_waits_for_those_that_block() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], false, &[]));
    put(&mut graph, meta("blocking", vec![owner("o", true)], false, &[]));
    put(&mut graph, meta("other", vec![owner("o", false)], false, &[]));
    assert_eq!(put(&mut graph, meta("o", vec![], true, &[FOREGROUND, "x"])), ["o"]);
    assert_eq!(decide(&graph, "o"), "wake blocking,other");
    assert_eq!(decide(&graph, "blocking"), "delete blocking Background");
    assert_eq!(decide(&graph, "other"), "delete other Background");
    put(&mut graph, meta("blocking", vec![owner("o", true)], true, &[]));
    put(&mut graph, meta("other", vec![owner("o", false)], true, &[]));
    assert_eq!(decide(&graph, "o"), "nothing");
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
fn a_dependent_heard_of_after_its_owner_was_let_go_stays() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], true, &[ORPHAN]));
    let Action::Orphan { object, .. } = graph.decide("o", |_| Owner::Absent) else {
        panic!("it is being orphaned")
    };
    graph.release(&object);
    remove(&mut graph, "o");
    put(&mut graph, meta("d", vec![owner("o", true)], false, &[]));
    assert_eq!(decide(&graph, "d"), "owners ");
    put(
        &mut graph,
        meta("d", vec![owner("o", true), owner("gone", true)], false, &[]),
    );
    assert_eq!(decide(&graph, "d"), "owners gone", "which is judged next");
    put_in("elsewhere", &mut graph, meta("e", vec![owner("o", true)], false, &[]));
    assert_eq!(
        decide(&graph, "e"),
        "delete e Background",
        "it was none of its dependents"
    );
}

#[test]
fn owners_in_other_namespaces_are_none_and_told_of() {
    let told = |observed: &Observed| {
        let (object, owner) = &observed.misplaced[0];
        (misplaced(object, owner).message, observed.misplaced.len())
    };
    let text = "ownerRef [v1/Pod, namespace: default, name: o, uid: o] does not exist in namespace \"default\"";
    let dependent = || meta("d", vec![owner("o", true)], false, &[]);
    let mut graph = Graph::default();
    put_in("elsewhere", &mut graph, meta("o", vec![], true, &[FOREGROUND]));
    let late = put_in("default", &mut graph, dependent());
    assert_eq!(told(&late), (text.to_owned(), 1));
    assert_eq!(unknown(&graph, "d"), ["o"]);
    assert_eq!(decide(&graph, "o"), "finalizers ", "nothing that it owns blocks it");
    let mut graph = Graph::default();
    assert_eq!(put_in("default", &mut graph, dependent()).misplaced, []);
    let early = put_in("elsewhere", &mut graph, meta("o", vec![], false, &[]));
    assert_eq!((told(&early), early.wake), ((text.to_owned(), 1), vec!["d".to_owned()]));
    let again = put_in("elsewhere", &mut graph, meta("o", vec![], true, &[]));
    assert_eq!(again.misplaced, [], "once is enough");
}

#[test]
fn each_of_many_references_is_found_by_its_uid() {
    let mut graph = Graph::default();
    put(&mut graph, meta("m", vec![], true, &[FOREGROUND]));
    let others = |blocking: bool| {
        ["z", "m", "a", "m", "c"]
            .map(|uid| owner(uid, blocking && uid == "m"))
            .to_vec()
    };
    put(&mut graph, meta("d", others(false), true, &["x"]));
    assert_eq!(decide(&graph, "m"), "finalizers ", "nothing blocks it");
    let mut one_of_two = others(false);
    one_of_two[3].block_owner_deletion = Some(true);
    for owners in [others(true), one_of_two] {
        put(&mut graph, meta("d", owners, true, &["x"]));
        assert_eq!(decide(&graph, "m"), "nothing", "it waits for what blocks it");
    }
}

/// With a look through all references for each of them this would take minutes.
#[test]
fn tens_of_thousands_of_owners_are_taken_in_and_judged() {
    let many = |count: usize| -> Vec<OwnerReference> { (0..count).map(|n| owner(&format!("u{n}"), true)).collect() };
    let mut graph = Graph::default();
    put(&mut graph, meta("d", many(50_000), false, &[]));
    put(&mut graph, meta("d", many(49_999), false, &[]));
    assert_eq!(unknown(&graph, "d").len(), 49_999);
    assert_eq!(decide(&graph, "d"), "delete d Background");
}

#[test]
fn a_reference_by_a_wrong_name_is_asked_about() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], false, &[]));
    for (kind, name, asked) in [("Pod", "o", 0), ("Secret", "o", 1), ("Pod", "p", 1)] {
        let mut reference = owner("o", false);
        (reference.kind, reference.name) = (kind.into(), name.into());
        put(&mut graph, meta("d", vec![reference], false, &[]));
        assert_eq!(unknown(&graph, "d").len(), asked, "{kind} {name}");
    }
}

#[test]
fn an_object_whose_owner_can_never_be_judged_is_left_alone() {
    let mut graph = Graph::default();
    put_in(
        "",
        &mut graph,
        meta("d", vec![owner("gone", false), owner("o", false)], false, &[]),
    );
    let judge = |o: &OwnerReference| if o.uid == "o" { Owner::Impossible } else { Owner::Absent };
    assert_eq!(graph.decide("d", judge), Action::Nothing);
}

#[test]
fn an_object_being_deleted_is_left_alone() {
    let mut graph = Graph::default();
    put(&mut graph, meta("d", vec![owner("gone", false)], true, &["x"]));
    assert_eq!(decide(&graph, "d"), "nothing");
}

#[test]
fn an_owner_seen_live_that_waits_is_no_reason_to_stay() {
    let mut graph = Graph::default();
    put(&mut graph, meta("d", vec![owner("unseen", false)], false, &[]));
    let decided = graph.decide("d", |_| Owner::Waiting);
    assert!(
        matches!(
            decided,
            Action::Delete {
                propagation: "Background",
                ..
            }
        ),
        "{decided:?}"
    );
}

#[test]
fn a_circle_keeps_itself_until_one_of_it_is_deleted() {
    let mut graph = Graph::default();
    put(
        &mut graph,
        meta("a", vec![owner("root", false), owner("b", false)], false, &[]),
    );
    put(&mut graph, meta("b", vec![owner("a", false)], false, &[]));
    assert_eq!(decide(&graph, "a"), "owners (b)");
    put(&mut graph, meta("a", vec![owner("b", false)], false, &[]));
    assert_eq!(
        (decide(&graph, "a"), decide(&graph, "b")),
        ("nothing".into(), "nothing".into())
    );
    assert_eq!(remove(&mut graph, "a"), ["b", "b"]);
    assert_eq!(decide(&graph, "b"), "delete b Background");
}

#[test]
fn a_circle_does_not_wait_for_itself() {
    let mut graph = Graph::default();
    let going = |uid: &str, owners: &[&str]| {
        let owners = owners.iter().map(|o| owner(o, true)).collect();
        meta(uid, owners, true, &[FOREGROUND])
    };
    put(&mut graph, going("a", &["c", "above"]));
    put(&mut graph, meta("b", vec![owner("a", true)], false, &[]));
    put(&mut graph, meta("c", vec![owner("b", true)], false, &[]));
    assert_eq!(decide(&graph, "b"), "delete b Foreground");
    put(&mut graph, going("b", &["a"]));
    assert_eq!(decide(&graph, "c"), "delete c Foreground");
    put(&mut graph, going("c", &["b"]));
    put(&mut graph, going("above", &[]));
    assert_eq!(decide(&graph, "c"), "owners (b)");
    assert_eq!(decide(&graph, "a"), "owners (c),above", "what is above it still waits");
    assert_eq!(decide(&graph, "above"), "nothing");
    put(
        &mut graph,
        meta("itself", vec![owner("itself", true)], true, &[FOREGROUND]),
    );
    assert_eq!(decide(&graph, "itself"), "owners (itself)");
}

#[test]
fn what_nobody_reads_any_more_is_asked_about() {
    let mut graph = Graph::default();
    put(&mut graph, meta("o", vec![], false, &[]));
    let map = MetadataChange {
        key: Key::new("default", "d"),
        old: None,
        new: Some(meta("d", vec![owner("o", false)], false, &[])),
    };
    graph.observe(&CONFIG_MAPS, &map);
    assert_eq!(unknown(&graph, "d"), Vec::<String>::new());
    assert_eq!(graph.forget(&PODS), ["d"]);
    assert!(!graph.contains("o") && graph.contains("d"));
    assert_eq!(unknown(&graph, "d"), ["o"]);
}

const PLAIN: &str = "abcdef01-2345-4789-8000-00000000000f";

/// What is asked of an object of which next to nothing is kept.
#[test]
fn of_what_asks_for_nothing_the_name_is_known_all_the_same() {
    let mut graph = Graph::default();
    let late = |graph: &mut Graph| put_in("default", graph, meta(PLAIN, vec![], false, &[]));
    put(&mut graph, meta("d", vec![owner(PLAIN, true)], false, &[]));
    assert_eq!(late(&mut graph).wake, [""; 0], "it is what the reference names");
    for (kind, name, version, asked) in [
        ("Pod", PLAIN, "v1", 0),
        ("Secret", PLAIN, "v1", 1),
        ("Pod", "p", "v1", 1),
        ("Pod", PLAIN, "apps/v1", 1),
    ] {
        let mut reference = owner(PLAIN, false);
        (reference.kind, reference.name, reference.api_version) = (kind.into(), name.into(), version.into());
        put(&mut graph, meta("d", vec![reference], false, &[]));
        assert_eq!(unknown(&graph, "d").len(), asked, "{kind} {name} of {version}");
    }
    let elsewhere = put_in("elsewhere", &mut graph, meta("e", vec![owner(PLAIN, true)], false, &[]));
    assert_eq!((elsewhere.misplaced.len(), unknown(&graph, "e").len()), (1, 1));
    let everywhere = "abcdef01-2345-4789-8000-00000000000e";
    put_in("", &mut graph, meta(everywhere, vec![], false, &[]));
    put_in(
        "elsewhere",
        &mut graph,
        meta("e", vec![owner(everywhere, true)], false, &[]),
    );
    assert_eq!(unknown(&graph, "e"), [""; 0], "it is in no namespace");
}

#[test]
fn an_object_asks_for_something_and_for_nothing_again() {
    let mut graph = Graph::default();
    put(&mut graph, meta(PLAIN, vec![], false, &[]));
    put(&mut graph, meta("d", vec![owner(PLAIN, true)], false, &[]));
    assert_eq!(decide(&graph, "d"), "nothing");
    assert_eq!(put(&mut graph, meta(PLAIN, vec![], true, &[FOREGROUND])), [PLAIN]);
    assert_eq!(decide(&graph, PLAIN), "wake d");
    put(&mut graph, meta(PLAIN, vec![owner("o", false)], false, &[]));
    assert_eq!(decide(&graph, PLAIN), format!("delete {PLAIN} Background"));
    put(&mut graph, meta(PLAIN, vec![], false, &[]));
    assert_eq!(
        (decide(&graph, PLAIN), put(&mut graph, meta(PLAIN, vec![], false, &[]))),
        ("nothing".into(), vec![])
    );
    let gone = MetadataChange {
        key: Key::new("default", PLAIN),
        old: Some(meta(PLAIN, vec![], false, &[])),
        new: None,
    };
    let observed = graph.observe(&PODS, &gone);
    assert_eq!(observed.gone.map(|gone| gone.key.name).as_deref(), Some(PLAIN));
    assert_eq!(
        (observed.wake, unknown(&graph, "d")),
        (vec!["d".to_owned()], vec![PLAIN.to_owned()])
    );
}

#[test]
fn what_a_list_has_no_more_is_gone_and_what_is_of_other_resources_is_not() {
    let mut graph = Graph::default();
    let other = "abcdef01-2345-4789-8000-00000000000e";
    for uid in [PLAIN, other, "a", "b"] {
        put(&mut graph, meta(uid, vec![owner("o", false)], true, &["x"]));
        put(&mut graph, meta(uid, vec![], false, &[]));
        let dependent = MetadataChange {
            key: Key::new("default", format!("of-{uid}")),
            old: None,
            new: Some(meta(&format!("of-{uid}"), vec![owner(uid, false)], false, &[])),
        };
        graph.observe(&CONFIG_MAPS, &dependent);
    }
    let mut listed = Listed::default();
    listed.add(other);
    listed.add("b");
    let other_kind = "abcdef01-2345-4789-8000-00000000000d";
    let map = MetadataChange {
        key: Key::new("default", other_kind),
        old: None,
        new: Some(meta(other_kind, vec![], false, &[])),
    };
    graph.observe(&CONFIG_MAPS, &map);
    let gone = graph.unlisted(&PODS, &listed);
    let woken = gone.iter().flat_map(|uid| graph.remove_unnamed(uid).wake);
    assert_eq!(woken.collect::<Vec<_>>(), ["of-a".to_owned(), format!("of-{PLAIN}")]);
    assert_eq!(
        [PLAIN, other, "a", "b"].map(|uid| graph.contains(uid)),
        [false, true, false, true]
    );
    assert_eq!(graph.forget(&PODS), ["of-b".to_owned(), format!("of-{other}")]);
    assert!(!graph.contains(other) && graph.contains("of-b") && graph.contains(other_kind));
}

/// A cluster may have very many objects that own nothing and that nobody owns; the graph has all of them (issue 14: with all controllers
/// at work the daemon has 1.3 times the objects it stores).
#[test]
fn an_object_that_asks_for_nothing_takes_next_to_nothing() {
    const COUNT: isize = 10_000;
    let mut graph = Graph::default();
    let before = held();
    for n in 0..COUNT {
        // As they come: in no order.
        let uid = format!(
            "{:08x}-0000-4000-8000-{n:012x}",
            n.unsigned_abs().wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFF
        );
        put(&mut graph, meta(&uid, vec![], false, &[]));
    }
    let each = (held() - before) / COUNT;
    println!("{each} bytes an object");
    assert!((40..=70).contains(&each), "{each} bytes an object");
}

/// Most changes of objects that have an owner are none of these: a kubelet's lease is renewed every ten seconds.
#[test]
fn a_change_of_nothing_that_matters_gives_another_revision_and_one_of_place_another_place() {
    let mut graph = Graph::default();
    put(&mut graph, meta("owner", vec![], true, &[FOREGROUND]));
    let dependent = |revision: &str| ObjectMeta {
        resource_version: Some(revision.into()),
        ..meta("b", vec![owner("gone", false)], false, &["x"])
    };
    assert_eq!(put(&mut graph, dependent("1")), ["b"]);
    let planned = |graph: &Graph| match graph.decide("b", |_| Owner::Absent) {
        Action::Delete { object, revision, .. } => (object.resource.plural.clone(), object.key.to_string(), revision),
        other => panic!("{other:?}"),
    };
    let pods = |key: &str, revision: &str| (PODS.plural.clone(), key.to_owned(), revision.to_owned());
    assert_eq!(planned(&graph), pods("default/b", "1"));
    assert_eq!(put(&mut graph, dependent("2")), [""; 0]);
    assert_eq!(planned(&graph), pods("default/b", "2"));
    put_in("other", &mut graph, dependent("3"));
    assert_eq!(planned(&graph), pods("other/b", "3"));
    let moved = MetadataChange {
        key: Key::new("other", "b"),
        old: None,
        new: Some(dependent("4")),
    };
    graph.observe(&CONFIG_MAPS, &moved);
    assert_eq!(planned(&graph).0, CONFIG_MAPS.plural);
    assert_eq!(
        graph.unlisted(&CONFIG_MAPS, &Listed::default()),
        ["b"],
        "and is counted there"
    );
    assert_eq!(graph.unlisted(&PODS, &Listed::default()), ["owner"]);
    // What matters is taken in, one after the other.
    assert_eq!(
        put(&mut graph, meta("b", vec![owner("owner", true)], false, &["x"])),
        ["b"]
    );
    assert_eq!(
        put(&mut graph, meta("b", vec![owner("owner", true)], false, &[])),
        ["b", "owner"]
    );
    assert_eq!(
        put(&mut graph, meta("b", vec![owner("owner", true)], true, &[])),
        ["b", "owner"]
    );
}
