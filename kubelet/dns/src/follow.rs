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

/// What may be taken before questions get a turn: the work of so many endpoints. (One change is never parted.)
const AT_ONCE: usize = 2048;
/// What a change is beside the endpoints it brings or moves.
const CHANGE: usize = 16;

/// Puts a change into the index, and says how many endpoints that is about.
struct Taking<K> {
    set: fn(&mut Index, &Change<K>),
    endpoints: fn(&Index, &Change<K>) -> usize,
}

impl<K> Clone for Taking<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Taking<K> {}

const SERVICES: Taking<Service> = Taking {
    set: set_service,
    endpoints: |index, change| index.endpoints(&change.key.namespace, &change.key.name),
};
const SLICES: Taking<EndpointSlice> = Taking {
    set: set_slice,
    endpoints: |_, change| {
        let sides = [&change.old, &change.new].into_iter().flatten();
        // An endpoint may have a hundred addresses, each of which is one here.
        let all = sides.flat_map(|slice| slice.endpoints.iter().flatten());
        all.map(|endpoint| endpoint.addresses.len()).sum()
    },
};
const NAMESPACES: Taking<Namespace> = Taking {
    set: set_namespace,
    endpoints: |_, _| 0,
};
const PODS: Taking<Pod> = Taking {
    set: set_pod,
    endpoints: |_, _| 0,
};

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
    let mut service_changes = first(&server, &services, SERVICES).await;
    let mut slice_changes = first(&server, &slices, SLICES).await;
    let mut namespace_changes = first(&server, &namespaces, NAMESPACES).await;
    let mut pod_changes = match &pods {
        Some(pods) => Some(first(&server, pods, PODS).await),
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
            changes = service_changes.next() => apply(&server, changes, SERVICES).await,
            changes = slice_changes.next() => apply(&server, changes, SLICES).await,
            changes = namespace_changes.next() => apply(&server, changes, NAMESPACES).await,
            changes = next(&mut pod_changes) => apply(&server, changes, PODS).await,
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
async fn first<K: Object>(server: &Server, informer: &Informer<K>, taking: Taking<K>) -> Subscription<K> {
    informer.synced().await;
    let mut changes = informer.subscribe();
    apply(server, changes.take(), taking).await;
    changes
}

async fn apply<K>(server: &Server, changes: Vec<Change<K>>, taking: Taking<K>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut left = &changes[..];
    while !left.is_empty() {
        // Serial numbers go round (RFC 1982).
        let taken = take_some(&mut server.index.borrow_mut(), left, taking, now.as_secs() as u32);
        left = &left[taken..];
        tokio::task::yield_now().await;
    }
}

/// Takes the first of some changes, as many as are taken at once, and says how many those are: one at least.
fn take_some<K>(index: &mut Index, changes: &[Change<K>], taking: Taking<K>, serial: u32) -> usize {
    index.serial = serial;
    let mut left = AT_ONCE;
    for (number, change) in changes.iter().enumerate() {
        if left == 0 {
            return number;
        }
        left = left.saturating_sub(CHANGE + (taking.endpoints)(index, change));
        (taking.set)(index, change);
    }
    changes.len()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::tests::{index, slice};
    use client::Key;
    use serde_json::json;
    use std::sync::Arc;

    fn change<K>(name: &str, new: K) -> Change<K> {
        Change {
            key: Key::new("default", name),
            old: None,
            new: Some(Arc::new(new)),
        }
    }

    #[test]
    fn much_is_taken_a_few_at_a_time() {
        let mut index = index();
        let endpoints = || json!(vec![json!({"addresses": ["10.244.9.9"]}); 1000]);
        let slices: Vec<_> = (0..10)
            .map(|number| format!("large-{number}"))
            .map(|name| {
                change(
                    &name,
                    slice("default", "headless", &name, "IPv4", json!([]), endpoints()),
                )
            })
            .collect();
        assert_eq!(take_some(&mut index, &slices, SLICES, 1), 3);
        assert_eq!(take_some(&mut index, &slices[3..], SLICES, 1), 3);
        // What follows from a service follows for all of them.
        let service: Service = serde_json::from_value(json!({"spec": {"clusterIP": "None"}})).unwrap();
        let services = vec![change("headless", service); 3];
        assert_eq!(take_some(&mut index, &services, SERVICES, 1), 1);
        // Of what is small there are many, and never none.
        let namespaces: Vec<_> = (0..300)
            .map(|number| change(&number.to_string(), Namespace::default()))
            .collect();
        assert_eq!(take_some(&mut index, &namespaces, NAMESPACES, 1), AT_ONCE / CHANGE);
        assert_eq!(take_some(&mut index, &namespaces[..5], NAMESPACES, 1), 5);
    }
}
