//! What one object's revision cannot tell: namespaces that end, Services' addresses, a disk that is nearly full.

use super::*;
use crate::apiserver::gate::secured::Secured;
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::user::User;
use crate::store::value::testing::as_stored;
use crate::store::{Expect, Revision, Store, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// A memory store that can be full, and that holds what is made and removed under one prefix back.
struct Slow {
    memory: Memory,
    is_full: AtomicBool,
    held_prefix: &'static str,
    /// Permits to pass.
    pass: Semaphore,
    /// Writes that have been held back so far.
    waiting: AtomicUsize,
}

impl Slow {
    fn holding(held_prefix: &'static str) -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(),
            is_full: AtomicBool::new(false),
            held_prefix,
            pass: Semaphore::new(0),
            waiting: AtomicUsize::new(0),
        })
    }

    async fn hold(&self, key: &str) {
        if !self.held_prefix.is_empty() && key.starts_with(self.held_prefix) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.pass.acquire().await.unwrap().forget();
        }
    }
}

#[async_trait]
impl crate::store::around::Around for Slow {
    fn inner(&self) -> &dyn Store {
        &self.memory
    }

    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(StoreError::Full {
                directory: "/data".into(),
                free_mib: 1,
                reserve_mib: 16,
            });
        }
        self.hold(key).await;
        self.memory.put(key, value, expect).await
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        _unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        Store::put(self, key, value, expect).await
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        self.memory.put(key, value, Expect::At(expect)).await
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.hold(key).await;
        self.memory.delete(key, expect).await
    }
}

/// A server with real admission over the store, with namespace `a` and its service account.
async fn secured(store: &Arc<Slow>) -> ApiServer {
    let server = ApiServer::new(Parts {
        store: Arc::clone(store) as Arc<dyn Store>,
        clock: Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: 7,
        gate: Arc::new(Secured::new()),
    })
    .await
    .unwrap();
    let made = post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let account = json!({"metadata": {"name": "default"}});
    assert_eq!(
        post(&server, "/api/v1/namespaces/a/serviceaccounts", &account)
            .await
            .code,
        201
    );
    server
}

#[tokio::test(start_paused = true)]
async fn what_is_begun_before_a_namespace_ends_is_stored_before_it_does() {
    let store = Slow::holding("/registry/configmaps/");
    let server = secured(&store).await;
    let map = config_map("m", json!({}));
    let mut creation = Box::pin(post(&server, MAPS, &map));
    assert!(creation.as_mut().now_or_never().is_none(), "it waits for the store");
    let mut end = Box::pin(delete(&server, "/api/v1/namespaces/a"));
    for _ in 0..100 {
        assert!(
            end.as_mut().now_or_never().is_none(),
            "the namespace ends while something is made in it"
        );
        tokio::task::yield_now().await;
    }
    assert!(get(&server, "/api/v1/namespaces/a").await.body["metadata"]["deletionTimestamp"].is_null());
    let later = config_map("later", json!({}));
    let mut refused = Box::pin(post(&server, MAPS, &later));
    assert!(refused.as_mut().now_or_never().is_none());
    store.pass.add_permits(10);
    assert_eq!(creation.await.code, 201);
    assert_eq!(end.await.body["status"]["phase"], "Terminating");
    let refused = refused.await;
    assert_eq!(
        (refused.code, &refused.body["message"]),
        (
            403,
            &json!(
                "configmaps \"later\" is forbidden: unable to create new content in namespace a because it is being terminated"
            )
        )
    );
    let cause = &refused.body["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["field"]),
        (&json!("NamespaceTerminating"), &json!("metadata.namespace"))
    );
    assert_eq!(get(&server, MAPS).await.body["items"].as_array().unwrap().len(), 1);
}

const SERVICES: &str = "/api/v1/namespaces/a/services";

fn node_port(name: &str, port: u16) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}})
}

#[tokio::test(start_paused = true)]
async fn an_invalid_service_keeps_no_port_and_no_address() {
    let server = secured(&Slow::holding("")).await;
    let mut invalid = node_port("bad", 30_080);
    invalid["spec"]["sessionAffinity"] = json!("Nonsense");
    invalid["spec"]["clusterIP"] = json!("10.96.0.77");
    assert_eq!(post(&server, SERVICES, &invalid).await.code, 422);
    let mut valid = node_port("good", 30_080);
    valid["spec"]["clusterIP"] = json!("10.96.0.77");
    let made = post(&server, SERVICES, &valid).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

#[tokio::test(start_paused = true)]
async fn requests_at_once_never_share_a_port_or_an_address() {
    let store = Slow::holding("");
    let server = secured(&store).await;
    let create = |name: &'static str| {
        let server = server.clone();
        async move {
            let service = json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "clusterIP": "10.96.0.9",
                "ports": [{"port": 80, "nodePort": 30_001}]}});
            post(&server, SERVICES, &service).await.code
        }
    };
    let mut codes = futures::future::join_all(["a", "b", "c"].map(create)).await;
    codes.sort_unstable();
    assert_eq!(codes, [201, 422, 422]);

    for (name, port) in [("d", 30_010), ("e", 30_011)] {
        assert_eq!(post(&server, SERVICES, &node_port(name, port)).await.code, 201);
    }
    let change = |name: &'static str| {
        let server = server.clone();
        async move {
            let ports = json!({"spec": {"ports": [{"port": 80, "nodePort": 30_500}]}});
            patch(&server, &format!("{SERVICES}/{name}"), "merge", &ports)
                .await
                .code
        }
    };
    let mut codes = futures::future::join_all(["d", "e"].map(change)).await;
    codes.sort_unstable();
    assert_eq!(codes, [200, 422]);
}

#[tokio::test(start_paused = true)]
async fn a_nearly_full_disk_still_takes_every_step_of_a_deletion() {
    let store = Slow::holding("");
    let server = secured(&store).await;
    assert_eq!(post(&server, PODS, &pod("p")).await.code, 201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(post(&server, &format!("{PODS}/p/binding"), &binding).await.code, 201);
    let mut held = config_map("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(post(&server, MAPS, &held).await.code, 201);
    store.is_full.store(true, Ordering::SeqCst);

    let refused = post(&server, MAPS, &config_map("m", json!({}))).await;
    assert_eq!(refused.code, 500, "{}", refused.body);
    let grow = json!({"data": {"k": "v"}});
    assert_eq!(patch(&server, &format!("{MAPS}/held"), "merge", &grow).await.code, 500);
    // A pod's graceful end: the mark, the kubelet's last word, the removal.
    let marked = delete(&server, &format!("{PODS}/p")).await;
    assert_eq!(
        (marked.code, &marked.body["metadata"]["deletionGracePeriodSeconds"]),
        (200, &json!(30))
    );
    let last = json!({"status": {"phase": "Succeeded", "message": "it has ended"}});
    assert_eq!(
        patch(&server, &format!("{PODS}/p/status"), "merge", &last).await.code,
        200
    );
    let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    assert_eq!(
        send(&server, "DELETE", &format!("{PODS}/p"), &[], Some(&now))
            .await
            .code,
        200
    );
    // What a finalizer holds, and what gets smaller.
    assert_eq!(delete(&server, &format!("{MAPS}/held")).await.code, 200);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(patch(&server, &format!("{MAPS}/held"), "merge", &free).await.code, 200);
    assert_eq!(delete(&server, "/api/v1/namespaces/a").await.code, 200);
    assert_eq!(get(&server, &format!("{MAPS}/held")).await.code, 404);
    assert_eq!(get(&server, &format!("{PODS}/p")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_waits_for_keeps_its_turn() {
    let store = Slow::holding("/registry/services/specs/");
    let server = secured(&store).await;
    let service = node_port("a", 30_080);
    let mut given_up = Box::pin(post(&server, SERVICES, &service));
    assert!(given_up.as_mut().now_or_never().is_none());
    while store.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(given_up);
    let service = node_port("b", 30_080);
    let mut other = Box::pin(post(&server, SERVICES, &service));
    for _ in 0..100 {
        assert!(other.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(
        store.waiting.load(Ordering::SeqCst),
        1,
        "the port is not decided about twice"
    );
    store.pass.add_permits(10);
    assert_eq!(other.await.code, 422);
    assert_eq!(get(&server, &format!("{SERVICES}/a")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_does_not_end_before_a_write_that_nobody_waits_for() {
    let store = Slow::holding("/registry/configmaps/");
    let server = secured(&store).await;
    let map = config_map("m", json!({}));
    let mut given_up = Box::pin(post(&server, MAPS, &map));
    assert!(given_up.as_mut().now_or_never().is_none());
    while store.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(given_up);
    let mut end = Box::pin(delete(&server, "/api/v1/namespaces/a"));
    for _ in 0..100 {
        assert!(end.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    store.pass.add_permits(10);
    assert_eq!(end.await.body["status"]["phase"], "Terminating");
    assert_eq!(get(&server, MAPS).await.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_too_large_once_complete_is_refused_and_one_that_is_stored_can_lose_its_finalizers() {
    let store = Slow::holding("");
    let server = secured(&store).await;
    const REVISIONS: &str = "/apis/apps/v1/namespaces/a/controllerrevisions";
    let large = |fill: usize| json!({"metadata": {"name": "r", "finalizers": ["example.com/hold"]}, "revision": 1, "data": {"k": "x".repeat(fill)}});
    let empty = serde_json::to_vec(&large(0)).unwrap().len();
    let refused = post(&server, REVISIONS, &large((3 << 20) - 100 - empty)).await;
    assert_eq!(
        (refused.code, &refused.body["message"]),
        (413, &json!("Request entity too large: limit is 3145728"))
    );
    // As the store of an older version may have it.
    let mut old = large((3 << 20) - 100 - empty);
    old["metadata"]["uid"] = json!("u".repeat(300));
    old["metadata"]["namespace"] = json!("a");
    old["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let key = "/registry/controllerrevisions/a/r";
    let bytes = as_stored(key, &old);
    assert!(bytes.len() > 3 << 20);
    store.put(key, bytes, Expect::Absent).await.unwrap();
    let path = format!("{REVISIONS}/r");
    assert_eq!(delete(&server, &path).await.code, 200);
    let grow = json!({"metadata": {"labels": {"l": "x"}}});
    assert_eq!(patch(&server, &path, "merge", &grow).await.code, 413);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(patch(&server, &path, "merge", &free).await.code, 200);
    assert_eq!(get(&server, &path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_removed_outright_is_gone_for_readers_before_its_turn_ends() {
    let store = Slow::holding("");
    let server = secured(&store).await;
    let bare = json!({"metadata": {"name": "b", "uid": "b", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let key = "/registry/namespaces/b";
    store.put(key, as_stored(key, &bare), Expect::Absent).await.unwrap();
    let answer = delete(&server, "/api/v1/namespaces/b").await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let seen = server.reader().window_of("", "namespaces").unwrap().cached();
    assert!(!seen.objects.contains_key("/registry/namespaces/b"));
}

#[tokio::test(start_paused = true)]
async fn a_patch_of_a_service_is_made_before_its_turn_and_again_if_the_service_has_changed() {
    let server = secured(&Slow::holding("")).await;
    assert_eq!(post(&server, SERVICES, &node_port("a", 30_080)).await.code, 201);
    let path = format!("{SERVICES}/a");
    let turn = server.write_locks().write_service().await;
    let nonsense = json!([{"op": "test", "path": "/metadata/name", "value": "b"}]);
    assert_eq!(patch(&server, &path, "json", &nonsense).await.code, 422);
    let add = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}]);
    let mut waiting = Box::pin(patch(&server, &path, "json", &add));
    for _ in 0..100 {
        assert!(waiting.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    // Beside the turn, as nobody else may.
    let stored = get(&server, &path).await.body;
    let mut other = stored.clone();
    other["metadata"]["annotations"] = json!({"b": "2"});
    let revision = stored["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let key = "/registry/services/specs/a/a";
    let bytes = as_stored(key, &other);
    server.store().put(key, bytes, Expect::At(revision)).await.unwrap();
    drop(turn);
    let both = waiting.await.body;
    assert_eq!(
        (&both["metadata"]["labels"], &both["metadata"]["annotations"]),
        (&json!({"a": "1"}), &json!({"b": "2"}))
    );
}

/// A user whose other requests take long keeps nobody's Services waiting.
#[tokio::test(start_paused = true)]
async fn a_large_patch_has_its_users_turn_before_it_waits_for_the_services_lock() {
    let server = secured(&Slow::holding("")).await;
    assert_eq!(post(&server, SERVICES, &node_port("a", 30_080)).await.code, 201);
    let path = format!("{SERVICES}/a");
    let (user, info) = (User::named("tenant", &["system:masters"]), update_of(&path));
    let lock = server.write_locks().write_service().await;
    let first = server.flow().heavy(&user, &info).await.ok().unwrap();
    let label = json!({"metadata": {"annotations": {"a": "x".repeat(70 << 10)}}});
    let request = Request::patch(&path).header("content-type", "application/merge-patch+json");
    let request = request.body(body::full(serde_json::to_vec(&label).unwrap())).unwrap();
    let mut waiting = server.handle(Some(user.clone()), request);
    for _ in 0..100 {
        assert!(waiting.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(first);
    while server.flow().heavy(&user, &info).now_or_never().is_some() {
        assert!(waiting.as_mut().now_or_never().is_none(), "the lock is held");
        tokio::task::yield_now().await;
    }
    let mut other = get(&server, &path).await.body;
    other["metadata"]["annotations"] = json!({"b": "2"});
    let revision = other["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let key = "/registry/services/specs/a/a";
    let bytes = as_stored(key, &other);
    server.store().put(key, bytes, Expect::At(revision)).await.unwrap();
    // With the turn its user has, and no other: it would wait for itself.
    drop(lock);
    assert_eq!(waiting.await.status(), 200);
    let both = get(&server, &path).await.body;
    assert_eq!(both["metadata"]["annotations"]["b"], "2", "it was made again");
    assert!(both["metadata"]["annotations"]["a"].is_string());
}

fn update_of(path: &str) -> RequestInfo {
    RequestInfo::parse(&http::Method::PATCH, path, &Query::default())
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_many_that_nobody_waits_for_finishes_the_one_in_hand() {
    let store = Slow::holding("/registry/configmaps/");
    let server = secured(&store).await;
    store.pass.add_permits(3);
    for name in ["k", "l", "m"] {
        assert_eq!(post(&server, MAPS, &config_map(name, json!({}))).await.code, 201);
    }
    let request = Request::builder().method("DELETE").uri(MAPS);
    let request = request.body(crate::apiserver::body::empty()).unwrap();
    let mut given_up = server.handle(None, request);
    let begun = store.waiting.load(Ordering::SeqCst);
    while store.waiting.load(Ordering::SeqCst) == begun {
        assert!(given_up.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(given_up);
    assert_eq!(
        server.inflight(),
        (0, 1),
        "its place is kept until the deletion is done"
    );
    store.pass.add_permits(10);
    while server.inflight() != (0, 0) {
        tokio::task::yield_now().await;
    }
    let left = get(&server, MAPS).await.body;
    let left: Vec<&Value> = left["items"].as_array().unwrap().iter().collect();
    assert_eq!(left.len(), 2, "one was in hand, and the next was not begun");
}
