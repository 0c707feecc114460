//! Conditions, events and replicas of whole decisions.

use super::*;
use crate::controller::write;
use client::Key;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn autoscaler(metrics: Value) -> HorizontalPodAutoscaler {
    let spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2, "maxReplicas": 10, "metrics": metrics});
    let object = json!({"metadata": {"name": "web", "namespace": "a", "generation": 3}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn cpu() -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}})
}

fn target(replicas: i32, selector: &str) -> Target {
    Target {
        resource: write::DEPLOYMENTS,
        key: Key::new("a", "web"),
        scale: json!({"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": selector}}),
    }
}

fn pod(name: &str) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": name, "namespace": "a", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Ki"}}}]},
        "status": {"phase": "Running", "startTime": "2026-01-01T10:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T10:00:01Z"}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn usage(name: &str, cpu: i64) -> PodUsage {
    let amounts = BTreeMap::from([("cpu".to_owned(), cpu), ("memory".to_owned(), 2_048_000)]);
    PodUsage {
        pod: name.to_owned(),
        at: now(),
        window: SignedDuration::from_secs(15),
        containers: BTreeMap::from([("c".to_owned(), amounts)]),
    }
}

/// Two pods that use so much CPU each.
fn observed(replicas: i32, cpu: i64) -> Observed {
    Observed {
        target: Ok(target(replicas, "app=web")),
        usage: Ok(vec![usage("p0", cpu), usage("p1", cpu)]),
        served: BTreeMap::new(),
    }
}

fn found(rivals: &[&str]) -> Rivals {
    let first = rivals.iter().take(RIVALS_TOLD);
    Rivals {
        first: first.map(|name| (*name).to_owned()).collect(),
        count: rivals.len(),
    }
}

fn take(autoscaler: &HorizontalPodAutoscaler, observed: &Observed, rivals: &[&str]) -> Decision {
    let known = Known {
        autoscaler,
        observed,
        pods: &|selector| {
            let all = [pod("p0"), pod("p1")].into_iter();
            all.filter(|pod| selector.matches_optional(pod.metadata.labels.as_ref()))
                .collect()
        },
        rivals: &|_, _| found(rivals),
        now: now(),
    };
    decide(&known, &mut History::default())
}

/// Type, status and reason of the conditions.
fn conditions(decision: &Decision) -> Vec<String> {
    let conditions = decision.status.conditions.as_deref().unwrap_or_default();
    let said = conditions.iter().map(|condition| {
        assert_eq!(condition.last_transition_time, Some(Time(now())));
        let reason = condition.reason.as_deref().unwrap_or_default();
        format!("{} {} {reason}", condition.type_, condition.status)
    });
    said.collect()
}

fn message(decision: &Decision, kind: &str) -> String {
    let conditions = decision.status.conditions.iter().flatten();
    let mut found = conditions.filter(|condition| condition.type_ == kind);
    found.next().and_then(|found| found.message.clone()).unwrap_or_default()
}

fn events(decision: &Decision) -> Vec<(&'static str, &str)> {
    let told = decision.events.iter();
    told.map(|told| (told.reason, told.message.as_str())).collect()
}

#[test]
fn more_is_used_than_wanted() {
    let decision = take(&autoscaler(json!([cpu()])), &observed(2, 100), &["web"]);
    let rescale = Rescale {
        from: 2,
        to: 4,
        reason: "cpu resource utilization (percentage of request) above target".to_owned(),
    };
    assert_eq!(decision.rescale, Some(rescale.clone()));
    assert_eq!(
        conditions(&decision),
        [
            "AbleToScale True ReadyForNewScale",
            "ScalingActive True ValidMetricFound",
            "ScalingLimited False DesiredWithinRange"
        ]
    );
    assert_eq!(
        message(&decision, ACTIVE),
        "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)"
    );
    let status = &decision.status;
    assert_eq!(
        (status.current_replicas, status.desired_replicas),
        (Some(2), 2),
        "nothing is done yet"
    );
    assert_eq!((status.observed_generation, &status.last_scale_time), (Some(3), &None));
    let metrics = serde_json::to_value(status.current_metrics.as_ref().unwrap()).unwrap();
    let current = json!({"averageUtilization": 100, "averageValue": "100m"});
    assert_eq!(
        metrics,
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}])
    );
    let done = rescaled(status.clone(), &rescale, None, now());
    assert_eq!((done.desired_replicas, &done.last_scale_time), (4, &Some(Time(now()))));
    let able = &done.conditions.as_ref().unwrap()[0];
    assert_eq!(able.reason.as_deref(), Some("SucceededRescale"));
    assert_eq!(
        able.message.as_deref(),
        Some("the HPA controller was able to update the target scale to 4")
    );
    let failed = rescaled(status.clone(), &rescale, Some("no"), now());
    assert_eq!((failed.desired_replicas, &failed.last_scale_time), (2, &None));
    let able = &failed.conditions.as_ref().unwrap()[0];
    assert_eq!(
        (&*able.status, able.reason.as_deref()),
        ("False", Some("FailedUpdateScale"))
    );
}

#[test]
fn the_metric_that_asks_for_most_is_followed() {
    let memory = json!({"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c",
        "target": {"type": "AverageValue", "averageValue": "512"}}});
    let decision = take(&autoscaler(json!([cpu(), memory])), &observed(2, 75), &["web"]);
    let rescale = decision.rescale.clone().unwrap();
    // CPU asks for 3, memory for 8, and replicas at most double.
    assert_eq!((rescale.to, &*rescale.reason), (4, "memory resource above target"));
    assert_eq!(conditions(&decision)[2], "ScalingLimited True ScaleUpLimit");
    let metrics = decision.status.current_metrics.as_ref().unwrap();
    let current = &metrics[1].container_resource.as_ref().unwrap().current;
    assert_eq!(current.average_value.as_ref().unwrap().0, "2048");
}

#[test]
fn what_is_out_of_bounds_is_brought_in_whatever_metrics_say() {
    for (replicas, to, reason) in [
        (1, Some(2), "Current number of replicas below Spec.MinReplicas"),
        (11, Some(10), "Current number of replicas above Spec.MaxReplicas"),
        (0, None, ""),
    ] {
        let observed = Observed {
            usage: Err("none".to_owned()),
            ..observed(replicas, 0)
        };
        let decision = take(&autoscaler(json!([cpu()])), &observed, &["web"]);
        let expected = to.map(|to| Rescale {
            from: replicas,
            to,
            reason: reason.to_owned(),
        });
        assert_eq!(decision.rescale, expected);
        assert_eq!(decision.events, []);
        let disabled = conditions(&decision).contains(&"ScalingActive False ScalingDisabled".to_owned());
        assert_eq!(disabled, replicas == 0);
    }
}

#[test]
fn a_target_that_cannot_be_scaled() {
    let observed = Observed {
        target: Err("deployments.apps \"web\" not found".to_owned()),
        usage: Ok(Vec::new()),
        served: BTreeMap::new(),
    };
    let decision = take(&autoscaler(json!([cpu()])), &observed, &["web"]);
    assert_eq!(decision.rescale, None);
    assert_eq!(conditions(&decision), ["AbleToScale False FailedGetScale"]);
    assert_eq!(
        message(&decision, ABLE),
        "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found"
    );
    assert_eq!(
        events(&decision),
        [("FailedGetScale", "deployments.apps \"web\" not found")]
    );
}

#[test]
fn selectors_are_there_readable_and_ones_own() {
    for (selector, rivals, condition, event) in [
        (
            "",
            &["web"][..],
            "InvalidSelector",
            ("SelectorRequired", "selector is required"),
        ),
        (
            "app=web",
            &["other", "web"],
            "AmbiguousSelector",
            (
                "AmbiguousSelector",
                "pods by selector app=web are controlled by multiple HPAs: [{other a} {web a}]",
            ),
        ),
    ] {
        let observed = Observed {
            target: Ok(target(2, selector)),
            ..observed(2, 100)
        };
        let decision = take(&autoscaler(json!([cpu()])), &observed, rivals);
        assert_eq!(decision.rescale, None);
        assert_eq!(conditions(&decision)[1], format!("ScalingActive False {condition}"));
        assert_eq!(events(&decision), [event, ("FailedComputeMetricsReplicas", event.1)]);
    }
    let unreadable = Observed {
        target: Ok(target(2, "a b c")),
        ..observed(2, 100)
    };
    let decision = take(&autoscaler(json!([cpu()])), &unreadable, &["web"]);
    assert_eq!(conditions(&decision)[1], "ScalingActive False InvalidSelector");
    assert_eq!(decision.events[0].reason, "InvalidSelector");
}

#[test]
fn metrics_that_nothing_serves_say_so() {
    let metric = json!({"name": "hits"});
    let average = json!({"type": "AverageValue", "averageValue": "5"});
    let object = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    let custom =
        "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
    let external = "unable to fetch metrics from external metrics API: the server could not find the requested resource \
                    (get hits.external.metrics.k8s.io)";
    for (spec, reason, cause) in [
        (
            json!({"type": "Pods", "pods": {"metric": metric, "target": average}}),
            "FailedGetPodsMetric",
            format!("unable to get metric hits: {custom}"),
        ),
        (
            json!({"type": "Object", "object": {"metric": metric, "describedObject": object,
                "target": {"type": "Value", "value": "5"}}}),
            "FailedGetObjectMetric",
            format!("unable to get metric hits: Service on a s/{custom}"),
        ),
        (
            json!({"type": "External", "external": {"metric": {"name": "hits", "selector": {"matchLabels": {"k": "v"}}},
                "target": average}}),
            "FailedGetExternalMetric",
            format!(
                "unable to get external metric a/hits/&LabelSelector{{MatchLabels:map[string]string{{k: v,}},\
                 MatchExpressions:[]LabelSelectorRequirement{{}},}}: {external}"
            ),
        ),
    ] {
        let why = if reason == "FailedGetExternalMetric" {
            external
        } else {
            custom
        };
        let observed = Observed {
            served: BTreeMap::from([(0, Err(why.to_owned()))]),
            ..observed(2, 100)
        };
        let decision = take(&autoscaler(json!([spec])), &observed, &["web"]);
        assert_eq!(decision.rescale, None);
        assert_eq!(conditions(&decision)[1], format!("ScalingActive False {reason}"));
        assert_eq!(
            message(&decision, ACTIVE),
            format!("the HPA was unable to compute the replica count: {cause}")
        );
        assert_eq!(events(&decision)[0], (reason, &*cause));
        assert_eq!(decision.events[1].reason, "FailedComputeMetricsReplicas");
    }
}

/// What many do to each other does not grow with how many they are.
#[test]
fn of_many_rivals_the_first_are_named() {
    let names: Vec<String> = (0..9000).map(|i| format!("r{i:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let decision = take(&autoscaler(json!([cpu()])), &observed(2, 100), &names);
    let all = "[{r0000 a} {r0001 a} {r0002 a} {r0003 a} {r0004 a} and 8995 more]";
    let text = format!("pods by selector app=web are controlled by multiple HPAs: {all}");
    assert_eq!(message(&decision, ACTIVE), text);
    assert_eq!(events(&decision)[0], ("AmbiguousSelector", &*text));
}

#[test]
fn a_long_message_of_a_condition_is_cut() {
    let mut status = HorizontalPodAutoscalerStatus::default();
    set(&mut status, ABLE, true, ("Long", "é".repeat(MESSAGE_BYTES)), now());
    let condition = &status.conditions.unwrap()[0];
    assert_eq!(condition.message.as_ref().unwrap().len(), MESSAGE_BYTES);
}

/// A list of metrics has no end, what is computed and told of it has.
#[test]
fn of_many_metrics_the_first_are_computed_and_of_many_failures_the_first_are_told() {
    let hits = json!({"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "5"}}});
    let many = |metric: &Value, count: usize| autoscaler(Value::from(vec![metric.clone(); count]));
    let failing = take(&many(&hits, METRICS_MAX), &observed(2, 100), &["web"]);
    assert_eq!(failing.events.len(), FAILURES_TOLD + 1);
    let told = &failing.events[FAILURES_TOLD];
    assert_eq!(told.reason, "FailedComputeMetricsReplicas");
    assert!(
        told.message
            .starts_with("invalid metrics (100 invalid out of 100), first error is: ")
    );
    let most = take(&many(&cpu(), METRICS_MAX), &observed(4, 1), &["web"]);
    assert_eq!(
        (most.events.len(), most.status.current_metrics.unwrap().len()),
        (0, METRICS_MAX)
    );
    // What is beyond might ask for more.
    let beyond = take(&many(&cpu(), 30_000), &observed(4, 1), &["web"]);
    let cause = "too many metrics: the first 100 of 30000 are computed";
    assert_eq!(beyond.rescale, None);
    assert_eq!(conditions(&beyond)[1], "ScalingActive False TooManyMetrics");
    assert_eq!(
        message(&beyond, ACTIVE),
        format!("the HPA was unable to compute the replica count: {cause}")
    );
    let whole = format!("invalid metrics (29900 invalid out of 30000), first error is: {cause}");
    assert_eq!(
        events(&beyond),
        [("TooManyMetrics", cause), ("FailedComputeMetricsReplicas", &*whole)]
    );
    assert_eq!(beyond.status.current_metrics.unwrap().len(), METRICS_MAX);
}

/// What is not known might ask for more: the others may add replicas and take none away.
#[test]
fn a_metric_that_fails_keeps_what_there_is() {
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "5"}}});
    let both = autoscaler(json!([pods, cpu()]));
    let up = take(&both, &observed(2, 100), &["web"]);
    assert_eq!(up.rescale.as_ref().map(|rescale| rescale.to), Some(4));
    assert_eq!(conditions(&up)[1], "ScalingActive True ValidMetricFound");
    assert_eq!(up.events[0].reason, "FailedGetPodsMetric");
    let kinds: Vec<&str> = up
        .status
        .current_metrics
        .iter()
        .flatten()
        .map(|status| &*status.type_)
        .collect();
    assert_eq!(kinds, ["", "Resource"], "each stays in its place");
    let down = take(&both, &observed(4, 1), &["web"]);
    assert_eq!(down.rescale, None);
    assert_eq!(conditions(&down)[1], "ScalingActive False FailedGetPodsMetric");
    assert!(
        down.events[1]
            .message
            .starts_with("invalid metrics (1 invalid out of 2), first error is: ")
    );
}

#[test]
fn without_metrics_of_resources_the_chain_of_reasons_is_told() {
    let observed = Observed {
        usage: Err("unable to fetch metrics from resource metrics API: gone".to_owned()),
        ..observed(2, 0)
    };
    let decision = take(&autoscaler(json!([cpu()])), &observed, &["web"]);
    let cause = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource \
                 metrics API: gone";
    assert_eq!(events(&decision)[0], ("FailedGetResourceMetric", cause));
    assert_eq!(
        decision.events[1].message,
        format!(
            "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {cause}"
        )
    );
}

#[test]
fn a_condition_that_stays_keeps_its_time() {
    let mut autoscaler = autoscaler(json!([cpu()]));
    let first = take(&autoscaler, &observed(2, 50), &["web"]);
    assert_eq!(first.rescale, None);
    autoscaler.status = Some(first.status.clone());
    let known = observed(2, 50);
    let known = Known {
        autoscaler: &autoscaler,
        observed: &known,
        pods: &|_| vec![pod("p0"), pod("p1")],
        rivals: &|_, _| found(&["web"]),
        now: now() + SignedDuration::from_secs(60),
    };
    assert_eq!(decide(&known, &mut History::default()).status, first.status);
}
