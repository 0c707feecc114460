use super::*;
use std::time::Duration;
use tokio::time::Instant;

/// A watch being read line by line.
pub(super) struct Watch {
    body: body::Body,
    buffer: Vec<u8>,
}

impl Watch {
    async fn open(server: &ApiServer, path: &str, accept: &str) -> Self {
        let request = Request::get(path).header("accept", accept).body(body::empty()).unwrap();
        let response = raw(server, request).await;
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }

    pub(super) async fn json(server: &ApiServer, path: &str) -> Self {
        Self::open(server, path, "application/json").await
    }

    /// The next event; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Type and name of the next event.
    async fn brief(&mut self) -> (String, String) {
        let event = tokio::time::timeout(Duration::from_secs(5), self.next())
            .await
            .unwrap()
            .unwrap();
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

fn brief(what: &str, name: &str) -> (String, String) {
    (what.to_owned(), name.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_read_slowly_ends_at_its_deadline_too() {
    let server = server().await;
    post(&server, MAPS, &config_map("a", json!({}))).await;
    for number in 0..100 {
        let data = json!({"data": {"k": format!("{number}{}", "x".repeat(2000))}});
        patch(&server, &format!("{MAPS}/a"), "merge", &data).await;
    }
    let path = format!("{MAPS}?watch=1&resourceVersion=1&timeoutSeconds=10");
    let mut watch = Watch::json(&server, &path).await;
    let mut written = watch.body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    tokio::time::advance(Duration::from_secs(11)).await;
    // What was written already is handed over; what waits is left.
    while let Some(piece) = watch.body.frame().await {
        written.extend_from_slice(&piece.unwrap().into_data().unwrap());
    }
    let told = written.iter().filter(|byte| **byte == b'\n').count();
    assert!((10..60).contains(&told), "{told} of 101 events");
}

#[tokio::test(start_paused = true)]
async fn a_watch_replays_the_state_and_follows() {
    let server = server().await;
    post(&server, MAPS, &config_map("a", json!({}))).await;
    let mut watch = Watch::json(&server, &format!("{MAPS}?watch=1")).await;
    assert_eq!(watch.brief().await, brief("ADDED", "a"));
    post(&server, MAPS, &config_map("b", json!({}))).await;
    post(
        &server,
        "/api/v1/namespaces/other/configmaps",
        &config_map("x", json!({})),
    )
    .await;
    patch(&server, &format!("{MAPS}/b"), "merge", &json!({"data": {"k": "v"}})).await;
    delete(&server, &format!("{MAPS}/b")).await;
    assert_eq!(watch.brief().await, brief("ADDED", "b"));
    assert_eq!(watch.brief().await, brief("MODIFIED", "b"));
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["data"]["k"], "v", "the last state");
    let revision = server.store().current_revision().await.unwrap().to_string();
    assert_eq!(
        gone["object"]["metadata"]["resourceVersion"],
        json!(revision),
        "the deletion's revision"
    );
    assert_eq!(
        (&gone["object"]["kind"], &gone["object"]["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_revision_sees_only_what_follows() {
    let server = server().await;
    let created = post(&server, MAPS, &config_map("a", json!({}))).await.body;
    let revision = created["metadata"]["resourceVersion"].as_str().unwrap();
    post(&server, MAPS, &config_map("b", json!({}))).await;
    let mut watch = Watch::json(&server, &format!("{MAPS}?watch=1&resourceVersion={revision}")).await;
    assert_eq!(watch.brief().await, brief("ADDED", "b"));
}

#[tokio::test(start_paused = true)]
async fn leaving_and_entering_a_selector_are_deletion_and_creation() {
    let server = server().await;
    let mut watch = Watch::json(&server, &format!("{MAPS}?watch=1&labelSelector=x%3Dy")).await;
    let labels = |value: Value| json!({"metadata": {"labels": {"x": value}}});
    post(&server, MAPS, &config_map("a", json!({}))).await;
    for value in [json!("y"), json!("z"), json!("y")] {
        patch(&server, &format!("{MAPS}/a"), "merge", &labels(value)).await;
    }
    patch(&server, &format!("{MAPS}/a"), "merge", &json!({"data": {"k": "v"}})).await;
    for what in ["ADDED", "DELETED", "ADDED", "MODIFIED"] {
        assert_eq!(watch.brief().await, brief(what, "a"));
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_marked_bookmark() {
    let server = server().await;
    post(&server, MAPS, &config_map("a", json!({}))).await;
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=100";
    let start = Instant::now();
    let mut watch = Watch::json(&server, &format!("{MAPS}?{query}")).await;
    assert_eq!(watch.brief().await, brief("ADDED", "a"));
    let end = watch.next().await.unwrap();
    let revision = server.store().current_revision().await.unwrap().to_string();
    assert_eq!(
        end,
        json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "resourceVersion": revision, "annotations": {"k8s.io/initial-events-end": "true"}}}})
    );
    post(&server, PODS, &pod("p")).await;
    let later = watch.next().await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 60);
    let revision = server.store().current_revision().await.unwrap().to_string();
    assert_eq!(
        later,
        json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"resourceVersion": revision}}}),
        "other resources' revisions count"
    );
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(start.elapsed().as_secs(), 98, "just before the end");
    assert_eq!(watch.next().await, None);
    assert_eq!(start.elapsed().as_secs(), 100);
    for bad in ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"] {
        assert_eq!(get(&server, &format!("{MAPS}?watch=1&{bad}")).await.code, 422, "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn too_old_a_revision_is_one_error_event() {
    let server = server().await;
    let created = post(&server, MAPS, &config_map("a", json!({}))).await.body;
    post(&server, MAPS, &config_map("b", json!({}))).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    let revision = created["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = Watch::json(&server, &format!("{MAPS}?watch=1&resourceVersion={revision}")).await;
    let error = watch.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(error["object"]["reason"], "Expired");
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn table_watches_send_their_columns_once() {
    let server = server().await;
    post(&server, MAPS, &config_map("a", json!({}))).await;
    post(&server, MAPS, &config_map("b", json!({}))).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let mut watch = Watch::open(&server, &format!("{MAPS}?watch=1"), accept).await;
    let first = watch.next().await.unwrap();
    assert!(first["object"]["columnDefinitions"].is_array());
    let second = watch.next().await.unwrap();
    assert!(second["object"]["columnDefinitions"].is_null());
    assert_eq!(second["object"]["rows"].as_array().unwrap().len(), 1);
    let yaml = send(
        &server,
        "GET",
        &format!("{MAPS}?watch=1"),
        &[("accept", "application/yaml")],
        None,
    )
    .await;
    assert_eq!(yaml.code, 406);
}

#[tokio::test(start_paused = true)]
async fn a_client_in_process_lists_and_watches() {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, ListParams, PostParams};
    let server = server().await;
    let client = server.client_as(crate::apiserver::user::User::named("u", &["system:masters"]));
    let maps: Api<ConfigMap> = Api::namespaced(client, "a");
    let object: ConfigMap = serde_json::from_value(config_map("m", json!({"k": "v"}))).unwrap();
    maps.create(&PostParams::default(), &object).await.unwrap();
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].data.as_ref().unwrap()["k"], "v");
}

#[tokio::test(start_paused = true)]
async fn closing_the_server_ends_its_watches() {
    let server = server().await;
    let mut watch = Watch::json(&server, &format!("{MAPS}?watch=1")).await;
    let start = Instant::now();
    server.close();
    assert_eq!(watch.next().await, None);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// (timeoutSeconds, the watch's length in seconds; `None` for a length the server chooses)
#[tokio::test(start_paused = true)]
async fn the_length_of_a_watch_is_bounded_whatever_is_asked_for() {
    let server = server().await;
    for (text, expected) in [
        ("5", Some(5)),
        ("0", None),
        ("-5", Some(0)),
        ("9223372036854775807", Some(24 * 3600)),
        ("18446744073709551", Some(24 * 3600)),
    ] {
        let start = Instant::now();
        let mut watch = Watch::json(&server, &format!("{MAPS}?watch=1&timeoutSeconds={text}")).await;
        assert_eq!(watch.next().await, None);
        let length = start.elapsed().as_secs();
        match expected {
            Some(expected) => assert_eq!(length, expected, "{text}"),
            None => assert!((1800..3600).contains(&length), "{text}: {length}"),
        }
    }
    for verb in ["watch=1&", ""] {
        for text in ["9223372036854775808", "1x", "-9223372036854775809"] {
            let reply = get(&server, &format!("{MAPS}?{verb}timeoutSeconds={text}")).await;
            assert_eq!(reply.code, 400, "{verb}{text}");
        }
    }
    for (text, code) in [
        ("9999999999h", 400),
        ("-1s", 200),
        ("0s", 200),
        ("1000000h", 200),
        ("1e400s", 400),
    ] {
        assert_eq!(
            get(&server, &format!("{MAPS}?timeout={text}")).await.code,
            code,
            "{text}"
        );
    }
}

/// Little is written of what is large: a piece ends by what was read for it, so that others have their turn.
#[tokio::test(start_paused = true)]
async fn the_initial_state_is_made_of_a_share_at_a_time() {
    let server = server().await;
    for number in 0..12 {
        let object = config_map(&format!("m{number:02}"), json!({"k": "x".repeat(100 << 10)}));
        assert_eq!(post(&server, MAPS, &object).await.code, 201);
    }
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let request = Request::get(format!("{MAPS}?watch=1")).header("accept", accept);
    let mut body = raw(&server, request.body(body::empty()).unwrap()).await.into_body();
    let mut events = 0;
    while events < 12 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let count = frame.iter().filter(|byte| **byte == b'\n').count();
        assert!((1..=3).contains(&count), "{count} events");
        events += count;
    }
}

/// Node by node, and by name: whoever watches few objects hears of their coming, changes and going, and of nothing else.
#[tokio::test(start_paused = true)]
async fn watches_of_few_objects_hear_of_those_alone() {
    let server = server().await;
    let on = |name: &str, node: &str| {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = json!(node);
        pod
    };
    let mut node = Watch::json(&server, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1").await;
    let mut waiting = Watch::json(&server, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D").await;
    let mut named = Watch::json(&server, &format!("{PODS}?watch=1&fieldSelector=metadata.name%3Dp3")).await;
    let mut other = Watch::json(&server, "/api/v1/namespaces/b/pods?watch=1").await;
    for (name, of) in [("p1", "n1"), ("p2", "n2"), ("p3", "")] {
        post(&server, PODS, &if of.is_empty() { pod(name) } else { on(name, of) }).await;
    }
    let target = json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "p3"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(post(&server, &format!("{PODS}/p3/binding"), &target).await.code, 201);
    post(&server, "/api/v1/namespaces/b/pods", &pod("p4")).await;
    let event = |what: &str, name: &str| brief(what, name);
    assert_eq!(node.brief().await, event("ADDED", "p1"));
    assert_eq!(node.brief().await, event("ADDED", "p3"));
    assert_eq!(waiting.brief().await, event("ADDED", "p3"));
    assert_eq!(waiting.brief().await, event("DELETED", "p3"));
    assert_eq!(waiting.brief().await, event("ADDED", "p4"));
    assert_eq!(named.brief().await, event("ADDED", "p3"));
    assert_eq!(named.brief().await, event("MODIFIED", "p3"));
    assert_eq!(other.brief().await, event("ADDED", "p4"));
    delete(&server, &format!("{PODS}/p1?gracePeriodSeconds=0")).await;
    assert_eq!(node.brief().await, event("DELETED", "p1"));
}
