//! Pods that wait for room on a node: whoever had to leave it to them hears when they do not any more.

use super::*;
use crate::held::Pod;
use crate::scheduler::plugin::PluginSet;
use serde_json::Value;

/// A scheduler that knows two nodes, and of a pod that waits for room on the first of them.
fn beside(waiting: &Arc<PodInfo>) -> Scheduler {
    let mut scheduler = scheduler(0);
    scheduler.cluster.set_node(&node("other", json!({})));
    scheduler.nominate(Arc::clone(waiting), "n");
    scheduler
}

fn waiting() -> Arc<PodInfo> {
    important("high", 9, "3", json!({"metadata": {"labels": {"app": "high"}}}))
}

/// The pod was refused by that plugin.
fn refuse(scheduler: &mut Scheduler, pod: &Arc<PodInfo>, by: Plugin) {
    scheduler.queue.put(Arc::clone(pod), Instant::now());
    scheduler.queue.pop(Instant::now()).unwrap();
    let refused = ScheduleFailure::Unschedulable(PluginSet::NONE.with(by));
    scheduler.queue.fail(&pod.uid, refused, Instant::now());
    assert!(is_asleep(scheduler));
}

fn is_asleep(scheduler: &Scheduler) -> bool {
    scheduler.queue.waiting()[2] == ("unschedulable", 1)
}

/// The API tells of the pod.
fn tell(scheduler: &mut Scheduler, old: Option<&Arc<PodInfo>>, new: Option<&Arc<PodInfo>>) {
    let key = old.or(new).unwrap().key.clone();
    let shown = |pod: Option<&Arc<PodInfo>>| pod.map(|pod| Arc::<Pod>::clone(&pod.pod));
    scheduler.pod_changed(Change {
        key,
        old: shown(old),
        new: shown(new),
    });
}

fn nominated(pod: &Arc<PodInfo>, node: &str, more: &Value) -> Arc<PodInfo> {
    let mut value = json!({"metadata": {"labels": pod.kin.labels}, "spec": {"priority": pod.priority},
        "status": {"nominatedNodeName": node}});
    json_patch::merge(&mut value, more);
    crate::scheduler::testing::pod(&pod.uid, value)
}

#[tokio::test(start_paused = true)]
async fn room_that_nobody_waits_for_any_more_helps_others() {
    let high = waiting();
    let fits = important("low", 0, "2", json!({}));
    let apart = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "high"}}}]);
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}});
    let apart = important("low", 0, "1", json!({"spec": {"affinity": apart}}));
    let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "high"}}}]);
    let spread = important("low", 0, "1", json!({"spec": {"topologySpreadConstraints": spread}}));
    for (low, by) in [
        (&fits, Plugin::NodeResourcesFit),
        (&apart, Plugin::InterPodAffinity),
        (&spread, Plugin::PodTopologySpread),
    ] {
        let was = nominated(&high, "n", &json!({}));
        for (new, what) in [
            (Some(nominated(&high, "other", &json!({}))), "it waits elsewhere"),
            (Some(nominated(&high, "", &json!({}))), "it does not wait"),
            (None, "it is gone"),
            (
                Some(nominated(&high, "n", &json!({"spec": {"nodeName": "other"}}))),
                "it is elsewhere",
            ),
        ] {
            let mut scheduler = beside(&high);
            refuse(&mut scheduler, low, by);
            tell(&mut scheduler, Some(&was), new.as_ref());
            assert!(!is_asleep(&scheduler), "{by:?}: {what}");
        }
        let mut scheduler = beside(&high);
        refuse(&mut scheduler, low, by);
        scheduler.bind(Arc::clone(&high), "other".to_owned(), None);
        assert!(!is_asleep(&scheduler), "{by:?}: it was placed elsewhere");
        let mut scheduler = beside(&high);
        refuse(&mut scheduler, low, by);
        scheduler.nominate(Arc::clone(&high), "n");
        tell(&mut scheduler, Some(&was), Some(&was));
        assert!(is_asleep(&scheduler), "{by:?}: nothing happened");
    }
}

/// The API tells what was decided a moment ago, and more has been decided since.
#[tokio::test(start_paused = true)]
async fn what_was_decided_meanwhile_is_newer_than_what_the_api_says() {
    let high = waiting();
    let of = |node: &str| nominated(&high, node, &json!({}));
    for (old, new, expected) in [
        ("gone", "", Some("n")),
        ("gone", "gone", Some("n")),
        ("", "", Some("n")),
        ("n", "", None),
        ("n", "other", Some("other")),
        ("", "other", Some("other")),
    ] {
        let mut scheduler = beside(&high);
        tell(&mut scheduler, Some(&of(old)), Some(&of(new)));
        assert_eq!(
            scheduler.cluster.nominated.node_of(&high.uid),
            expected,
            "{old:?} {new:?}"
        );
        // It is known as it is now.
        if let Some(node) = expected {
            let known = scheduler.cluster.nominated.on(node).next().unwrap();
            assert_eq!(known.nominated(), new);
        }
    }
    let mut fresh = scheduler(0);
    tell(&mut fresh, None, Some(&of("n")));
    assert_eq!(fresh.cluster.nominated.node_of(&high.uid), Some("n"));
    fresh.renounce(&high.uid);
    tell(&mut fresh, Some(&of("n")), Some(&of("n")));
    assert_eq!(
        fresh.cluster.nominated.node_of(&high.uid),
        None,
        "that it ends is on its way"
    );
}

/// Who waited for a node that is another's now need not wait until the room is there: it may find some elsewhere.
#[tokio::test(start_paused = true)]
async fn who_is_displaced_is_tried_again_once_the_api_has_it() {
    for is_nominated in [true, false] {
        let middle = important("middle", 5, "3", json!({}));
        let mut scheduler = scheduler(0);
        scheduler.cluster.place(important("victim", 0, "4", json!({})), "n");
        refuse(&mut scheduler, &middle, Plugin::NodeResourcesFit);
        scheduler.nominate(Arc::clone(&middle), "n");
        let high = waiting();
        scheduler.queue.put(Arc::clone(&high), Instant::now());
        assert!(!scheduler.cycles(TURN).await);
        let nodes = ["high", "middle"].map(|uid| scheduler.cluster.nominated.node_of(uid));
        assert_eq!(nodes, [Some("n"), None]);
        scheduler.landed(Some(Bound::Evicted {
            pod: high,
            node: "n".to_owned(),
            is_nominated,
            kept: Vec::new(),
            displaced: vec![middle],
        }));
        let next = std::iter::from_fn(|| scheduler.queue.pop(Instant::now()));
        assert!(next.into_iter().any(|pod| pod.uid == "middle"), "{is_nominated}");
    }
}
