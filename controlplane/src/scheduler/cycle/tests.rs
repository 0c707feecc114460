use super::*;
use crate::held::{Node, Pod};
use crate::scheduler::plugin::steps::Step;
use crate::scheduler::testing::{cluster, node, schedule};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

fn pod(name: &str, cpu: &str, memory: &str, extra: Value) -> Arc<PodInfo> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
    });
    json_patch::merge(&mut value, &extra);
    let pod: Pod = serde_json::from_value(value).unwrap();
    Arc::new(PodInfo::new(Arc::new(pod)))
}

fn message(nodes: &[Node], pod: &PodInfo) -> String {
    let unplaced = schedule(&mut Search::new(1), &mut cluster(nodes), pod).unwrap_err();
    unplaced.error.message()
}

/// Whoever takes the time of points hears of all that plugins are asked at, in their order.
#[test]
fn each_point_is_told_of_when_it_is_over() {
    let affinity = |names: [&str; 2]| {
        let field = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let terms = json!([{"matchFields": names.map(field)}]);
        json!({"spec": {"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}})
    };
    let (passed, scored) = (Lap::End("PreFilter", "Success"), Lap::End("Score", "Success"));
    let (filtered, counted) = (Lap::End("Filter", "Success"), Lap::End("PreScore", "Success"));
    let victim = pod("victim", "4", "1Gi", json!({}));
    for (name, cpu, priority, extra, expected) in [
        (
            "fits on two",
            "1",
            0,
            json!({}),
            vec![passed, filtered, counted, scored],
        ),
        (
            "fits on one",
            "3",
            0,
            json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "b"}}}),
            vec![passed, filtered],
        ),
        (
            "fits nowhere",
            "16",
            0,
            json!({}),
            vec![passed, filtered, Lap::End("PostFilter", "Unschedulable")],
        ),
        (
            "fits where another goes",
            "4",
            9,
            json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "full"}}}),
            vec![passed, filtered, Lap::End("PostFilter", "Success")],
        ),
        (
            "contradicts itself",
            "1",
            0,
            affinity(["a", "b"]),
            vec![Lap::End("PreFilter", "UnschedulableAndUnresolvable")],
        ),
    ] {
        let mut cluster = cluster(&["a", "b", "full"].map(|name| node(name, json!({}))));
        cluster.place(Arc::clone(&victim), "full");
        let mut value = extra;
        json_patch::merge(&mut value, &json!({"spec": {"priority": priority}}));
        let (pod, laps) = (pod("p", cpu, "1Gi", value), std::cell::RefCell::new(Vec::new()));
        let request = Request {
            pod: &pod,
            profile: &Profile::default(),
            owned: None,
            budgets: &Vec::new,
            lap: &|lap| laps.borrow_mut().push(lap),
            told: Told::default(),
        };
        drop(Search::new(1).schedule(&mut cluster, request));
        let laps = laps.into_inner();
        assert_eq!((laps[0], &laps[1..]), (Lap::Begin, &*expected), "{name}");
    }
}

#[test]
fn messages_are_upstreams() {
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let tainted = [node("a", taint.clone()), node("b", taint), node("c", json!({}))];
    let table: [(&[Node], Arc<PodInfo>, &str); 6] = [
        (
            &[],
            pod("p", "1", "1Gi", json!({})),
            "no nodes available to schedule pods",
        ),
        (
            &tainted,
            pod("p", "16", "1Gi", json!({})),
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: 0/3 nodes are \
             available: 3 Preemption is not helpful for scheduling.",
        ),
        (
            &[node("a", json!({}))],
            pod("p", "16", "100Gi", json!({})),
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. preemption: 0/1 nodes are available: 1 \
             Preemption is not helpful for scheduling.",
        ),
        (
            &[node("a", json!({"status": {"allocatable": {"pods": "0"}}}))],
            pod("p", "1", "1Gi", json!({})),
            "0/1 nodes are available: 1 Too many pods. preemption: 0/1 nodes are available: 1 No preemption victims found for \
             incoming pod.",
        ),
        (
            &[node("a", json!({"spec": {"unschedulable": true}}))],
            pod("p", "1", "1Gi", json!({"spec": {"preemptionPolicy": "Never"}})),
            "0/1 nodes are available: 1 node(s) were unschedulable. preemption: not eligible due to preemptionPolicy=Never.",
        ),
        (
            &[node("a", json!({}))],
            pod("p", "1", "1Gi", json!({"spec": {"nodeSelector": {"disk": "ssd"}}})),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are available: \
             1 Preemption is not helpful for scheduling.",
        ),
    ];
    for (nodes, pod, want) in table {
        assert_eq!(message(nodes, &pod), want);
    }
}

#[test]
fn decided_pods_count_at_once() {
    let mut cluster = cluster(&[node("a", json!({}))]);
    let mut search = Search::new(1);
    for i in 0..4 {
        let pod = pod(&format!("p{i}"), "1", "1Gi", json!({}));
        let node = schedule(&mut search, &mut cluster, &pod).unwrap();
        cluster.place(pod, &node);
    }
    let fifth = pod("p5", "1", "1Gi", json!({}));
    let error = schedule(&mut search, &mut cluster, &fifth).unwrap_err();
    let message = error.error.message();
    assert!(message.contains("1 Insufficient cpu."), "{message}");
    assert!(error.error.rejections.iter().all(|(_, rejection)| rejection.resolvable));
    cluster.remove_pod("p0");
    assert_eq!(schedule(&mut search, &mut cluster, &fifth).unwrap(), "a");
}

#[test]
fn pods_spread_over_equal_nodes() {
    let nodes: Vec<Node> = (0..10).map(|i| node(&format!("n{i}"), json!({}))).collect();
    let mut cluster = cluster(&nodes);
    let mut search = Search::new(7);
    for i in 0..30 {
        let pod = pod(&format!("p{i}"), "100m", "200Mi", json!({}));
        let node = schedule(&mut search, &mut cluster, &pod).unwrap();
        cluster.place(pod, &node);
    }
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap();
        assert_eq!(cluster.node(name).unwrap().pods.len(), 3, "{name}");
    }
}

#[test]
fn ties_are_broken_by_the_seed() {
    let nodes: Vec<Node> = (0..10).map(|i| node(&format!("n{i}"), json!({}))).collect();
    let choose = |seed| {
        schedule(
            &mut Search::new(seed),
            &mut cluster(&nodes),
            &pod("p", "1", "1Gi", json!({})),
        )
        .unwrap()
    };
    assert_eq!(choose(1), choose(1));
    let chosen: BTreeSet<String> = (0..50).map(choose).collect();
    assert!(chosen.len() > 5, "{chosen:?}");
}

#[test]
fn preferences_win_over_balance() {
    let preferred = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}}]}}}});
    let soft = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    for seed in 0..20 {
        let mut plain = cluster(&[node("a", json!({})), node("b", json!({}))]);
        let choice = schedule(
            &mut Search::new(seed),
            &mut plain,
            &pod("p", "1", "1Gi", preferred.clone()),
        );
        assert_eq!(choice.unwrap(), "b");
        let mut tainted = cluster(&[node("a", soft.clone()), node("b", json!({}))]);
        let choice = schedule(&mut Search::new(seed), &mut tainted, &pod("p", "1", "1Gi", json!({})));
        assert_eq!(choice.unwrap(), "b");
    }
}

#[test]
fn large_clusters_are_searched_in_part_and_in_turn() {
    assert_eq!(
        [0, 99, 100, 1000, 5000].map(|nodes| enough(nodes, 0)),
        [0, 99, 100, 420, 500]
    );
    assert_eq!([99, 300, 5000].map(|nodes| enough(nodes, 10)), [99, 100, 500]);
    assert_eq!(enough(5000, 100), 5000);
    let nodes: Vec<Node> = (0..300).map(|i| node(&format!("n{i:03}"), json!({}))).collect();
    let mut cluster = cluster(&nodes);
    let mut search = Search::new(1);
    let mut used = BTreeSet::new();
    for i in 0..600 {
        let pod = pod(&format!("p{i}"), "1", "1Gi", json!({}));
        let node = schedule(&mut search, &mut cluster, &pod).unwrap();
        used.insert(node.clone());
        cluster.place(pod, &node);
    }
    assert_eq!(used.len(), 300);
}

#[test]
fn zones_take_turns() {
    let zoned = |name: &str, zone: &str| {
        node(
            name,
            json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}),
        )
    };
    let mut cluster = cluster(&[zoned("a1", "a"), zoned("a2", "a"), zoned("a3", "a"), zoned("b1", "b")]);
    cluster.refresh();
    let names: Vec<_> = cluster
        .order()
        .iter()
        .map(|slot| cluster.at(*slot).name.clone())
        .collect();
    assert_eq!(names, ["a1", "b1", "a2", "a3"]);
}

#[test]
fn nodes_come_and_go_under_their_pods() {
    let mut cluster = cluster(&[]);
    cluster.place(pod("early", "1", "1Gi", json!({})), "a");
    cluster.refresh();
    assert!(cluster.order().is_empty(), "known only from a pod");
    cluster.set_node(&node("a", json!({})));
    assert_eq!(cluster.node("a").unwrap().room.requested.cpu, 1000);
    cluster.remove_node("a");
    cluster.refresh();
    assert!(cluster.order().is_empty());
    assert_eq!(cluster.remove_pod("early").unwrap().1, "a");
    assert!(cluster.node("a").is_none());
    cluster.set_node(&node("b", json!({})));
    assert_eq!(cluster.node("b").unwrap().room.requested.cpu, 0);
}

#[test]
fn a_pod_that_names_its_nodes_is_tried_on_those_alone() {
    let named = |names: Value| {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]});
        json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}})
    };
    let nodes = [node("a", json!({})), node("b", json!({})), node("c", json!({}))];
    let choice = schedule(
        &mut Search::new(1),
        &mut cluster(&nodes),
        &pod("p", "1", "1Gi", named(json!(["b"]))),
    );
    assert_eq!(choice.unwrap(), "b");
    assert_eq!(
        message(&nodes, &pod("p", "16", "1Gi", named(json!(["b"])))),
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are \
         available: 3 Preemption is not helpful for scheduling."
    );
    let mut contradicting = named(json!(["b"]));
    let term = &mut contradicting["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let fields = term["nodeSelectorTerms"][0]["matchFields"].as_array_mut().unwrap();
    fields.push(json!({"key": "metadata.name", "operator": "In", "values": ["c"]}));
    assert_eq!(
        message(&nodes, &pod("p", "1", "1Gi", contradicting)),
        "0/3 nodes are available: pod affinity terms conflict. preemption: 0/3 nodes are available: 3 Preemption is not helpful for \
         scheduling."
    );
}

#[test]
fn what_waits_for_a_node_is_counted_there_for_all_but_the_more_important() {
    let at = |priority: i32| json!({"spec": {"priority": priority}});
    let mut cluster = cluster(&[node("a", json!({}))]);
    let waiting = pod("waiting", "3", "1Gi", at(10));
    cluster.nominate(waiting.clone(), "a");
    let mut search = Search::new(1);
    for (priority, fits) in [(0, false), (10, false), (11, true)] {
        let other = pod("other", "2", "1Gi", at(priority));
        assert_eq!(schedule(&mut search, &mut cluster, &other).is_ok(), fits, "{priority}");
    }
    assert_eq!(
        schedule(&mut search, &mut cluster, &waiting).unwrap(),
        "a",
        "it does not wait for itself"
    );
    cluster.place(waiting, "a");
    assert_eq!(cluster.nominated.node_of("waiting"), None);
}

/// Who is told of plugins' steps hears of each that was asked, and the cycle ends as it does untold.
#[test]
fn plugins_are_told_of_one_by_one() {
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let nodes = [node("a", taint), node("b", json!({})), node("c", json!({}))];
    let cycle = |cpu: &str, is_told: bool| {
        let (steps, mut cluster) = (std::cell::RefCell::new(Vec::new()), cluster(&nodes));
        let tell = |step| steps.borrow_mut().push(step);
        let pod = pod("p", cpu, "1Gi", json!({"spec": {"priority": 9}}));
        let request = Request {
            pod: &pod,
            profile: &Profile::default(),
            owned: None,
            budgets: &Vec::new,
            lap: &|_| (),
            told: if is_told { Told::to(&tell) } else { Told::default() },
        };
        let chosen = Search::new(1)
            .schedule(&mut cluster, request)
            .map_err(|unplaced| unplaced.error);
        (chosen, steps.into_inner())
    };
    for (cpu, expected) in [
        (
            "1",
            &[
                (Plugin::NodeAffinity, "PreFilter", "Skip", 1),
                (Plugin::NodeResourcesFit, "PreFilter", "Success", 1),
                (Plugin::TaintToleration, "Filter", "UnschedulableAndUnresolvable", 1),
                (Plugin::NodeResourcesFit, "Filter", "Success", 2),
                (Plugin::NodeAffinity, "PreScore", "Skip", 1),
                (Plugin::TaintToleration, "PreScore", "Success", 1),
                (Plugin::NodeResourcesFit, "Score", "Success", 2),
                (Plugin::TaintToleration, "ScoreExtensionNormalize", "Success", 1),
                (Plugin::DefaultPreemption, "PostFilter", "Unschedulable", 0),
            ][..],
        ),
        (
            "16",
            &[
                (Plugin::NodeResourcesFit, "Filter", "Success", 0),
                (Plugin::TaintToleration, "PreScore", "Success", 0),
                (Plugin::DefaultPreemption, "PostFilter", "Unschedulable", 1),
            ],
        ),
    ] {
        let ((chosen, steps), (untold, none)) = (cycle(cpu, true), cycle(cpu, false));
        assert_eq!((&chosen, none), (&untold, vec![]), "{cpu}");
        let begun = steps.iter().filter(|step| **step == Step::Begin).count();
        assert_eq!(2 * begun, steps.len(), "{cpu}");
        for (plugin, point, said, times) in expected {
            let end = Step::End(*plugin, point, said);
            let told = steps.iter().filter(|step| **step == end).count();
            assert_eq!(told, *times, "{cpu} {end:?} in {steps:?}");
        }
    }
}
