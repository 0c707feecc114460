use super::*;
use crate::scheduler::cluster::Cluster;
use crate::scheduler::cycle::{Search, Unplaced};
use crate::scheduler::profile::Profile;
use crate::scheduler::testing::{cluster, important, labelled, node, schedule, schedule_as};
use serde_json::{Value, json};

fn refused(cluster: &mut Cluster, pod: &PodInfo, budgets: &[Budget]) -> Box<Unplaced> {
    schedule_as(&Profile::default(), &mut Search::new(1), cluster, pod, budgets).unwrap_err()
}

/// The node and the victims, most important first.
fn evicted(cluster: &mut Cluster, pod: &PodInfo, budgets: &[Budget]) -> Option<(String, Vec<String>)> {
    let preemption = refused(cluster, pod, budgets).candidates.into_iter().next()?;
    let names = preemption.victims.iter().map(|victim| victim.uid.clone()).collect();
    Some((preemption.node, names))
}

fn nodes(names: &[&str]) -> Cluster {
    cluster(&names.iter().map(|name| node(name, json!({}))).collect::<Vec<_>>())
}

fn started(hour: u32) -> Value {
    json!({"status": {"startTime": format!("2026-01-01T{hour:02}:00:00Z")}})
}

fn budget(app: &str, allowed: i32) -> Budget {
    let value = json!({"metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    Budget::new(&serde_json::from_value(value).unwrap()).unwrap()
}

#[test]
fn the_fewest_and_least_important_go() {
    let mut cluster = nodes(&["a"]);
    cluster.place(important("low", 1, "2", json!({})), "a");
    cluster.place(important("lower", 0, "1", json!({})), "a");
    cluster.place(important("mid", 5, "1", json!({})), "a");
    let want = |priority, cpu: &str| important("p", priority, cpu, json!({}));
    assert_eq!(
        evicted(&mut cluster, &want(9, "1"), &[]),
        Some(("a".into(), vec!["lower".into()]))
    );
    assert_eq!(
        evicted(&mut cluster, &want(9, "2"), &[]),
        Some(("a".into(), vec!["low".into()]))
    );
    assert_eq!(
        evicted(&mut cluster, &want(9, "3"), &[]),
        Some(("a".into(), vec!["low".into(), "lower".into()]))
    );
    assert_eq!(
        evicted(&mut cluster, &want(1, "1"), &[]),
        Some(("a".into(), vec!["lower".into()]))
    );
    // Equal priority stays.
    let unplaced = refused(&mut cluster, &want(0, "1"), &[]);
    assert!(unplaced.candidates.is_empty());
    assert_eq!(
        unplaced.error.message(),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for \
         incoming pod."
    );
    // Not even all of lower priority are enough.
    let unplaced = refused(&mut cluster, &want(5, "4"), &[]);
    assert_eq!(
        unplaced.error.message(),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu."
    );
    assert!(unplaced.renounce);
    let said = refused(&mut cluster, &want(9, "1"), &[]);
    assert_eq!(said.error.message(), "0/1 nodes are available: 1 Insufficient cpu.");
}

#[test]
fn a_pod_that_may_not_preempt_does_not() {
    let mut cluster = nodes(&["a"]);
    cluster.place(important("low", 0, "4", json!({})), "a");
    let never = important("p", 9, "1", json!({"spec": {"preemptionPolicy": "Never"}}));
    let unplaced = refused(&mut cluster, &never, &[]);
    assert!(unplaced.candidates.is_empty() && !unplaced.renounce);
    assert!(
        unplaced
            .error
            .message()
            .ends_with("preemption: not eligible due to preemptionPolicy=Never.")
    );
    let without = Profile {
        preempts: false,
        ..Profile::default()
    };
    let pod = important("p", 9, "1", json!({}));
    let unplaced = schedule_as(&without, &mut Search::new(1), &mut cluster, &pod, &[]).unwrap_err();
    assert!(unplaced.candidates.is_empty());
    assert_eq!(unplaced.error.message(), "0/1 nodes are available: 1 Insufficient cpu.");
}

#[test]
fn nodes_that_evicting_cannot_help_are_left_alone() {
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let mut cluster = cluster(&[node("tainted", taint), node("a", json!({}))]);
    cluster.place(important("idle", 0, "1", json!({})), "tainted");
    cluster.place(important("high", 10, "4", json!({})), "a");
    let unplaced = refused(&mut cluster, &important("p", 5, "1", json!({})), &[]);
    assert!(unplaced.candidates.is_empty());
    assert!(
        unplaced.error.message().ends_with(
            "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful \
             for scheduling."
        ),
        "{}",
        unplaced.error.message()
    );
}

/// Each row is decided by one rule of the order more than the row before.
#[test]
fn the_node_is_chosen_in_upstreams_order() {
    let app = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let of = |name: &str, priority, cpu: &str, extra: Value| important(name, priority, cpu, extra);
    let choose = |left: Vec<std::sync::Arc<PodInfo>>, right: Vec<std::sync::Arc<PodInfo>>, budgets: &[Budget]| {
        let mut cluster = nodes(&["left", "right"]);
        left.into_iter().for_each(|pod| drop(cluster.place(pod, "left")));
        right.into_iter().for_each(|pod| drop(cluster.place(pod, "right")));
        evicted(&mut cluster, &of("p", 100, "4", json!({})), budgets).unwrap().0
    };
    let budgets = [budget("kept", 0)];
    // Fewest broken budgets, though the other victim is less important.
    let node = choose(
        vec![of("l", 0, "4", app("kept"))],
        vec![of("r", 50, "4", json!({}))],
        &budgets,
    );
    assert_eq!(node, "right");
    // The lowest top priority, though more go.
    let node = choose(
        vec![of("l", 9, "4", json!({}))],
        vec![of("r1", 8, "2", json!({})), of("r2", 8, "2", json!({}))],
        &[],
    );
    assert_eq!(node, "right");
    // The lowest sum.
    let node = choose(
        vec![of("l1", 8, "2", json!({})), of("l2", 7, "2", json!({}))],
        vec![of("r1", 8, "2", json!({})), of("r2", 3, "2", json!({}))],
        &[],
    );
    assert_eq!(node, "right");
    // The fewest: with the offset of 2^31 a further victim always adds to the sum.
    let node = choose(
        vec![of("l1", 8, "2", json!({})), of("l2", -5, "2", json!({}))],
        vec![of("r1", 8, "4", json!({}))],
        &[],
    );
    assert_eq!(node, "right");
    // Those that started last.
    let node = choose(
        vec![of("l", 8, "4", started(1))],
        vec![of("r", 8, "4", started(2))],
        &[],
    );
    assert_eq!(node, "right");
}

#[test]
fn budgets_are_kept_where_that_is_possible() {
    let app = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let mut cluster = nodes(&["a"]);
    cluster.place(important("guarded", 0, "2", app("kept")), "a");
    cluster.place(important("free", 5, "2", json!({})), "a");
    let pod = important("p", 9, "2", json!({}));
    assert_eq!(evicted(&mut cluster, &pod, &[]).unwrap().1, ["guarded"]);
    assert_eq!(evicted(&mut cluster, &pod, &[budget("kept", 0)]).unwrap().1, ["free"]);
    assert_eq!(
        evicted(&mut cluster, &pod, &[budget("kept", 1)]).unwrap().1,
        ["guarded"]
    );
    // And no further: the pod comes first.
    let large = important("p", 9, "4", json!({}));
    assert_eq!(
        evicted(&mut cluster, &large, &[budget("kept", 0)]).unwrap().1,
        ["free", "guarded"]
    );
    let everybody = json!({"metadata": {"name": "e", "namespace": "default"}, "spec": {"selector": {}}});
    assert!(Budget::new(&serde_json::from_value(everybody).unwrap()).is_none());
}

#[test]
fn nobody_more_goes_while_victims_are_leaving() {
    let mut cluster = nodes(&["a", "b"]);
    cluster.place(important("low-a", 0, "4", json!({})), "a");
    cluster.place(important("low-b", 0, "4", json!({})), "b");
    let pod = important("p", 9, "4", json!({}));
    let first = refused(&mut cluster, &pod, &[]).candidates.remove(0);
    cluster.nominate(pod.clone(), &first.node);
    cluster.doomed.insert(first.victims[0].uid.clone());
    let told = "preemption: not eligible due to a terminating pod on the nominated node.";
    let again = refused(&mut cluster, &pod, &[]);
    assert!(again.candidates.is_empty() && !again.renounce);
    assert!(again.error.message().ends_with(told), "{}", again.error.message());
    // The API says so, too, once the victim is on its way.
    cluster.doomed.clear();
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
    let leaving =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": [condition]}});
    cluster.place(important(&first.victims[0].uid, 0, "4", leaving), &first.node);
    assert!(refused(&mut cluster, &pod, &[]).candidates.is_empty());
    cluster.remove_pod(&first.victims[0].uid);
    assert_eq!(schedule(&mut Search::new(1), &mut cluster, &pod).unwrap(), first.node);
}

/// Whose nominated node is no more does not wait for those who leave it.
#[test]
fn who_waits_for_a_node_that_is_gone_may_preempt_elsewhere() {
    let mut cluster = nodes(&["a", "b"]);
    cluster.place(important("low-a", 0, "4", json!({})), "a");
    cluster.place(important("low-b", 0, "4", json!({})), "b");
    let pod = important("p", 9, "4", json!({}));
    cluster.nominate(pod.clone(), "a");
    cluster.doomed.insert("low-a".to_owned());
    assert_eq!(evicted(&mut cluster, &pod, &[]), None);
    cluster.remove_node("a");
    let elsewhere = Some(("b".to_owned(), vec!["low-b".to_owned()]));
    assert_eq!(evicted(&mut cluster, &pod, &[]), elsewhere);
    cluster.remove_node("b");
    assert!(
        refused(&mut cluster, &pod, &[]).renounce,
        "there is no node to wait for"
    );
}

#[test]
fn a_pod_that_repels_it_may_go_for_it() {
    let mut cluster = nodes(&["a"]);
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    cluster.place(labelled("held", "x", apart), "a");
    cluster.place(labelled("other", "y", json!({})), "a");
    let pod = labelled("p", "web", json!({"priority": 5}));
    assert_eq!(
        evicted(&mut cluster, &pod, &[]),
        Some(("a".into(), vec!["held".into()]))
    );
    // What was asked left no trace.
    assert_eq!(
        evicted(&mut cluster, &pod, &[]),
        Some(("a".into(), vec!["held".into()]))
    );
}
