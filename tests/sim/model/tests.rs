//! Each rule fires on its planted fault, and on nothing sound.

mod controllers;

use super::*;
use crate::checker::ContainerView;
use serde_json::json;

fn breaches(run: impl FnOnce(&mut Model)) -> String {
    let mut model = Model::default();
    run(&mut model);
    model.at_rest();
    model.breaches.join("\n")
}

const POD: &str = "/registry/pods/default/p";

fn node(model: &mut Model) {
    let allocatable = json!({"cpu": "1", "memory": "1048576Ki", "pods": "2"});
    let node = json!({"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": allocatable}});
    model.on_change(1, "/registry/minions/n", Some(node));
}

fn pod(uid: &str, node: &str, cpu: &str) -> Value {
    let init = json!([{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}]);
    json!({"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": node, "initContainers": init,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}, "status": {}})
}

fn bind(model: &mut Model, revision: Revision, uid: &str, cpu: &str) {
    let key = format!("/registry/pods/default/{uid}");
    model.on_change(revision, &key, Some(pod(uid, "n", cpu)));
}

#[test]
fn a_node_bears_what_it_has_and_no_more() {
    let fits = breaches(|model| {
        node(model);
        bind(model, 2, "a", "400m");
        bind(model, 3, "b", "400m");
    });
    assert_eq!(fits, "");
    let cpu = breaches(|model| {
        node(model);
        bind(model, 2, "a", "400m");
        bind(model, 3, "b", "401m");
    });
    assert!(
        cpu.contains("n is overcommitted by what is bound to it: cpu 1001 of 1000"),
        "{cpu}"
    );
    let pods = breaches(|model| {
        node(model);
        (0..3).for_each(|n| bind(model, n + 2, &format!("p{n}"), "1m"));
    });
    assert!(pods.contains("pods 3000 of 2000"), "{pods}");
}

#[test]
fn what_runs_is_counted_too() {
    let text = breaches(|model| {
        node(model);
        bind(model, 2, "a", "600m");
        // Bound without the scheduler's knowledge, and started all the same.
        model.lost_binding("default/b");
        bind(model, 3, "b", "600m");
        let container = |uid: &str| ContainerView {
            uid: uid.into(),
            name: "c".into(),
            running: true,
            exit_code: None,
        };
        let view = RuntimeView {
            sandboxes: Vec::new(),
            containers: vec![container("a"), container("b")],
        };
        model.on_runtimes(&BTreeMap::from([("n".to_owned(), view)]));
    });
    assert!(
        text.contains("n is overcommitted by what runs on it: cpu 1400 of 1000"),
        "{text}"
    );
}

#[test]
fn a_write_follows_what_it_is_conditional_on() {
    let write = |model: &mut Model, revision, base| {
        model.on_change(revision, POD, Some(json!({})));
        model.acknowledged(POD, revision, base);
    };
    let sound = breaches(|model| {
        write(model, 1, None);
        write(model, 2, Some(1));
        model.conditional(1, 2);
    });
    assert_eq!(sound, "");
    let lost_update = breaches(|model| {
        write(model, 1, None);
        write(model, 2, Some(1));
        write(model, 3, Some(1));
    });
    assert!(
        lost_update.contains("conditional on Some(1) and followed Some(2)"),
        "{lost_update}"
    );
    let through_the_api = breaches(|model| {
        (1..4).for_each(|revision| write(model, revision, (revision > 1).then(|| revision - 1)));
        model.conditional(1, 3);
    });
    assert!(
        through_the_api.contains("an update on 1 became r3"),
        "{through_the_api}"
    );
    let unheard = breaches(|model| model.acknowledged(POD, 1, None));
    assert!(
        unheard.contains("was acknowledged and nobody was told of it"),
        "{unheard}"
    );
    let anothers = breaches(|model| {
        model.on_change(1, "/registry/pods/default/q", Some(json!({})));
        model.acknowledged(POD, 1, None);
    });
    assert!(
        anothers.contains("was acknowledged for /registry/pods/default/p and is of"),
        "{anothers}"
    );
    let gap = breaches(|model| write(model, 2, None));
    assert!(gap.contains("revision 2 of the store followed 0"), "{gap}");
}

#[test]
fn what_was_answered_is_there_after_a_crash() {
    let record = |modified| Record {
        key: POD.into(),
        value: "{}".into(),
        created: 1,
        modified,
    };
    let crash = |revision, records: &[Record]| {
        breaches(|model| {
            for revision in 1..4 {
                model.on_change(revision, POD, Some(json!({})));
                model.acknowledged(POD, revision, (revision > 1).then(|| revision - 1));
            }
            model.reopened(revision, records);
        })
    };
    assert_eq!(crash(3, &[record(3)]), "");
    assert!(crash(2, &[record(2)]).contains("r3 of /registry/pods/default/p was acknowledged and is lost"));
    assert!(crash(3, &[]).contains("the key is gone"));
}

#[test]
fn a_watch_that_resumes_misses_nothing() {
    let seen = |sightings: &[Sighting]| {
        breaches(|model| {
            (1..5).for_each(|revision| drop(model.on_change(revision, POD, Some(json!({})))));
            model.on_change(5, "/registry/minions/n", Some(json!({})));
            sightings.iter().cloned().for_each(|sighting| model.sighted(sighting));
        })
    };
    let listed = Sighting::Listed(2, vec![(POD.to_owned(), 2)]);
    let sound = [
        listed.clone(),
        Sighting::Resumed(2),
        Sighting::Event(3),
        Sighting::Resumed(3),
        Sighting::Event(4),
        Sighting::Bookmark(5),
    ];
    assert_eq!(seen(&sound), "");
    assert!(seen(&[Sighting::Listed(2, vec![])]).contains("a list at 2"));
    assert!(seen(&[listed.clone(), Sighting::Event(4)]).contains("went on with 4"));
    assert!(seen(&[listed.clone(), Sighting::Bookmark(4)]).contains("was not delivered"));
    assert!(seen(&[listed, Sighting::Resumed(4)]).contains("had seen 2"));
}

fn set(name: &str, size: i64, available: i64) -> Value {
    json!({"metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": "d"}]},
        "spec": {"replicas": size}, "status": {"availableReplicas": available}})
}

fn rollout(then: &[(&str, Value)]) -> String {
    breaches(|model| {
        let deployment = json!({"metadata": {"name": "d", "uid": "d", "generation": 1}, "status": {"observedGeneration": 1},
            "spec": {"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}});
        model.on_change(1, "/registry/deployments/default/d", Some(deployment));
        model.on_change(2, "/registry/replicasets/default/old", Some(set("old", 4, 4)));
        for (revision, (name, value)) in (3..).zip(then) {
            model.on_change(
                revision,
                &format!("/registry/replicasets/default/{name}"),
                Some(value.clone()),
            );
        }
    })
}

#[test]
fn a_rollout_keeps_within_surge_and_unavailability() {
    assert_eq!(rollout(&[("new", set("new", 1, 0)), ("old", set("old", 3, 4))]), "");
    let only_those_that_are_down = [("old", set("old", 4, 2)), ("old", set("old", 2, 2))];
    assert_eq!(rollout(&only_those_that_are_down), "");
    let surge = rollout(&[("new", set("new", 2, 0))]);
    assert!(surge.contains("6 in all, 5 may be"), "{surge}");
    let unavailable = rollout(&[("new", set("new", 1, 0)), ("old", set("old", 2, 4))]);
    assert!(
        unavailable.contains("fewer are available than must be, 2 of 3"),
        "{unavailable}"
    );
    // What a stranger took away a moment ago is its controller's still, as far as that may know.
    let mut taken = set("new", 2, 2);
    taken["metadata"]["ownerReferences"] = json!([]);
    let (first, last) = (("old", set("old", 3, 4)), ("old", set("old", 1, 3)));
    let (begun, up) = (("new", set("new", 1, 0)), ("new", set("new", 2, 2)));
    assert_eq!(
        rollout(&[begun, first.clone(), up, ("new", taken.clone()), last.clone()]),
        ""
    );
    let unavailable = rollout(&[("new", taken), first, last]);
    assert!(unavailable.contains("scaled from 3 to 1: fewer"), "{unavailable}");
}

#[test]
fn a_node_that_refuses_one_pod_after_the_other_is_told() {
    let refuse = |pods: u32| {
        breaches(|model| {
            for n in 1..=pods {
                let revision = u64::from(2 * n - 1);
                let pod = json!({"metadata": {"uid": n.to_string(), "ownerReferences": [{"name": "o", "uid": "o"}]},
                    "status": {"phase": "Failed", "message": "tainted"}});
                let key = format!("/registry/pods/default/p{n}");
                model.on_change(revision, &key, Some(pod.clone()));
                model.on_change(revision + 1, &key, Some(pod));
            }
        })
    };
    assert_eq!(refuse(REFUSED_MAX - 1), "");
    assert!(refuse(REFUSED_MAX).contains("were refused by their nodes: \"tainted\""));
}

#[test]
fn nothing_is_collected_whose_owner_stands() {
    let collect = |owner: Option<Value>| {
        breaches(|model| {
            model.on_change(1, "/registry/replicasets/default/o", owner);
            let object = json!({"metadata": {"uid": "x", "ownerReferences": [{"name": "o", "uid": "o"}]}});
            model.on_change(2, POD, Some(object));
            model.collects("x");
            model.on_change(3, POD, None);
        })
    };
    let standing = collect(Some(json!({"metadata": {"uid": "o"}})));
    assert!(standing.contains("was collected though its owner"), "{standing}");
    assert_eq!(
        collect(Some(json!({"metadata": {"uid": "o", "deletionTimestamp": "now"}}))),
        ""
    );
    assert_eq!(collect(None), "");
}
