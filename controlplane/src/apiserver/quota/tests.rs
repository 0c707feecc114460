use crate::apiserver::gate::secured::Secured;
use crate::apiserver::{ApiServer, Parts, body};
use crate::store::Store;
use crate::store::memory::Memory;
use client::TokioClock;
use futures::future::join_all;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;

mod locks;
mod refused;

const SPACE: &str = "/api/v1/namespaces/a";

#[derive(Clone)]
struct World {
    server: ApiServer,
}

impl World {
    async fn over(store: Arc<dyn Store>) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = ApiServer::new(Parts {
            store,
            clock: Arc::new(TokioClock::starting_at(start)),
            seed: 7,
            gate: Arc::new(Secured::new()),
        });
        Self {
            server: server.await.unwrap(),
        }
    }

    /// A server with a namespace `a`, and no controllers.
    async fn start() -> Self {
        Self::in_namespace(Arc::new(Memory::new())).await
    }

    async fn in_namespace(store: Arc<dyn Store>) -> Self {
        let world = Self::over(store).await;
        let namespace = json!({"metadata": {"name": "a"}});
        assert_eq!(world.send("POST", "/api/v1/namespaces", &namespace).await.0, 201);
        let account = json!({"metadata": {"name": "default"}});
        assert_eq!(
            world
                .send("POST", &format!("{SPACE}/serviceaccounts"), &account)
                .await
                .0,
            201
        );
        world
    }

    async fn send(&self, method: &str, path: &str, object: &Value) -> (u16, Value) {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content);
        let bytes = if object.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(object).unwrap()
        };
        let response = self.server.handle(None, request.body(body::full(bytes)).unwrap()).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap())
    }

    /// A quota, and a status as its controller would write it.
    async fn quota(&self, name: &str, hard: Value) {
        let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
        let made = self.send("POST", &format!("{SPACE}/resourcequotas"), &quota).await;
        assert_eq!(made.0, 201, "{made:?}");
        let used: serde_json::Map<String, Value> = hard
            .as_object()
            .unwrap()
            .keys()
            .map(|name| (name.clone(), json!("0")))
            .collect();
        self.count(name, &hard, json!(used)).await;
    }

    async fn count(&self, name: &str, hard: &Value, used: Value) {
        let status = json!({"metadata": {"name": name}, "status": {"hard": hard, "used": used}});
        let told = self
            .send("PUT", &format!("{SPACE}/resourcequotas/{name}/status"), &status)
            .await;
        assert_eq!(told.0, 200, "{told:?}");
    }

    async fn used(&self, name: &str) -> Value {
        let (_, quota) = self
            .send("GET", &format!("{SPACE}/resourcequotas/{name}"), &Value::Null)
            .await;
        quota["status"]["used"].clone()
    }

    async fn map(&self, name: &str) -> (u16, Value) {
        let map = json!({"metadata": {"name": name}});
        self.send("POST", &format!("{SPACE}/configmaps"), &map).await
    }

    async fn maps(&self) -> usize {
        let (_, list) = self.send("GET", &format!("{SPACE}/configmaps"), &Value::Null).await;
        list["items"].as_array().unwrap().len()
    }

    async fn pod(&self, name: &str, cpu: &str) -> (u16, Value) {
        let resources = json!({"requests": {"cpu": cpu}});
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": resources}]}});
        self.send("POST", &format!("{SPACE}/pods"), &pod).await
    }
}

fn why(reply: &(u16, Value)) -> &str {
    reply.1["message"].as_str().unwrap_or_default()
}

/// Who counts here never sees an object: what it writes must not make room that is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn as_many_are_made_as_the_quota_allows_whoever_counts_meanwhile() {
    for (allowed, asked) in [(7, 40), (0, 10), (25, 25)] {
        let world = World::start().await;
        let hard = json!({"count/configmaps": allowed.to_string(), "secrets": "0"});
        world.quota("q", hard.clone()).await;
        world.quota("other", json!({"configmaps": "1000"})).await;
        let making = (0..asked).map(|number| {
            let world = world.clone();
            tokio::spawn(async move { world.map(&format!("m{number}")).await })
        });
        let counting = (0..20).map(|_| {
            let (world, hard) = (world.clone(), hard.clone());
            tokio::spawn(async move {
                world
                    .count("q", &hard, json!({"count/configmaps": "0", "secrets": "0"}))
                    .await;
                (200, Value::Null)
            })
        });
        let all: Vec<_> = making.chain(counting).collect();
        let done = join_all(all).await;
        let codes: Vec<u16> = done.iter().map(|reply| reply.as_ref().unwrap().0).collect();
        assert_eq!(codes.iter().filter(|code| **code == 201).count(), allowed, "{codes:?}");
        assert_eq!(codes.iter().filter(|code| **code == 403).count(), asked - allowed);
        assert_eq!(world.maps().await, allowed);
        let wanted = json!({"count/configmaps": allowed.to_string(), "secrets": "0"});
        assert_eq!(world.used("q").await, wanted);
        assert_eq!(world.used("other").await, json!({"configmaps": allowed.to_string()}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_starts_again_goes_on_from_what_was_charged() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let first = World::over(Arc::clone(&store)).await;
    first
        .send("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "a"}}))
        .await;
    first.quota("q", json!({"configmaps": "2"})).await;
    assert_eq!(first.map("one").await.0, 201);
    drop(first);
    let second = World::over(store).await;
    assert_eq!(second.map("two").await.0, 201);
    let refused = second.map("three").await;
    assert_eq!(
        why(&refused),
        "configmaps \"three\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_not_stored_is_not_charged() {
    let world = World::start().await;
    world.quota("q", json!({"configmaps": "3"})).await;
    assert_eq!(world.map("m").await.0, 201);
    assert_eq!(world.map("m").await.0, 409);
    assert_eq!(world.used("q").await["configmaps"], "1");
    let dry = format!("{SPACE}/configmaps?dryRun=All");
    assert_eq!(
        world.send("POST", &dry, &json!({"metadata": {"name": "d"}})).await.0,
        201
    );
    assert_eq!(world.used("q").await["configmaps"], "1");
    world
        .count("q", &json!({"configmaps": "1"}), json!({"configmaps": "1"}))
        .await;
    assert_eq!(
        world.send("POST", &dry, &json!({"metadata": {"name": "d"}})).await.0,
        403
    );
    assert_eq!(world.map("other").await.0, 403);
    assert_eq!(world.used("q").await["configmaps"], "1");
}

#[tokio::test(start_paused = true)]
async fn one_quota_that_refuses_charges_no_other() {
    let world = World::start().await;
    world.quota("a", json!({"configmaps": "5"})).await;
    world.quota("b", json!({"count/configmaps": "1"})).await;
    assert_eq!(world.map("one").await.0, 201);
    assert_eq!(world.map("two").await.0, 403);
    assert_eq!(world.used("a").await, json!({"configmaps": "1"}));
    assert_eq!(world.used("b").await, json!({"count/configmaps": "1"}));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_service_is_charged_what_it_adds() {
    let world = World::start().await;
    world
        .quota("q", json!({"services": "1", "services.nodeports": "1"}))
        .await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 80}]}});
    let services = format!("{SPACE}/services");
    assert_eq!(world.send("POST", &services, &service).await.0, 201);
    let one = format!("{services}/s");
    assert_eq!(
        world
            .send("PATCH", &one, &json!({"spec": {"type": "NodePort"}}))
            .await
            .0,
        200
    );
    assert_eq!(
        world.used("q").await,
        json!({"services": "1", "services.nodeports": "1"})
    );
    let ports = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let refused = world.send("PATCH", &one, &ports).await;
    assert_eq!(
        why(&refused),
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: \
         services.nodeports=1"
    );
    assert_eq!(
        world
            .send("PATCH", &one, &json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .0,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_resize_is_charged_what_it_adds() {
    let world = World::start().await;
    world.quota("q", json!({"pods": "2", "requests.cpu": "1"})).await;
    let unsaid = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refused = world.send("POST", &format!("{SPACE}/pods"), &unsaid).await;
    assert_eq!(
        why(&refused),
        "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
    assert_eq!(world.pod("p", "600m").await.0, 201);
    let resize = |cpu: &str| {
        let requests = json!({"requests": {"cpu": cpu}});
        json!({"spec": {"containers": [{"name": "c", "resources": requests}]}})
    };
    let path = format!("{SPACE}/pods/p/resize");
    let (code, mut pod) = world.send("GET", &path, &Value::Null).await;
    assert_eq!(code, 200);
    pod["spec"]["containers"][0]["resources"] = resize("900m")["spec"]["containers"][0]["resources"].clone();
    let done = world.send("PUT", &path, &pod).await;
    assert_eq!(done.0, 200, "{done:?}");
    assert_eq!(world.used("q").await, json!({"pods": "1", "requests.cpu": "900m"}));
    let mut pod = done.1;
    pod["spec"]["containers"][0]["resources"] = resize("1100m")["spec"]["containers"][0]["resources"].clone();
    let refused = world.send("PUT", &path, &pod).await;
    assert_eq!(
        why(&refused),
        "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=200m, used: requests.cpu=900m, limited: requests.cpu=1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_never_says_less_than_what_is_stored() {
    let world = World::start().await;
    for name in ["one", "two"] {
        assert_eq!(world.pod(name, "100m").await.0, 201);
        assert_eq!(world.map(name).await.0, 201);
    }
    let hard = json!({"pods": "9", "requests.cpu": "9", "count/configmaps": "9", "services": "9"});
    world.quota("q", hard.clone()).await;
    let there = json!({"pods": "2", "requests.cpu": "200m", "count/configmaps": "2", "services": "0"});
    assert_eq!(world.used("q").await, there);
    let more = json!({"pods": "5", "requests.cpu": "1", "count/configmaps": "0", "services": "3"});
    world.count("q", &hard, more).await;
    let told = json!({"pods": "5", "requests.cpu": "1", "count/configmaps": "2", "services": "3"});
    assert_eq!(world.used("q").await, told);
    let done = world
        .send("DELETE", &format!("{SPACE}/configmaps/one"), &Value::Null)
        .await;
    assert_eq!(done.0, 200);
    world
        .count(
            "q",
            &hard,
            json!({"pods": "0", "requests.cpu": "0", "count/configmaps": "0", "services": "0"}),
        )
        .await;
    let there = json!({"pods": "2", "requests.cpu": "200m", "count/configmaps": "1", "services": "0"});
    assert_eq!(world.used("q").await, there);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_about_others_than_before_is_to_be_counted_anew() {
    let world = World::start().await;
    world.quota("q", json!({"pods": "3"})).await;
    let path = format!("{SPACE}/resourcequotas/q");
    let label = json!({"metadata": {"labels": {"l": "x"}}});
    assert_eq!(world.send("PATCH", &path, &label).await.0, 200);
    assert_eq!(world.used("q").await, json!({"pods": "0"}));
    let rules = json!([{"scopeName": "NotBestEffort", "operator": "Exists"}]);
    let selector = json!({"spec": {"scopeSelector": {"matchExpressions": rules}}});
    assert_eq!(world.send("PATCH", &path, &selector).await.0, 200);
    assert_eq!(world.used("q").await, Value::Null);
    let refused = world.pod("p", "1").await;
    assert!(
        why(&refused).ends_with("status unknown for quota: q, resources: pods"),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_quota_is_waited_for_until_it_has_been_counted() {
    let world = World::start().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}});
    assert_eq!(
        world.send("POST", &format!("{SPACE}/resourcequotas"), &quota).await.0,
        201
    );
    let refused = world.map("m").await;
    assert_eq!(
        (refused.0, why(&refused)),
        (
            403,
            "configmaps \"m\" is forbidden: status unknown for quota: q, resources: configmaps"
        )
    );
    assert_eq!(world.pod("p", "1").await.0, 201, "the quota is not about pods");
    let making = {
        let world = world.clone();
        tokio::spawn(async move { world.map("m").await })
    };
    world
        .count("q", &json!({"configmaps": "1"}), json!({"configmaps": "0"}))
        .await;
    assert_eq!(making.await.unwrap().0, 201);
    assert_eq!(world.used("q").await["configmaps"], "1");
}

#[tokio::test(start_paused = true)]
async fn events_are_never_counted() {
    let world = World::start().await;
    world
        .quota("q", json!({"count/events": "0", "count/configmaps": "0"}))
        .await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "a", "kind": "Pod", "name": "p"},
        "reason": "R", "type": "Normal"});
    let made = world.send("POST", &format!("{SPACE}/events"), &event).await;
    assert_eq!(made.0, 201, "{made:?}");
}
