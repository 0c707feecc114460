//! Tokens of service accounts in Secrets: filled, gone with their account, cleaned when nobody uses them.

use super::*;
use crate::controller::event::Recorder;
use crate::controller::harness::{self, Environment};
use crate::controller::informers::Informers;
use crate::controller::legacy_token::clean::Unused;
use crate::controller::legacy_token::{Sign, Subject};
use crate::metrics::QueueMetrics;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Tokens that say whose they are.
pub(super) fn sign() -> Sign {
    Arc::new(|subject: &Subject| Ok(format!("{}/{}", subject.account, subject.secret)))
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": name}})
}

fn secret(name: &str, of: &str) -> Value {
    json!({"kind": "Secret", "apiVersion": "v1", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": of}}})
}

#[tokio::test(start_paused = true)]
async fn tokens_are_filled_and_go_with_their_account() {
    let world = World::start(0).await;
    let robot = world.create(ACCOUNTS, account("robot")).await;
    world.create(SECRETS, secret("t", "robot")).await;
    let path = format!("{SECRETS}/t");
    let filled = world.until(&path, |secret| secret["data"]["token"].is_string()).await;
    // robot/t, default, PEM.
    assert_eq!(
        filled["data"],
        json!({"token": "cm9ib3QvdA==", "namespace": "ZGVmYXVsdA==", "ca.crt": "UEVN"})
    );
    assert_eq!(
        filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
        robot["metadata"]["uid"]
    );
    // The CA follows; the token stays.
    world.root_ca_pem.send_replace("NEW".to_owned());
    let renewed = world.until(&path, |secret| secret["data"]["ca.crt"] == "TkVX").await;
    assert_eq!(renewed["data"]["token"], filled["data"]["token"]);
    // An account that names a Secret of its own forgets it when it goes.
    world.create(SECRETS, secret("u", "robot")).await;
    let named = json!({"secrets": [{"name": "u"}]});
    world.patch(&format!("{ACCOUNTS}/robot"), named).await;
    world
        .until(&format!("{SECRETS}/u"), |secret| secret["data"]["token"].is_string())
        .await;
    world.call("DELETE", &format!("{SECRETS}/u"), None).await.unwrap();
    world
        .until(&format!("{ACCOUNTS}/robot"), |robot| robot["secrets"].is_null())
        .await;
    world.call("DELETE", &format!("{ACCOUNTS}/robot"), None).await.unwrap();
    world.until(&path, Value::is_null).await;
    // Nobody's is nobody's.
    world.create(SECRETS, secret("v", "nobody")).await;
    world.until(&format!("{SECRETS}/v"), Value::is_null).await;
}

/// Runs the cleaner, and nothing else, at another time.
fn clean_at(world: &World, now: &str) -> CancellationToken {
    let name = <Unused as harness::Controller>::NAME;
    let client = world.server.client_as(User::service_account("kube-system", name));
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(now.parse().unwrap()));
    let informers = Informers::spawn(&world.client, 9, Kept::Asked);
    let shutdown = CancellationToken::new();
    let environment = Environment {
        recorder: Recorder::spawn(client.clone(), clock.clone(), name),
        client,
        informers: informers.clone(),
        clock: clock.clone(),
        metrics: QueueMetrics::default(),
        shutdown: shutdown.clone(),
    };
    tokio::spawn(harness::run(Unused::new(informers, clock), environment));
    shutdown
}

#[tokio::test(start_paused = true)]
async fn tokens_that_nobody_uses_are_marked_and_then_deleted() {
    let world = World::start(0).await;
    let mut robot = account("robot");
    robot["secrets"] = json!([{"name": "made"}, {"name": "mounted"}]);
    world.create(ACCOUNTS, robot).await;
    for name in ["made", "mounted", "own"] {
        world.create(SECRETS, secret(name, "robot")).await;
        world
            .until(&format!("{SECRETS}/{name}"), |secret| {
                secret["data"]["token"].is_string()
            })
            .await;
    }
    let volume = json!({"name": "t", "secret": {"secretName": "mounted"}});
    world
        .create(
            "/api/v1/namespaces/default/pods",
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "image": "nginx"}], "volumes": [volume]}}),
        )
        .await;
    let tracking = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"since": "2026-01-01"},
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking"}});
    world
        .create("/api/v1/namespaces/kube-system/configmaps", tracking)
        .await;
    let label = "kubernetes.io/legacy-token-invalid-since";
    let path = format!("{SECRETS}/made");
    let first = clean_at(&world, "2028-03-01T00:00:00Z");
    world
        .until(&path, |secret| secret["metadata"]["labels"][label] == "2028-03-01")
        .await;
    first.cancel();
    let second = clean_at(&world, "2029-03-03T00:00:00Z");
    world.until(&path, Value::is_null).await;
    second.cancel();
    for kept in ["mounted", "own"] {
        let secret = world.get(&format!("{SECRETS}/{kept}")).await.unwrap();
        assert!(secret["metadata"]["labels"].is_null(), "{secret:#}");
    }
}
