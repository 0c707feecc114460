use super::*;

fn budget(status: Value) -> Arc<Value> {
    Arc::new(json!({"metadata": {"name": "b", "generation": 1}, "status": status,
        "spec": {"selector": {"matchLabels": {"app": "web"}}}}))
}

fn ready(status: &str) -> Value {
    json!({"metadata": {"name": "p", "labels": {"app": "web"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}})
}

#[test]
fn budgets_refuse_unless_they_are_known_to_allow() {
    let pod = ready("True");
    let tight =
        budget(json!({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 2}));
    let generous = budget(json!({"observedGeneration": 1, "disruptionsAllowed": 2}));
    let stale = budget(json!({"disruptionsAllowed": 1}));
    assert_eq!(allowed(&pod, &[]).unwrap(), Allowed::Freely);
    assert_eq!(
        allowed(&pod, std::slice::from_ref(&generous)).unwrap(),
        Allowed::ByBudget(0)
    );
    assert_eq!(
        spent(&generous, "p", "now")["status"],
        json!({"observedGeneration": 1, "disruptionsAllowed": 1, "disruptedPods": {"p": "now"}})
    );
    let error = allowed(&pod, std::slice::from_ref(&tight)).unwrap_err();
    assert_eq!((error.code, error.causes[0].kind.as_str()), (429, "DisruptionBudget"));
    assert_eq!(
        error.causes[0].message,
        "The disruption budget b needs 2 healthy pods and has 2 currently"
    );
    assert_eq!(allowed(&pod, &[stale]).unwrap_err().retry_after_seconds, Some(10));
    let two = allowed(&pod, &[tight, generous]).unwrap_err();
    assert_eq!((two.code, two.reason), (500, ""));
    assert!(two.message.starts_with("This pod has more than one"), "{two}");
    let other = json!({"metadata": {"name": "p", "labels": {"app": "db"}}});
    assert_eq!(allowed(&other, &[budget(json!({}))]).unwrap(), Allowed::Freely);
    let nonsense = Arc::new(json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}}));
    assert_eq!(allowed(&pod, &[nonsense]).unwrap(), Allowed::Freely);
}

#[test]
fn pods_that_are_not_ready_go_where_nobody_counts_on_them() {
    let of = |policy: &str, desired: i64, healthy: i64| {
        // Not even seen by its controller: that is not asked for them.
        let mut budget = (*budget(json!({"desiredHealthy": desired, "currentHealthy": healthy}))).clone();
        if !policy.is_empty() {
            budget["spec"]["unhealthyPodEvictionPolicy"] = json!(policy);
        }
        [Arc::new(budget)]
    };
    let goes = Ok(Allowed::AsItIs("b".to_owned()));
    for (policy, desired, healthy, may_go) in [
        ("AlwaysAllow", 3, 0, true),
        ("AlwaysAllow", 0, 0, true),
        ("IfHealthyBudget", 3, 3, true),
        ("", 3, 4, true),
        ("", 3, 2, false),
        ("IfHealthyBudget", 0, 0, false),
    ] {
        let budgets = of(policy, desired, healthy);
        let found = allowed(&ready("False"), &budgets);
        assert_eq!(found == goes, may_go, "{policy} {desired} {healthy}");
        assert_eq!(allowed(&ready("True"), &budgets).unwrap_err().code, 429);
    }
}

#[test]
fn budgets_whose_controller_lags_forbid() {
    let pods: serde_json::Map<String, Value> = (0..=2000).map(|n| (format!("p{n}"), json!("now"))).collect();
    let full = budget(json!({"observedGeneration": 1, "disruptionsAllowed": 1, "disruptedPods": pods}));
    let error = allowed(&ready("True"), &[full]).unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (
            403,
            "poddisruptionbudget.policy \"b\" is forbidden: DisruptedPods map too big - too many evictions not confirmed by \
             PDB controller"
        )
    );
    let negative = budget(json!({"observedGeneration": 1, "disruptionsAllowed": -1}));
    let error = allowed(&ready("True"), &[negative]).unwrap_err();
    assert_eq!(error.code, 403);
    assert!(
        error.message.ends_with("pdb disruptions allowed is negative"),
        "{error}"
    );
}

#[test]
fn the_last_disruption_is_told_by_a_condition() {
    let last = budget(json!({"observedGeneration": 1, "disruptionsAllowed": 1,
        "conditions": [{"type": "DisruptionAllowed", "status": "True", "lastTransitionTime": "before"}]}));
    assert_eq!(
        spent(&last, "p", "now")["status"]["conditions"],
        json!([{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "now"}])
    );
    let once = disrupted(ready("True"), "then");
    assert_eq!(disrupted(once.clone(), "now"), once, "it was said before");
}

#[test]
fn a_pod_that_is_evicted_says_so_and_of_which_generation() {
    let ready = json!({"type": "Ready", "status": "True"});
    let pod = json!({"metadata": {"name": "p", "generation": 5}, "status": {"conditions": [ready]}});
    let said = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        "lastProbeTime": null, "lastTransitionTime": "now", "observedGeneration": 5,
    });
    assert_eq!(disrupted(pod, "now")["status"]["conditions"], json!([ready, said]));
}
