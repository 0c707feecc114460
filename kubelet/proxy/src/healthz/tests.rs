use super::*;
use serde_json::Value;

fn node(spec: Value, meta: Value) -> Node {
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

#[test]
fn nodes_that_go_get_no_traffic() {
    let taint = |key: &str| json!({"taints": [{"key": key, "effect": "NoSchedule"}]});
    let name = || json!({"name": "n"});
    for (of, expected) in [
        (None, false),
        (Some(node(json!({}), name())), true),
        (Some(node(taint("node.kubernetes.io/unschedulable"), name())), true),
        (Some(node(taint(TO_BE_DELETED), name())), false),
        (
            Some(node(
                json!({}),
                json!({"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}),
            )),
            false,
        ),
    ] {
        assert_eq!(is_eligible(of.as_ref()), expected, "{of:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_waits_too_long_is_unhealthy_until_it_is_written() {
    let health = Health::new(Duration::from_secs(30), &["IPv4"]);
    let begun = Instant::now();
    let after = |seconds| begun + Duration::from_secs(seconds);
    health.queued(begun);
    assert!(health.is_healthy(after(600)), "it is starting up");
    health.updated(Timestamp::UNIX_EPOCH);
    assert!(health.is_healthy(after(600)));
    health.queued(after(600));
    health.queued(after(650));
    assert!(health.is_healthy(after(659)));
    assert!(!health.is_healthy(after(660)), "the oldest counts");
    health.updated(Timestamp::UNIX_EPOCH);
    assert!(health.is_healthy(after(9999)));
}

#[test]
fn answers_are_upstreams() {
    let now: Timestamp = "2026-11-23T10:00:05.25Z".parse().unwrap();
    let fresh = State::default();
    let written = State {
        updated: Some("2026-11-23T10:00:00Z".parse().unwrap()),
        queued: None,
    };
    let (dual, single) = (&["IPv4", "IPv6"], &["IPv4"]);
    for (got, code, body) in [
        (
            answer(&fresh, true, now, Some(true), dual),
            200,
            r#"{"lastUpdated":"2026-11-23T10:00:05.25Z","currentTime":"2026-11-23T10:00:05.25Z","nodeEligible":true,"healthy":true}"#,
        ),
        (
            answer(&fresh, true, now, Some(false), dual),
            503,
            r#"{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-11-23T10:00:05.25Z","nodeEligible":false,"healthy":true}"#,
        ),
        (
            answer(&written, true, now, None, dual),
            200,
            r#"{"lastUpdated":"2026-11-23T10:00:05.25Z","currentTime":"2026-11-23T10:00:05.25Z","healthy":true,"status":{"IPv4":{"healthy":true,"lastUpdated":"2026-11-23T10:00:00Z"},"IPv6":{"healthy":true,"lastUpdated":"2026-11-23T10:00:00Z"}}}"#,
        ),
        (
            answer(&written, false, now, None, single),
            503,
            r#"{"lastUpdated":"2026-11-23T10:00:00Z","currentTime":"2026-11-23T10:00:05.25Z","healthy":false,"status":{"IPv4":{"healthy":false,"lastUpdated":"2026-11-23T10:00:00Z"}}}"#,
        ),
    ] {
        assert_eq!((got.code, got.kind), (code, "application/json"));
        // Compared as values: the order inside `status` means nothing.
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(value(&got.body), value(body));
        assert_eq!(got.body.find("currentTime"), body.find("currentTime"));
        assert_eq!(got.headers, [("X-Content-Type-Options", "nosniff".to_owned())]);
    }
}

#[tokio::test]
async fn probes_are_answered_over_a_socket_and_counted() {
    let stop = tokio_util::sync::CancellationToken::new();
    let listener = crate::http::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (health, metrics) = (
        Health::new(Duration::from_secs(30), &["IPv4"]),
        Metrics::new(&["IPv4"], Timestamp::UNIX_EPOCH),
    );
    let there = Arc::new(Mutex::new(None));
    let known = there.clone();
    let handler = handler(
        health.clone(),
        Arc::new(move || known.lock().unwrap().clone()),
        metrics.clone(),
    );
    tokio::spawn(crate::http::serve(listener, handler, stop.clone()));
    let get = async |path: &str| crate::testing::get(address, path).await;
    assert_eq!(get("/healthz").await.0, 503, "there is no such node");
    assert_eq!(get("/livez").await.0, 200);
    *there.lock().unwrap() = Some(Arc::new(node(json!({}), json!({"name": "n"}))));
    health.updated(Timestamp::now());
    let (code, body) = get("/healthz").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (code, &body["nodeEligible"], &body["status"]["IPv4"]["healthy"]),
        (200, &json!(true), &json!(true))
    );
    assert_eq!(get("/").await.0, 404);
    let text = metrics.text();
    for line in [
        "kubeproxy_proxy_healthz_total{code=\"200\"} 1\n",
        "kubeproxy_proxy_healthz_total{code=\"503\"} 1\n",
        "kubeproxy_proxy_livez_total{code=\"200\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    stop.cancel();
}
