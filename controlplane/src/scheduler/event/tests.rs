use super::*;
use crate::scheduler::cluster::Cluster;
use crate::scheduler::testing::{cluster, important, node, pod};
use serde_json::{Value, json};
use std::sync::Arc;

fn helps_in(cluster: &Cluster, pod: &PodInfo, refused: Plugin, event: &Event<'_>) -> bool {
    Hints::new(cluster, event).may_help(&Profile::default(), pod, PluginSet::NONE.with(refused))
}

#[test]
fn what_frees_a_node_helps_only_pods_that_fit_there_now() {
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let mut cluster = cluster(&[node("a", json!({})), node("tainted", taint)]);
    let left = important("left", 0, "3", json!({}));
    cluster.place(important("stays", 0, "2", json!({})), "a");
    let on = |name: &str| Event::Pod {
        before: Some(&left),
        after: None,
        node: cluster.node(name),
    };
    let helps = |pod: &PodInfo, refused, event: &Event<'_>| helps_in(&cluster, pod, refused, event);
    let (fits, large) = (important("p", 0, "2", json!({})), important("p", 0, "3", json!({})));
    assert!(helps(&fits, Plugin::NodeResourcesFit, &on("a")));
    assert!(
        !helps(&large, Plugin::NodeResourcesFit, &on("a")),
        "it is still too large"
    );
    assert!(!helps(&fits, Plugin::NodeResourcesFit, &on("tainted")));
    assert!(
        !helps(&fits, Plugin::InterPodAffinity, &on("a")),
        "room was not what it lacked"
    );
    let placed = Event::Pod {
        before: None,
        after: Some(&left),
        node: cluster.node("a"),
    };
    assert!(!helps(&fits, Plugin::NodeResourcesFit, &placed));
    let node_event = Event::Node {
        before: None,
        after: cluster.node("a"),
    };
    assert!(helps(&fits, Plugin::TaintToleration, &node_event));
    assert!(!helps(&fits, Plugin::NodeResourcesFit, &Event::Namespace("default")));
    let claims = json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}});
    assert!(
        !helps(&pod("p", claims), Plugin::NodeResourcesFit, &node_event),
        "nothing helps what cannot be judged"
    );
}

/// One of equal priority leaves a node whose other pods the pod may have evicted: it finds no room, but can make some.
#[test]
fn room_that_can_be_made_helps_as_well() {
    let mut cluster = cluster(&[node("a", json!({}))]);
    cluster.place(important("less", 1, "2", json!({})), "a");
    cluster.place(important("as much", 9, "1", json!({})), "a");
    let never = json!({"spec": {"preemptionPolicy": "Never"}});
    let left = important("left", 9, "1", json!({}));
    for (pod, helped) in [
        (important("p", 9, "3", json!({})), true),
        (important("p", 9, "3", never), false),
        (important("p", 9, "4", json!({})), false),
        (important("p", 1, "3", json!({})), false),
        (important("p", 1, "1", json!({})), true),
    ] {
        let left = Event::Pod {
            before: Some(&left),
            after: None,
            node: cluster.node("a"),
        };
        let node = Event::Node {
            before: Some(&BTreeMap::new()),
            after: cluster.node("a"),
        };
        for event in [left, node] {
            let found = helps_in(&cluster, &pod, Plugin::NodeResourcesFit, &event);
            assert_eq!(found, helped, "{pod:?} {event:?}");
        }
    }
    let events_of_others = Profile {
        preempts: false,
        ..Profile::default()
    };
    let event = Event::Pod {
        before: Some(&left),
        after: None,
        node: cluster.node("a"),
    };
    let refused = PluginSet::NONE.with(Plugin::NodeResourcesFit);
    let pod = important("p", 9, "3", json!({}));
    let hints = Hints::new(&cluster, &event);
    assert!(hints.may_help(&Profile::default(), &pod, refused));
    assert!(!hints.may_help(&events_of_others, &pod, refused), "nobody is evicted");
}

/// One that waits for room is left alone until it is there, or cannot be any more.
#[test]
fn who_waits_for_room_is_helped_when_it_is_there_or_never_will_be() {
    let mut cluster = cluster(&[node("a", json!({})), node("b", json!({}))]);
    let pod = important("p", 9, "4", json!({}));
    for (victim, at) in [("one", "a"), ("other", "a"), ("elsewhere", "b")] {
        cluster.place(important(victim, 0, "2", json!({})), at);
    }
    cluster.nominate(Arc::clone(&pod), "a");
    cluster.doomed.extend(["one", "other"].map(str::to_owned));
    let left = important("left", 0, "1", json!({}));
    let helps = |cluster: &Cluster, at: &str| {
        let event = Event::Pod {
            before: Some(&left),
            after: None,
            node: cluster.node(at),
        };
        helps_in(cluster, &pod, Plugin::NodeResourcesFit, &event)
    };
    cluster.remove_pod("one");
    assert!(!helps(&cluster, "a"), "the other is on its way");
    assert!(!helps(&cluster, "b"), "it has chosen");
    cluster.remove_pod("other");
    assert!(helps(&cluster, "a"), "there it is");
    cluster.place(important("late", 0, "1", json!({})), "a");
    assert!(helps(&cluster, "a"), "nobody goes for it any more");
    cluster.set_node(&node("a", json!({"spec": {"unschedulable": true}})));
    cluster.doomed.insert("late".to_owned());
    assert!(helps(&cluster, "a"), "it may not go there");
    cluster.remove_node("a");
    let gone = Event::Node {
        before: Some(&BTreeMap::new()),
        after: None,
    };
    assert!(helps_in(&cluster, &pod, Plugin::NodeResourcesFit, &gone));
    let other = important("q", 9, "4", json!({}));
    assert!(!helps_in(&cluster, &other, Plugin::NodeResourcesFit, &gone));
}

/// Of a cluster without nodes nobody has said what the pod lacks: the first one is to say it, though it will not take the pod.
#[test]
fn who_found_no_node_at_all_is_told_of_the_first_one() {
    let cluster = cluster(&[node("small", json!({"status": {"allocatable": {"cpu": "1"}}}))]);
    let pod = important("p", 0, "2", json!({}));
    let helps = |event: Event<'_>, refused| Hints::new(&cluster, &event).may_help(&Profile::default(), &pod, refused);
    let added = Event::Node {
        before: None,
        after: cluster.node("small"),
    };
    let gone = Event::Node {
        before: Some(&BTreeMap::new()),
        after: None,
    };
    assert!(helps(added, PluginSet::NONE));
    assert!(!helps(gone, PluginSet::NONE));
    assert!(!helps(added, PluginSet::NONE.with(Plugin::NodeResourcesFit)));
}

/// A namespace's labels are asked for where terms are about pods by them: the pod's own, or others' that may be about its namespace.
#[test]
fn labels_of_a_namespace_help_whom_terms_about_them_concern() {
    let cluster = cluster(&[node("a", json!({}))]);
    let apart = |more: Value| {
        let mut term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {}});
        json_patch::merge(&mut term, &more);
        pod(
            "p",
            json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}}),
        )
    };
    for (pod, namespace, helped) in [
        (apart(json!({})), "default", true),
        (apart(json!({})), "other", false),
        (apart(json!({"namespaces": ["other"]})), "other", false),
        (apart(json!({"namespaceSelector": {}})), "other", true),
        (
            apart(json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})),
            "other",
            true,
        ),
    ] {
        let event = Event::Namespace(namespace);
        let found = helps_in(&cluster, &pod, Plugin::InterPodAffinity, &event);
        assert_eq!(found, helped, "{namespace} {:?}", pod.terms);
    }
}
