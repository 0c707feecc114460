//! The store over real members: what every backend must do, and what becomes of writes when members die.

use crate::Etcd;
use crate::testing::Cluster;
use std::sync::Arc;
use store::conformance;

#[tokio::test]
async fn one_member_conforms() {
    let cluster = Cluster::start(1);
    conformance::all(Arc::new(Etcd::open(cluster.options()).await.unwrap())).await;
}

#[tokio::test]
async fn three_members_conform() {
    let cluster = Cluster::start(3);
    conformance::all(Arc::new(Etcd::open(cluster.options()).await.unwrap())).await;
}
