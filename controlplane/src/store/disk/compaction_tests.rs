//! Compactions on a disk that fails in the middle: nothing is lost, and the next start does not begin again at once.

use super::*;
use crate::store::{Expect, Store};
use bytes::Bytes;
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Free space in which writes are refused and a compaction is possible.
const TIGHT_BYTES: u64 = 6 << 20;

/// How a disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Never,
    /// Writing, and changes of the length, at this one and ever after. A write is done by half.
    WritesFrom(usize),
    /// As before, but what comes later is done.
    WriteOnce(usize),
    SyncsFrom(usize),
    SyncOnce(usize),
}

/// What was done to a disk so far, from 0.
#[derive(Debug, Default)]
struct Done {
    writes: AtomicUsize,
    syncs: AtomicUsize,
}

#[derive(Debug)]
struct Failing {
    file: FileBackend,
    fault: Fault,
    done: Arc<Done>,
    /// Whether faults have begun and operations count.
    is_armed: Arc<AtomicBool>,
}

impl Failing {
    fn write_fails(&self) -> bool {
        if !self.is_armed.load(Ordering::SeqCst) {
            return false;
        }
        let number = self.done.writes.fetch_add(1, Ordering::SeqCst);
        match self.fault {
            Fault::WritesFrom(first) => number >= first,
            Fault::WriteOnce(only) => number == only,
            _ => false,
        }
    }
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(nix::libc::ENOSPC)
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.write_fails() {
            true => Err(full()),
            false => self.file.set_len(len),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.is_armed.load(Ordering::SeqCst) {
            let number = self.done.syncs.fetch_add(1, Ordering::SeqCst);
            if matches!(self.fault, Fault::SyncsFrom(first) if number >= first) || self.fault == Fault::SyncOnce(number)
            {
                return Err(io::Error::from_raw_os_error(nix::libc::EIO));
            }
        }
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.write_fails() {
            true => {
                self.file.write(offset, &data[..data.len() / 2])?;
                Err(full())
            }
            false => self.file.write(offset, data),
        }
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

type Contents = BTreeMap<String, Bytes>;

async fn contents(disk: &Disk) -> Contents {
    let (_, records) = disk.range("").await.unwrap();
    records
        .into_iter()
        .map(|one| (one.key.to_string(), one.value))
        .collect()
}

/// A store with much room inside its file.
async fn with_room() -> (tempfile::TempDir, Contents) {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let key = |number: usize| format!("/registry/{:03}/{number}", number * 7919 % 101);
    let writes = (0..400_usize).map(|number| {
        let value = Bytes::from(vec![b'x'; [300, 9_000, 30_000, 200_000][number % 4]]);
        let (disk, key) = (&disk, key(number));
        async move { disk.put(&key, value, Expect::Absent).await.unwrap() }
    });
    let revisions = futures::future::join_all(writes).await;
    let removals = revisions.into_iter().enumerate().filter(|(number, _)| number % 9 != 0);
    let removals = removals.map(|(number, revision)| {
        let (disk, key) = (&disk, key(number));
        async move { disk.delete(&key, revision).await.unwrap() }
    });
    futures::future::join_all(removals).await;
    let stored = contents(&disk).await;
    disk.close().await;
    (directory, stored)
}

/// What a write for which there is no space brought about.
struct Attempt {
    /// Whether the store was told of a failure.
    has_failed: bool,
    writes: usize,
    syncs: usize,
}

/// Opens the store on a disk with the fault, which is nearly full, and writes once.
async fn attempt(directory: &Path, fault: Fault) -> Attempt {
    let file = File::options()
        .read(true)
        .write(true)
        .open(directory.join(FILE))
        .unwrap();
    let (done, is_armed) = (Arc::<Done>::default(), Arc::<AtomicBool>::default());
    let backend = Failing {
        file: FileBackend::new(file).unwrap(),
        fault,
        done: Arc::clone(&done),
        is_armed: Arc::clone(&is_armed),
    };
    let mut held = Directory::hold(directory).unwrap();
    held.free_space = Box::new(|_| Some(TIGHT_BYTES));
    held.writes_in_place = true;
    let has_failed = Arc::<AtomicBool>::default();
    let told = Arc::clone(&has_failed);
    let hook = Box::new(move |_: &StoreError| told.store(true, Ordering::SeqCst));
    let database = builder().create_with_backend(backend).unwrap();
    let disk = Disk::start(held, database, directory, hook).unwrap();
    is_armed.store(true, Ordering::SeqCst);
    let refused = disk.put("/registry/new", Bytes::new(), Expect::Absent).await;
    let has_failed = has_failed.load(Ordering::SeqCst);
    match has_failed {
        true => assert!(
            matches!(refused, Err(StoreError::Unusable(_))),
            "{fault:?}: {refused:?}"
        ),
        false => assert!(
            matches!(refused, Err(StoreError::Full { .. })),
            "{fault:?}: {refused:?}"
        ),
    }
    let attempt = Attempt {
        has_failed,
        writes: done.writes.load(Ordering::SeqCst),
        syncs: done.syncs.load(Ordering::SeqCst),
    };
    disk.close().await;
    attempt
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    std::fs::copy(from.join(FILE), to.path().join(FILE)).unwrap();
    to
}

async fn reopened(directory: &Path) -> Contents {
    let disk = Disk::open(directory).unwrap();
    let found = contents(&disk).await;
    disk.close().await;
    found
}

/// More than is compacted while anybody writes: nobody waits for it, and the next start gives the room back.
#[tokio::test]
async fn what_would_take_long_waits_for_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let (path, free) = (directory.path(), Arc::new(AtomicU64::new(1 << 40)));
    let start = || {
        let mut held = Directory::hold(path).unwrap();
        let free = Arc::clone(&free);
        held.free_space = Box::new(move |_| Some(free.load(Ordering::SeqCst)));
        held.writes_in_place = true;
        let database = builder().create(path.join(FILE)).unwrap();
        Disk::start(held, database, path, Box::new(|error| panic!("{error}"))).unwrap()
    };
    let disk = start();
    let large = |number: usize| (format!("/registry/large/{number}"), Bytes::from(vec![b'x'; 400_000]));
    let mut revisions = Vec::new();
    for (key, value) in (0..200).map(large) {
        revisions.push(disk.put(&key, value, Expect::Absent).await.unwrap());
    }
    for number in (0..200).filter(|number| number % 40 != 0) {
        disk.delete(&large(number).0, revisions[number]).await.unwrap();
    }
    let stored = contents(&disk).await;
    disk.close().await;
    // Nobody knows any more what of it was freed.
    let disk = start();
    let file_bytes = || std::fs::metadata(path.join(FILE)).unwrap().len();
    let before_bytes = file_bytes();
    assert!(stored.len() == 5 && before_bytes > 72 << 20, "{before_bytes}");
    free.store(TIGHT_BYTES, Ordering::SeqCst);
    let refused = disk.put("/registry/new", Bytes::new(), Expect::Absent).await;
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    assert!(file_bytes() >= before_bytes, "it was not held up");
    disk.close().await;
    let disk = start();
    assert!(file_bytes() < before_bytes / 2, "{} of {before_bytes}", file_bytes());
    assert_eq!(contents(&disk).await, stored);
    disk.close().await;
    assert!(!Directory::hold(path).unwrap().compaction_failed());
}

/// About `count` numbers below `end`, the first and the last among them.
fn spread(end: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..end).step_by(end.div_ceil(count)).chain([end - 1])
}

#[tokio::test]
async fn a_disk_that_fails_anywhere_in_a_compaction_loses_nothing_and_it_is_not_begun_again_at_once() {
    let (origin, stored) = with_room().await;
    let whole = copy(origin.path());
    let before_bytes = std::fs::metadata(whole.path().join(FILE)).unwrap().len();
    let Attempt {
        has_failed,
        writes,
        syncs,
    } = attempt(whole.path(), Fault::Never).await;
    assert!(
        !has_failed && writes > 20 && syncs > 3,
        "{writes} writes, {syncs} syncs"
    );
    assert!(std::fs::metadata(whole.path().join(FILE)).unwrap().len() < before_bytes / 2);
    assert_eq!(reopened(whole.path()).await, stored);
    assert!(!Directory::hold(whole.path()).unwrap().compaction_failed());

    let of_writes = spread(writes, 12).flat_map(|number| [Fault::WritesFrom(number), Fault::WriteOnce(number)]);
    let of_syncs = spread(syncs, 6).flat_map(|number| [Fault::SyncsFrom(number), Fault::SyncOnce(number)]);
    let mut failures = 0;
    for fault in of_writes.chain(of_syncs) {
        let copy = copy(origin.path());
        if attempt(copy.path(), fault).await.has_failed {
            failures += 1;
            // The file is mended when it is opened, before anything counts.
            let next = attempt(copy.path(), Fault::Never).await;
            assert_eq!((next.writes, next.syncs), (0, 0), "{fault:?}: it is begun again");
        }
        assert!(reopened(copy.path()).await == stored, "{fault:?}");
    }
    assert!(failures > 20, "{failures}");
}
