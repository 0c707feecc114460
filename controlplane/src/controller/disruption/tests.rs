use super::concern::Counted;
use super::expected::{Expected, Unknown, expected};
use super::*;
use k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus;
use proptest::prelude::*;
use serde_json::Value;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
    let mut value = json!({"metadata": {"name": "b", "namespace": "default", "uid": "b", "generation": 4},
        "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": status});
    json_patch::merge(&mut value, &json!({"spec": spec}));
    serde_json::from_value(value).unwrap()
}

/// A ready pod of an owner.
fn pod(name: &str, owner: &str, extra: Value) -> Arc<Pod> {
    let owners = match owner {
        "" => json!(null),
        _ => json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true}]),
    };
    let mut value = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": owners,
        "labels": {"app": "web"}}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    json_patch::merge(&mut value, &extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

/// Owners whose names are their scales; `gone` is gone, and `odd` has no scale. Those of one letter belong to a deployment of 7.
fn scaler(owner: &OwnerReference, _: &str) -> Result<Option<(String, i32)>, String> {
    match owner.name.as_str() {
        "gone" => Ok(None),
        "odd" => Err("jobs.batch does not implement the scale subresource".to_owned()),
        "x" | "y" => Ok(Some(("deployment".to_owned(), 7))),
        scale => Ok(Some((owner.uid.clone(), scale.parse().unwrap()))),
    }
}

fn planned(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], second: i64) -> (Option<PodDisruptionBudgetStatus>, Plan) {
    let plan = status::plan(budget, pods, &scaler, at(second)).unwrap_or_else(|failed| failed);
    let written = plan.writes.first().map(|write| {
        let Verb::ReplaceSub("status", body) = &write.verb else {
            panic!()
        };
        serde_json::from_value(body["status"].clone()).unwrap()
    });
    (written, plan)
}

#[test]
fn how_many_pods_there_should_be() {
    let five = |owner: &str| {
        (0..5)
            .map(|n| pod(&format!("p{n}"), owner, json!({})))
            .collect::<Vec<_>>()
    };
    let mixed = || [five("3"), five("4")].concat();
    let numbers = |pods, healthy, some_unmanaged| {
        Ok(Expected {
            pods,
            healthy,
            some_unmanaged,
        })
    };
    for (name, spec, pods, want) in [
        (
            "a plain number",
            json!({"minAvailable": 2}),
            five("9"),
            numbers(5, 2, false),
        ),
        (
            "whoever owns them",
            json!({"minAvailable": 2}),
            five("gone"),
            numbers(5, 2, false),
        ),
        (
            "a share of the scale, rounded up",
            json!({"minAvailable": "50%"}),
            five("5"),
            numbers(5, 3, false),
        ),
        (
            "of all owners",
            json!({"minAvailable": "50%"}),
            mixed(),
            numbers(7, 4, false),
        ),
        (
            "a number that may be missing",
            json!({"maxUnavailable": 1}),
            five("5"),
            numbers(5, 4, false),
        ),
        (
            "a share that may be missing, rounded up",
            json!({"maxUnavailable": "30%"}),
            five("5"),
            numbers(5, 3, false),
        ),
        (
            "more than there are",
            json!({"maxUnavailable": 9}),
            five("5"),
            numbers(5, 0, false),
        ),
        (
            "two sets of one deployment",
            json!({"maxUnavailable": 1}),
            [five("x"), five("y")].concat(),
            numbers(7, 6, false),
        ),
        (
            "without an owner",
            json!({"maxUnavailable": 1}),
            [five("5"), five("")].concat(),
            numbers(5, 4, true),
        ),
        (
            "of an owner that is gone",
            json!({"maxUnavailable": 1}),
            five("gone"),
            Err("found no controllers for pod \"p0\"".to_owned()),
        ),
        (
            "of an owner that has no scale",
            json!({"maxUnavailable": 1}),
            five("odd"),
            Err("jobs.batch does not implement the scale subresource".to_owned()),
        ),
        ("nothing asked", json!({}), five("5"), numbers(0, 0, false)),
    ] {
        assert_eq!(expected(&budget(spec, json!(null)), &pods, &scaler), want, "{name}");
    }
}

#[test]
fn only_owners_that_no_informer_knows_are_asked() {
    let owner = |api: &str, kind: &str| {
        json!({"metadata": {"ownerReferences":
        [{"apiVersion": api, "kind": kind, "name": "o", "uid": format!("{api}{kind}"), "controller": true}]}})
    };
    let of = |api: &str, kind: &str| pod(kind, "", owner(api, kind));
    let pods = [
        of("apps/v1", "ReplicaSet"),
        of("apps/v1", "StatefulSet"),
        of("v1", "ReplicationController"),
        of("batch/v1", "Job"),
        of("example.com/v1", "StatefulSet"),
        of("batch/v1", "Job"),
    ];
    let asked = expected::unknown(&budget(json!({"maxUnavailable": 1}), json!(null)), &pods);
    let unknown = |api: &str, kind: &str| Unknown {
        uid: format!("{api}{kind}"),
        api_version: api.to_owned(),
        kind: kind.to_owned(),
        key: Key::new("default", "o"),
    };
    assert_eq!(
        asked,
        [unknown("batch/v1", "Job"), unknown("example.com/v1", "StatefulSet")]
    );
    assert_eq!(
        expected::unknown(&budget(json!({"minAvailable": 1}), json!(null)), &pods),
        []
    );
}

#[test]
fn what_a_budget_says() {
    let three = || {
        (0..3)
            .map(|n| pod(&format!("p{n}"), "3", json!({})))
            .collect::<Vec<_>>()
    };
    let budget = |status| budget(json!({"minAvailable": 2}), status);
    let (said, plan) = planned(&budget(json!(null)), &three(), 100);
    assert_eq!(
        serde_json::to_value(said.unwrap()).unwrap(),
        json!({"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 3, "observedGeneration": 4,
            "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
                "observedGeneration": 4, "lastTransitionTime": "1970-01-01T00:01:40Z"}]})
    );
    assert_eq!((plan.events, plan.again_in), (vec![], None));
    let counts = |pods: &[Arc<Pod>], status: Value, second| {
        let said = planned(&budget(status), pods, second).0.unwrap();
        let condition = said.conditions.unwrap().remove(0);
        (
            said.current_healthy.unwrap(),
            said.disruptions_allowed.unwrap(),
            condition.reason,
        )
    };
    let insufficient = "InsufficientPods".to_owned();
    let mut pods = three();
    pods[0] = pod("p0", "3", json!({"status": {"conditions": []}}));
    assert_eq!(
        counts(&pods, json!(null), 0),
        (2, 0, insufficient.clone()),
        "one is not ready"
    );
    pods[0] = pod(
        "p0",
        "3",
        json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}),
    );
    assert_eq!(
        counts(&pods, json!(null), 0),
        (2, 0, insufficient.clone()),
        "one is going"
    );
    let evicted = json!({"disruptionsAllowed": 0, "disruptedPods": {"p1": "1970-01-01T00:00:50Z"}});
    assert_eq!(
        counts(&three(), evicted.clone(), 100),
        (2, 0, insufficient),
        "one was evicted"
    );
    let (said, plan) = planned(&budget(evicted.clone()), &three(), 100);
    assert_eq!(said.unwrap().disrupted_pods.unwrap().len(), 1);
    assert_eq!(plan.again_in, Some(Duration::from_secs(70)));
    let (said, plan) = planned(&budget(evicted.clone()), &three(), 171);
    let said = said.unwrap();
    assert_eq!(
        (said.current_healthy, said.disruptions_allowed, said.disrupted_pods),
        (Some(3), Some(1), None)
    );
    assert_eq!(
        (plan.events[0].reason, plan.events[0].message.as_str()),
        (
            "NotDeleted",
            "Pod was expected by PDB default/default to be deleted but it wasn't"
        )
    );
    let gone = [pod("p0", "3", json!({})), pod("p2", "3", json!({}))];
    assert_eq!(
        planned(&budget(evicted), &gone, 100).0.unwrap().disrupted_pods,
        None,
        "its pod is gone"
    );
}

#[test]
fn what_it_said_already_is_not_said_again() {
    let pods: Vec<_> = (0..3).map(|n| pod(&format!("p{n}"), "3", json!({}))).collect();
    let spec = json!({"maxUnavailable": "34%"});
    let (said, _) = planned(&budget(spec.clone(), json!(null)), &pods, 0);
    let again = budget(spec, serde_json::to_value(said.unwrap()).unwrap());
    assert_eq!(planned(&again, &pods, 500).0, None);
}

#[test]
fn one_without_pods_or_whose_pods_cannot_be_counted_allows_nothing() {
    let (said, plan) = planned(&budget(json!({"minAvailable": 0}), json!(null)), &[], 0);
    assert_eq!(said.unwrap().disruptions_allowed, Some(0));
    assert_eq!((plan.events[0].kind, plan.events[0].reason), ("Normal", "NoPods"));
    let before = json!({"disruptionsAllowed": 3, "observedGeneration": 4, "currentHealthy": 9});
    let (said, plan) = planned(
        &budget(json!({"maxUnavailable": 1}), before),
        &[pod("p", "gone", json!({}))],
        0,
    );
    let said = said.unwrap();
    let condition = &said.conditions.as_ref().unwrap()[0];
    assert_eq!((said.disruptions_allowed, said.current_healthy), (Some(0), Some(9)));
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("SyncFailed", "found no controllers for pod \"p\"")
    );
    assert_eq!(plan.events[0].reason, "CalculateExpectedPodCountFailed");
}

#[test]
fn a_disruption_that_did_not_come_is_taken_back() {
    let said = |status: &str, reason: &str, extra: Value| {
        let mut value = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": status, "reason": reason,
            "lastTransitionTime": "1970-01-01T00:00:00Z"}]}});
        json_patch::merge(&mut value, &extra);
        pod("p", "", value)
    };
    let none = json!({});
    let going = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
    for (name, pod, second, want) in [
        (
            "waits",
            said("True", "EvictionByEvictionAPI", none.clone()),
            20,
            Some(100),
        ),
        (
            "is over",
            said("True", "PreemptionByScheduler", none.clone()),
            500,
            Some(0),
        ),
        (
            "says no time",
            pod(
                "p",
                "",
                json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "x"}]}}),
            ),
            20,
            Some(0),
        ),
        ("was taken back", said("False", "", none.clone()), 500, None),
        ("the kubelet's", said("True", "TerminationByKubelet", none), 500, None),
        ("came", said("True", "EvictionByEvictionAPI", going), 500, None),
        (
            "ended",
            said("True", "EvictionByEvictionAPI", json!({"status": {"phase": "Failed"}})),
            500,
            None,
        ),
    ] {
        assert_eq!(stale_in(&pod, at(second)), want.map(Duration::from_secs), "{name}");
    }
    let Verb::Patch(PatchKind::Strategic, "status", body) = take_back(&said("True", "x", json!({})), at(9)).verb else {
        panic!()
    };
    assert_eq!(body["status"]["conditions"][0]["status"], "False");
}

proptest! {
    /// As many evictions as it allows, each spent as the API server does, never leave fewer healthy pods than it asks for.
    #[test]
    fn what_is_allowed_leaves_enough(
        ready in prop::collection::vec(any::<bool>(), 0..12), min in 0..12_i32, max in prop::option::of(0..12_i32), percent: bool,
    ) {
        let amount = |n: i32| if percent { json!(format!("{}%", n * 8)) } else { json!(n) };
        let spec = match max {
            Some(max) => json!({"maxUnavailable": amount(max)}),
            None => json!({"minAvailable": amount(min)}),
        };
        let scale = ready.len().to_string();
        let mut pods: Vec<Arc<Pod>> = ready.iter().enumerate().map(|(n, ready)| {
            let status = if *ready { "True" } else { "False" };
            pod(&format!("p{n}"), &scale, json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}))
        }).collect();
        let mut budget = budget(spec.clone(), json!(null));
        let healthy = |pods: &[Arc<Pod>]| pods.iter().filter(|p| pod::is_ready(p) && p.metadata.deletion_timestamp.is_none()).count();
        let wanted = expected(&budget, &pods, &scaler).unwrap().healthy;
        for _ in 0..40 {
            if let Some(said) = planned(&budget, &pods, 0).0 {
                budget.status = Some(said);
            }
            let mut status = budget.status.clone().unwrap();
            let left = status.disruptions_allowed.unwrap();
            let Some(at) = pods.iter().position(|p| pod::is_ready(p) && p.metadata.deletion_timestamp.is_none()
                && !status.disrupted_pods.as_ref().is_some_and(|d| d.contains_key(&p.name_any()))) else { break };
            if left <= 0 { break }
            // The server's part: one less, and the pod is remembered; it is on its way out a moment later.
            status.disruptions_allowed = Some(left - 1);
            status.disrupted_pods.get_or_insert_default().insert(pods[at].name_any(), Time(super::tests::at(0)));
            budget.status = Some(status);
            if at % 2 == 0 {
                let mut going = Pod::clone(&pods[at]);
                going.metadata.deletion_timestamp = Some(Time(super::tests::at(0)));
                pods[at] = Arc::new(going);
            }
        }
        let evicted = budget.status.as_ref().unwrap().disrupted_pods.as_ref().map_or(0, |d|
            pods.iter().filter(|p| d.contains_key(&p.name_any()) && p.metadata.deletion_timestamp.is_none()).count());
        let left = healthy(&pods) - evicted;
        let before = ready.iter().filter(|r| **r).count();
        prop_assert!(left >= usize::try_from(wanted).unwrap().min(before), "{left} of {before} left, {wanted} wanted");
    }
}

#[test]
fn a_budget_that_cannot_be_counted_is_tried_again_ever_later() {
    let mut now = 1000;
    let mut waits = Vec::new();
    for _ in 0..9 {
        let wait = retry_after(at(1000), at(now)).as_secs();
        now += i64::try_from(wait).unwrap();
        waits.push(wait);
    }
    assert_eq!(waits, [5, 5, 10, 20, 40, 80, 160, 300, 300]);
    let odd = planned(
        &budget(json!({"maxUnavailable": 1}), json!(null)),
        &[pod("p", "odd", json!({}))],
        0,
    );
    assert_eq!(odd.0.unwrap().disruptions_allowed, Some(0));
}

#[test]
fn where_there_are_very_many_pods_and_budgets_not_all_are_compared() {
    let other = |app: String| {
        Selector::from_optional(Some(
            &serde_json::from_value(json!({"matchLabels": {"app": app}})).unwrap(),
        ))
        .unwrap()
    };
    let mut pods: Vec<Arc<Pod>> = (0..101).map(|i| pod(&format!("p{i}"), "", json!({}))).collect();
    pods[99] = pod("last", "", json!({"metadata": {"labels": {"app": "b999"}}}));
    pods[100] = pod("beyond", "", json!({"metadata": {"labels": {"app": "b0"}}}));
    let all: Vec<Selector> = (0..1000).map(|i| other(format!("b{i}"))).collect();
    let found = |selectors: &[Selector]| shared(&pods, selectors).map(|pod| pod.name_any());
    assert_eq!(found(&all).as_deref(), Some("last"));
    assert_eq!(found(&all[..999]), None);
    assert_eq!(found(&all[..900]).as_deref(), Some("beyond"));
    assert_eq!(found(&[]), None);
}

#[test]
fn of_a_pod_only_what_budgets_go_by_is_news_to_them() {
    let counted = |extra: Value| pod("p", "3", extra);
    let plain = counted(json!({}));
    for (extra, is_news) in [
        (
            json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["a/b"]}}),
            false,
        ),
        (json!({"status": {"podIP": "10.0.0.1", "phase": "Pending"}}), false),
        (json!({"metadata": {"labels": {"app": "other"}}}), true),
        (json!({"metadata": {"ownerReferences": []}}), true),
        (json!({"metadata": {"uid": "another"}}), true),
        (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), true),
        (json!({"status": {"conditions": []}}), true),
    ] {
        let after = counted(extra.clone());
        assert_eq!(Counted::of(&plain) != Counted::of(&after), is_news, "{extra}");
    }
}

#[test]
fn pods_that_nobody_owns_are_told_in_upstreams_words() {
    let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a", "b"]}]});
    let budget = budget(json!({"maxUnavailable": 1, "selector": selector}), json!({}));
    let (_, plan) = planned(&budget, &[pod("p", "", json!({}))], 1);
    let [told] = plan.events.as_slice() else {
        panic!("{:?}", plan.events)
    };
    assert_eq!((told.kind, told.reason), ("Warning", "UnmanagedPods"));
    let expected = "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: web,},\
                    MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:tier,Operator:NotIn,Values:[a b],},},}) \
                    were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in \
                    undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.";
    assert_eq!(told.message, expected);
}
