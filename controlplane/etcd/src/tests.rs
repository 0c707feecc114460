//! The store over real members: what every backend must do, and what becomes of writes when members die.

use crate::testing::Cluster;
use crate::{Deadlines, Etcd, OpenError};
use bytes::Bytes;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store::{Expect, Revision, Store, StoreError, conformance};

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
