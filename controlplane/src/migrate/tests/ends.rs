//! What ends a move before its end, and that both stores are as they were then.

use super::*;

/// Values in etcd are bound to the place they have there.
#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_read_elsewhere_is_not_moved() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let mut elsewhere = plan(dir.path(), &cluster, false);
    elsewhere.options.prefix = "/elsewhere".to_owned();
    let etcd = Etcd::open(elsewhere.options.clone()).await.unwrap();
    etcd.put("/registry/a", "1".into(), Expect::Absent).await.unwrap();
    let secret = "/registry/secrets/default/s";
    let bound = etcd
        .put(secret, "k8s:enc:aesgcm:v1:k:x".into(), Expect::Absent)
        .await
        .unwrap();
    let refused = format!("{:#}", to_disk::run(&elsewhere).await.unwrap_err());
    assert!(
        refused.contains("/registry/secrets/default/s is encrypted, and bound"),
        "{refused}"
    );
    assert!(!dir.path().join("store/state.redb").exists());
    etcd.delete(secret, bound).await.unwrap();
    assert_eq!(to_disk::run(&elsewhere).await.unwrap().count, 1);
}

/// The store that is given up is still read by somebody.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_put_in_the_place_of_what_somebody_holds() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    to_etcd::run(&plan(dir.path(), &cluster, false)).await.unwrap();
    let store = dir.path().join("store");
    let kept = moved::keep_out(&store).unwrap();
    let refused = format!(
        "{:#}",
        to_disk::run(&plan(dir.path(), &cluster, true)).await.unwrap_err()
    );
    assert!(
        refused.contains("stop what runs there first") && refused.contains("is in use by"),
        "{refused}"
    );
    assert!(store.join("state.redb").exists() && moved::line(&store).unwrap().is_some());
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    etcd.put("/registry/a", "still open".into(), Expect::Absent)
        .await
        .unwrap();
    drop(kept);
    assert_eq!(
        to_disk::run(&plan(dir.path(), &cluster, true)).await.unwrap().count,
        303
    );
}

/// kill -9 in the middle of the last line.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_said_whole_is_not_noted() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let store = dir.path().join("store");
    let disk = Arc::new(Disk::open(&store).unwrap());
    for (said, is_noted) in [
        ("arrived ", false),
        ("arrived 1f they are in", false),
        ("arrived 2f they are in etcd\n", false),
        ("arrived 1f they are in etcd\n", true),
    ] {
        let snapshots = disk.snapshots();
        let (mut stream, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let giving = std::thread::spawn(move || giving::give(&theirs, &snapshots, ""));
        writeln!(stream, "move 1f it is being moved").unwrap();
        let mut backup = crate::backup::Backup::open_within(BufReader::new(stream.try_clone().unwrap())).unwrap();
        while backup.next_record().unwrap().is_some() {}
        stream.write_all(said.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(giving.join().unwrap().is_ok(), is_noted, "{said:?}");
        assert_eq!(moved::line(&store).unwrap().is_some(), is_noted, "{said:?}");
        let put = disk
            .put(&format!("/registry/x/{}", said.len()), "1".into(), Expect::Absent)
            .await;
        assert_eq!(put.is_err(), is_noted, "{said:?}: {put:?}");
    }
    // And once only.
    let snapshots = disk.snapshots();
    let (mut stream, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let giving = std::thread::spawn(move || giving::give(&theirs, &snapshots, ""));
    writeln!(stream, "move 3f it is being moved").unwrap();
    let refused = giving.join().unwrap().unwrap_err().to_string();
    assert!(refused.contains("they are in etcd"), "{refused}");
    Disk::close_when_alone(disk).await;
}

/// The control plane dies, or hangs, with the last line in its hands.
#[test]
fn who_is_not_answered_says_that_it_is_not_known() {
    let dir = tempfile::tempdir().unwrap();
    let (stream, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    drop(theirs);
    let left = to_etcd::leave(dir.path(), "1f it is in etcd", &stream, &mut lines);
    let unknown = left.unwrap_err().to_string();
    assert!(
        unknown.contains("is not known: run the same migrate once more"),
        "{unknown}"
    );
    // It was noted, and the answer lost.
    std::fs::write(dir.path().join("moved"), "1f it is in etcd\n").unwrap();
    to_etcd::leave(dir.path(), "1f it is in etcd", &stream, &mut lines).unwrap();
    assert!(to_etcd::leave(dir.path(), "2f it is in etcd", &stream, &mut lines).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_ever_for_a_control_plane_that_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let cluster = Cluster::start(1);
    let (stream, given) = to_etcd::source(&plan(dir.path(), &cluster, false), "1f", "it moves").unwrap();
    assert_eq!(stream.read_timeout().unwrap(), Some(to_etcd::PATIENCE));
    assert_eq!(stream.write_timeout().unwrap(), Some(to_etcd::PATIENCE));
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    drop(given.unwrap().join().unwrap());
}

/// Found before anything is copied: nothing could ever be put in its place.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_moved_to_where_it_cannot_be_put() {
    let cluster = Cluster::start(1);
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let etcd = Etcd::open(cluster.options()).await.unwrap();
    etcd.put("/registry/a", "1".into(), Expect::Absent).await.unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("store")).unwrap();
    let refused = to_disk::run(&plan(dir.path(), &cluster, false)).await.unwrap_err();
    assert!(
        refused.to_string().contains("it is to be no mount point and no link"),
        "{refused}"
    );
    assert!(!dir.path().join("store.left").exists() && !dir.path().join("store.moving").exists());
    etcd.put("/registry/b", "still open".into(), Expect::Absent)
        .await
        .unwrap();
}
