//! What the ConfigMap says, and the notes of uses, over a server in memory.

use super::*;
use crate::apiserver::Parts;
use crate::store::memory::Memory;
use client::{Clock, TokioClock};
use std::sync::Arc;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

#[test]
fn the_day_is_said_once() {
    let (is_new, made) = wanted(None, now()).unwrap();
    assert_eq!((is_new, &made["data"]), (true, &json!({"since": "2026-01-02"})));
    for (data, is_kept) in [
        (json!({"since": "2025-06-07"}), true),
        (json!({"since": "2025-06-7"}), false),
        (json!({"since": "long ago"}), false),
        (Value::Null, false),
    ] {
        let there = json!({"metadata": {"name": TRACKING_NAME, "resourceVersion": "7"}, "data": data});
        let found = wanted(Some(&there), now());
        assert_eq!(found.is_none(), is_kept, "{data}");
        if let Some((is_new, mended)) = found {
            assert!(!is_new);
            assert_eq!(mended["data"]["since"], "2026-01-02");
            assert_eq!(mended["metadata"]["resourceVersion"], "7");
        }
    }
}

async fn server() -> ApiServer {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(now()));
    let parts = Parts {
        store: Arc::new(Memory::new()),
        clock,
        seed: 1,
        gate: Arc::new(crate::apiserver::gate::Open),
    };
    ApiServer::new(parts).await.unwrap()
}

async fn read(server: &ApiServer, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
    server.reader().refresh().await.unwrap();
    server.reader().get("", resource, namespace, name)
}

#[tokio::test(start_paused = true)]
async fn the_config_map_is_made_and_made_again_after_half_an_hour() {
    let server = server().await;
    let client = server.client_as(apiserver());
    let mut made_at = None;
    let there = async || read(&server, "configmaps", TRACKING_NAMESPACE, TRACKING_NAME).await;
    assert!(look(&server, &client, &mut made_at).await);
    assert_eq!(there().await.unwrap()["data"]["since"], "2026-01-02");
    assert!(look(&server, &client, &mut made_at).await, "nothing is to be done");
    let path = format!("/api/v1/namespaces/{TRACKING_NAMESPACE}/configmaps/{TRACKING_NAME}");
    assert!(
        send(
            &client,
            Method::DELETE,
            path,
            &json!({"kind": "DeleteOptions", "apiVersion": "v1"})
        )
        .await
    );
    assert!(there().await.is_none());
    assert!(!look(&server, &client, &mut made_at).await, "it was made a moment ago");
    assert!(there().await.is_none());
    tokio::time::advance(Duration::from_secs(1800)).await;
    assert!(look(&server, &client, &mut made_at).await);
    assert!(there().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_use_is_written_to_the_secret_it_was_of() {
    let server = server().await;
    let client = server.client_as(apiserver());
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "default"}});
    assert!(
        send(
            &client,
            Method::POST,
            "/api/v1/namespaces/default/secrets".to_owned(),
            &secret
        )
        .await
    );
    let made = read(&server, "secrets", "default", "s").await.unwrap();
    let used = |uid: &str| Use {
        namespace: "default".to_owned(),
        secret: "s".to_owned(),
        uid: uid.to_owned(),
    };
    note(&server, &client, &used("another")).await;
    let label =
        async || read(&server, "secrets", "default", "s").await.unwrap()["metadata"]["labels"][LAST_USED].clone();
    assert_eq!(label().await, Value::Null, "that was another Secret of this name");
    note(&server, &client, &used(made["metadata"]["uid"].as_str().unwrap())).await;
    assert_eq!(label().await, "2026-01-02");
}
