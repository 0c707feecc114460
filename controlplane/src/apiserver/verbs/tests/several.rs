//! Two API servers over one store, one of which may be behind: what neither's locks nor memory can promise holds all the same.

use super::custom::{DEFINITIONS, LIONS, define, definition, lion};
use super::*;
use crate::apiserver::gate::secured::Secured;
use crate::apiserver::port_claims::Taken;
use crate::store::{Expect, Record, Revision, Steps, Store, StoreError};
use async_trait::async_trait;
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

const SERVICES: &str = "/api/v1/namespaces/a/services";

const ADDRESSES: &str = "/registry/ipaddresses/";

/// A shared store whose followers see nothing new while it is told so.
struct Delayed {
    memory: Arc<Memory>,
    flows: watch::Sender<bool>,
    /// The next IPAddress that is made here is removed by somebody else at once.
    robs: AtomicBool,
}

impl Delayed {
    fn over(memory: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            flows: watch::Sender::new(true),
            robs: AtomicBool::new(false),
        })
    }
}

#[async_trait]
impl crate::store::around::Around for Delayed {
    fn inner(&self) -> &dyn Store {
        &*self.memory
    }

    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        let made = self.memory.put(key, value, expect).await?;
        if key.starts_with(ADDRESSES) && self.robs.swap(false, Ordering::Relaxed) {
            self.memory.delete(key, made).await?;
        }
        Ok(made)
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        let (steps, flows) = (self.memory.follow(after).await?, self.flows.subscribe());
        let delayed = steps.then(move |step| {
            let mut flows = flows.clone();
            async move {
                let _ = flows.wait_for(|flows| *flows).await;
                step
            }
        });
        Ok(delayed.boxed())
    }
}

/// A server with real admission over the store. All choose alike.
async fn over(store: Arc<dyn Store>, seed: u64) -> ApiServer {
    let parts = Parts {
        store,
        clock: Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed,
        gate: Arc::new(Secured::giving("10.96.0.0/24")),
    };
    ApiServer::new(parts).await.unwrap()
}

/// Two servers, the second of which can be held behind, with namespace `a`.
async fn two() -> ([ApiServer; 2], Arc<Delayed>) {
    let memory = Arc::new(Memory::shared());
    let delayed = Delayed::over(&memory);
    let first = over(Arc::clone(&memory) as Arc<dyn Store>, 7).await;
    let second = over(Arc::clone(&delayed) as Arc<dyn Store>, 8).await;
    let made = post(&first, "/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    ([first, second], delayed)
}

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    json_patch::merge(&mut service, &json!({"spec": spec}));
    service
}

/// Address and node port.
fn held(reply: &Reply) -> (String, u64) {
    let spec = &reply.body["spec"];
    let port = spec["ports"][0]["nodePort"].as_u64();
    (
        spec["clusterIP"].as_str().unwrap_or_default().to_owned(),
        port.unwrap_or_default(),
    )
}

async fn marked(server: &ApiServer) -> BTreeSet<u64> {
    let taken = Taken::read(&**server.store()).await.unwrap();
    taken.ports.into_iter().map(u64::from).collect()
}

#[tokio::test(start_paused = true)]
async fn what_two_servers_choose_at_once_is_never_the_same() {
    let (servers, _) = two().await;
    let mut made = Vec::new();
    for round in 0..20 {
        let writes = servers.iter().zip(0..).map(|(server, number)| async move {
            post(server, SERVICES, &service(&format!("s{round}-{number}"), json!({}))).await
        });
        made.extend(join_all(writes).await);
    }
    for reply in &made {
        assert_eq!(reply.code, 201, "{}", reply.body);
    }
    let all: Vec<_> = made.iter().map(held).collect();
    let addresses: BTreeSet<&String> = all.iter().map(|(address, _)| address).collect();
    let ports: BTreeSet<u64> = all.iter().map(|(_, port)| *port).collect();
    assert_eq!((addresses.len(), ports.len()), (40, 40));
    assert_eq!(marked(&servers[0]).await, ports);
    let names: Vec<&str> = made
        .iter()
        .filter_map(|reply| reply.body["metadata"]["name"].as_str())
        .collect();
    for (number, name) in names.iter().enumerate() {
        let gone = delete(&servers[number % 2], &format!("{SERVICES}/{name}")).await;
        assert_eq!(gone.code, 200, "{}", gone.body);
    }
    assert!(marked(&servers[0]).await.is_empty());
    let left = get(&servers[1], "/apis/networking.k8s.io/v1/ipaddresses").await;
    assert_eq!(left.body["items"], json!([]));
}

/// Begins a request at a server that is behind, lets it go as far as it comes, and lets the server catch up.
async fn behind<T>(delayed: &Delayed, request: impl Future<Output = T>) -> T {
    let mut request = Box::pin(request);
    for _ in 0..100 {
        if let Some(done) = request.as_mut().now_or_never() {
            return done;
        }
        tokio::task::yield_now().await;
    }
    delayed.flows.send_replace(true);
    request.await
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_and_had_by_another_is_refused_by_who_has_not_seen_it() {
    let ([first, second], delayed) = two().await;
    get(&second, SERVICES).await;
    for (asked, why) in [
        (json!({"clusterIP": "10.96.0.77"}), "provided IP is already allocated"),
        (
            json!({"ports": [{"port": 80, "nodePort": 30077}]}),
            "provided port is already allocated",
        ),
    ] {
        delayed.flows.send_replace(false);
        let made = post(&first, SERVICES, &service("s", asked.clone())).await;
        assert_eq!(made.code, 201, "{}", made.body);
        let before = marked(&first).await;
        let refused = behind(&delayed, post(&second, SERVICES, &service("t", asked.clone()))).await;
        assert_eq!(refused.code, 422, "{}", refused.body);
        assert!(
            refused.body["message"].as_str().unwrap().contains(why),
            "{}",
            refused.body
        );
        assert_eq!(marked(&first).await, before, "what was claimed beside it is free again");
        // Also where a Service asks that is there already.
        assert_eq!(post(&second, SERVICES, &service("u", json!({}))).await.code, 201);
        let wish = json!({"spec": {"ports": [{"port": 80, "nodePort": held(&made).1}]}});
        let changed = patch(&second, &format!("{SERVICES}/u"), "merge", &wish).await;
        assert_eq!(changed.code, 422, "{}", changed.body);
        for name in ["s", "u"] {
            assert_eq!(delete(&second, &format!("{SERVICES}/{name}")).await.code, 200);
        }
        assert!(marked(&first).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn of_one_name_made_at_both_the_first_keeps_what_it_holds() {
    let ([first, second], delayed) = two().await;
    get(&second, SERVICES).await;
    delayed.flows.send_replace(false);
    let asked = service("s", json!({"clusterIP": "10.96.0.77"}));
    let made = post(&first, SERVICES, &asked).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let again = behind(&delayed, post(&second, SERVICES, &asked)).await;
    assert_eq!(again.code, 409, "{}", again.body);
    let address = get(&first, "/apis/networking.k8s.io/v1/ipaddresses/10.96.0.77").await;
    assert_eq!(address.body["spec"]["parentRef"]["name"], "s");
    assert_eq!(marked(&first).await, BTreeSet::from([held(&made).1]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_in_a_namespace_that_ends_at_another_server() {
    let ([first, second], delayed) = two().await;
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/a/serviceaccounts";
    assert_eq!(post(&second, accounts, &account).await.code, 201);
    delayed.flows.send_replace(false);
    assert_eq!(delete(&first, "/api/v1/namespaces/a").await.code, 200);
    let refused = behind(&delayed, post(&second, MAPS, &config_map("m", json!({})))).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(get(&first, MAPS).await.body["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_only_changed_takes_what_is_made() {
    let ([first, second], delayed) = two().await;
    get(&second, "/api/v1/namespaces/a").await;
    delayed.flows.send_replace(false);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(patch(&first, "/api/v1/namespaces/a", "merge", &label).await.code, 200);
    let made = behind(&delayed, post(&second, MAPS, &config_map("m", json!({})))).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_of_a_definition_that_ends_at_another_server() {
    let ([first, second], delayed) = two().await;
    define(&first, &definition()).await;
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    let kept = json!({"metadata": {"finalizers": ["test.example/kept"]}});
    assert_eq!(patch(&first, &path, "merge", &kept).await.code, 200);
    let made = post(&first, LIONS, &lion("kept", &json!({"name": "kept"}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    // Until the other serves it, too.
    for _ in 0..200 {
        if get(&second, LIONS).await.code == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    delayed.flows.send_replace(false);
    assert_eq!(delete(&first, &path).await.code, 200);
    let refused = behind(&delayed, post(&second, LIONS, &lion("late", &json!({"name": "late"})))).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    assert!(get(&first, &format!("{LIONS}/late")).await.code == 404);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_in_a_namespace_that_is_gone_at_another_server() {
    let ([first, second], delayed) = two().await;
    get(&second, "/api/v1/namespaces/a").await;
    delayed.flows.send_replace(false);
    remove(&first, "/registry/namespaces/a").await;
    let refused = behind(&delayed, post(&second, MAPS, &config_map("m", json!({})))).await;
    assert_eq!(refused.code, 404, "{}", refused.body);
    let (_, left) = first.store().range("/registry/configmaps/a/").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_of_a_definition_that_is_gone_at_another_server() {
    let ([first, second], delayed) = two().await;
    define(&first, &definition()).await;
    for _ in 0..200 {
        if get(&second, LIONS).await.code == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    delayed.flows.send_replace(false);
    let definition = "/registry/apiextensions.k8s.io/customresourcedefinitions/lions.zoo.example";
    remove(&first, definition).await;
    let refused = behind(&delayed, post(&second, LIONS, &lion("late", &json!({"name": "late"})))).await;
    assert_eq!(refused.code, 404, "{}", refused.body);
    let (_, left) = first.store().range("/registry/zoo.example/").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// Removes what is under a key, as the last step of its deletion does.
async fn remove(server: &ApiServer, key: &str) {
    let (_, records) = server.store().range(key).await.unwrap();
    let record = records.iter().find(|record| *record.key == *key).unwrap();
    server.store().delete(key, record.modified).await.unwrap();
}

async fn address_of(server: &ApiServer, ip: &str) -> Option<Record> {
    let (_, records) = server.store().range(&format!("{ADDRESSES}{ip}")).await.unwrap();
    records.into_iter().next()
}

#[tokio::test(start_paused = true)]
async fn a_services_end_leaves_what_was_claimed_under_its_name_since() {
    let ([first, _], _) = two().await;
    for is_claimed in [false, true] {
        let asked = service("s", json!({"clusterIP": "10.96.0.77"}));
        let made = post(&first, SERVICES, &asked).await;
        assert_eq!(made.code, 201, "{}", made.body);
        if is_claimed {
            let held = address_of(&first, "10.96.0.77").await.unwrap();
            let claim = first.store().put(&held.key, held.value, Expect::At(held.modified));
            claim.await.unwrap();
        }
        let gone = delete(&first, &format!("{SERVICES}/s")).await;
        assert_eq!(gone.code, 200, "{}", gone.body);
        assert_eq!(address_of(&first, "10.96.0.77").await.is_some(), is_claimed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_is_written_only_while_its_addresses_are_still_claimed() {
    let ([_, second], delayed) = two().await;
    let asked = json!({"clusterIP": "10.96.0.77"});
    delayed.robs.store(true, Ordering::Relaxed);
    let made = post(&second, SERVICES, &service("s", asked.clone())).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert!(!delayed.robs.load(Ordering::Relaxed));
    assert!(address_of(&second, "10.96.0.77").await.is_some());
    assert_eq!(marked(&second).await, BTreeSet::from([held(&made).1]));
    // Also where one comes to a Service that is there.
    let named = json!({"metadata": {"name": "t"}, "spec": {"type": "ExternalName", "externalName": "a.example"}});
    assert_eq!(post(&second, SERVICES, &named).await.code, 201);
    delayed.robs.store(true, Ordering::Relaxed);
    let wish = json!({"spec": {
        "type": "ClusterIP", "externalName": null, "clusterIP": "10.96.0.78", "ports": [{"port": 80}],
    }});
    let changed = patch(&second, &format!("{SERVICES}/t"), "merge", &wish).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    assert!(!delayed.robs.load(Ordering::Relaxed));
    assert!(address_of(&second, "10.96.0.78").await.is_some());
}
