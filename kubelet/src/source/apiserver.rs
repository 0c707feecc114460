//! Pods bound to this node at the API server.

use super::Delivered;
use client::informer::{Informer, Options};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Delivers the node's pods, mirror pods among them, from the first complete list on, until shut down.
pub async fn run(
    client: kube::Client,
    node: String,
    seed: u64,
    pods: watch::Sender<Delivered>,
    shutdown: CancellationToken,
) {
    let options = Options {
        labels: String::new(),
        fields: format!("spec.nodeName={node}"),
        seed,
    };
    let informer: Informer<Pod> = Informer::spawn_as_tree(Api::all(client), options);
    let mut changes = informer.subscribe();
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return,
        () = informer.synced() => {}
    }
    loop {
        pods.send_replace(Some(informer.list()));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = changes.next() => {}
        }
    }
}
