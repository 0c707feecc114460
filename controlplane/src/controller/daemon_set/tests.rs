use super::*;
use crate::controller::history::REVISION_LABEL;
use serde_json::{Value, json};

mod properties;
mod rollout;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn set(extra: Value) -> Arc<DaemonSet> {
    let mut value = json!({
        "metadata": {"name": "d", "namespace": "default", "uid": "set", "generation": 3, "resourceVersion": "1",
            "annotations": {"deprecated.daemonset.template.generation": "2"}},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "new"}]}}},
        "status": {"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
            "observedGeneration": 3},
    });
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn revision(name: &str, number: i64, image: &str) -> Arc<Revision> {
    let value = json!({"revision": number,
        "metadata": {"name": format!("d-{name}"), "namespace": "default", "uid": name, "ownerReferences": [owner()],
            "labels": {"app": "d", REVISION_LABEL: name}},
        "data": {"spec": {"template": {"$patch": "replace", "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": image}]}}}}});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn owner() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "set", "controller": true})
}

fn node(name: &str, extra: Value) -> Arc<Node> {
    let mut value = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn tainted(key: &str, effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "effect": effect}]}})
}

/// A pod of that name, for that node, that serves since second 0.
fn pod(name: &str, node: &str, revision: &str, extra: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner()],
            "creationTimestamp": "1970-01-01T00:00:00Z", "labels": {"app": "d", REVISION_LABEL: revision}},
        "spec": {"containers": [], "nodeName": node},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
    });
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn ended(phase: &str) -> Value {
    json!({"status": {"phase": phase, "conditions": []}})
}

fn unready() -> Value {
    json!({"status": {"conditions": []}})
}

fn going() -> Value {
    json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}})
}

fn seen(set: &Arc<DaemonSet>, pods: &[Arc<Pod>]) -> Seen {
    let revisions = vec![revision("old", 1, "old"), revision("new", 2, "new")];
    Seen::new(set.clone(), (pods.to_vec(), vec![]), (revisions, vec![]))
}

/// The plan in words: `+n1` creates for a node, `-p` deletes, `~p` patches.
fn words(plan: &Plan) -> Vec<String> {
    let word = |w: &Write| match &w.verb {
        Verb::Create(body) if w.resource == write::PODS => {
            let pod: Pod = serde_json::from_value(body.clone()).unwrap();
            format!("+{}", node::target(&pod).unwrap())
        }
        Verb::Create(body) => format!("+{}", body["metadata"]["name"].as_str().unwrap()),
        Verb::Delete { .. } => format!("-{}", w.key.name),
        _ => format!("~{}", w.key.name),
    };
    plan.writes.iter().map(word).collect()
}

fn plan(set: &Arc<DaemonSet>, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> Plan {
    seen(set, pods).plan(nodes, true, &mut Backoffs::default(), at(100))
}

fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
    names.iter().map(|name| node(name, json!({}))).collect()
}

#[test]
fn fit_nodes_get_a_pod_each() {
    let with = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let selected = with(json!({"nodeSelector": {"disk": "ssd"}}));
    let labelled = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let tolerant = with(json!({"tolerations": [{"operator": "Exists"}]}));
    let affine = with(
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}}}),
    );
    let both = |set: Value, node_extra: Value| {
        // What the template says is no matter of revisions here.
        let set = self::set(set);
        let fit = node::Fitting::new(set.spec.as_ref().unwrap()).of(&node("n", node_extra));
        (fit.should_run, fit.may_stay)
    };
    for (name, set, node, want) in [
        ("any", json!({}), json!({}), (true, true)),
        (
            "cordoned",
            json!({}),
            tainted("node.kubernetes.io/unschedulable", "NoSchedule"),
            (true, true),
        ),
        (
            "not ready",
            json!({}),
            tainted("node.kubernetes.io/not-ready", "NoExecute"),
            (true, true),
        ),
        (
            "unreachable",
            json!({}),
            tainted("node.kubernetes.io/unreachable", "NoExecute"),
            (true, true),
        ),
        (
            "under pressure",
            json!({}),
            tainted("node.kubernetes.io/disk-pressure", "NoSchedule"),
            (true, true),
        ),
        (
            "no network",
            json!({}),
            tainted("node.kubernetes.io/network-unavailable", "NoSchedule"),
            (false, true),
        ),
        (
            "no network, and none needed",
            with(json!({"hostNetwork": true})),
            tainted("node.kubernetes.io/network-unavailable", "NoSchedule"),
            (true, true),
        ),
        ("tainted", json!({}), tainted("gpu", "NoSchedule"), (false, true)),
        ("left", json!({}), tainted("gpu", "NoExecute"), (false, false)),
        ("disliked", json!({}), tainted("gpu", "PreferNoSchedule"), (true, true)),
        ("tolerated", tolerant, tainted("gpu", "NoExecute"), (true, true)),
        ("not selected", selected.clone(), json!({}), (false, false)),
        ("selected", selected, labelled.clone(), (true, true)),
        ("by affinity", affine.clone(), labelled, (true, true)),
        ("not by affinity", affine, json!({}), (false, false)),
        (
            "another by name",
            with(json!({"nodeName": "m"})),
            json!({}),
            (false, false),
        ),
    ] {
        assert_eq!(both(set, node), want, "{name}");
    }
}

#[test]
fn every_node_has_its_one_pod() {
    let new = |name: &str, node: &str, extra| pod(name, node, "new", extra);
    let unbound = |name: &str, node: &str| {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
        new(
            name,
            "",
            json!({"spec": {"nodeName": null, "affinity": affinity}, "status": {"phase": "Pending", "conditions": []}}),
        )
    };
    let younger = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:05Z"}});
    let two = nodes(&["a", "b"]);
    let left = vec![node("a", tainted("x", "NoExecute")), node("b", json!({}))];
    let nothing: &[&str] = &[];
    for (name, nodes, pods, want) in [
        ("all", &two, vec![], &["+a", "+b"][..]),
        ("the one without", &two, vec![new("p", "a", json!({}))], &["+b"]),
        (
            "one that waits to be bound is there",
            &two,
            vec![unbound("p", "a"), new("q", "b", json!({}))],
            nothing,
        ),
        (
            "one too many",
            &two,
            vec![
                new("p", "a", younger.clone()),
                new("q", "a", json!({})),
                new("r", "b", json!({})),
            ],
            &["-p"],
        ),
        (
            "bound ones stay",
            &two,
            vec![unbound("p", "a"), new("q", "a", younger), new("r", "b", json!({}))],
            &["-p"],
        ),
        (
            "on a node that is left",
            &left,
            vec![new("p", "a", json!({})), new("q", "b", json!({}))],
            &["-p"],
        ),
        (
            "what goes is waited for",
            &two,
            vec![new("p", "a", going()), new("q", "b", json!({}))],
            nothing,
        ),
        (
            "what ended and goes is not",
            &two,
            vec![
                new(
                    "p",
                    "a",
                    json!({"metadata": going()["metadata"], "status": {"phase": "Failed"}}),
                ),
                new("q", "b", json!({})),
            ],
            &["+a"],
        ),
        (
            "what ended well",
            &two,
            vec![new("p", "a", ended("Succeeded")), new("q", "b", json!({}))],
            &["-p"],
        ),
        (
            "what failed",
            &two,
            vec![new("p", "a", ended("Failed")), new("q", "b", json!({}))],
            &["-p"],
        ),
        (
            "for a node that is gone",
            &two,
            vec![unbound("p", "gone"), new("q", "a", json!({})), new("r", "b", json!({}))],
            &["-p"],
        ),
        (
            "on a node that is gone: the collector's",
            &two,
            vec![
                new("p", "gone", json!({})),
                new("q", "a", json!({})),
                new("r", "b", json!({})),
            ],
            nothing,
        ),
    ] {
        assert_eq!(words(&plan(&set(json!({})), nodes, &pods)), want, "{name}");
    }
    let many: Vec<Arc<Node>> = (0..300).map(|n| node(&format!("n{n}"), json!({}))).collect();
    assert_eq!(plan(&set(json!({})), &many, &[]).writes.len(), 250);
    let deleted = set(json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}));
    assert_eq!(plan(&deleted, &two, &[]), Plan::default());
}

#[test]
fn the_pod_is_bound_to_its_node_by_the_scheduler() {
    let made = plan(&set(json!({})), &nodes(&["a"]), &[]);
    let Verb::Create(body) = &made.writes[0].verb else {
        panic!()
    };
    assert_eq!(body["metadata"]["generateName"], "d-");
    assert_eq!(
        body["metadata"]["labels"],
        json!({"app": "d", "pod-template-generation": "2", "controller-revision-hash": "new"})
    );
    assert!(body["spec"]["nodeName"].is_null());
    let terms = &body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        terms["nodeSelectorTerms"],
        json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}])
    );
    let keys: Vec<_> = body["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["key"].as_str().unwrap())
        .collect();
    let want = [
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
    ];
    assert_eq!(keys, want.map(|key| format!("node.kubernetes.io/{key}")));
    let told = made.writes[0].on_success.as_ref().unwrap();
    assert_eq!(
        (told.reason, told.message.as_str()),
        ("SuccessfulCreate", "Created pod: {}")
    );
    let mut spec = k8s_openapi::api::core::v1::PodSpec::default();
    node::tolerate(&mut spec);
    let once = spec.clone();
    node::tolerate(&mut spec);
    assert_eq!(spec, once, "nothing is tolerated twice");
}

#[test]
fn what_fails_again_is_left_for_longer() {
    let (set, nodes) = (set(json!({})), nodes(&["a"]));
    let failed = seen(&set, &[pod("p", "a", "new", ended("Failed"))]);
    let mut backoffs = Backoffs::default();
    let first = failed.plan(&nodes, true, &mut backoffs, at(100));
    assert_eq!(words(&first), ["-p"]);
    let told = &first.events[0];
    assert_eq!(
        (told.kind, told.reason, told.message.as_str()),
        (
            "Warning",
            "FailedDaemonPod",
            "Found failed daemon pod default/p on node a, will try to kill it"
        )
    );
    let second = failed.plan(&nodes, true, &mut backoffs, at(100));
    assert_eq!(
        (words(&second), second.again_in),
        (vec![], Some(std::time::Duration::from_secs(1)))
    );
    assert_eq!(words(&failed.plan(&nodes, true, &mut backoffs, at(101))), ["-p"]);
    assert_eq!(
        failed.plan(&nodes, true, &mut backoffs, at(101)).again_in,
        Some(std::time::Duration::from_secs(2))
    );
}

#[test]
fn one_that_selects_all_is_told() {
    let all = set(json!({"spec": {"selector": {"matchLabels": null}}}));
    let told = plan(&all, &nodes(&["a"]), &[]);
    assert_eq!((told.writes.len(), told.events[0].reason), (0, "SelectingAll"));
}

#[test]
fn status_counts_nodes() {
    let set = set(json!({"spec": {"minReadySeconds": 50}}));
    let nodes = [
        node("a", json!({})),
        node("b", json!({})),
        node("c", json!({})),
        node("d", json!({})),
        node("e", tainted("x", "NoSchedule")),
    ];
    let late = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:30Z"}]}});
    let pods = [
        pod("a", "a", "new", json!({})),
        pod("b", "b", "old", late),
        pod("c", "c", "new", unready()),
        pod("e", "e", "new", json!({})),
    ];
    let write = seen(&set, &pods).report(&nodes, at(100), None, None).unwrap();
    let Verb::ReplaceSub("status", body) = write.verb else {
        panic!()
    };
    assert_eq!(
        body["status"],
        json!({"desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberMisscheduled": 1, "numberReady": 2,
            "numberAvailable": 1, "numberUnavailable": 3, "updatedNumberScheduled": 2, "observedGeneration": 3})
    );
    let reported = self::set(json!({"spec": {"minReadySeconds": 50}, "status": body["status"]}));
    assert_eq!(
        seen(&reported, &pods).report(&nodes, at(100), None, None),
        None,
        "no news"
    );
}
