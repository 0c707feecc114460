//! Two control planes over a real etcd, which time is real for, too.

use super::several::Plane;
use super::*;
use crate::store::Expect;
use etcd::testing::Cluster;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

async fn started(number: u8, flags: &[String]) -> Plane {
    let config = Config::resolve(&flags::parse(flags.to_vec())).unwrap();
    let store = stores::open(&config).await.unwrap().store;
    Plane::start_with(number, &store, flags).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_are_one_cluster_and_what_they_leave_behind_goes_by_itself() {
    let cluster = Cluster::start(1);
    let etcd = etcd::Etcd::open(cluster.options()).await.unwrap();
    let upstreams = upstream_data::config_map();
    let put = etcd.put("/registry/configmaps/default/cm", upstreams, Expect::Absent);
    put.await.unwrap();
    let flags = [format!("--etcd-servers={}", cluster.urls().join(","))];
    let (first, second) = (started(1, &flags).await, started(2, &flags).await);
    first.lists(&[1, 2]).await;
    second.lists(&[1, 2]).await;

    let maps = |plane: &Plane| -> Api<ConfigMap> { Api::default_namespaced(plane.client()) };
    let (here, there) = (maps(&first), maps(&second));
    // What upstream's API server wrote is read at one, changed at the other and seen changed at the first, at once.
    assert_eq!(here.get("cm").await.unwrap().data.unwrap()["colour"], "blue");
    let red = Patch::Merge(json!({"data": {"colour": "red"}}));
    let changed = there.patch("cm", &PatchParams::default(), &red).await.unwrap();
    assert_eq!(here.get("cm").await.unwrap(), changed);
    there.delete("cm", &Default::default()).await.unwrap();
    assert_eq!(here.get_opt("cm").await.unwrap(), None);

    let events: Api<Event> = Api::default_namespaced(first.client());
    let event = Event {
        metadata: ObjectMeta {
            name: Some("e".to_owned()),
            ..ObjectMeta::default()
        },
        ..Event::default()
    };
    events.create(&PostParams::default(), &event).await.unwrap();
    let record = |number: u8| {
        let key = format!("/registry/masterleases/192.0.2.{number}");
        let etcd = &etcd;
        async move { etcd.get(&key).await.unwrap() }
    };
    assert!(record(1).await.is_some() && record(2).await.is_some());
    // Nobody is left to take them for dead.
    drop((first, second));
    eventually("both records go", || async {
        record(1).await.is_none() && record(2).await.is_none()
    })
    .await;
    let kept = etcd.get("/registry/events/default/e").await.unwrap();
    assert!(kept.is_some(), "it has an hour");
}
