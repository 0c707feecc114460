use super::*;
use crate::store::disk::Disk;
use crate::store::{Expect, Store};

/// A backup of a store with a few records, one larger than what is written at once.
async fn made() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    for (key, bytes) in [("/a", 3), ("/b", 0), ("/c", 5 << 20)] {
        disk.put(key, vec![7; bytes].into(), Expect::Absent).await.unwrap();
    }
    let mut out = Vec::new();
    write(&disk.snapshots(), "them", &mut out).unwrap();
    disk.close().await;
    out
}

#[tokio::test]
async fn a_backup_says_what_it_is_and_has_everything() {
    let bytes = made().await;
    let mut backup = Backup::open(&*bytes).unwrap();
    let header = Header {
        format: 2,
        revision: 4,
        cluster: "them".to_owned(),
    };
    assert_eq!(backup.header, header);
    let mut found = Vec::new();
    while let Some((key, record)) = backup.next_record().unwrap() {
        found.push((key, record.len() - 16));
    }
    let expected = [("/a", 3), ("/b", 0), ("/c", 5 << 20)].map(|(key, bytes)| (key.to_owned(), bytes));
    assert_eq!(found, expected);
    assert_eq!(Backup::open(&*bytes).unwrap().verify().unwrap(), (header, 3));
}

#[tokio::test]
async fn what_is_not_whole_is_no_backup() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    disk.put("/a", "value".into(), Expect::Absent).await.unwrap();
    let mut bytes = Vec::new();
    write(&disk.snapshots(), "them", &mut bytes).unwrap();
    disk.close().await;
    let verify = |bytes: &[u8]| Backup::open(bytes).and_then(Backup::verify);
    verify(&bytes).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(verify(&flipped).is_err(), "byte {at} is another");
        assert!(verify(&bytes[..at]).is_err(), "it ends at {at}");
    }
    bytes.push(0);
    assert!(matches!(
        verify(&bytes),
        Err(BackupError::Damaged("something follows its end"))
    ));
    assert!(matches!(verify(b"PK"), Err(BackupError::NoBackup)));
}
