//! Writes whose answers get lost, under the roles that controllers have.

use super::*;
use crate::controller::execute::{Applied, execute_once};
use crate::controller::write::{PODS, Verb, Write};
use client::Key;

/// A controller's client whose first creation is done and not answered.
fn forgetful(world: &World, name: &str) -> kube::Client {
    let inner = world.server.client_as(User::service_account("kube-system", name));
    let mut loses = true;
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let inner = inner.clone();
        let is_lost = request.method() == http::Method::POST && std::mem::take(&mut loses);
        async move {
            let reply = inner.send(request).await.map_err(std::io::Error::other)?;
            match is_lost {
                true => Err(std::io::Error::other("the connection broke")),
                false => Ok(reply),
            }
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn who_may_create_pods_finds_one_whose_answer_was_lost() {
    let world = World::start(0).await;
    world
        .until("/api/v1/namespaces/default/serviceaccounts/default", Value::is_object)
        .await;
    let path = "/api/v1/namespaces/default/pods";
    let names = [
        "daemon-set-controller",
        "replicaset-controller",
        "replication-controller",
    ];
    for (bits, name) in (1..).zip(names) {
        let body = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"generateName": "web-", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let write = Write::new(PODS, Key::new("default", ""), Verb::Create(body));
        let applied = execute_once(&forgetful(&world, name), &write, || bits).await.unwrap();
        let Applied::At { key, revision } = applied else {
            panic!("{applied:?}")
        };
        assert!(revision > 0, "{name}");
        assert!(world.get(&format!("{path}/{}", key.name)).await.is_some());
    }
    assert_eq!(world.items(path).await.len(), names.len());
}
