//! Conditions, taints and silence of one node.

use super::*;
use crate::controller::write::Verb;
use serde_json::Value;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn node(conditions: &[(&str, &str)], taints: &[(&str, &str)], extra: Value) -> Node {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(t, s)| json!({"type": t, "status": s}))
        .collect();
    let taints: Vec<_> = taints.iter().map(|(k, e)| json!({"key": k, "effect": e})).collect();
    let mut value =
        json!({"metadata": {"name": "n"}, "spec": {"taints": taints}, "status": {"conditions": conditions}});
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

fn tainted(plan: &Plan) -> Option<Vec<(String, String)>> {
    let write = plan.writes.first()?;
    let Verb::Patch(PatchKind::Merge, "", body) = &write.verb else {
        panic!("{write:?}")
    };
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let list = body["spec"]["taints"].as_array().unwrap();
    Some(list.iter().map(|t| (text(&t["key"]), text(&t["effect"]))).collect())
}

#[test]
fn conditions_become_taints() {
    let table = [
        (
            "ready",
            vec![("Ready", "True")],
            vec![(NOT_READY, "NoSchedule"), ("x", "NoSchedule")],
            true,
            Some(vec![("x", "NoSchedule")]),
        ),
        ("ready and clean", vec![("Ready", "True")], vec![], true, None),
        (
            "new",
            vec![],
            vec![],
            true,
            Some(vec![(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        ),
        (
            "new and alone",
            vec![],
            vec![],
            false,
            Some(vec![(NOT_READY, "NoSchedule")]),
        ),
        (
            "not ready",
            vec![("Ready", "False")],
            vec![(NOT_READY, "NoSchedule")],
            true,
            Some(vec![(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        ),
        (
            "unknown",
            vec![("Ready", "Unknown")],
            vec![(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")],
            true,
            Some(vec![(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        ),
        (
            "all are down",
            vec![("Ready", "Unknown")],
            vec![(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
            false,
            Some(vec![(UNREACHABLE, "NoSchedule")]),
        ),
        (
            "pressure",
            vec![("Ready", "True"), ("DiskPressure", "True")],
            vec![],
            true,
            Some(vec![("node.kubernetes.io/disk-pressure", "NoSchedule")]),
        ),
    ];
    for (name, conditions, taints, others, want) in table {
        let plan = plan(&node(&conditions, &taints, json!({})), seconds(1), others, at(1));
        let want = want.map(|list| {
            list.into_iter()
                .map(|(k, e)| (k.to_owned(), e.to_owned()))
                .collect::<Vec<_>>()
        });
        assert_eq!(tainted(&plan), want, "{name}");
    }
    let cordoned = node(&[("Ready", "True")], &[], json!({"spec": {"unschedulable": true}}));
    assert_eq!(
        tainted(&plan(&cordoned, seconds(1), true, at(1))).unwrap()[0].0,
        UNSCHEDULABLE
    );
}

#[test]
fn silence_makes_a_node_unknown_after_its_grace() {
    let quiet = node(&[("Ready", "True"), ("MemoryPressure", "False")], &[], json!({}));
    let early = plan(&quiet, seconds(49), true, at(49));
    assert_eq!((early.writes.len(), early.again_in), (0, Some(Duration::from_secs(1))));
    let late = plan(&quiet, seconds(50), true, at(50));
    let Verb::Patch(PatchKind::Strategic, "status", body) = &late.writes[0].verb else {
        panic!()
    };
    let list = body["status"]["conditions"].as_array().unwrap();
    assert_eq!(list.len(), 4);
    assert!(list.iter().all(|c| c["status"] == "Unknown"));
    assert_eq!(
        (&list[0]["reason"], &list[2]["reason"]),
        (&json!("NodeStatusUnknown"), &json!("NodeStatusNeverUpdated"))
    );
    assert_eq!(late.events[0].reason, "NodeNotReady");
    let never = node(&[], &[(NOT_READY, "NoSchedule")], json!({}));
    assert_eq!(plan(&never, seconds(59), false, at(59)).writes.len(), 0);
    assert_eq!(plan(&never, seconds(60), false, at(60)).writes.len(), 1);
}

#[test]
fn an_unknown_node_is_left_alone() {
    let kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map(|k| (k, "Unknown"));
    let gone = node(
        &kinds,
        &[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
        json!({}),
    );
    assert_eq!(plan(&gone, seconds(500), true, at(500)), Plan::default());
}

fn lifecycle() -> NodeLifecycle {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    NodeLifecycle {
        informers: Informers::spawn(
            &kube::Client::new(service, "default"),
            0,
            crate::controller::kept::Kept::Asked,
        ),
        rates: Rates::default(),
        heard: Arc::default(),
        limits: Mutex::default(),
        census: Arc::default(),
        draining: Mutex::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_drained_only_once_the_others_have_had_time_to_fall_silent_too() {
    let lifecycle = lifecycle();
    let ready = node(&[("Ready", "True")], &[], json!({"metadata": {"name": "ready"}}));
    let silent = node(&[("Ready", "Unknown")], &[], json!({}));
    {
        let mut census = lifecycle.census.lock().unwrap();
        census.change(None, Some(&ready));
        census.change(None, Some(&silent));
    }
    let pace = || {
        let now = Instant::now();
        let (heard, _) = lifecycle.listen(&silent, now);
        lifecycle.pace(&silent, &heard, now)
    };
    assert!(matches!(pace(), Pace::Wait(SETTLE)));
    tokio::time::advance(seconds(4)).await;
    assert!(matches!(pace(), Pace::Wait(wait) if wait == seconds(1)));
    tokio::time::advance(seconds(1)).await;
    assert!(matches!(pace(), Pace::Go(_)));
    let up = node(&[("Ready", "True")], &[], json!({}));
    lifecycle.listen(&up, Instant::now());
    assert!(matches!(pace(), Pace::Wait(SETTLE)), "it was ready meanwhile");
}

/// As upstream: it is given its time to say something first.
#[tokio::test(start_paused = true)]
async fn a_node_that_has_said_nothing_yet_is_not_drained() {
    let lifecycle = lifecycle();
    let ready = node(&[("Ready", "True")], &[], json!({"metadata": {"name": "ready"}}));
    let pace_of = |node: &Node| {
        let now = Instant::now();
        let (heard, _) = lifecycle.listen(node, now);
        lifecycle.pace(node, &heard, now)
    };
    let fresh = node(&[("MemoryPressure", "False")], &[], json!({}));
    let drained = node(&[], &[(UNREACHABLE, "NoExecute")], json!({"metadata": {"name": "m"}}));
    for known in [&ready, &fresh, &drained] {
        lifecycle.census.lock().unwrap().change(None, Some(known));
    }
    for _ in 0..2 {
        assert!(matches!(pace_of(&fresh), Pace::Hold));
        assert!(matches!(pace_of(&drained), Pace::Keep), "it said something once");
        tokio::time::advance(SETTLE * 2).await;
    }
    let unknown = node(&[("Ready", "Unknown")], &[], json!({}));
    assert!(matches!(pace_of(&unknown), Pace::Go(_)));
}

/// Renewals come every ten seconds from each node there is.
#[tokio::test(start_paused = true)]
async fn a_ready_node_is_not_looked_at_for_each_sign_of_life() {
    let lifecycle = lifecycle();
    let up = node(&[("Ready", "True")], &[], json!({}));
    let begun = Instant::now();
    lifecycle.listen(&up, begun);
    let renew = |second| {
        let mut heard = lifecycle.heard.lock().unwrap();
        heard.get_mut("n").unwrap().renew(Some(at(second)), Instant::now())
    };
    tokio::time::advance(seconds(10)).await;
    assert!(!renew(10));
    tokio::time::advance(seconds(5)).await;
    assert!(!renew(10), "the same as before");
    let last_heard = |name: &str| lifecycle.heard.lock().unwrap()[name].at;
    assert_eq!(last_heard("n"), begun + seconds(10), "when it said so first");
    let down = node(&[("Ready", "False")], &[], json!({}));
    lifecycle.listen(&down, Instant::now());
    assert!(renew(20), "one that is not ready is looked at");
}
