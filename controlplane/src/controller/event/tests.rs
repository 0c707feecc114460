//! What a recorder sends.

use super::*;
use client::SystemClock;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

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

/// A server of events: what it has, and how it was asked.
#[derive(Default)]
struct Server {
    events: BTreeMap<String, Value>,
    /// Methods and bodies.
    asked: Vec<(String, Value)>,
    /// So many requests get no answer.
    silent: usize,
}

impl Server {
    fn answer(&mut self, method: &str, path: &str, body: Value) -> Result<StatusCode, io::Error> {
        self.asked.push((method.to_owned(), body.clone()));
        if self.silent > 0 {
            self.silent -= 1;
            return Err(io::Error::other("nobody is there"));
        }
        if method == "POST" {
            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
            let there = self.events.insert(format!("{path}/{name}"), body);
            assert_eq!(there, None, "created twice");
            return Ok(StatusCode::CREATED);
        }
        let Some(event) = self.events.get_mut(path) else {
            return Ok(StatusCode::NOT_FOUND);
        };
        json_patch::merge(event, &body);
        Ok(StatusCode::OK)
    }

    /// Counts and messages of the events about an object.
    fn about(&self, name: &str) -> Vec<(u64, String)> {
        let of = self
            .events
            .values()
            .filter(|event| event["involvedObject"]["name"] == name);
        of.map(|event| {
            let message = event["message"].as_str().unwrap().to_owned();
            (event["count"].as_u64().unwrap(), message)
        })
        .collect()
    }
}

type Shared = Arc<Mutex<Server>>;

/// A recorder, and its server, which takes a second for each answer.
fn recorder() -> (Recorder, Shared) {
    let server = Shared::default();
    let shared = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = shared.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            let code = server
                .lock()
                .unwrap()
                .answer(parts.method.as_str(), parts.uri.path(), body)?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let status = json!({"kind": "Status", "code": code.as_u16(), "message": "", "reason": "", "metadata": {}});
            let reply = Response::builder()
                .status(code)
                .body(Body::from(status.to_string().into_bytes()));
            Ok::<_, io::Error>(reply.unwrap())
        }
    });
    let client = kube::Client::new(service, "default");
    (Recorder::spawn(client, Arc::new(SystemClock), "tester"), server)
}

/// Until all that was recorded is told, in paused time.
async fn later(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn repeats_are_counted_and_similar_events_are_one() {
    let (recorder, server) = recorder();
    for number in 0..12 {
        recorder.record(text("a", format!("message {number}")));
    }
    recorder.record(text("a", "message 0".to_owned()));
    recorder.record(text("b", "message".to_owned()));
    later(60).await;
    let server = server.lock().unwrap();
    let mut expected: Vec<_> = (0..9)
        .map(|number| (1 + u64::from(number == 0), format!("message {number}")))
        .collect();
    expected.push((3, "(combined from similar events): message 11".to_owned()));
    let mut found = server.about("a");
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(server.about("b"), [(1, "message".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_object_has_so_many_events_and_its_repeats_are_counted_anyway() {
    let (recorder, server) = recorder();
    for _ in 0..40 {
        recorder.record(text("a", "message".to_owned()));
    }
    later(60).await;
    assert_eq!(server.lock().unwrap().about("a"), [(25, "message".to_owned())]);
    // While one is under way the others wait, and the last of them says it all.
    let asked: Vec<_> = server
        .lock()
        .unwrap()
        .asked
        .iter()
        .map(|(method, _)| method.clone())
        .collect();
    assert_eq!(asked, ["POST", "PATCH"]);
    later(300).await;
    recorder.record(text("a", "message".to_owned()));
    later(60).await;
    assert_eq!(server.lock().unwrap().about("a"), [(41, "message".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_has_no_longer_is_created_with_its_count() {
    let (recorder, server) = recorder();
    recorder.record(text("a", "message".to_owned()));
    later(60).await;
    let gone = std::mem::take(&mut server.lock().unwrap().events);
    recorder.record(text("a", "message".to_owned()));
    later(60).await;
    let server = server.lock().unwrap();
    assert_eq!(server.about("a"), [(2, "message".to_owned())]);
    assert!(server.events.keys().eq(gone.keys()), "under the same name");
}

#[tokio::test(start_paused = true)]
async fn what_gets_no_answer_is_sent_again_and_not_for_ever() {
    for (silent, told) in [(11, 1), (12, 0)] {
        let (recorder, server) = recorder();
        server.lock().unwrap().silent = silent;
        recorder.record(text("a", "message".to_owned()));
        later(1000).await;
        let server = server.lock().unwrap();
        assert_eq!((server.about("a").len(), server.asked.len()), (told, 12));
    }
}

#[tokio::test(start_paused = true)]
async fn long_messages_are_cut() {
    let (recorder, server) = recorder();
    recorder.record(text("a", "x".repeat(1024)));
    recorder.record(text("a", format!("x{}", "é".repeat(1 << 20))));
    later(60).await;
    let mut messages: Vec<String> = server
        .lock()
        .unwrap()
        .about("a")
        .into_iter()
        .map(|(_, message)| message)
        .collect();
    messages.sort();
    assert_eq!(messages[0], "x".repeat(1024));
    assert_eq!(messages[1], format!("x{} ...", "é".repeat(509)));
}

#[test]
fn an_event_is_named_after_its_object_where_that_is_a_name() {
    let of = |own: &str| {
        let about = ObjectReference {
            name: Some(own.to_owned()),
            ..ObjectReference::default()
        };
        name(&about, 0xabc)
    };
    assert_eq!(of("web-0"), "web-0.abc");
    for odd in ["system:node", "", &"x".repeat(252)] {
        let name = of(odd);
        assert!(dns1123_subdomain(&name).is_empty() && name.ends_with(".abc"), "{name}");
    }
}
