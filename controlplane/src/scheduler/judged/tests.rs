//! Memory changes nothing: whatever happens between cycles, each ends as one that remembers nothing.

use super::Scores;
use crate::scheduler::cluster::Cluster;
use crate::scheduler::cycle::Search;
use crate::scheduler::plugin::default_preemption::Preemption;
use crate::scheduler::pod::PodInfo;
use crate::scheduler::profile::Profile;
use crate::scheduler::testing::{cluster, node, pod, schedule};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

const NODES: usize = 12;
const ZONE: &str = "topology.kubernetes.io/zone";

/// What may be another of a node; each is drawn anew where the node changes.
#[derive(Clone, Debug)]
struct Machine {
    cpu: i64,
    pods: i64,
    zone: usize,
    taint: usize,
    is_cordoned: bool,
    image: usize,
    is_able: bool,
}

impl Machine {
    fn node(&self, number: usize) -> crate::held::Node {
        let taints = [
            json!([]),
            json!([{"key": "hard", "effect": "NoSchedule"}]),
            json!([{"key": "soft", "effect": "PreferNoSchedule"}]),
        ];
        let features: &[&str] = if self.is_able {
            &["RestartAllContainersOnContainerExits"]
        } else {
            &[]
        };
        let images = match self.image {
            0 => json!([]),
            size => json!([{"names": ["big:latest"], "sizeBytes": 400_000_000 * size}]),
        };
        node(
            &format!("n{number}"),
            json!({"metadata": {"labels": {ZONE: format!("z{}", self.zone), "kubernetes.io/hostname": format!("n{number}")}},
                "spec": {"unschedulable": self.is_cordoned, "taints": taints[self.taint]},
                "status": {"allocatable": {"cpu": self.cpu.to_string(), "pods": self.pods.to_string()},
                    "images": images, "declaredFeatures": features}}),
        )
    }
}

fn machine() -> impl Strategy<Value = Machine> {
    (
        1..5i64,
        1..8i64,
        0..3usize,
        0..3usize,
        prop::bool::weighted(0.1),
        0..3usize,
        any::<bool>(),
    )
        .prop_map(|(cpu, pods, zone, taint, is_cordoned, image, is_able)| Machine {
            cpu,
            pods,
            zone,
            taint,
            is_cordoned,
            image,
            is_able,
        })
}

/// Kinds of pods: each but the first differs from it by one field that plugins read, most of which ask one node alone.
fn kinds() -> Vec<Value> {
    let with = |more: Value| {
        let mut spec =
            json!({"containers": [{"name": "c", "image": "small", "resources": {"requests": {"cpu": "1"}}}]});
        json_patch::merge(&mut spec, &more);
        spec
    };
    let container = |more: Value| {
        let mut container = json!({"name": "c", "image": "small", "resources": {"requests": {"cpu": "1"}}});
        json_patch::merge(&mut container, &more);
        with(json!({"containers": [container]}))
    };
    let term = |zone: &str| json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    let required =
        |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let near = json!([{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a"}}}]);
    let spread = |otherwise: &str| {
        with(
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": otherwise,
            "labelSelector": {"matchLabels": {"app": "a"}}}]}),
        )
    };
    vec![
        with(json!({})),
        container(json!({"resources": {"requests": {"cpu": "2"}}})),
        // The same that scores count, but more requests.
        container(json!({"resources": {"requests": {"cpu": "1", "example.com/x": "1"}}})),
        // The same requests, but less that scores count: what is said to be nothing has no default.
        container(json!({"resources": {"requests": {"cpu": "1", "memory": "0"}}})),
        container(json!({"image": "big"})),
        container(json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
        container(json!({"restartPolicy": "Always",
            "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]})),
        with(json!({"nodeName": "n3"})),
        with(json!({"tolerations": [{"operator": "Exists"}]})),
        with(json!({"nodeSelector": {ZONE: "z1"}})),
        with(json!({"affinity": {"nodeAffinity": required(term("z2"))}})),
        with(
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 10, "preference": term("z0")}]}}}),
        ),
        with(json!({"affinity": {"nodeAffinity": required(json!({"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": ["n1", "n2", "n5"]}]}))}})),
        with(json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near}}})),
        with(
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}]}}}),
        ),
        spread("DoNotSchedule"),
        spread("ScheduleAnyway"),
        with(json!({"priority": 5})),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    /// So many pods of a kind, one after the other.
    Pods(usize, usize),
    Node(usize, Machine),
    NodeGone(usize),
    PodGone(usize),
    /// Pods of that priority wait for the node.
    Waits(usize, i32),
    Renounced(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..kinds().len(), 1..5usize).prop_map(|(kind, count)| Step::Pods(kind, count)),
        2 => (0..NODES, machine()).prop_map(|(number, machine)| Step::Node(number, machine)),
        1 => (0..NODES).prop_map(Step::NodeGone),
        3 => (0..60usize).prop_map(Step::PodGone),
        1 => (0..NODES, 0..7i32).prop_map(|(number, priority)| Step::Waits(number, priority)),
        1 => (0..NODES).prop_map(Step::Renounced),
    ]
}

fn made(number: usize, kind: &Value) -> Arc<PodInfo> {
    pod(
        &format!("p{number}"),
        json!({"metadata": {"labels": {"app": "a"}}, "spec": kind}),
    )
}

fn change(cluster: &mut Cluster, step: &Step) {
    match step {
        Step::Pods(..) => {}
        Step::Node(number, machine) => drop(cluster.set_node(&machine.node(*number))),
        Step::NodeGone(number) => cluster.remove_node(&format!("n{number}")),
        Step::PodGone(number) => drop(cluster.remove_pod(&format!("p{number}"))),
        Step::Waits(number, priority) => {
            let containers = json!([{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}]);
            let spec = json!({"priority": priority, "containers": containers});
            let waiting = pod(&format!("w{number}"), json!({"spec": spec}));
            cluster.nominate(waiting, &format!("n{number}"));
        }
        Step::Renounced(number) => drop(cluster.nominated.remove(&format!("w{number}"))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_cycle_ends_as_one_that_remembers_nothing(
        machines in prop::collection::vec(machine(), NODES),
        steps in prop::collection::vec(step(), 1..40),
        seed in any::<u64>(),
    ) {
        let nodes: Vec<_> = machines.iter().enumerate().map(|(number, machine)| machine.node(number)).collect();
        let (mut one, mut other) = (cluster(&nodes), cluster(&nodes));
        let (mut with, mut without) = (Search::new(seed), Search::new(seed));
        let kinds = kinds();
        let mut made_so_far = 0;
        for step in &steps {
            change(&mut one, step);
            change(&mut other, step);
            let Step::Pods(kind, count) = step else { continue };
            for _ in 0..*count {
                let pod = made(made_so_far, &kinds[*kind]);
                made_so_far += 1;
                other.judged.clear();
                let found = schedule(&mut with, &mut one, &pod);
                match (&found, schedule(&mut without, &mut other, &pod)) {
                    (Ok(found), Ok(expected)) => prop_assert_eq!(found, &expected),
                    (Err(found), Err(expected)) => {
                        prop_assert_eq!(&found.error, &expected.error);
                        let of = |all: &[Preemption]| format!("{all:?}");
                        prop_assert_eq!(of(&found.candidates), of(&expected.candidates));
                    }
                    (found, expected) => prop_assert!(false, "{found:?} in place of {expected:?}"),
                }
                if let Ok(node) = found {
                    one.place(Arc::clone(&pod), &node);
                    other.place(pod, &node);
                }
            }
        }
    }
}

/// Nodes that nothing happened to are not asked again by pods that are alike, and by others they are.
#[test]
fn what_was_said_is_said_again_to_those_alike() {
    let nodes: Vec<_> = (0..3).map(|number| node(&format!("n{number}"), json!({}))).collect();
    let mut cluster = cluster(&nodes);
    let mut search = Search::new(1);
    let asks =
        |cpu: &str| json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]});
    for number in 0..4 {
        let pod = made(number, &asks("1"));
        let node = schedule(&mut search, &mut cluster, &pod).unwrap();
        cluster.place(pod, &node);
    }
    let mut judged = cluster.judged.take(&made(9, &asks("1")), &Profile::default());
    let known = (0..3).filter(|slot| judged.of(*slot, cluster.change(*slot)).fits == Some(true));
    assert_eq!(known.count(), 2, "all but the one that got the last pod");
    cluster.judged.keep(judged);
    let mut judged = cluster.judged.take(&made(9, &asks("2")), &Profile::default());
    assert!((0..3).all(|slot| judged.of(slot, cluster.change(slot)).fits.is_none()));
}

/// Images that fewer nodes have draw less, also to nodes that are as they were.
#[test]
fn scores_by_other_shares_of_images_are_forgotten() {
    let mut cluster = Cluster::default();
    let mut judged = cluster
        .judged
        .take(&made(0, &json!({"containers": []})), &Profile::default());
    let shares = |share: f64| [("big:latest".to_owned(), share)];
    let given = Scores {
        sum: 7,
        ..Scores::default()
    };
    for (share, stays) in [(0.5, false), (0.5, true), (0.25, false), (0.25, true)] {
        judged.of(0, 1).fits = Some(true);
        judged.of(0, 1).scores = Some(given);
        judged.score_by(&shares(share));
        assert_eq!(judged.of(0, 1).scores, stays.then_some(given), "{share}");
        assert_eq!(judged.of(0, 1).fits, Some(true));
    }
    judged.of(0, 1).scores = Some(given);
    judged.score_by(&[]);
    assert_eq!(judged.of(0, 1).scores, None, "no node has it any more");
}

/// However many kinds of pods there are, so many are remembered.
#[test]
fn kinds_that_are_remembered_are_bounded() {
    let mut cluster = cluster(&[node("a", json!({})), node("b", json!({}))]);
    let mut search = Search::new(1);
    let pods = |name: usize| {
        made(
            name,
            &json!({"containers": [{"name": "c", "image": format!("i{name}")}]}),
        )
    };
    for number in 0..3 * super::KINDS_MAX {
        schedule(&mut search, &mut cluster, &pods(number)).unwrap();
        schedule(&mut search, &mut cluster, &pods(0)).unwrap();
    }
    assert_eq!(cluster.judged.0.len(), super::KINDS_MAX);
    let mut first = cluster.judged.take(&pods(0), &Profile::default());
    assert_eq!(first.of(0, cluster.change(0)).fits, Some(true), "it was asked for last");
}
