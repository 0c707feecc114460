//! From the informers to the index: everything there is before the first answer, and every change after it, a few at a time so that
//! questions are answered between. Without an API server the informers keep what they have, and so does the index.

use crate::Sources;
use crate::index::{Index, PodNames};
use crate::serve::Server;
use client::informer::{Change, Informer, Object, Subscription};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How many changes are taken before questions get a turn.
const AT_ONCE: usize = 128;

/// Keeps the index as the informers are. Never ends.
pub(crate) async fn follow(server: Rc<Server>, sources: Sources) {
    let Sources {
        services,
        slices,
        namespaces,
        pods,
        search: _,
        known: _,
    } = sources;
    let pods = pods.filter(|_| server.index.borrow().shape.pods == PodNames::Verified);
    let mut service_changes = first(&server, &services, set_service).await;
    let mut slice_changes = first(&server, &slices, set_slice).await;
    let mut namespace_changes = first(&server, &namespaces, set_namespace).await;
    let mut pod_changes = match &pods {
        Some(pods) => Some(first(&server, pods, set_pod).await),
        None => None,
    };
    {
        let mut index = server.index.borrow_mut();
        index.shrink();
        index.synced = true;
        tracing::info!(services = index.services(), "cluster DNS knows the cluster");
    }
    loop {
        tokio::select! {
            biased;
            changes = service_changes.next() => apply(&server, changes, set_service).await,
            changes = slice_changes.next() => apply(&server, changes, set_slice).await,
            changes = namespace_changes.next() => apply(&server, changes, set_namespace).await,
            changes = next(&mut pod_changes) => apply(&server, changes, set_pod).await,
        }
    }
}

async fn next(changes: &mut Option<Subscription<Pod>>) -> Vec<Change<Pod>> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

/// Takes everything there is, once that is known.
async fn first<K: Object>(server: &Server, informer: &Informer<K>, set: fn(&mut Index, &Change<K>)) -> Subscription<K> {
    informer.synced().await;
    let mut changes = informer.subscribe();
    apply(server, changes.take(), set).await;
    changes
}

async fn apply<K>(server: &Server, changes: Vec<Change<K>>, set: fn(&mut Index, &Change<K>)) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for changes in changes.chunks(AT_ONCE) {
        // Serial numbers go round (RFC 1982).
        set_all(&mut server.index.borrow_mut(), changes, set, now.as_secs() as u32);
        tokio::task::yield_now().await;
    }
}

fn set_all<K>(index: &mut Index, changes: &[Change<K>], set: fn(&mut Index, &Change<K>), serial: u32) {
    index.serial = serial;
    for change in changes {
        set(index, change);
    }
}

fn set_service(index: &mut Index, change: &Change<Service>) {
    index.set_service(&change.key.namespace, &change.key.name, change.new.as_deref());
}

fn set_slice(index: &mut Index, change: &Change<EndpointSlice>) {
    index.set_slice(change.old.as_deref(), change.new.as_deref());
}

fn set_namespace(index: &mut Index, change: &Change<Namespace>) {
    index.set_namespace(&change.key.name, change.new.is_some());
}

fn set_pod(index: &mut Index, change: &Change<Pod>) {
    index.set_pod(change.old.as_deref(), change.new.as_deref());
}
