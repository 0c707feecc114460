//! Tables of what metrics ask for that others serve.

use super::super::calculate::Sample;
use super::*;
use crate::held::Pod;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn pod(name: &str, is_ready: bool) -> Arc<Pod> {
    let ready = if is_ready { "True" } else { "False" };
    let pod = json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"containers": []},
        "status": {"phase": "Running", "startTime": "2026-01-01T10:00:00Z",
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T10:00:01Z"}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// What the metric says to a target that is to have `current` replicas and has `there`, of which `ready` are.
fn ask(
    metric: &Value,
    (current, there, ready): (i32, i32, i32),
    found: Result<Served, &str>,
) -> Result<Proposed, MetricError> {
    let autoscaler: HorizontalPodAutoscaler =
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "a"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 100}}))
        .unwrap();
    let pods: Vec<Arc<Pod>> = (0..there).map(|i| pod(&format!("p{i}"), i < ready)).collect();
    let served = BTreeMap::from([(0, found.map_err(str::to_owned))]);
    let inputs = Inputs {
        autoscaler: &autoscaler,
        usage: &Ok(Vec::new()),
        served: &served,
        pods: &pods,
        current,
        there,
        now: now(),
    };
    let metric: MetricSpec = serde_json::from_value(metric.clone()).unwrap();
    compute(&inputs, &metric, served.get(&0))
}

fn of_pods(values: &[i64]) -> Served {
    let samples = values.iter().enumerate().map(|(i, milli)| {
        let sample = Sample {
            at: now(),
            window: SignedDuration::from_mins(1),
            milli: *milli,
        };
        (format!("p{i}"), sample)
    });
    Served::Pods(samples.collect())
}

fn pods_metric(average: &str) -> Value {
    json!({"type": "Pods", "pods": {"metric": {"name": "hits"},
        "target": {"type": "AverageValue", "averageValue": average}}})
}

fn object_metric(kind: &str, target: &str) -> Value {
    let field = if kind == "Value" { "value" } else { "averageValue" };
    json!({"type": "Object", "object": {"metric": {"name": "hits"},
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"}, "target": {"type": kind, field: target}}})
}

fn external_metric(kind: &str, target: &str) -> Value {
    let field = if kind == "Value" { "value" } else { "averageValue" };
    json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": kind, field: target}}})
}

fn status(proposed: &Proposed) -> Value {
    serde_json::to_value(&proposed.status).unwrap()
}

#[test]
fn the_average_of_pods_is_followed() {
    for (values, replicas, average) in [
        // Twice what each is to have.
        (&[20_000, 20_000][..], 4, "20"),
        (&[10_500, 10_500], 2, "10500m"),
        (&[5_000, 5_000], 1, "5"),
        // The one that says nothing is taken to have none when more are wanted, and what is wanted when fewer are.
        (&[40_000], 4, "40"),
        (&[5_000], 2, "5"),
    ] {
        let found = ask(&pods_metric("10"), (2, 2, 2), Ok(of_pods(values))).unwrap();
        assert_eq!(found.replicas, replicas, "{values:?}");
        assert_eq!(found.name, "pods metric hits");
        let expected =
            json!({"type": "Pods", "pods": {"metric": {"name": "hits"}, "current": {"averageValue": average}}});
        assert_eq!(status(&found), expected, "{values:?}");
    }
    let none = ask(&pods_metric("10"), (2, 0, 0), Ok(of_pods(&[1]))).unwrap_err();
    assert_eq!(
        none.cause,
        "no pods returned by selector while calculating replica count"
    );
    assert_eq!(none.message, format!("failed to get pods metric value: {}", none.cause));
}

#[test]
fn a_value_of_all_is_followed_by_those_that_are_ready() {
    for (state, milli, replicas) in [
        ((2, 2, 2), 20_000, Some(4)),
        ((2, 2, 1), 20_000, Some(2)),
        ((2, 2, 2), 10_900, Some(2)),
        ((4, 4, 4), 5_000, Some(2)),
        // Of none: as many times what is wanted, without tolerance.
        ((0, 0, 0), 25_000, Some(3)),
        ((0, 0, 0), 0, Some(0)),
        ((2, 0, 0), 20_000, None),
    ] {
        let found = ask(&object_metric("Value", "10"), state, Ok(Served::Milli(milli)));
        assert_eq!(found.ok().map(|found| found.replicas), replicas, "{state:?} {milli}");
        let found = ask(&external_metric("Value", "10"), state, Ok(Served::Milli(milli)));
        assert_eq!(found.ok().map(|found| found.replicas), replicas, "{state:?} {milli}");
    }
    let none = ask(&object_metric("Value", "10"), (2, 0, 0), Ok(Served::Milli(20_000))).unwrap_err();
    let cause = "unable to calculate ready pods: no pods returned by selector while calculating replica count";
    assert_eq!((none.reason, &*none.cause), ("FailedGetObjectMetric", cause));
}

#[test]
fn a_value_that_is_shared_goes_by_the_replicas_there_are() {
    for ((current, there), milli, replicas, each) in [
        ((2, 2), 40_000, 4, "20"),
        // Within the tolerance of what there is, whatever there should be.
        ((5, 2), 21_000, 2, "10500m"),
        ((2, 2), 1_000, 1, "500m"),
        ((0, 0), 30_000, 3, "30"),
        ((0, 0), 0, 0, "0"),
    ] {
        let object = ask(
            &object_metric("AverageValue", "10"),
            (current, there, there),
            Ok(Served::Milli(milli)),
        )
        .unwrap();
        let external = ask(
            &external_metric("AverageValue", "10"),
            (current, there, there),
            Ok(Served::Milli(milli)),
        )
        .unwrap();
        assert_eq!(
            (object.replicas, external.replicas),
            (replicas, replicas),
            "{there} {milli}"
        );
        assert_eq!(status(&external)["external"]["current"], json!({"averageValue": each}));
        assert_eq!(status(&object)["object"]["current"], json!({"averageValue": each}));
        assert_eq!(external.name, "external metric queue(nil)");
    }
}

#[test]
fn statuses_say_what_was_measured() {
    let object = ask(&object_metric("Value", "10"), (2, 2, 2), Ok(Served::Milli(20_000))).unwrap();
    let about = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    assert_eq!(object.name, "Service metric hits");
    assert_eq!(
        status(&object),
        json!({"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": about, "current": {"value": "20"}}})
    );
    let external = ask(&external_metric("Value", "10"), (2, 2, 2), Ok(Served::Milli(1_500))).unwrap();
    assert_eq!(
        status(&external),
        json!({"type": "External", "external": {"metric": {"name": "queue"}, "current": {"value": "1500m"}}})
    );
}

#[test]
fn what_cannot_be_had_is_told_in_upstreams_words() {
    let external = "unable to get external metric a/queue/nil: gone";
    let object = "unable to get metric hits: Service on a s/gone";
    for (metric, reason, cause, message) in [
        (
            pods_metric("10"),
            "FailedGetPodsMetric",
            "unable to get metric hits: gone",
            "failed to get pods metric value: unable to get metric hits: gone".to_owned(),
        ),
        (
            object_metric("Value", "10"),
            "FailedGetObjectMetric",
            object,
            format!("failed to get object metric value: {object}"),
        ),
        (
            object_metric("AverageValue", "10"),
            "FailedGetObjectMetric",
            object,
            format!("failed to get object metric value: failed to get hits object metric: {object}"),
        ),
        (
            external_metric("Value", "10"),
            "FailedGetExternalMetric",
            external,
            format!("failed to get queue external metric value: failed to get external metric queue: {external}"),
        ),
        (
            external_metric("AverageValue", "10"),
            "FailedGetExternalMetric",
            external,
            format!("failed to get queue external metric value: failed to get queue external metric: {external}"),
        ),
        (
            json!({"type": "Odd"}),
            "InvalidMetricSourceType",
            "unknown metric source type \"Odd\"",
            "unknown metric source type \"Odd\"".to_owned(),
        ),
    ] {
        let failed = ask(&metric, (2, 2, 2), Err("gone")).unwrap_err();
        assert_eq!(
            (failed.reason, &*failed.cause, failed.message),
            (reason, cause, message)
        );
    }
}
