//! A watcher of pods as a client writes one: lists, watches, is cut, resumes where it was (bookmarks included), and notes what it
//! saw. Whether that is the truth is judged afterwards.

use crate::judge::Judge;
use futures::StreamExt;
use http_body_util::BodyDataStream;
use kube::client::Body;
use serde_json::Value;
use std::time::Duration;

/// What is watched, as the store's keys begin.
pub const WATCHED: &str = "/registry/pods/";

/// What the watcher saw.
#[derive(Clone, Debug)]
pub enum Sighting {
    /// A list at a revision: keys with their revisions.
    Listed(u64, Vec<(String, u64)>),
    /// An event of that revision.
    Event(u64),
    /// A bookmark.
    Bookmark(u64),
    /// A watch was begun from there.
    Resumed(u64),
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or(0)
}

fn get(uri: &str) -> http::Request<Body> {
    http::Request::get(uri).body(Body::empty()).expect("a request")
}

/// Watches for ever.
pub async fn run(client: kube::Client, judge: Judge) {
    loop {
        if let Some(at) = list(&client, &judge).await {
            follow(&client, &judge, at).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn list(client: &kube::Client, judge: &Judge) -> Option<u64> {
    let reply = client.send(get("/api/v1/pods")).await.ok()?;
    let body = reply.status().is_success().then(|| reply.into_body())?;
    let list: Value = serde_json::from_slice(&body.collect_bytes().await.ok()?).ok()?;
    let items = list["items"].as_array()?.iter().map(|pod| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        (
            format!("{WATCHED}{}/{}", text("namespace"), text("name")),
            revision(pod),
        )
    });
    let at = revision(&list);
    judge.sighted(Sighting::Listed(at, items.collect()));
    Some(at)
}

/// Watches from `at`, again and again, until the server says that it is too old.
async fn follow(client: &kube::Client, judge: &Judge, mut at: u64) {
    loop {
        let uri = format!("/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={at}");
        if let Ok(reply) = client.send(get(&uri)).await {
            judge.sighted(Sighting::Resumed(at));
            let mut chunks = BodyDataStream::new(reply.into_body());
            let mut rest = Vec::new();
            while let Some(Ok(chunk)) = chunks.next().await {
                rest.extend_from_slice(&chunk);
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    let Ok(event) = serde_json::from_slice::<Value>(&line) else {
                        continue;
                    };
                    match event["type"].as_str() {
                        Some("ERROR") => return,
                        Some("BOOKMARK") => {
                            at = revision(&event["object"]);
                            judge.sighted(Sighting::Bookmark(at));
                        }
                        _ => {
                            at = revision(&event["object"]);
                            judge.sighted(Sighting::Event(at));
                        }
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
