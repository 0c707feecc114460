use super::*;
use crate::store::disk::Disk;
use crate::store::window::{RevisionError, Window};
use crate::store::{Expect, Record, Store};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A data directory with three writes, and the records they left.
async fn written(data_dir: &Path) -> Vec<Record> {
    let disk = Disk::open(data_dir.join("store")).unwrap();
    let first = disk.put("/registry/a/x", "1".into(), Expect::Absent).await.unwrap();
    disk.put("/registry/a/x", "2".into(), Expect::At(first)).await.unwrap();
    disk.put("/registry/b/y", "3".into(), Expect::Absent).await.unwrap();
    let (_, records) = disk.range("").await.unwrap();
    disk.close().await;
    records
}

fn identity(data_dir: &Path, ca: &str) {
    std::fs::create_dir_all(data_dir.join("pki")).unwrap();
    for name in ["ca.crt", "sa.pub"] {
        std::fs::write(data_dir.join("pki").join(name), ca).unwrap();
    }
}

fn words(file: &Path, data_dir: &Path, more: &[&str]) -> RestoreArguments {
    let data = format!("--data-dir={}", data_dir.display());
    let words = ["restore", file.to_str().unwrap(), &data]
        .into_iter()
        .chain(more.iter().copied());
    RestoreArguments::try_parse_from(words).unwrap()
}

#[tokio::test]
async fn what_is_restored_is_what_was_there_at_a_revision_beyond() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = written(from.path()).await;
    let file = from.path().join("backup");
    let (header, count) = take(from.path(), &file).unwrap();
    assert_eq!((header.revision, count), (4, 2));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let twice = take(from.path(), &file).unwrap_err().to_string();
    assert!(twice.ends_with("backup is there already"), "{twice}");

    assert_eq!(put_back(&words(&file, to.path(), &[])).unwrap(), (4 + BUMP, 2));
    let disk = Arc::new(Disk::open(to.path().join("store")).unwrap());
    assert_eq!(disk.range("").await.unwrap(), (4 + BUMP, records));
    let window = Window::open(Arc::clone(&disk) as Arc<dyn Store>).await.unwrap();
    let resource = window.resource("/registry/a/");
    for before in [1, 4, 5, 3 + BUMP] {
        let gone = resource.cursor(before).err();
        assert!(
            matches!(gone, Some(RevisionError::Gone { .. })),
            "{before}: clients list again"
        );
    }
    assert!(resource.cursor(4 + BUMP).is_ok());
    let next = disk.put("/registry/a/z", "4".into(), Expect::Absent).await.unwrap();
    assert_eq!(next, 5 + BUMP);
    let stale = disk.put("/registry/a/x", "5".into(), Expect::At(5)).await;
    assert!(stale.is_err(), "what was written after the backup is not there");
    drop((resource, window));
    Disk::close_when_alone(disk).await;
}

#[tokio::test]
async fn objects_that_are_there_are_given_up_only_if_that_is_said() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = written(from.path()).await;
    let file = from.path().join("backup");
    take(from.path(), &file).unwrap();
    let disk = Disk::open(to.path().join("store")).unwrap();
    disk.put("/registry/other", "1".into(), Expect::Absent).await.unwrap();
    let running = put_back(&words(&file, to.path(), &["--replace"]))
        .unwrap_err()
        .to_string();
    assert!(running.contains("is in use by process"), "{running}");
    disk.close().await;
    let refused = put_back(&words(&file, to.path(), &[])).unwrap_err().to_string();
    assert!(
        refused.ends_with("holds a store already: say --replace to give up what is there"),
        "{refused}"
    );

    let mut torn = std::fs::read(&file).unwrap();
    let last = torn.len() - 1;
    torn[last] ^= 1;
    let damaged = from.path().join("damaged");
    std::fs::write(&damaged, torn).unwrap();
    let why = format!(
        "{:#}",
        put_back(&words(&damaged, to.path(), &["--replace"])).unwrap_err()
    );
    assert!(why.ends_with("damaged: is damaged: its checksum is another"), "{why}");
    let disk = Disk::open(to.path().join("store")).unwrap();
    assert_eq!(
        disk.range("").await.unwrap().1[0].key.as_ref(),
        "/registry/other",
        "it is as it was"
    );
    disk.close().await;

    put_back(&words(&file, to.path(), &["--replace", "--bump-revision=10"])).unwrap();
    let disk = Disk::open(to.path().join("store")).unwrap();
    assert_eq!(disk.range("").await.unwrap(), (14, records));
    assert!(disk.remembered().await.is_empty());
    disk.close().await;
}

#[tokio::test]
async fn another_clusters_backup_is_taken_only_if_that_is_said() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    written(from.path()).await;
    identity(from.path(), "one");
    identity(to.path(), "two");
    let file = from.path().join("backup");
    let (header, _) = take(from.path(), &file).unwrap();
    assert_eq!(header.cluster.len(), 64);
    let refused = put_back(&words(&file, to.path(), &[])).unwrap_err().to_string();
    assert!(
        refused.contains("is of a cluster with other certificates and keys"),
        "{refused}"
    );
    assert!(!to.path().join("store").exists(), "nothing is touched");
    put_back(&words(&file, to.path(), &["--other-cluster"])).unwrap();
    let same = tempfile::tempdir().unwrap();
    identity(same.path(), "one");
    put_back(&words(&file, same.path(), &[])).unwrap();
}

#[tokio::test]
async fn a_running_daemon_gives_a_backup_of_itself() {
    let directory = tempfile::tempdir().unwrap();
    // Longer than a socket's address may be.
    let from = directory.path().join("d".repeat(120));
    std::fs::create_dir(&from).unwrap();
    written(&from).await;
    let store = from.join("store");
    let disk = Disk::open(&store).unwrap();
    let file = from.join("backup");
    let alone = take(&from, &file).unwrap_err().to_string();
    assert!(alone.contains("is in use by process"), "{alone}");
    assert!(!from.join("backup.tmp").exists() && !file.exists());

    let shutdown = CancellationToken::new();
    let serving = socket::serve(store.clone(), disk.snapshots(), "them".to_owned(), shutdown.clone());
    let serving = tokio::spawn(serving);
    let socket = socket::path(&store);
    while !socket.exists() {
        tokio::task::yield_now().await;
    }
    for (name, count) in [("first", 2), ("second", 3)] {
        let (data_dir, file) = (from.clone(), from.join(name));
        let taken = client::blocking::spawn(move || take(&data_dir, &file));
        let (header, found) = taken.await.unwrap().unwrap();
        assert_eq!((&*header.cluster, found), ("them", count));
        let _ = disk.put("/registry/c/z", "4".into(), Expect::Absent).await;
    }
    // Somebody who does not read more than the first bytes does not hold up the end.
    disk.put("/registry/c/large", vec![7; 5 << 20].into(), Expect::Absent)
        .await
        .unwrap();
    let slow = socket::connect_for_backup(&store).unwrap();
    slow.set_nonblocking(true).unwrap();
    let mut slow = tokio::net::UnixStream::from_std(slow).unwrap();
    tokio::io::AsyncReadExt::read_u8(&mut slow).await.unwrap();
    shutdown.cancel();
    serving.await.unwrap();
    assert!(!socket.exists());
    disk.close().await;
}

#[tokio::test]
async fn without_a_socket_the_daemon_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let shutdown = CancellationToken::new();
    let nowhere = directory.path().join("none");
    let serving = socket::serve(nowhere, disk.snapshots(), String::new(), shutdown.clone());
    tokio::pin!(serving);
    let polled = futures::poll!(&mut serving);
    assert!(polled.is_pending(), "it is a part of the daemon until its end");
    shutdown.cancel();
    serving.await;
    disk.close().await;
}
