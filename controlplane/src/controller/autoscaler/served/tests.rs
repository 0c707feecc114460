//! Which questions are asked, and how answers are read, of a server that is a table.

use super::*;
use http::Response;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server that answers what the table has for a path with its query, and says of all else that it knows no such path.
fn server(table: Vec<(&'static str, u16, Value)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = asked.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let uri = request.uri().to_string();
        let found = table.iter().find(|(path, ..)| *path == uri);
        let (code, body) = match found {
            Some((_, code, body)) => (*code, body.to_string()),
            None => (404, "404 page not found".to_owned()),
        };
        heard.lock().unwrap().push(uri);
        async move {
            let body = kube::client::Body::from(body.into_bytes());
            Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (Client::new(service, "default"), asked)
}

fn group(name: &str, versions: &[&str]) -> Value {
    let version = |v: &&str| json!({"groupVersion": format!("{name}/{v}"), "version": v});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions[0]})
}

fn core() -> Value {
    let services = json!({"name": "services", "singularName": "", "kind": "Service", "namespaced": true, "verbs": []});
    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [services]})
}

fn ingresses() -> Value {
    let own = json!({"name": "ingresses", "singularName": "", "kind": "Ingress", "namespaced": true, "verbs": []});
    json!({"kind": "APIResourceList", "groupVersion": "networking.k8s.io/v1", "resources": [own]})
}

fn values(values: &[(&str, &str)]) -> Value {
    let items = values.iter().map(|(name, value)| {
        json!({"describedObject": {"kind": "Pod", "name": name}, "timestamp": "2026-01-01T00:00:00Z", "value": value})
    });
    json!({"kind": "MetricValueList", "metadata": {}, "items": items.collect::<Vec<_>>()})
}

fn specs(specs: Value) -> Vec<MetricSpec> {
    serde_json::from_value(specs).unwrap()
}

fn pods_metric() -> Value {
    json!({"type": "Pods", "pods": {"metric": {"name": "hits", "selector": {"matchLabels": {"verb": "GET"}}},
        "target": {"type": "AverageValue", "averageValue": "1"}}})
}

fn object_metric(version: &str, kind: &str) -> Value {
    json!({"type": "Object", "object": {"metric": {"name": "hits"}, "target": {"type": "Value", "value": "1"},
        "describedObject": {"apiVersion": version, "kind": kind, "name": "s"}}})
}

fn external_metric() -> Value {
    json!({"type": "External", "external": {"metric": {"name": "queue@a", "selector": {"matchExpressions": [
        {"key": "q", "operator": "In", "values": ["b", "a"]}]}}, "target": {"type": "Value", "value": "1"}}})
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

const PODS: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/*/hits?labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET";
const NEWER: &str = "/apis/custom.metrics.k8s.io";

async fn one(table: Vec<(&'static str, u16, Value)>, spec: Value) -> Result<Served, String> {
    let (client, _) = server(table);
    let mut found = ask(&client, "a", "app=web", &specs(json!([spec])), soon()).await;
    found.remove(&0).expect("it is asked for")
}

#[tokio::test]
async fn each_metric_is_asked_for_where_it_is_served() {
    let (client, asked) = server(vec![
        (NEWER, 200, group("custom.metrics.k8s.io", &["v1beta2", "v1beta1"])),
        ("/api/v1", 200, core()),
        ("/apis/networking.k8s.io", 200, group("networking.k8s.io", &["v1"])),
        ("/apis/networking.k8s.io/v1", 200, ingresses()),
        (PODS, 200, values(&[("p0", "2"), ("p1", "1500m")])),
        (
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/services/s/hits",
            200,
            values(&[("s", "3k")]),
        ),
        (
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/ingresses.networking.k8s.io/s/hits",
            200,
            values(&[("s", "4")]),
        ),
        (
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/metrics/hits",
            200,
            values(&[("a", "5")]),
        ),
        (
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/a/queue%40a?labelSelector=q%20in%20%28a%2Cb%29",
            200,
            values(&[("", "6"), ("", "7")]),
        ),
    ]);
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}}});
    let all = specs(json!([
        cpu,
        pods_metric(),
        object_metric("v1", "Service"),
        object_metric("networking.k8s.io/v1beta1", "Ingress"),
        object_metric("v1", "Namespace"),
        external_metric(),
    ]));
    let found = ask(&client, "a", "app=web", &all, soon()).await;
    let milli = |at: usize| match &found[&at] {
        Ok(Served::Milli(milli)) => *milli,
        other => panic!("{at}: {other:?}, asked {:?}", asked.lock().unwrap()),
    };
    assert_eq!(
        [milli(2), milli(3), milli(4), milli(5)],
        [3_000_000, 4_000, 5_000, 13_000]
    );
    let Ok(Served::Pods(samples)) = &found[&1] else {
        panic!("{:?}", found[&1])
    };
    let samples: Vec<(&str, i64)> = samples.iter().map(|(name, sample)| (&**name, sample.milli)).collect();
    assert_eq!(samples, [("p0", 2_000), ("p1", 1_500)]);
    assert_eq!(found.len(), 5, "resources are not asked for here");
}

#[tokio::test]
async fn the_version_is_one_that_is_known() {
    let older = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/metrics/hits";
    let namespace = object_metric("v1", "Namespace");
    let served = |versions: &[&str]| {
        vec![
            (NEWER, 200, group("custom.metrics.k8s.io", versions)),
            (older, 200, values(&[("a", "5")])),
        ]
    };
    for versions in [&["v1beta1"][..], &["v1beta1", "v1beta2"], &["v9", "v1beta1"]] {
        let found = one(served(versions), namespace.clone()).await;
        assert_eq!(found, Ok(Served::Milli(5_000)), "{versions:?}");
    }
    let found = one(served(&["v9"]), namespace.clone()).await.unwrap_err();
    assert_eq!(
        found,
        "unable to fetch metrics from custom metrics API: no known available metric versions found"
    );
}

#[tokio::test]
async fn what_is_not_served_is_told() {
    let custom = "unable to fetch metrics from custom metrics API";
    let absent = format!("{custom}: no custom metrics API (custom.metrics.k8s.io) registered");
    assert_eq!(one(Vec::new(), pods_metric()).await, Err(absent.clone()));
    assert_eq!(one(Vec::new(), object_metric("v1", "Service")).await, Err(absent));
    let external = "unable to fetch metrics from external metrics API: the server could not find the requested resource \
                    (get queue@a.external.metrics.k8s.io)";
    assert_eq!(one(Vec::new(), external_metric()).await, Err(external.to_owned()));
    let served = || (NEWER, 200, group("custom.metrics.k8s.io", &["v1beta2"]));
    let unmapped = format!(
        "{custom}: unable to map kind Herd.zoo.example to resource: no matches for kind \"Herd\" in group \"zoo.example\""
    );
    assert_eq!(
        one(vec![served()], object_metric("zoo.example/v1", "Herd")).await,
        Err(unmapped)
    );
    let pathless =
        format!("{custom}: the server could not find the requested resource (get pods.custom.metrics.k8s.io *)");
    assert_eq!(one(vec![served()], pods_metric()).await, Err(pathless));
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "the server could not find the metric hits for pods"});
    let said = format!("{custom}: the server could not find the metric hits for pods");
    assert_eq!(one(vec![served(), (PODS, 404, status)], pods_metric()).await, Err(said));
    let none = Err("no metrics returned from custom metrics API".to_owned());
    assert_eq!(one(vec![served(), (PODS, 200, values(&[]))], pods_metric()).await, none);
    let two = (
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/services/s/hits",
        200,
        values(&[("s", "1"), ("t", "1")]),
    );
    let several = format!("{custom}: the custom metrics API server returned 2 results when we asked for exactly one");
    assert_eq!(
        one(
            vec![served(), ("/api/v1", 200, core()), two],
            object_metric("v1", "Service")
        )
        .await,
        Err(several)
    );
    let odd = one(vec![served(), (PODS, 200, values(&[("p", "much")]))], pods_metric())
        .await
        .unwrap_err();
    assert!(
        odd.starts_with(&format!("{custom}: a metric's value \"much\": ")),
        "{odd}"
    );
}

#[tokio::test]
async fn a_kind_is_looked_for_once_a_decision() {
    let (client, asked) = server(vec![
        (NEWER, 200, group("custom.metrics.k8s.io", &["v1beta2"])),
        ("/apis/networking.k8s.io", 200, group("networking.k8s.io", &["v1"])),
        ("/apis/networking.k8s.io/v1", 200, ingresses()),
    ]);
    let each = object_metric("networking.k8s.io/v1", "Ingress");
    let all = specs(json!(vec![each; 30]));
    let found = ask(&client, "a", "app=web", &all, soon()).await;
    assert_eq!(found.len(), 30);
    let asked = asked.lock().unwrap();
    let of = |path: &str| asked.iter().filter(|uri| *uri == path).count();
    assert_eq!(
        (of("/apis/networking.k8s.io"), of("/apis/networking.k8s.io/v1")),
        (1, 1)
    );
}

/// A server that says which version of custom metrics it has, and nothing else ever.
fn silent() -> Client {
    let service = tower::service_fn(|request: Request<kube::client::Body>| async move {
        if request.uri().path() != NEWER {
            std::future::pending::<()>().await;
        }
        let body = group("custom.metrics.k8s.io", &["v1beta2"]).to_string();
        Ok::<_, std::io::Error>(Response::new(kube::client::Body::from(body.into_bytes())))
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_decision_waits_so_long_whatever_it_asks() {
    let all: Vec<Value> = (0..30)
        .flat_map(|number| {
            let kind = format!("Kind{number}");
            [pods_metric(), external_metric(), object_metric("zoo.example/v1", &kind)]
        })
        .collect();
    let (began, until) = (Instant::now(), soon());
    let found = ask(&silent(), "a", "app=web", &specs(json!(all)), until).await;
    assert_eq!(found.len(), 90);
    for (at, found) in &found {
        let error = found.as_ref().unwrap_err();
        assert!(error.ends_with("deadline exceeded"), "{at}: {error}");
    }
    assert!(began.elapsed() < Duration::from_secs(31), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_answer_that_has_no_end_is_none() {
    let long = json!({"items": [], "more": "x".repeat(ANSWER_MAX)});
    let served = (NEWER, 200, group("custom.metrics.k8s.io", &["v1beta2"]));
    let error = one(vec![served, (PODS, 200, long)], pods_metric()).await.unwrap_err();
    assert!(error.contains("the answer is longer than"), "{error}");
}
