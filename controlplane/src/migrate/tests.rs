mod ends;

use super::*;
use crate::apiserver::user::User;
use crate::config::{Config, flags};
use crate::daemon::{Daemon, Host};
use crate::store::disk::{Disk, moved};
use crate::store::{Expect, Record, Store, StoreError};
use bytes::Bytes;
use client::SystemClock;
use etcd::Etcd;
use etcd::moving::Side;
use etcd::testing::Cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn plan(data_dir: &Path, cluster: &Cluster, replaces: bool) -> Plan {
    Plan {
        store: data_dir.join("store"),
        options: cluster.options(),
        replaces,
    }
}

/// A store with a few records, one of them larger than a transaction of etcd's takes beside others.
async fn written(data_dir: &Path) -> Vec<Record> {
    let disk = Disk::open(data_dir.join("store")).unwrap();
    for number in 0..300 {
        let value = format!("{number}");
        let key = format!("/registry/configmaps/default/{number}");
        disk.put(&key, value.into(), Expect::Absent).await.unwrap();
    }
    disk.put("/skiff/private", vec![7; 1 << 20].into(), Expect::Absent)
        .await
        .unwrap();
    disk.put(
        "/registry/secrets/default/s",
        "k8s:enc:aesgcm:v1:k:x".into(),
        Expect::Absent,
    )
    .await
    .unwrap();
    let (_, records) = disk.range("").await.unwrap();
    disk.close().await;
    records
}

/// What there is but notes of etcd's.
async fn contents(store: &dyn Store) -> Vec<(String, Bytes)> {
    let (_, records) = store.range("").await.unwrap();
    let records = records.into_iter().filter(|record| &*record.key != "/skiff/form");
    let mut contents: Vec<(String, Bytes)> = records.map(|record| (record.key.to_string(), record.value)).collect();
    contents.sort();
    contents
}

fn of(records: &[Record]) -> Vec<(String, Bytes)> {
    let pairs = records
        .iter()
        .map(|record| (record.key.to_string(), record.value.clone()));
    pairs.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_move_into_etcd_and_back_with_ever_higher_revisions() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let records = written(dir.path()).await;
    let newest = records.iter().map(|record| record.modified).max().unwrap();
    let moved = to_etcd::run(&plan(dir.path(), &cluster, false)).await.unwrap();
    assert_eq!((moved.count, moved.encrypted, moved.revision), (302, 1, newest));
    let keys = moved.of_keys().unwrap();
    assert!(
        keys.starts_with("1 of them are encrypted: start it with the same"),
        "{keys}"
    );
    let refused = Disk::open(dir.path().join("store")).err().unwrap().to_string();
    assert!(refused.contains("its objects have been moved to etcd at"), "{refused}");
    let twice = to_etcd::run(&plan(dir.path(), &cluster, true))
        .await
        .unwrap_err()
        .to_string();
    assert!(twice.contains("was moved before"), "{twice}");

    let etcd = Etcd::open(cluster.options()).await.unwrap();
    etcd.note_form().await.unwrap();
    let mut expected = of(&records);
    assert_eq!(contents(&etcd).await, expected);
    let first = etcd.get(&expected[0].0).await.unwrap().unwrap();
    assert!(first.modified > newest);
    let changed = etcd
        .put(&first.key, "new".into(), Expect::At(first.modified))
        .await
        .unwrap();
    expected[0].1 = "new".into();

    let kept = to_disk::run(&plan(dir.path(), &cluster, false))
        .await
        .unwrap_err()
        .to_string();
    assert!(kept.contains("say --replace"), "{kept}");
    etcd.put("/registry/a", "still open".into(), Expect::Absent)
        .await
        .unwrap();
    expected.push(("/registry/a".to_owned(), "still open".into()));
    expected.sort();
    let moved = to_disk::run(&plan(dir.path(), &cluster, true)).await.unwrap();
    assert_eq!(moved.count, 303);
    assert!(moved.revision > changed);
    let refused = etcd.put("/registry/b", "closed".into(), Expect::Absent).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly(why)) if why.contains("moved to")));
    assert!(Etcd::open(cluster.options()).await.is_err());
    let disk = Disk::open(dir.path().join("store")).unwrap();
    assert_eq!(contents(&disk).await, expected);
    let found = disk.get(&first.key).await.unwrap().unwrap();
    assert_eq!(
        (found.created, found.modified),
        (first.created, changed),
        "as etcd told them"
    );
    assert!(disk.current_revision().await.unwrap() > moved.revision);
    assert!(disk.watch("", changed).await.is_err(), "who watched lists again");
    disk.close().await;

    // What was left in etcd goes only if that is said.
    let full = to_etcd::run(&plan(dir.path(), &cluster, false))
        .await
        .unwrap_err()
        .to_string();
    assert!(full.contains("is not empty"), "{full}");
    to_etcd::run(&plan(dir.path(), &cluster, true)).await.unwrap();
    let again = Etcd::open(cluster.options()).await.unwrap();
    assert_eq!(contents(&again).await, expected);
    // Who was there before both moves tells other revisions.
    let refused = etcd.put("/registry/z", "1".into(), Expect::Absent).await;
    assert!(
        matches!(&refused, Err(StoreError::ReadOnly(why)) if why.contains("started again")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_in_use_is_refused_and_both_stay_as_they_are() {
    let cluster = Cluster::start(1);
    let (used, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = written(used.path()).await;
    let of_used = of(&records);
    written(from.path()).await;
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    etcd.put("/registry/a", "1".into(), Expect::Absent).await.unwrap();
    for replaces in [false, true] {
        let full = to_etcd::run(&plan(from.path(), &cluster, replaces))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            full.contains("is not empty: there are objects that no move has left"),
            "{full}"
        );
        let full = to_disk::run(&plan(used.path(), &cluster, replaces))
            .await
            .unwrap_err()
            .to_string();
        assert!(full.ends_with("holds a store already"), "{full}");
    }
    etcd.put("/registry/b", "1".into(), Expect::Absent).await.unwrap();
    for data_dir in [used.path(), from.path()] {
        let disk = Disk::open(data_dir.join("store")).unwrap();
        assert_eq!(contents(&disk).await, of_used);
        disk.close().await;
    }
    let mut elsewhere = plan(from.path(), &cluster, false);
    elsewhere.options.prefix = "/elsewhere".to_owned();
    let bound = format!("{:#}", to_etcd::run(&elsewhere).await.unwrap_err());
    assert!(bound.contains("/registry/secrets/default/s is encrypted"), "{bound}");
    Disk::open(from.path().join("store")).unwrap().close().await;
}

/// What a kill leaves, step by step, and what becomes of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_into_etcd_that_was_cut_off_is_known_and_is_begun_anew_or_finished() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let records = written(dir.path()).await;
    // While records were written.
    let mut target = Side::open(&cluster.options()).await.unwrap();
    target.begin("1", "they come from a disk", 1000, false).await.unwrap();
    target.fill(&of(&records)[..7]).await.unwrap();
    let refused = Etcd::open(cluster.options()).await.err().unwrap().to_string();
    assert!(refused.ends_with("they come from a disk"), "{refused}");
    let unfinished = to_etcd::run(&plan(dir.path(), &cluster, false))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        unfinished.ends_with("say --replace to give up what is there"),
        "{unfinished}"
    );
    Disk::open(dir.path().join("store")).unwrap().close().await;

    // After the source was left, before the target was published.
    target.begin("2", "again", 1000, true).await.unwrap();
    target.fill(&of(&records)).await.unwrap();
    target.whole("2", "all is there").await.unwrap();
    let store = dir.path().join("store");
    let snapshots = crate::store::disk::snapshot::Snapshots::of_closed(&store).unwrap();
    snapshots.hold("it moves").unwrap().leave("2 they are in etcd").unwrap();
    drop(snapshots);
    assert!(Etcd::open(cluster.options()).await.is_err() && Disk::open(&store).is_err());
    assert_eq!(
        to_etcd::run(&plan(dir.path(), &cluster, false)).await.unwrap().count,
        302
    );
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    assert_eq!(contents(&etcd).await, of(&records));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_out_of_etcd_that_was_cut_off_is_begun_anew_or_finished() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    etcd.put("/registry/a", "1".into(), Expect::Absent).await.unwrap();
    // What a kill leaves of the target, before it is whole.
    let next = dir.path().join("store.moving");
    Disk::open(&next).unwrap().close().await;
    let mut source = Side::open(&cluster.options()).await.unwrap();
    let held = source.hold("1", "it moves to a disk").await.unwrap();
    let busy = to_disk::run(&plan(dir.path(), &cluster, false))
        .await
        .unwrap_err()
        .to_string();
    assert!(busy.ends_with("it moves to a disk"), "{busy}");
    Side::release(held).await.unwrap();
    etcd.put("/registry/b", "1".into(), Expect::Absent).await.unwrap();
    let done = to_disk::run(&plan(dir.path(), &cluster, false)).await.unwrap();
    assert_eq!((done.count, done.encrypted), (2, 0));
    assert!(!next.exists());

    // After etcd was left, before the store was in its place.
    std::fs::rename(dir.path().join("store"), &next).unwrap();
    let left = source.mark().await.unwrap().unwrap();
    let unknown = to_disk::run(&plan(dir.path(), &cluster, false)).await;
    assert!(unknown.is_err(), "it is not said to be whole");
    let whole = format!("{} 2 0 {}\n", left.id, done.revision);
    std::fs::write(next.join("whole"), whole.trim_end()).unwrap();
    let cut_off = to_disk::run(&plan(dir.path(), &cluster, false)).await;
    assert!(cut_off.is_err(), "it is not said to the end");
    std::fs::write(next.join("whole"), &whole).unwrap();
    let hidden = Disk::open(dir.path().join("store")).err().unwrap().to_string();
    assert!(hidden.contains("once more"), "{hidden}");
    assert_eq!(to_disk::run(&plan(dir.path(), &cluster, false)).await.unwrap(), done);
    // After that, before the end.
    let store = dir.path().join("store");
    std::fs::create_dir(dir.path().join("store.left")).unwrap();
    std::fs::write(store.join("whole"), &whole).unwrap();
    assert_eq!(to_disk::run(&plan(dir.path(), &cluster, false)).await.unwrap(), done);
    assert!(!dir.path().join("store.left").exists() && !store.join("whole").exists());
    let disk = Disk::open(dir.path().join("store")).unwrap();
    assert_eq!(contents(&disk).await.len(), 2);
    disk.close().await;
}

/// Who moves it dies: the daemon takes writes again.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_refuses_writes_as_long_as_somebody_moves_its_store() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let store = dir.path().join("store");
    let disk = Arc::new(Disk::open(&store).unwrap());
    let snapshots = disk.snapshots();
    let (mut stream, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let giving = std::thread::spawn(move || giving::give(&theirs, &snapshots, ""));
    writeln!(stream, "move 1f it is being moved").unwrap();
    let mut backup = crate::backup::Backup::open_within(BufReader::new(stream.try_clone().unwrap())).unwrap();
    while backup.next_record().unwrap().is_some() {}
    let refused = disk.put("/registry/x", "1".into(), Expect::Absent).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly(why)) if why == "it is being moved"));
    writeln!(stream, "still 1").unwrap();
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    let ended = giving.join().unwrap().unwrap_err().to_string();
    assert!(ended.contains("writes are taken again"), "{ended}");
    disk.put("/registry/x", "1".into(), Expect::Absent).await.unwrap();
    assert_eq!(moved::line(&store).unwrap(), None);

    let snapshots = disk.snapshots();
    let (mut stream, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let giving = std::thread::spawn(move || giving::give(&theirs, &snapshots, ""));
    writeln!(stream, "give me all").unwrap();
    assert!(giving.join().unwrap().is_err());
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "nothing is given");
    disk.put("/registry/y", "1".into(), Expect::Absent).await.unwrap();
    Disk::close_when_alone(disk).await;
}

async fn daemon(data_dir: &Path, store: Arc<dyn Store>) -> Daemon {
    let host = Host {
        clock: Arc::new(SystemClock),
        seed: 7,
        hostname: "host".to_owned(),
        address: "192.0.2.1".parse().unwrap(),
        proc: "/proc".into(),
    };
    let words = [format!("--data-dir={}", data_dir.display())];
    let config = Config::resolve(&flags::parse(words)).unwrap();
    Daemon::embed(&config, host, store).await.unwrap()
}

fn config_maps(daemon: &Daemon) -> Api<ConfigMap> {
    let client = daemon.server().client_as(User::named("root", &["system:masters"]));
    Api::default_namespaced(client)
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_cluster_goes_on_read_only_and_then_over_etcd() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let disk = Arc::new(Disk::open(&store).unwrap());
    let shutdown = CancellationToken::new();
    let serving = giving::serve(store.clone(), disk.snapshots(), String::new(), shutdown.clone());
    let serving = tokio::spawn(serving);
    let over_disk = daemon(dir.path(), Arc::clone(&disk) as Arc<dyn Store>).await;
    let before = config_maps(&over_disk)
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    while !store.join(giving::NAME).exists() {
        tokio::task::yield_now().await;
    }
    let moved = to_etcd::run(&plan(dir.path(), &cluster, false)).await.unwrap();
    let refused = config_maps(&over_disk)
        .create(&PostParams::default(), &config_map("b"))
        .await;
    let Err(kube::Error::Api(refused)) = refused else {
        panic!("nothing is written: {refused:?}");
    };
    assert_eq!((refused.code, &*refused.reason), (503, "ServiceUnavailable"));
    assert!(
        refused
            .message
            .starts_with("the cluster is read-only: its objects have been moved to etcd at"),
        "{}",
        refused.message
    );
    assert!(config_maps(&over_disk).get("a").await.is_ok(), "it is read");
    over_disk.stop().await;
    shutdown.cancel();
    serving.await.unwrap();

    let etcd = Arc::new(Etcd::open(cluster.options()).await.unwrap());
    let over_etcd = daemon(dir.path(), etcd).await;
    let maps = config_maps(&over_etcd);
    let found = maps.get("a").await.unwrap();
    assert_eq!((&found.data, &found.metadata.uid), (&before.data, &before.metadata.uid));
    let version = |object: &ConfigMap| {
        object
            .metadata
            .resource_version
            .clone()
            .unwrap()
            .parse::<Revision>()
            .unwrap()
    };
    assert!(version(&found) > moved.revision && moved.revision >= version(&before));
    let patch = Patch::Merge(json!({"data": {"k": "w"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert!(version(&patched) > version(&found));
    let since = before.metadata.resource_version.unwrap();
    let old = ListParams::default()
        .at(&since)
        .matching(kube::api::VersionMatch::Exact);
    let Err(kube::Error::Api(gone)) = maps.list(&old).await else {
        panic!("that revision was another store's");
    };
    assert_eq!((gone.code, &*gone.reason), (410, "Expired"));
    over_etcd.stop().await;
}
