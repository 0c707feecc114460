use super::*;
use crate::held::Node;
use crate::scheduler::cycle::Search;
use crate::scheduler::plugin::steps::Told;
use crate::scheduler::testing::{cluster, labelled, node, pod, schedule, verdicts, zoned};
use serde_json::{Value, json};
use std::sync::Arc;

const UNEVEN: &str = "node(s) didn't match pod topology spread constraints";
const MISSING: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

fn constraint(key: &str, skew: i64, extra: Value) -> Value {
    let mut constraint = json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    json_patch::merge(&mut constraint, &extra);
    constraint
}

fn spread(constraints: Value) -> Arc<PodInfo> {
    labelled("p", "web", json!({"topologySpreadConstraints": constraints}))
}

/// Zone a has a1 and a2, zone b has b1, each with so many pods.
fn zones(pods: [usize; 3]) -> Cluster {
    let mut cluster = cluster(&[zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b")]);
    for (node, count) in ["a1", "a2", "b1"].into_iter().zip(pods) {
        for i in 0..count {
            cluster.place(labelled(&format!("{node}-{i}"), "web", json!({})), node);
        }
    }
    cluster
}

fn reasons(cluster: &mut Cluster, pod: &PodInfo) -> Vec<String> {
    verdicts(cluster, pod).into_iter().map(|(_, reason)| reason).collect()
}

#[test]
fn domains_stay_within_the_skew() {
    let zone = |skew| spread(json!([constraint(ZONE, skew, json!({}))]));
    assert_eq!(reasons(&mut zones([0, 0, 0]), &zone(1)), ["", "", ""]);
    assert_eq!(reasons(&mut zones([1, 0, 0]), &zone(1)), [UNEVEN, UNEVEN, ""]);
    assert_eq!(reasons(&mut zones([1, 1, 1]), &zone(1)), [UNEVEN, UNEVEN, ""]);
    assert_eq!(reasons(&mut zones([1, 1, 1]), &zone(2)), ["", "", ""]);
    let both = spread(json!([
        constraint(ZONE, 2, json!({})),
        constraint(HOSTNAME, 1, json!({}))
    ]));
    assert_eq!(reasons(&mut zones([1, 0, 1]), &both), [UNEVEN, "", UNEVEN]);
    let foreign = pod("f", json!({"metadata": {"namespace": "x", "labels": {"app": "web"}}}));
    let mut cluster = zones([0, 0, 0]);
    cluster.place(foreign, "a1");
    let leaving = json!({"metadata": {"labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    cluster.place(pod("leaving", leaving), "a1");
    cluster.place(labelled("db", "db", json!({})), "a1");
    assert_eq!(reasons(&mut cluster, &zone(1)), ["", "", ""], "neither counts");
}

#[test]
fn a_node_without_the_label_is_refused_and_counts_for_nothing() {
    let mut cluster = zones([1, 0, 1]);
    cluster.set_node(&node("c1", json!({})));
    cluster.place(labelled("c", "web", json!({})), "c1");
    let found = reasons(&mut cluster, &spread(json!([constraint(ZONE, 1, json!({}))])));
    assert_eq!(found, ["", "", "", MISSING]);
}

#[test]
fn too_few_domains_count_as_an_empty_one() {
    let wants = |domains: i64| spread(json!([constraint(ZONE, 1, json!({"minDomains": domains}))]));
    assert_eq!(reasons(&mut zones([1, 0, 1]), &wants(2)), ["", "", ""]);
    assert_eq!(reasons(&mut zones([1, 0, 1]), &wants(3)), [UNEVEN, UNEVEN, UNEVEN]);
}

#[test]
fn policies_say_which_nodes_count() {
    let with = |extra: Value, spec: Value| {
        let mut all = json!({"topologySpreadConstraints": [constraint(ZONE, 1, extra)]});
        json_patch::merge(&mut all, &spec);
        labelled("p", "web", all)
    };
    // Only zone a is selected: with Honor it is the only domain.
    let selecting = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]}}}});
    let selector = "node(s) didn't match Pod's node affinity/selector";
    assert_eq!(
        reasons(&mut zones([1, 0, 0]), &with(json!({}), selecting.clone())),
        ["", "", selector]
    );
    let ignoring = with(json!({"nodeAffinityPolicy": "Ignore"}), selecting);
    assert_eq!(reasons(&mut zones([1, 0, 0]), &ignoring), [UNEVEN, UNEVEN, selector]);
    let tainted = |pods| {
        let mut cluster = zones(pods);
        let labels = json!({"topology.kubernetes.io/zone": "b"});
        let taint = json!({"metadata": {"labels": labels}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
        cluster.set_node(&node("b1", taint));
        cluster
    };
    let taint = "node(s) had untolerated taint(s)";
    assert_eq!(
        reasons(&mut tainted([1, 0, 0]), &with(json!({}), json!({}))),
        [UNEVEN, UNEVEN, taint]
    );
    let honoring = with(json!({"nodeTaintsPolicy": "Honor"}), json!({}));
    assert_eq!(reasons(&mut tainted([1, 0, 0]), &honoring), ["", "", taint]);
}

#[test]
fn label_keys_make_each_revision_spread_by_itself() {
    let keyed = constraint(ZONE, 1, json!({"matchLabelKeys": ["hash"]}));
    let new = pod(
        "p",
        json!({"metadata": {"labels": {"app": "web", "hash": "2"}}, "spec": {"topologySpreadConstraints": [keyed]}}),
    );
    assert_eq!(
        reasons(&mut zones([2, 0, 0]), &new),
        ["", "", ""],
        "the old ones have no such label"
    );
    let mut cluster = zones([0, 0, 0]);
    cluster.place(
        pod("new", json!({"metadata": {"labels": {"app": "web", "hash": "2"}}})),
        "a1",
    );
    assert_eq!(reasons(&mut cluster, &new), [UNEVEN, UNEVEN, ""]);
}

fn scored(cluster: &mut Cluster, pod: &PodInfo, owned: Option<&Selector>) -> Option<Vec<i64>> {
    let profile = Profile::default();
    cluster.know_all(pod.topology_keys().chain(default_keys(&profile)));
    let state = State::begin(cluster, &profile, pod, owned, Told::default()).unwrap();
    let slots: Vec<usize> = cluster.present().map(|node| node.slot).collect();
    pre_score(&state, &slots).map(|scoring| scoring.scores(&slots))
}

#[test]
fn wishes_follow_the_formula() {
    let wish = |key: &str, skew| {
        spread(json!([constraint(
            key,
            skew,
            json!({"whenUnsatisfiable": "ScheduleAnyway"})
        )]))
    };
    // Two domains: ln 4. a: round(3 · 1.386) = 4, b: round(1.386) = 1.
    let found = scored(&mut zones([2, 1, 1]), &wish(ZONE, 1), None);
    assert_eq!(found, Some(vec![25, 25, 100]));
    // Three nodes: ln 5. 2 · 1.609 = 3, 2, 0 by node.
    let found = scored(&mut zones([2, 1, 0]), &wish(HOSTNAME, 1), None);
    assert_eq!(found, Some(vec![0, 33, 100]));
    // Skew 3 adds 2 to each: 5, 4, 2.
    let found = scored(&mut zones([2, 1, 0]), &wish(HOSTNAME, 3), None);
    assert_eq!(found, Some(vec![40, 60, 100]));
    assert_eq!(scored(&mut zones([0, 0, 0]), &wish(ZONE, 1), None), Some(vec![100; 3]));
    let mut cluster = zones([1, 0, 0]);
    cluster.set_node(&node("c1", json!({})));
    assert_eq!(
        scored(&mut cluster, &wish(ZONE, 1), None).unwrap()[3],
        0,
        "a node without the label is the worst"
    );
}

#[test]
fn pods_of_an_owner_are_spread_by_default() {
    let plain = labelled("p", "web", json!({}));
    let owned = Selector::parse("app=web").unwrap();
    assert_eq!(scored(&mut zones([2, 1, 0]), &plain, None), None, "nobody's");
    let found = scored(&mut zones([3, 0, 0]), &plain, Some(&owned)).unwrap();
    assert!(found[2] > found[1] && found[1] > found[0], "{found:?}");
    let own = spread(json!([constraint(ZONE, 1, json!({}))]));
    assert_eq!(
        scored(&mut zones([2, 1, 0]), &own, Some(&owned)),
        None,
        "its own are all it has"
    );
}

#[test]
fn many_replicas_lie_evenly() {
    let nodes: Vec<Node> = (0..6)
        .map(|i| zoned(&format!("n{i}"), ["a", "b", "c"][i % 3]))
        .collect();
    let mut cluster = cluster(&nodes);
    let mut search = Search::new(5);
    for i in 0..12 {
        let constraints = json!([constraint(ZONE, 1, json!({})), constraint(HOSTNAME, 1, json!({}))]);
        let pod = labelled(
            &format!("p{i}"),
            "web",
            json!({"topologySpreadConstraints": constraints}),
        );
        let node = schedule(&mut search, &mut cluster, &pod).unwrap();
        cluster.place(pod, &node);
    }
    assert!(cluster.present().all(|node| node.pods.len() == 2));
}

#[test]
fn only_events_about_its_own_kind_may_help() {
    let waits = spread(json!([constraint(ZONE, 1, json!({}))]));
    let (web, db) = (labelled("w", "web", json!({})), labelled("d", "db", json!({})));
    let gone = |pod| Event::Pod {
        before: Some(pod),
        after: None,
        node: None,
    };
    assert!(hint(&waits, &gone(&web)));
    assert!(!hint(&waits, &gone(&db)));
    let foreign = pod("f", json!({"metadata": {"namespace": "x", "labels": {"app": "web"}}}));
    assert!(!hint(&waits, &gone(&foreign)));
    assert!(!hint(&waits, &Event::Namespace("default")));
}
