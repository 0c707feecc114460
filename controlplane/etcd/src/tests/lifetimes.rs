//! What goes by itself.

use super::*;
use crate::Lifetime;
use proto::etcd::{LeaseRevokeRequest, RangeRequest};

const EVENTS: Lifetime = Lifetime {
    prefix: "/registry/events/",
    after: Duration::from_secs(1),
};

async fn lease(etcd: &Etcd, key: &str) -> i64 {
    let request = RangeRequest {
        key: etcd.keys.theirs(key),
        ..RangeRequest::default()
    };
    etcd.rpc.range(request).await.unwrap().kvs[0].lease
}

#[tokio::test]
async fn events_go_by_themselves_and_nothing_else_does() {
    let cluster = Cluster::start(1);
    let etcd = Etcd::open(cluster.options())
        .await
        .unwrap()
        .with_lifetimes(&[EVENTS], Box::new(|_| ()));
    let put = async |key: &str| etcd.put(key, Bytes::from_static(b"v"), Expect::Absent).await.unwrap();
    let stays = put("/registry/pods/a").await;
    let goes = put("/registry/events/a").await;
    assert!(lease(&etcd, "/registry/events/a").await != 0 && lease(&etcd, "/registry/pods/a").await == 0);
    let mut steps = etcd.follow(goes).await.unwrap();
    let step = next(&mut steps).await.unwrap();
    assert_eq!(
        (&*step.changes[0].key, step.changes[0].value.is_none()),
        ("/registry/events/a", true)
    );
    assert_eq!(etcd.get("/registry/events/a").await.unwrap(), None);
    assert_eq!(etcd.get("/registry/pods/a").await.unwrap().unwrap().modified, stays);
}

/// As after a machine stood still for longer than a lease lasts.
#[tokio::test]
async fn a_lease_that_is_over_is_replaced() {
    let cluster = Cluster::start(1);
    let hour = Lifetime {
        after: Duration::from_secs(3600),
        ..EVENTS
    };
    let (tell, told) = std::sync::mpsc::channel();
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    let etcd = etcd.with_lifetimes(&[hour], Box::new(move |values| tell.send(values).unwrap()));
    let put = async |key: &str| etcd.put(key, Bytes::from_static(b"v"), Expect::Absent).await;
    put("/registry/events/a").await.unwrap();
    put("/registry/events/b").await.unwrap();
    let id = lease(&etcd, "/registry/events/a").await;
    assert_eq!(lease(&etcd, "/registry/events/b").await, id, "one serves both");
    let revoke = etcd
        .rpc
        .lease(|mut client| async move { client.lease_revoke(LeaseRevokeRequest { id }).await });
    revoke.await.unwrap();
    put("/registry/events/a").await.unwrap();
    let other = lease(&etcd, "/registry/events/a").await;
    assert!(other != 0 && other != id);
    // With the one that found the lease gone.
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [3]);
    assert_eq!(etcd.get("/registry/events/b").await.unwrap(), None);
}
