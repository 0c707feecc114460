//! What definitions of custom resources cost the API server, and how its readers are served their objects beside built-in ones of the same
//! size.
//!
//! Definitions that are there already are not posted again: a second run, after the server's restart, tells what it has then.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::AsyncBufReadExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::{Method, Request};
use serde_json::{Value, json};

use crate::api::{Load, NAMESPACE, PATIENCE, WORKERS};
use crate::processes::{cpu, cpu_since};

const DEFINITIONS: usize = 1_000;
/// Fields of a definition's spec.
const FIELDS: usize = 20;
/// Definitions of a group.
const GROUP: usize = 50;
const COLLECTION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Objects of each of the two kinds that are compared.
const OBJECTS: usize = 10_000;
/// Objects of a page.
const PAGE: usize = 500;
/// How often all pages are read, and how many watches are begun at the state there is.
const ROUNDS: usize = 5;
/// Watchers of a collection, the writes they are told of, and how many of these a second.
const WATCHERS: usize = 100;
const WRITES: usize = 2_000;
const WRITES_PER_SECOND: usize = 200;

/// A collection of objects of a kilobyte.
struct Objects {
    path: String,
    api_version: &'static str,
    kind: &'static str,
}

/// Posts the definitions, unless they are there, and prints how long that took and what the server has then.
///
/// # Errors
/// If the API server refuses one, or does not establish it in time.
pub(crate) async fn definitions(load: &Load) -> anyhow::Result<()> {
    let last = format!("{COLLECTION}/{}", name_of(&definition(DEFINITIONS - 1)));
    if load.send(Request::get(&last), Vec::new()).await.is_ok() {
        established(load, DEFINITIONS).await?;
        return load.memory("1,000 definitions there");
    }
    let before = cpu(&load.groups)?;
    let begin = Instant::now();
    let posted =
        stream::iter(0..DEFINITIONS).map(|number| async move { load.post(COLLECTION, &definition(number)).await });
    let posted = posted.buffer_unordered(WORKERS);
    posted.try_for_each(|_| std::future::ready(Ok(()))).await?;
    let all_posted = begin.elapsed();
    established(load, DEFINITIONS).await?;
    println!(
        "{:<28} {:>9.2} s to be posted, {:.2} s until all are established, {:.2} s of the server's CPU",
        "1,000 definitions",
        all_posted.as_secs_f64(),
        begin.elapsed().as_secs_f64(),
        cpu_since(&load.groups, &before)?[0].as_secs_f64(),
    );
    load.memory("at once")?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    load.memory("10 s later")
}

fn name_of(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

fn definition(number: usize) -> Value {
    let plural = format!("things{number}");
    let group = format!("g{}.bench.skiff.dev", number / GROUP);
    let fields = (0..FIELDS).map(|field| {
        let described = |mut schema: Value| {
            schema["description"] = format!("What field {field} of the thing is there for.").into();
            schema
        };
        let schema = match field % 4 {
            0 => json!({"type": "string", "maxLength": 64}),
            1 => json!({"type": "integer", "minimum": 0}),
            2 => json!({"type": "boolean", "default": false}),
            _ => json!({"type": "array", "items": {"type": "string"}}),
        };
        (format!("field{field}"), described(schema))
    });
    custom_definition(
        &group,
        &plural,
        &format!("Thing{number}"),
        fields.collect::<serde_json::Map<_, _>>(),
    )
}

fn custom_definition(group: &str, plural: &str, kind: &str, fields: impl Into<Value>) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": format!("{plural}.{group}")},
    "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": fields.into()},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
            }}}}]}})
}

/// Waits until so many of this program's definitions are established.
async fn established(load: &Load, count: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let request = Request::get(COLLECTION).body(Vec::new())?;
        let list = load.client.request::<Value>(request).await?;
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let there = items.iter().filter(|one| name_of(one).ends_with(".bench.skiff.dev"));
        if there.filter(|one| is_established(one)).count() >= count {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "not all definitions are established");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    let is = |one: &Value| one["type"] == "Established" && one["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(is))
}

/// Reads 10,000 ConfigMaps and as many custom objects in the same ways and prints the figures beside each other.
///
/// # Errors
/// If the API server refuses a request, or events do not arrive.
pub(crate) async fn beside_built_in(load: &Load) -> anyhow::Result<()> {
    load.namespace().await?;
    let definition = custom_definition(
        "custom.bench.skiff.dev",
        "notes",
        "Note",
        json!({"text": {"type": "string"}}),
    );
    let path = format!("{COLLECTION}/{}", name_of(&definition));
    if load.send(Request::get(&path), Vec::new()).await.is_err() {
        load.post(COLLECTION, &definition).await?;
    }
    established(load, 1).await?;
    let both = [
        Objects {
            path: format!("/api/v1/namespaces/{NAMESPACE}/configmaps"),
            api_version: "v1",
            kind: "ConfigMap",
        },
        Objects {
            path: format!("/apis/custom.bench.skiff.dev/v1/namespaces/{NAMESPACE}/notes"),
            api_version: "custom.bench.skiff.dev/v1",
            kind: "Note",
        },
    ];
    println!(
        "{:<28} {:>14} {:>14} {:>8} {:>8} {:>8}",
        "10,000 of 1 kB, a second", "ConfigMaps", "custom", "ratio", "ms", "custom"
    );
    row("creates", [both[0].create(load).await?, both[1].create(load).await?]);
    row(
        "objects listed in pages",
        [both[0].list(load).await?, both[1].list(load).await?],
    );
    row(
        "first events of a watch",
        [both[0].begin_watches(load).await?, both[1].begin_watches(load).await?],
    );
    row(
        "events to 100 watchers",
        [both[0].watch(load).await?, both[1].watch(load).await?],
    );
    load.memory("20,000 objects of 1 kB")
}

/// So many in such a time, for so much of the server's CPU.
struct Rate {
    count: usize,
    took: Duration,
    used: Duration,
}

fn row(what: &str, [built_in, custom]: [Rate; 2]) {
    let per_second = |rate: &Rate| rate.count as f64 / rate.took.as_secs_f64();
    let cost = |rate: &Rate| rate.used.as_secs_f64() * 1000.0 / rate.count as f64;
    println!(
        "{what:<28} {:>14.0} {:>14.0} {:>8.2} {:>8.4} {:>8.4}",
        per_second(&built_in),
        per_second(&custom),
        per_second(&custom) / per_second(&built_in),
        cost(&built_in),
        cost(&custom),
    );
}

/// Does something that is counted.
async fn rated(load: &Load, work: impl Future<Output = anyhow::Result<usize>>) -> anyhow::Result<Rate> {
    let before = cpu(&load.groups)?;
    let begin = Instant::now();
    let count = work.await?;
    Ok(Rate {
        count,
        took: begin.elapsed(),
        used: cpu_since(&load.groups, &before)?[0],
    })
}

impl Objects {
    fn object(&self, number: usize) -> Value {
        let mut object = json!({"apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"name": format!("beside{number}")}});
        let content = json!({"text": "x".repeat(1_000)});
        let field = if self.kind == "ConfigMap" { "data" } else { "spec" };
        object[field] = content;
        object
    }

    async fn create(&self, load: &Load) -> anyhow::Result<Rate> {
        let posts =
            stream::iter(0..OBJECTS).map(|number| async move { load.post(&self.path, &self.object(number)).await });
        let posts = posts.buffer_unordered(WORKERS);
        rated(load, async {
            posts.try_for_each(|_| std::future::ready(Ok(()))).await?;
            Ok(OBJECTS)
        })
        .await
        .with_context(|| self.path.clone())
    }

    /// All of them, page after page, the text unread.
    async fn list(&self, load: &Load) -> anyhow::Result<Rate> {
        rated(load, async {
            let mut objects = 0;
            for _ in 0..ROUNDS {
                let mut token = String::new();
                loop {
                    let path = format!("{}?limit={PAGE}&continue={token}", self.path);
                    let text = load.client.request_text(Request::get(path).body(Vec::new())?).await?;
                    objects += text.matches("\"uid\":").count();
                    match continued(&text) {
                        Some(next) => next.clone_into(&mut token),
                        None => break,
                    }
                }
            }
            Ok(objects)
        })
        .await
    }

    /// The state there is as events, some watches one after the other.
    async fn begin_watches(&self, load: &Load) -> anyhow::Result<Rate> {
        rated(load, async {
            let mut events = 0;
            for _ in 0..ROUNDS {
                let path = format!(
                    "{}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                    self.path
                );
                let lines = load.client.request_stream(Request::get(path).body(Vec::new())?).await?;
                let mut lines = std::pin::pin!(lines.lines());
                while let Some(line) = lines.next().await {
                    if line?.contains("k8s.io/initial-events-end") {
                        break;
                    }
                    events += 1;
                }
            }
            Ok(events)
        })
        .await
    }

    /// Writes at an even pace while a hundred watch everything.
    async fn watch(&self, load: &Load) -> anyhow::Result<Rate> {
        let list = Request::get(format!("{}?limit=1", self.path)).body(Vec::new())?;
        let list = load.client.request::<Value>(list).await?;
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..WATCHERS {
            let path = format!("{}?watch=1&resourceVersion={revision}&timeoutSeconds=600", self.path);
            let lines = load.client.request_stream(Request::get(path).body(Vec::new())?).await?;
            tasks.spawn(async move { lines.lines().take(WRITES).count().await });
        }
        rated(load, async {
            let begin = tokio::time::Instant::now();
            let writes = stream::iter(0..WRITES).map(|number| async move {
                tokio::time::sleep_until(begin + Duration::from_secs_f64(number as f64 / WRITES_PER_SECOND as f64))
                    .await;
                let request = Request::builder()
                    .method(Method::PATCH)
                    .uri(format!("{}/beside{number}", self.path))
                    .header("content-type", "application/merge-patch+json");
                let patch = json!({"metadata": {"annotations": {"written": number.to_string()}}});
                load.send(request, serde_json::to_vec(&patch)?).await
            });
            let writes = writes.buffered(WORKERS);
            writes.try_for_each(|_| std::future::ready(Ok(()))).await?;
            let mut events = 0;
            while let Some(one) = tokio::time::timeout(PATIENCE, tasks.join_next()).await? {
                events += one?;
            }
            anyhow::ensure!(events == WATCHERS * WRITES, "{events} events arrived");
            Ok(events)
        })
        .await
    }
}

/// The token of the next page in a list's text, whose metadata stands before its items.
fn continued(text: &str) -> Option<&str> {
    let head = text.split_once("\"items\"").map_or(text, |(head, _)| head);
    let (_, rest) = head.split_once("\"continue\":\"")?;
    rest.split_once('"')
        .map(|(token, _)| token)
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_where_the_next_one_begins() {
        let page = r#"{"kind":"L","metadata":{"resourceVersion":"7","continue":"abc"},"items":[{"continue":"x"}]}"#;
        assert_eq!(continued(page), Some("abc"));
        for last in [
            r#"{"metadata":{},"items":[{"continue":"x"}]}"#,
            r#"{"metadata":{"continue":""},"items":[]}"#,
        ] {
            assert_eq!(continued(last), None, "{last}");
        }
    }

    #[test]
    fn definitions_have_names_of_their_own_and_as_many_fields_as_said() {
        let [first, last] = [0, DEFINITIONS - 1].map(definition);
        assert_ne!(name_of(&first), name_of(&last));
        let fields = &first["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        assert_eq!(fields.as_object().map(serde_json::Map::len), Some(FIELDS));
        assert!(!is_established(&first));
    }
}
