//! What a recorder sends.

use super::*;
use client::SystemClock;
use http::Response;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use std::convert::Infallible;

fn text(name: &str, message: String) -> EventText {
    EventText {
        regarding: ObjectReference {
            namespace: Some("a".to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        },
        kind: "Warning",
        reason: "Odd",
        message,
    }
}

/// A recorder, and the method and body of each of its requests, until nobody is left to make one.
fn recorder() -> (Recorder, mpsc::UnboundedReceiver<(String, Value)>) {
    let (sent, requests) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let sent = sent.clone();
        async move {
            let method = request.method().to_string();
            let body = request.into_body().collect_bytes().await.unwrap();
            let _ = sent.send((method, serde_json::from_slice(&body).unwrap()));
            Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
        }
    });
    let client = kube::Client::new(service, "default");
    (Recorder::spawn(client, Arc::new(SystemClock), "tester"), requests)
}

async fn all(mut requests: mpsc::UnboundedReceiver<(String, Value)>) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    while let Some(request) = requests.recv().await {
        all.push(request);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn an_object_has_so_many_events_and_its_repeats_are_counted_anyway() {
    let (recorder, requests) = recorder();
    for number in 0..40 {
        recorder.record(text("a", format!("message {number}")));
    }
    recorder.record(text("a", "message 0".to_owned()));
    recorder.record(text("b", "message".to_owned()));
    // All of it is done before time goes on.
    tokio::time::sleep(Duration::from_secs(301)).await;
    recorder.record(text("a", "message 0".to_owned()));
    drop(recorder);
    let all = all(requests).await;
    let of = |name: &str| {
        let about = all.iter().filter(|(_, body)| body["involvedObject"]["name"] == name);
        about.count()
    };
    assert_eq!((of("a"), of("b")), (25, 1));
    let (method, patch) = all.last().unwrap();
    assert_eq!((&**method, &patch["count"], all.len()), ("PATCH", &json!(3), 27));
}

#[tokio::test(start_paused = true)]
async fn long_messages_are_cut() {
    let (recorder, requests) = recorder();
    recorder.record(text("a", "x".repeat(1024)));
    recorder.record(text("a", format!("x{}", "é".repeat(1 << 20))));
    drop(recorder);
    let mut messages: Vec<String> = all(requests)
        .await
        .iter()
        .map(|(_, body)| body["message"].as_str().unwrap().to_owned())
        .collect();
    messages.sort();
    assert_eq!(messages[0], "x".repeat(1024));
    assert_eq!(messages[1], format!("x{} ...", "é".repeat(509)));
}
