use super::*;
use crate::store::disk::Disk;
use crate::store::{Expect, Store};
use std::io::Read;

/// Somebody takes nothing for as long as a backup may take: it ends, and what they have is not whole.
#[tokio::test]
async fn a_backup_ends_however_slowly_it_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let bytes = 8 << 20;
    disk.put("/a", vec![7; bytes].into(), Expect::Absent).await.unwrap();
    let (stream, mut taker) = UnixStream::pair().unwrap();
    let snapshots = disk.snapshots();
    let giving = client::blocking::spawn(move || give(stream, (&snapshots, "them"), Duration::from_millis(20)));
    let given = tokio::time::timeout(PATIENCE / 2, giving).await;
    let given = given.expect("before anybody's patience is at its end").unwrap();
    assert!(given.is_err());
    let mut taken = Vec::new();
    taker.read_to_end(&mut taken).unwrap();
    assert!(taken.len() < bytes, "{}", taken.len());
    disk.close().await;
}

/// Bytes are taken all the time, one by one: its time is over all the same.
#[test]
fn the_limit_is_for_the_whole() {
    let (stream, mut taker) = UnixStream::pair().unwrap();
    let mut timed = Timed {
        stream,
        end: Instant::now(),
    };
    let error = timed.write(b"there is room for it").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    timed.end += Duration::from_secs(3600);
    timed.write_all(b"more").unwrap();
    drop(timed);
    let mut taken = String::new();
    taker.read_to_string(&mut taken).unwrap();
    assert_eq!(taken, "more");
}
