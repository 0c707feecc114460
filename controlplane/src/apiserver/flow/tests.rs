//! Floods by one user, as the others see them: a server over a memory store, by order and not by the clock.

use crate::apiserver::gate::{Gate, Open};
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::status::ApiError;
use crate::apiserver::user::User;
use crate::apiserver::{ApiServer, Body, Parts, Reader, body};
use crate::resource::flow_defaults;
use crate::store::memory::Memory;
use crate::store::value::testing::as_stored;
use crate::store::{Expect, Store};
use async_trait::async_trait;
use bytes::Bytes;
use client::TokioClock;
use futures::FutureExt;
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The user is the header `x-user`, with the group after a slash.
struct ByHeader;

#[async_trait]
impl Gate for ByHeader {
    fn beneath(&self) -> Option<&dyn Gate> {
        Some(&Open)
    }

    async fn authenticate(
        &self,
        parts: &http::request::Parts,
        _: Option<&[CertificateDer<'static>]>,
        _: &Reader,
    ) -> Result<User, ApiError> {
        let header = parts.headers.get("x-user").ok_or_else(ApiError::unauthorized)?;
        let (name, group) = header.to_str().unwrap().split_once('/').unwrap();
        Ok(User::named(name, &[group]))
    }
}

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const NODE: &str = "system:node:n/system:nodes";

mod levels;

/// With upstream's schemas and levels; each has its name as its uid.
async fn server() -> ApiServer {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let store = Memory::new();
    for mut object in flow_defaults::flow_schemas() {
        object["metadata"]["uid"] = object["metadata"]["name"].clone();
        put(&store, flow_defaults::SCHEMAS, &object).await;
    }
    for mut object in flow_defaults::priority_levels() {
        object["metadata"]["uid"] = object["metadata"]["name"].clone();
        put(&store, flow_defaults::LEVELS, &object).await;
    }
    ApiServer::new(Parts {
        store: Arc::new(store),
        clock: Arc::new(TokioClock::starting_at(start)),
        seed: 7,
        gate: Arc::new(ByHeader),
    })
    .await
    .unwrap()
}

/// Writes an object over the one there is.
async fn put(store: &dyn Store, plural: &str, object: &Value) {
    let key = format!("/registry/{plural}/{}", object["metadata"]["name"].as_str().unwrap());
    let (_, found) = store.range(&key).await.unwrap();
    let expected = found.iter().find(|record| *record.key == *key);
    let expected = expected.map_or(Expect::Absent, |record| Expect::At(record.modified));
    store.put(&key, as_stored(&key, object), expected).await.unwrap();
}

/// Config maps of 10 kB each.
async fn fill(server: &ApiServer, count: usize) {
    fill_with(server, count, 10_000).await;
}

async fn fill_with(server: &ApiServer, count: usize, bytes: usize) {
    for number in 0..count {
        let name = format!("{number:05}");
        let object = json!({"metadata": {"name": name, "namespace": "a"}, "data": {"k": "x".repeat(bytes)}});
        let key = format!("/registry/configmaps/a/{name}");
        let bytes = as_stored(&key, &object);
        server.store().put(&key, bytes, Expect::Absent).await.unwrap();
    }
    server.reader().refresh().await.unwrap();
}

async fn ask(server: &ApiServer, user: &str, method: &str, path: &str, body: Body) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("x-user", user);
    server.handle(None, request.body(body).unwrap()).await
}

async fn renew(server: &ApiServer) -> u16 {
    let lease = json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "n"}, "spec": {}});
    let body = body::full(serde_json::to_vec(&lease).unwrap());
    let response = ask(server, NODE, "PUT", &format!("{LEASES}/n"), body).await;
    response.status().as_u16()
}

/// A body of which one byte comes and no second.
fn endless() -> Body {
    let first = futures::stream::iter([Bytes::from_static(b"{")]);
    body::stream(futures::StreamExt::chain(first, futures::stream::pending()))
}

#[tokio::test(start_paused = true)]
async fn who_sends_slowly_holds_up_nobody_and_not_for_ever() {
    let server = server().await;
    let start = Instant::now();
    let slow: Vec<_> = (0..700)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { ask(&server, "slow/x", "POST", MAPS, endless()).await.status().as_u16() })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(server.inflight(), (0, 0), "a place is taken once the body is there");
    assert!(matches!(renew(&server).await, 200 | 201));
    let body = body::full(serde_json::to_vec(&json!({"metadata": {"name": "m"}})).unwrap());
    assert_eq!(ask(&server, "jane/x", "POST", MAPS, body).await.status(), 201);
    assert_eq!(start.elapsed(), Duration::ZERO, "nobody waited");
    for one in slow {
        assert!(matches!(one.await.unwrap(), 429 | 504));
    }
    assert!(start.elapsed() <= Duration::from_secs(61));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_user_leaves_the_others_served() {
    let server = server().await;
    fill(&server, 20).await;
    let start = Instant::now();
    // Replies that nobody reads keep their requests' places.
    let mut unread = Vec::new();
    let mut refused = 0;
    let mut waiting = Vec::new();
    for _ in 0..400 {
        let mut one = Box::pin({
            let server = server.clone();
            async move { ask(&server, "flood/x", "GET", MAPS, body::empty()).await }
        });
        match one.as_mut().now_or_never() {
            Some(response) if response.status() == 200 => unread.push(response),
            Some(response) => {
                assert_eq!(response.status(), 429);
                assert_eq!(response.headers()["retry-after"], "1");
                let text = response.into_body().collect().await.unwrap().to_bytes();
                let status: Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(status["reason"], "TooManyRequests");
                assert_eq!(status["message"], "Too many requests, please try again later.");
                assert_eq!(status["details"]["retryAfterSeconds"], 1);
                refused += 1;
            }
            None => waiting.push(one),
        }
    }
    // Half of the places, and half of its six queues.
    assert_eq!((unread.len(), waiting.len(), refused), (25, 6 * 25, 225));
    let janes = ask(&server, "jane/x", "GET", MAPS, body::empty()).await;
    assert_eq!(janes.status(), 200);
    assert!(matches!(renew(&server).await, 200 | 201));
    assert_eq!(start.elapsed(), Duration::ZERO, "nobody else waited");
    assert_eq!(server.inflight(), (26, 0), "jane has not read hers either");
    drop((unread, janes));
    for one in waiting {
        assert_eq!(one.await.status(), 200, "places go to who waits");
    }
    assert_eq!(server.inflight(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_200_stalled_readers_hold_is_bounded_and_given_back() {
    let server = server().await;
    fill_with(&server, 100, 50_000).await;
    let list_bytes = 100 * 50_000;
    let readers: Vec<_> = (0..200)
        .map(|number| {
            let server = server.clone();
            tokio::spawn(async move {
                let user = format!("u{}/x", number % 20);
                let mut response = ask(&server, &user, "GET", MAPS, body::empty()).await;
                // One piece of the list, and no more.
                if response.status() == 200 {
                    response.body_mut().frame().await.unwrap().unwrap();
                }
                response
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let held = server.flow().reply_bytes();
    assert!(held > 10 * list_bytes && held <= 128 << 20, "{held}");
    assert!(matches!(renew(&server).await, 200 | 201));
    let mut codes = std::collections::BTreeMap::new();
    let mut stalled = Vec::new();
    for reader in readers {
        let response = reader.await.unwrap();
        *codes.entry(response.status().as_u16()).or_insert(0) += 1;
        stalled.push(response);
    }
    assert!(codes.keys().all(|code| matches!(code, 200 | 429)), "{codes:?}");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(server.flow().reply_bytes(), 0);
    assert_eq!(server.inflight(), (0, 0));
    let first = stalled.into_iter().find(|one| one.status() == 200).unwrap();
    assert!(
        first.into_body().collect().await.is_err(),
        "a list that was cut off never looks complete"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_whole_and_in_pieces() {
    let server = server().await;
    fill(&server, 100).await;
    for accept in [
        "application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/yaml",
    ] {
        let request = Request::get(MAPS).header("x-user", "jane/x").header("accept", accept);
        let response = server.handle(None, request.body(body::empty()).unwrap()).await;
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= 64 << 10);
            text.extend_from_slice(&piece);
        }
        if accept == "application/yaml" {
            continue;
        }
        let list: Value = serde_json::from_slice(&text).unwrap();
        let items = list.get("items").or(list.get("rows")).unwrap();
        assert_eq!(items.as_array().unwrap().len(), 100, "{accept}");
        assert!(list["metadata"]["resourceVersion"].is_string());
    }
    assert_eq!((server.inflight(), server.flow().reply_bytes()), ((0, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_many_begins_with_room_for_its_answer_or_not_at_all() {
    let server = server().await;
    fill_with(&server, 100, 50_000).await;
    // 5 MB each, of 32 MiB for one user.
    let mut lists = Vec::new();
    for _ in 0..6 {
        lists.push(ask(&server, "jane/x", "GET", MAPS, body::empty()).await);
    }
    let refused = ask(&server, "jane/x", "DELETE", MAPS, body::empty()).await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (429, &http::HeaderValue::from_static("1"))
    );
    let maps = server.store().range("/registry/configmaps/").await.unwrap().1;
    assert_eq!(maps.len(), 100);
    drop(lists);
    let start = Instant::now();
    let response = ask(&server, "jane/x", "DELETE", MAPS, body::empty()).await;
    assert_eq!((response.status().as_u16(), start.elapsed()), (200, Duration::ZERO));
    assert!(server.flow().reply_bytes() > 5_000_000, "what is being sent is counted");
    assert!(
        server
            .store()
            .range("/registry/configmaps/")
            .await
            .unwrap()
            .1
            .is_empty()
    );
    drop(response);
    assert_eq!(server.flow().reply_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn watches_are_counted_and_the_state_they_begin_with_takes_a_place() {
    let server = server().await;
    fill(&server, 100).await;
    let path = format!("{MAPS}?watch=1");
    let mut first = ask(&server, "jane/x", "GET", &path, body::empty()).await;
    assert_eq!(server.inflight(), (1, 0));
    // The end of the state is noticed when more is asked for than there is.
    let second = Duration::from_secs(1);
    while let Ok(Some(_)) = tokio::time::timeout(second, first.body_mut().frame()).await {}
    assert_eq!(server.inflight(), (0, 0));
    let later = format!("{MAPS}?watch=1&resourceVersion=100");
    let mut watches = Vec::new();
    for _ in 1..1_000 {
        let watch = ask(&server, "jane/x", "GET", &later, body::empty()).await;
        assert_eq!(watch.status(), 200);
        watches.push(watch);
    }
    assert_eq!(server.inflight(), (0, 0));
    let beyond = ask(&server, "jane/x", "GET", &later, body::empty()).await;
    assert_eq!(beyond.status(), 429);
    let other = ask(&server, "joe/x", "GET", &later, body::empty()).await;
    assert_eq!(other.status(), 200);
    watches.pop();
    let again = ask(&server, "jane/x", "GET", &later, body::empty()).await;
    assert_eq!(again.status(), 200);
}

/// Whatever else they do: documents are made once, and the turns of a user's heavy requests have nothing to do with them.
#[tokio::test(start_paused = true)]
async fn sixty_requests_at_once_for_an_openapi_document_are_answered_while_their_users_turn_is_taken() {
    let server = server().await;
    let path = "/openapi/v3/apis/apps/v1";
    let info = RequestInfo::parse(&http::Method::GET, path, &Query::default());
    let turn = server.flow().heavy(&User::named("ci", &["x"]), &info).await;
    let asks = (0..60).map(|_| async {
        let answer = ask(&server, "ci/x", "GET", path, body::empty()).await;
        (
            answer.status().as_u16(),
            answer.into_body().collect().await.unwrap().to_bytes().len(),
        )
    });
    for (code, bytes) in join_all(asks).await {
        assert_eq!(code, 200);
        assert!(bytes > 100_000, "{bytes}");
    }
    drop(turn);
}

/// Reading, judging and writing down a large object takes long, in whatever encoding it is: nobody else waits for it.
#[tokio::test(start_paused = true)]
async fn a_large_object_is_written_in_its_users_turn_and_a_small_one_is_not() {
    let server = server().await;
    let info = RequestInfo::parse(&http::Method::POST, MAPS, &Query::default());
    let of = |name: &str, bytes: usize| {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name},
            "data": {"a": "x".repeat(bytes)}});
        body::full(object.to_string())
    };
    let turn = server.flow().heavy(&User::named("ci", &["x"]), &info).await;
    let large = ask(&server, "ci/x", "POST", MAPS, of("large", 100_000)).await;
    assert_eq!(large.status(), 429);
    let small = ask(&server, "ci/x", "POST", MAPS, of("small", 10)).await;
    assert_eq!(small.status(), 201);
    let other = ask(&server, "joe/x", "POST", MAPS, of("other", 100_000)).await;
    assert_eq!(other.status(), 201);
    // What is at stake is told by what watches have been told, which a read waits for.
    let seen = ask(&server, "joe/x", "GET", &format!("{MAPS}/other"), body::empty()).await;
    assert_eq!(seen.status(), 200);
    // Small as it is, the change makes a large object.
    let change = ask(&server, "ci/x", "PUT", &format!("{MAPS}/other"), of("other", 10)).await;
    assert_eq!(change.status(), 429);
    drop(turn);
    let large = ask(&server, "ci/x", "POST", MAPS, of("large", 100_000)).await;
    assert_eq!(large.status(), 201);
}

/// What is no resource takes places, too; whether the server lives is always told.
#[tokio::test(start_paused = true)]
async fn a_flood_of_what_is_no_resource_is_bounded_and_probes_are_answered() {
    let server = server().await;
    for path in ["/apis", "/version", "/openapi/v2"] {
        let mut unread = Vec::new();
        for _ in 0..25 {
            unread.push(ask(&server, "flood/x", "GET", path, body::empty()).await);
        }
        let start = Instant::now();
        assert_eq!(server.inflight(), (25, 0), "{path}");
        let mut more = Box::pin(ask(&server, "flood/x", "GET", path, body::empty()));
        assert!(more.as_mut().now_or_never().is_none(), "{path}");
        ask(&server, "jane/x", "GET", "/apis", body::empty()).await;
        ask(&server, "flood/x", "GET", "/livez", body::empty()).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "{path}: nobody else waited");
        drop(unread);
        drop(more.await);
        assert_eq!(server.inflight(), (0, 0), "{path}");
    }
}
