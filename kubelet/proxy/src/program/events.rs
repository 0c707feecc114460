//! Writes events (`events.k8s.io/v1`), one after another. Best effort, as upstream's: what finds no room in the queue, or is not taken
//! in a few tries, is lost and said so in the log.

use crate::told::{Tell, Told};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Events that wait.
const WAITING_MAX: usize = 64;
const TRIES: u32 = 5;
const WRITE_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(2);
/// Bytes of a note, the API's bound.
const NOTE_MAX: usize = 1024;

/// A way to tell events, and what writes them until nobody can tell any more.
pub(super) fn channel(client: kube::Client, host: &str) -> (Tell, impl Future<Output = ()> + use<>) {
    let (sender, mut queue) = mpsc::channel::<(Timestamp, Told)>(WAITING_MAX);
    let host = host.to_owned();
    let writing = async move {
        while let Some((at, told)) = queue.recv().await {
            let event = event(&told, &host, at);
            tracing::info!(
                kind = told.kind,
                name = told.name,
                reason = told.reason,
                message = told.note,
                "event"
            );
            let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
            let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
            write(&client, &path, &event.to_string()).await;
        }
    };
    let tell: Tell = Arc::new(move |told| {
        let reason = told.reason;
        if sender.try_send((Timestamp::now(), told)).is_err() {
            tracing::warn!(reason, "event lost: too many wait");
        }
    });
    (tell, writing)
}

async fn write(client: &kube::Client, path: &str, body: &str) {
    for _ in 0..TRIES {
        let request = http::Request::post(path).header("Content-Type", "application/json");
        let Ok(request) = request.body(body.as_bytes().to_vec()) else {
            return;
        };
        match tokio::time::timeout(WRITE_MAX, client.request_text(request)).await {
            Ok(Ok(_)) => return,
            // It will not be taken however often it is sent; a lost reply makes it one that is there.
            Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                tracing::debug!(error = %status, "event refused");
                return;
            }
            Ok(Err(error)) => tracing::debug!(%error, "event not written, retrying"),
            Err(_) => tracing::debug!("event not written in time, retrying"),
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!("event lost: the API server did not take it");
}

/// The event's object, as upstream's recorder makes it.
fn event(told: &Told, host: &str, at: Timestamp) -> Value {
    let namespace = if told.namespace.is_empty() {
        "default"
    } else {
        &told.namespace
    };
    let full = if told.namespace.is_empty() {
        told.name.clone()
    } else {
        format!("{}/{}", told.namespace, told.name)
    };
    let end = told
        .note
        .char_indices()
        .map(|(at, of)| at + of.len_utf8())
        .take_while(|end| *end <= NOTE_MAX)
        .last();
    let mut regarding = json!({"kind": told.kind, "name": told.name, "uid": full});
    if !told.namespace.is_empty() {
        regarding["namespace"] = told.namespace.as_str().into();
    }
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{:x}", told.name, at.as_nanosecond()), "namespace": namespace},
        "eventTime": format!("{at:.6}"),
        "reportingController": "kube-proxy",
        "reportingInstance": format!("kube-proxy-{host}"),
        "action": told.action,
        "reason": told.reason,
        "regarding": regarding,
        "note": &told.note[..end.unwrap_or(0)],
        "type": if told.is_warning { "Warning" } else { "Normal" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_upstreams() {
        let told = Told {
            kind: "Service",
            namespace: "shop".into(),
            name: "web".into(),
            is_warning: true,
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            note: "é".repeat(600),
        };
        let at: Timestamp = "2026-11-23T10:00:00.5Z".parse().unwrap();
        let written = event(&told, "n1", at);
        assert_eq!(written["metadata"]["name"], format!("web.{:x}", at.as_nanosecond()));
        assert_eq!(written["metadata"]["namespace"], "shop");
        assert_eq!(written["eventTime"], "2026-11-23T10:00:00.500000Z");
        assert_eq!(
            written["regarding"],
            json!({"kind": "Service", "namespace": "shop", "name": "web", "uid": "shop/web"})
        );
        assert_eq!(
            (&written["type"], &written["reportingInstance"]),
            (&json!("Warning"), &json!("kube-proxy-n1"))
        );
        assert_eq!(
            written["note"].as_str().map(str::len),
            Some(1024),
            "cut between letters"
        );
        let node = Told {
            kind: "Node",
            namespace: String::new(),
            note: String::new(),
            is_warning: false,
            ..told
        };
        let written = event(&node, "n1", at);
        assert_eq!(written["metadata"]["namespace"], "default");
        assert_eq!(
            written["regarding"],
            json!({"kind": "Node", "name": "web", "uid": "web"})
        );
        assert_eq!((&written["type"], &written["note"]), (&json!("Normal"), &json!("")));
    }
}
