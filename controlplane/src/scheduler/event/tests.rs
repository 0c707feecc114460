use super::*;
use crate::scheduler::testing::{cluster, important, node, pod};
use serde_json::json;

fn helps(pod: &PodInfo, refused: Plugin, event: &Event<'_>) -> bool {
    may_help(&Profile::default(), pod, PluginSet::NONE.with(refused), event)
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
    assert!(helps(
        &fits,
        Plugin::NodeResourcesFit,
        &Event::Renounced(cluster.node("a").unwrap())
    ));
    assert!(!helps(&fits, Plugin::NodeResourcesFit, &Event::Namespace));
    let claims = json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}});
    assert!(
        !helps(&pod("p", claims), Plugin::NodeResourcesFit, &node_event),
        "nothing helps what cannot be judged"
    );
}
