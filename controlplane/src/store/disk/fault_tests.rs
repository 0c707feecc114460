//! A disk that fails: what was acknowledged stays, what was not is not, and somebody is told.

use super::*;
use crate::store::{Expect, Store};
use bytes::Bytes;
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What the disk refuses at the moment.
#[derive(Debug, Default)]
pub(super) struct Faults {
    sync: AtomicBool,
    /// It is damaged, which its engine tells by a panic.
    damage: AtomicBool,
    pub(super) write: AtomicBool,
}

impl Faults {
    fn check(failing: &AtomicBool, number: i32) -> io::Result<()> {
        match failing.load(Ordering::SeqCst) {
            true => Err(io::Error::from_raw_os_error(number)),
            false => Ok(()),
        }
    }
}

/// A file on a disk with faults.
#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) file: FileBackend,
    pub(super) faults: Arc<Faults>,
}

impl StorageBackend for Faulty {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Faults::check(&self.faults.write, nix::libc::ENOSPC)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Faults::check(&self.faults.sync, nix::libc::EIO)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(!self.faults.damage.load(Ordering::SeqCst), "a page is no page");
        Faults::check(&self.faults.write, nix::libc::ENOSPC)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// Lets `fault` happen among writes; everything acknowledged is there at the next opening. Returns what the fatal hook was told.
async fn survives(fault: fn(&Faults) -> &AtomicBool) -> String {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(directory.path().join(FILE))
        .unwrap();
    let backend = Faulty {
        file: FileBackend::new(file).unwrap(),
        faults: Arc::clone(&faults),
    };
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let told = Arc::clone(&told);
        Box::new(move |error: &StoreError| told.lock().unwrap().push(error.to_string()))
    };
    let database = builder().create_with_backend(backend).unwrap();
    let disk = Disk::start(
        Directory::hold(directory.path()).unwrap(),
        database,
        directory.path(),
        hook,
    )
    .unwrap();
    let value = Bytes::from(vec![b'x'; 3000]);
    for number in 0..100 {
        let key = format!("/registry/{number:03}");
        disk.put(&key, value.clone(), Expect::Absent).await.unwrap();
    }
    fault(&faults).store(true, Ordering::SeqCst);
    let seen = disk.current_revision().await.unwrap();
    let refused = disk.put("/registry/lost", value.clone(), Expect::Absent).await;
    assert!(matches!(refused, Err(StoreError::Unusable(_))), "{refused:?}");
    assert_eq!(disk.current_revision().await.unwrap(), seen, "nobody is shown it");
    let after = disk.put("/registry/later", value, Expect::Absent).await;
    assert!(matches!(after, Err(StoreError::Closed)), "{after:?}");
    disk.close().await;

    let disk = Disk::open(directory.path()).unwrap();
    let (_, records) = disk.range("/registry/").await.unwrap();
    let keys: Vec<&str> = records.iter().map(|record| &*record.key).collect();
    assert!(
        keys.iter()
            .take(100)
            .enumerate()
            .all(|(number, key)| *key == format!("/registry/{number:03}"))
    );
    assert!(!keys.contains(&"/registry/later"));
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    told[0].clone()
}

#[tokio::test]
async fn a_writer_that_panics_is_fatal_and_takes_no_more_writes() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let file = directory.path().join(FILE);
    let mut options = File::options();
    let backend = Faulty {
        file: FileBackend::new(options.read(true).write(true).create_new(true).open(&file).unwrap()).unwrap(),
        faults: Arc::clone(&faults),
    };
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let told = Arc::clone(&told);
        Box::new(move |error: &StoreError| told.lock().unwrap().push(error.to_string()))
    };
    let database = builder().create_with_backend(backend).unwrap();
    let held = Directory::hold(directory.path()).unwrap();
    let disk = Disk::start(held, database, directory.path(), hook).unwrap();
    disk.put("/registry/a", Bytes::new(), Expect::Absent).await.unwrap();
    disk.check().unwrap();
    faults.damage.store(true, Ordering::SeqCst);
    let lost = disk.put("/registry/b", Bytes::new(), Expect::Absent).await;
    assert!(lost.is_err(), "{lost:?}");
    while told.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(disk.check(), Err(StoreError::Closed)));
    let text = told.lock().unwrap()[0].clone();
    assert!(
        text.starts_with(&format!("{} is damaged", file.display())) && text.ends_with("a page is no page"),
        "{text}"
    );
}

#[tokio::test]
async fn a_failed_fsync_is_fatal_and_loses_nothing_acknowledged() {
    let text = survives(|faults| &faults.sync).await;
    assert!(
        text.contains("cannot be written") && text.contains("Input/output error"),
        "{text}"
    );
}

#[tokio::test]
async fn a_write_without_space_is_fatal_and_loses_nothing_acknowledged() {
    let text = survives(|faults| &faults.write).await;
    assert!(text.contains("No space left on device"), "{text}");
}

/// A disk of so many bytes: pages cost when they are first written, as in a sparse file.
#[derive(Debug)]
struct Small {
    file: FileBackend,
    pages: Arc<Mutex<HashSet<u64>>>,
}

const PAGE_BYTES: u64 = 4096;
const DISK_PAGES: usize = (64 << 20) / 4096;

impl StorageBackend for Small {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.pages.lock().unwrap().retain(|page| page * PAGE_BYTES < len);
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut pages = self.pages.lock().unwrap();
        let end = offset + data.len() as u64;
        pages.extend(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES));
        if pages.len() > DISK_PAGES {
            return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        }
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// A clock by which nothing is done again too soon.
pub(super) fn an_hour_later_each_time() -> Box<dyn FnMut() -> Instant + Send> {
    let mut now = Instant::now();
    Box::new(move || {
        now += Duration::from_secs(3600);
        now
    })
}

/// A store on such a disk, and whether a commit has failed.
struct OnSmall {
    disk: Disk,
    failed: Arc<AtomicBool>,
    _path: tempfile::TempDir,
}

impl OnSmall {
    fn start() -> Self {
        let path = tempfile::tempdir().unwrap();
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(path.path().join(FILE))
            .unwrap();
        let pages = Arc::new(Mutex::new(HashSet::new()));
        let backend = Small {
            file: FileBackend::new(file).unwrap(),
            pages: Arc::clone(&pages),
        };
        let mut directory = Directory::hold(path.path()).unwrap();
        directory.free_space = Box::new(move |_| Some((DISK_PAGES - pages.lock().unwrap().len()) as u64 * PAGE_BYTES));
        directory.writes_in_place = true;
        directory.now = an_hour_later_each_time();
        let database = builder().create_with_backend(backend).unwrap();
        let failed = Arc::new(AtomicBool::new(false));
        let hook = {
            let failed = Arc::clone(&failed);
            Box::new(move |_: &StoreError| failed.store(true, Ordering::SeqCst))
        };
        Self {
            disk: Disk::start(directory, database, path.path(), hook).unwrap(),
            failed,
            _path: path,
        }
    }
}

/// Many large writes at once, then objects on their way out that grow for ever: the disk never runs out, and what was stored can
/// be removed.
#[tokio::test]
async fn neither_a_burst_nor_endless_steps_of_deletions_use_the_last_space() {
    let OnSmall { disk, failed, _path } = OnSmall::start();
    // Small ones between large ones, so that they share leaves.
    let writes = (0..300_usize).map(|number| {
        let disk = &disk;
        let bytes = if number.is_multiple_of(3) { 1 << 20 } else { 700 };
        async move {
            let key = format!("/registry/{number:03}");
            (
                disk.put(&key, Bytes::from(vec![b'x'; bytes]), Expect::Absent).await,
                key,
            )
        }
    });
    let mut stored = Vec::new();
    for (outcome, key) in futures::future::join_all(writes).await {
        match outcome {
            Ok(revision) => stored.push((key, revision)),
            Err(refusal) => assert!(matches!(refusal, StoreError::Full { .. }), "{refusal}"),
        }
    }
    assert!((10..300).contains(&stored.len()), "{}", stored.len());

    let mut refused = 0;
    for round in 1..200_usize {
        for (key, revision) in stored.iter_mut().rev().take(20) {
            let value = Bytes::from(vec![b'y'; (1 << 20) + (round << 14)]);
            match disk.put_for_deletion(key, value, *revision).await {
                Ok(newer) => *revision = newer,
                Err(refusal) => {
                    assert!(matches!(refusal, StoreError::Full { .. }), "{refusal}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0);
    for (key, revision) in &stored {
        disk.delete(key, *revision).await.expect("removing is what helps");
    }
    let again = disk.put("/registry/again", Bytes::new(), Expect::Absent).await;
    again.expect("the room inside the file is given back");
    assert!(!failed.load(Ordering::SeqCst));
}

/// Fills the disk with values of many sizes, removes most of them, and again: what was removed can always be written anew, and
/// the disk never runs out.
#[tokio::test]
async fn what_was_removed_makes_room_for_what_is_new() {
    let OnSmall { disk, failed, _path } = OnSmall::start();
    let sizes = [30_000, 300, 9_000, 200_000, 1 << 20];
    let (mut stored, mut number) = (Vec::new(), 0_usize);
    for round in 0..4 {
        let before = stored.len();
        let refusal = loop {
            let key = format!("/registry/{:03}/{number}", number * 7919 % 101);
            let value = Bytes::from(vec![b'x'; sizes[number % (2 + round)]]);
            number += 1;
            match disk.put(&key, value, Expect::Absent).await {
                Ok(revision) => stored.push((key, revision)),
                Err(refusal) => break refusal,
            }
        };
        assert!(matches!(refusal, StoreError::Full { .. }), "{refusal}");
        assert!(
            stored.len() > before + 10,
            "round {round}: {} of {before}",
            stored.len()
        );
        // One in eight stays, all over the file.
        let mut kept = Vec::new();
        for (index, (key, revision)) in stored.drain(..).enumerate() {
            match index % 8 {
                0 => kept.push((key, revision)),
                _ => drop(disk.delete(&key, revision).await.expect("removing is what helps")),
            }
        }
        stored = kept;
        for (key, revision) in &mut stored {
            *revision = disk
                .put(key, Bytes::from_static(b"small"), Expect::At(*revision))
                .await
                .expect("there is room inside");
        }
    }
    assert!(!failed.load(Ordering::SeqCst));
    let (_, records) = disk.range("/registry/").await.unwrap();
    assert_eq!(records.len(), stored.len());
}
