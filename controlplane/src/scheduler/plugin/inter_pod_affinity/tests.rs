use super::*;
use crate::scheduler::cycle::Search;
use crate::scheduler::plugin::steps::Told;
use crate::scheduler::profile::Profile;
use crate::scheduler::testing::{cluster, labelled, node, pod, schedule, verdicts, zoned};
use serde_json::{Value, json};
use std::sync::Arc;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const NEAR: &str = "node(s) didn't match pod affinity rules";
const APART: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

fn term(app: &str, key: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

fn required(kind: &str, terms: Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn preferred(kind: &str, weight: i64, term: Value) -> Value {
    let terms = json!([{"weight": weight, "podAffinityTerm": term}]);
    json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
}

/// a1 and a2 are in zone a, b1 in b, and c1 is in no zone.
fn zones() -> Cluster {
    cluster(&[
        zoned("a1", "a"),
        zoned("a2", "a"),
        zoned("b1", "b"),
        node("c1", json!({})),
    ])
}

fn reasons(cluster: &mut Cluster, pod: &PodInfo) -> Vec<String> {
    verdicts(cluster, pod).into_iter().map(|(_, reason)| reason).collect()
}

#[test]
fn affinity_asks_for_all_terms_of_one_pod() {
    let mut cluster = zones();
    cluster.place(labelled("db", "db", json!({})), "a1");
    let near = |terms: Value| labelled("p", "web", required("podAffinity", terms));
    let one = near(json!([term("db", ZONE)]));
    assert_eq!(reasons(&mut cluster, &one), ["", "", NEAR, NEAR]);
    let same_node = near(json!([term("db", ZONE), term("db", HOST)]));
    assert_eq!(reasons(&mut cluster, &same_node), ["", NEAR, NEAR, NEAR]);
    // Both terms are met, by different pods: upstream counts pods that all terms are about.
    cluster.place(labelled("cache", "cache", json!({})), "a1");
    let both = near(json!([term("db", ZONE), term("cache", ZONE)]));
    assert_eq!(reasons(&mut cluster, &both), [NEAR; 4]);
    cluster.remove_pod("db");
    assert_eq!(reasons(&mut cluster, &one), [NEAR; 4]);
}

#[test]
fn the_first_of_a_group_may_be_anywhere_the_label_is() {
    let mut cluster = zones();
    let own = labelled("p", "web", required("podAffinity", json!([term("web", ZONE)])));
    assert_eq!(reasons(&mut cluster, &own), ["", "", "", NEAR]);
    cluster.place(labelled("first", "web", json!({})), "b1");
    assert_eq!(reasons(&mut cluster, &own), [NEAR, NEAR, "", NEAR]);
    let elsewhere = pod(
        "other",
        json!({"metadata": {"namespace": "x", "labels": {"app": "web"}}}),
    );
    let mut other = zones();
    other.place(elsewhere, "b1");
    assert_eq!(
        reasons(&mut other, &own),
        ["", "", "", NEAR],
        "another namespace is not meant"
    );
}

#[test]
fn anti_affinity_holds_both_ways() {
    let apart = || required("podAntiAffinity", json!([term("web", ZONE)]));
    let mut cluster = zones();
    cluster.place(labelled("web", "web", json!({})), "a1");
    assert_eq!(
        reasons(&mut cluster, &labelled("p", "x", apart())),
        [APART, APART, "", ""]
    );
    let mut cluster = zones();
    cluster.place(labelled("held", "x", apart()), "a1");
    assert_eq!(
        reasons(&mut cluster, &labelled("p", "web", json!({}))),
        [EXISTING, EXISTING, "", ""]
    );
    assert_eq!(reasons(&mut cluster, &labelled("p", "db", json!({}))), [""; 4]);
    cluster.remove_node("a1");
    assert_eq!(
        reasons(&mut cluster, &labelled("p", "web", json!({}))),
        [""; 3],
        "its node is in no zone any more"
    );
}

#[test]
fn namespaces_are_named_or_selected() {
    let mut cluster = zones();
    let team = |team: &str| Some(BTreeMap::from([("team".to_owned(), team.to_owned())]));
    cluster.set_namespace("x", team("blue"));
    cluster.set_namespace("default", team("red"));
    cluster.place(
        pod(
            "there",
            json!({"metadata": {"namespace": "x", "labels": {"app": "web"}}}),
        ),
        "b1",
    );
    let with = |extra: Value| {
        let mut term = term("web", HOST);
        json_patch::merge(&mut term, &extra);
        labelled("p", "p", required("podAntiAffinity", json!([term])))
    };
    for (extra, refused) in [
        (json!({}), false),
        (json!({"namespaces": ["x"]}), true),
        (json!({"namespaceSelector": {}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "red"}}}), false),
        (
            json!({"namespaces": ["y"], "namespaceSelector": {"matchLabels": {"team": "blue"}}}),
            true,
        ),
    ] {
        let found = reasons(&mut cluster, &with(extra.clone()));
        assert_eq!(found[2] == APART, refused, "{extra}");
    }
}

#[test]
fn what_if_counts_are_as_if_counted_anew() {
    let apart = required("podAntiAffinity", json!([term("web", ZONE)]));
    let near = required("podAffinity", json!([term("db", ZONE)]));
    let mut both = apart.clone();
    json_patch::merge(&mut both, &near);
    let (web, db, held) = (
        labelled("w", "web", json!({})),
        labelled("d", "db", json!({})),
        labelled("h", "x", apart),
    );
    let asked = labelled("p", "web", both);
    let profile = Profile::default();
    let mut empty = zones();
    empty.know_all(asked.topology_keys());
    let mut state = State::begin(&empty, &profile, &asked, None, Told::default()).unwrap();
    for others in [vec![&db], vec![&db, &web], vec![&db, &held], vec![&web, &held]] {
        let mut counted = zones();
        for other in &others {
            counted.place(Arc::clone(other), "a1");
            state.add_pod(other, empty.node("a1").unwrap());
        }
        let anew: Vec<String> = reasons(&mut counted, &asked);
        let verdict = |name: &str| {
            let node = empty.node(name).unwrap();
            state
                .filter(node, &node.room)
                .err()
                .map_or_else(String::new, |r| r.reasons.join(", "))
        };
        assert_eq!(["a1", "a2", "b1", "c1"].map(verdict).to_vec(), anew, "{others:?}");
        others
            .iter()
            .for_each(|other| state.remove_pod(other, empty.node("a1").unwrap()));
    }
}

fn scored(cluster: &mut Cluster, pod: &PodInfo, profile: &Profile) -> Option<Vec<i64>> {
    cluster.know_all(pod.topology_keys());
    let state = State::begin(cluster, profile, pod, None, Told::default()).unwrap();
    let slots: Vec<usize> = cluster.present().map(|node| node.slot).collect();
    pre_score(&state).map(|scoring| scoring.scores(&slots))
}

#[test]
fn wishes_of_both_sides_are_weighed() {
    let profile = Profile::default();
    let mut cluster = zones();
    cluster.place(labelled("db", "db", json!({})), "a1");
    let wish = |kind: &str, weight| labelled("p", "web", preferred(kind, weight, term("db", ZONE)));
    let plain = labelled("p", "web", json!({}));
    assert_eq!(scored(&mut cluster, &plain, &profile), None, "nobody has a wish");
    assert_eq!(
        scored(&mut cluster, &wish("podAffinity", 5), &profile),
        Some(vec![100, 100, 0, 0])
    );
    assert_eq!(
        scored(&mut cluster, &wish("podAntiAffinity", 5), &profile),
        Some(vec![0, 0, 100, 100])
    );
    // A placed pod wishes the new one near its own node, and another one away from its zone.
    cluster.place(
        labelled("fan", "fan", preferred("podAffinity", 8, term("web", HOST))),
        "b1",
    );
    cluster.place(
        labelled("shy", "shy", preferred("podAntiAffinity", 2, term("web", ZONE))),
        "a1",
    );
    assert_eq!(scored(&mut cluster, &plain, &profile), Some(vec![0, 0, 100, 20]));
    let mut deaf = Profile::default();
    deaf.args.ignore_preferred_terms_of_existing_pods = true;
    assert_eq!(scored(&mut cluster, &plain, &deaf), None);
    // Required affinity of a placed pod to the new one weighs hardPodAffinityWeight.
    let mut cluster = zones();
    cluster.place(
        labelled("need", "need", required("podAffinity", json!([term("web", ZONE)]))),
        "a1",
    );
    assert_eq!(scored(&mut cluster, &plain, &profile), Some(vec![100, 100, 0, 0]));
    let mut none = Profile::default();
    none.args.hard_pod_affinity_weight = 0;
    assert_eq!(scored(&mut cluster, &plain, &none), None);
}

#[test]
fn replicas_that_repel_each_other_take_a_node_each() {
    let mut cluster = cluster(&[zoned("a", "a"), zoned("b", "b")]);
    let mut search = Search::new(3);
    let apart = || required("podAntiAffinity", json!([term("web", HOST)]));
    let mut used = Vec::new();
    for name in ["p0", "p1"] {
        let pod = labelled(name, "web", apart());
        let node = schedule(&mut search, &mut cluster, &pod).unwrap();
        cluster.place(pod, &node);
        used.push(node);
    }
    used.sort();
    assert_eq!(used, ["a", "b"]);
    let third = schedule(&mut search, &mut cluster, &labelled("p2", "web", apart())).unwrap_err();
    assert_eq!(
        third.error.message(),
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. preemption: 0/2 nodes are available: 2 No \
         preemption victims found for incoming pod."
    );
}

#[test]
fn only_events_about_whom_it_waits_for_may_help() {
    let waits = labelled("p", "web", required("podAffinity", json!([term("db", ZONE)])));
    let (db, other) = (labelled("d", "db", json!({})), labelled("o", "other", json!({})));
    let placed = |pod| Event::Pod {
        before: None,
        after: Some(pod),
        node: None,
    };
    let gone = |pod| Event::Pod {
        before: Some(pod),
        after: None,
        node: None,
    };
    assert!(hint(&waits, &placed(&db)));
    assert!(!hint(&waits, &placed(&other)));
    let repelled = labelled("p", "web", json!({}));
    let held = labelled("h", "x", required("podAntiAffinity", json!([term("web", ZONE)])));
    assert!(hint(&repelled, &gone(&held)));
    assert!(!hint(&repelled, &gone(&other)));
    let same = Event::Pod {
        before: Some(&held),
        after: Some(&held),
        node: None,
    };
    assert!(!hint(&repelled, &same), "a resize moves nobody");
}
