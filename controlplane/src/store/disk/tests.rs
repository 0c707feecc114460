use super::records::FORMAT;
use super::*;
use crate::store::{Expect, Store};
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};

#[tokio::test]
async fn data_and_revision_survive_a_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    disk.put("/registry/a", Bytes::from_static(b"1"), Expect::Absent)
        .await
        .unwrap();
    let last = disk
        .put("/registry/b", Bytes::from_static(b"2"), Expect::Absent)
        .await
        .unwrap();
    disk.close().await;
    let disk = Disk::open(directory.path()).unwrap();
    let (revision, records) = disk.range("/registry/").await.unwrap();
    assert_eq!(revision, last);
    assert_eq!(records.len(), 2);
    assert_eq!(records[1].value, Bytes::from_static(b"2"));
    assert_eq!(records[1].created, last);
}

#[tokio::test]
async fn a_second_opening_is_refused_and_names_directory_and_holder() {
    let directory = tempfile::tempdir().unwrap();
    let _disk = Disk::open(directory.path()).unwrap();
    let text = Disk::open(directory.path()).err().unwrap().to_string();
    assert!(text.contains(&directory.path().display().to_string()), "{text}");
    assert!(
        text.contains(&format!("in use by process {}", std::process::id())),
        "{text}"
    );
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    Disk::open(directory.path()).unwrap().close().await;
    {
        let database = Database::open(directory.path().join("state.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction
            .open_table(META)
            .unwrap()
            .insert("format", FORMAT + 1)
            .unwrap();
        transaction.commit().unwrap();
    }
    let text = Disk::open(directory.path()).err().unwrap().to_string();
    assert!(text.contains("has format 3, newer than the 2"), "{text}");
}

#[tokio::test]
async fn concurrent_writes_to_one_key_have_one_winner_each_round() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::open(directory.path()).unwrap());
    let mut seen = disk.put("/k", Bytes::new(), Expect::Absent).await.unwrap();
    for _ in 0..3 {
        let tries = (0..32).map(|_| {
            let disk = Arc::clone(&disk);
            async move { disk.put("/k", Bytes::new(), Expect::At(seen)).await }
        });
        let outcomes = futures::future::join_all(tries).await;
        let won: Vec<Revision> = outcomes.into_iter().filter_map(Result::ok).collect();
        assert_eq!(won.len(), 1);
        seen = won[0];
    }
}

#[tokio::test]
async fn a_nearly_full_disk_takes_steps_of_deletions_only() {
    let path = tempfile::tempdir().unwrap();
    let free_mib = Arc::new(AtomicU64::new(1_000));
    let mut directory = Directory::hold(path.path()).unwrap();
    directory.free_space = {
        let free_mib = Arc::clone(&free_mib);
        Box::new(move |_| Some(free_mib.load(Ordering::SeqCst) << 20))
    };
    let database = builder().create(path.path().join(FILE)).unwrap();
    let disk = Disk::start(directory, database, path.path(), Box::new(|error| panic!("{error}"))).unwrap();
    let made = disk.put("/a", Bytes::from_static(b"1"), Expect::Absent).await.unwrap();

    free_mib.store(19, Ordering::SeqCst);
    for (key, expect) in [("/b", Expect::Absent), ("/a", Expect::At(made))] {
        let refused = disk.put(key, Bytes::from_static(b"22"), expect).await;
        assert!(
            matches!(refused, Err(StoreError::Full { free_mib: 19, .. })),
            "{refused:?}"
        );
    }
    let mut marked = made;
    let step = |kib: usize| Bytes::from(vec![b'x'; kib << 10]);
    for kib in [5, 10, 15] {
        marked = disk.put_for_deletion("/a", step(kib), marked).await.unwrap();
    }
    let refused = disk.put_for_deletion("/a", step(17), marked).await;
    assert!(
        matches!(refused, Err(StoreError::Full { .. })),
        "it grew enough: {refused:?}"
    );
    free_mib.store(7, Ordering::SeqCst);
    let refused = disk.put_for_deletion("/a", step(1), marked).await;
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    assert_eq!(disk.delete("/a", marked).await.unwrap(), marked + 1);
}
