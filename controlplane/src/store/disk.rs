//! The embedded store: one redb file, one writer thread, group commit.
//!
//! Owns durability. Writes that wait together share one commit (one fsync); a later write of a batch sees the earlier ones'
//! effect on its precondition; nobody sees or is told anything before the commit is on disk. A commit that fails leaves it
//! unknown what the disk holds, so it ends the process. Never interprets a value.

use super::feed::Feed;
use super::{Change, Expect, Record, Revision, Store, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Key to 8 bytes of creation revision, 8 bytes of last revision (both big-endian) and the value.
const RECORDS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("records");
/// `format` and `revision`.
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// The data format this binary writes; it refuses newer ones.
const FORMAT: u64 = 1;
/// Most writes in one commit.
const BATCH: usize = 512;
/// Writes that may wait for the writer before callers are held back.
const QUEUE: usize = 1024;
/// redb's page cache; reads are served from the window, so it only helps the writer.
const CACHE_BYTES: usize = 4 << 20;

/// What happens when a commit fails; by default the process aborts.
pub type OnFatal = Box<dyn Fn(&StoreError) + Send>;

enum Operation {
    Put { value: Bytes, expect: Expect },
    Delete { expect: Revision },
}

struct Job {
    key: String,
    write: Operation,
    reply: oneshot::Sender<Result<Revision, StoreError>>,
}

/// The on-disk backend.
pub struct Disk {
    jobs: mpsc::Sender<Job>,
    database: Arc<Database>,
    feed: Feed,
    directory: PathBuf,
    writer: std::thread::JoinHandle<()>,
}

impl Disk {
    /// Opens or makes the store in `directory`. A second process on it, or data of a newer format, is refused by name.
    ///
    /// # Errors
    /// `Unusable`, naming the directory and the reason.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(
            directory,
            Box::new(|error| {
                tracing::error!(%error, "the store cannot write to disk; ending the process");
                eprintln!("the store cannot write to disk: {error}");
                // Not an abort: a core dump is the last thing a full disk needs.
                std::process::exit(1);
            }),
        )
    }

    /// As [`Disk::open`], with something else to do when a commit fails (tests).
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn open_with(directory: impl AsRef<Path>, on_fatal: OnFatal) -> Result<Self, StoreError> {
        let directory = directory.as_ref().to_owned();
        std::fs::create_dir_all(&directory).map_err(|error| unusable(&directory, "cannot be made", &error))?;
        let lock = lock(&directory)?;
        let file = directory.join("state.redb");
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create(&file)
            .map_err(|error| match error {
                redb::DatabaseError::DatabaseAlreadyOpen => in_use(&directory, ""),
                other => unusable(&file, "cannot be opened", &other),
            })?;
        let revision = prepare(&database, &directory)?;
        let feed = Feed::after(revision);
        let (jobs, queue) = mpsc::channel(QUEUE);
        let database = Arc::new(database);
        let writer = Writer {
            database: Arc::clone(&database),
            feed: feed.clone(),
            directory: directory.clone(),
            on_fatal,
            _lock: lock,
        };
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|error| unusable(&directory, "has no writer thread", &error))?;
        Ok(Self {
            jobs,
            database,
            feed,
            directory,
            writer,
        })
    }

    /// Finishes the writes under way and lets go of the directory.
    pub async fn close(self) {
        let Self {
            jobs, writer, database, ..
        } = self;
        drop((jobs, database));
        // Joining fails only if the writer panicked, which its panic message has told already.
        let _ = tokio::task::spawn_blocking(move || writer.join()).await;
    }

    async fn submit(&self, key: &str, write: Operation) -> Result<Revision, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            key: key.to_owned(),
            write,
            reply,
        };
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

#[async_trait]
impl Store for Disk {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.submit(key, Operation::Put { value, expect }).await
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.submit(key, Operation::Delete { expect }).await
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        let database = Arc::clone(&self.database);
        let directory = self.directory.clone();
        let prefix = prefix.to_owned();
        tokio::task::spawn_blocking(move || {
            range(&database, &prefix).map_err(|error| unusable(&directory, "cannot be read", &error))
        })
        .await
        .map_err(|_| StoreError::Closed)?
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<BoxStream<'static, Change>, StoreError> {
        self.feed.stream(prefix, after)
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.feed.newest())
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.feed.compact(revision);
        Ok(())
    }
}

struct Writer {
    database: Arc<Database>,
    feed: Feed,
    directory: PathBuf,
    on_fatal: OnFatal,
    /// Held as long as anything may be written.
    _lock: File,
}

impl Writer {
    fn run(self, mut queue: mpsc::Receiver<Job>) {
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(first) = queue.blocking_recv() {
            batch.push(first);
            while batch.len() < BATCH {
                match queue.try_recv() {
                    Ok(job) => batch.push(job),
                    Err(_) => break,
                }
            }
            if let Err(error) = self.commit(&mut batch) {
                let error = unusable(&self.directory, "cannot be written", &error);
                (self.on_fatal)(&error);
                for job in batch.drain(..) {
                    // The caller may have gone; nobody is left to tell then.
                    let _ = job.reply.send(Err(error.clone()));
                }
                return;
            }
        }
    }

    fn commit(&self, batch: &mut Vec<Job>) -> Result<(), redb::Error> {
        let mut revision = self.feed.newest();
        let before = revision;
        let mut changes = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        let transaction = self.database.begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            for job in batch.iter() {
                let answer = apply(&mut records, job, revision + 1)?;
                answers.push(answer.map(|change| {
                    revision = change.revision;
                    changes.push(change);
                    revision
                }));
            }
            if revision != before {
                transaction.open_table(META)?.insert("revision", revision)?;
            }
        }
        if revision == before {
            transaction.abort()?;
        } else {
            transaction.commit()?;
        }
        self.feed.publish(changes);
        for (job, answer) in batch.drain(..).zip(answers) {
            // The caller may have gone; the write stands.
            let _ = job.reply.send(answer);
        }
        Ok(())
    }
}

/// Applies one write inside the open transaction; a precondition that does not hold is an answer, not a failure.
fn apply(
    records: &mut Table<'_, &'static str, &'static [u8]>,
    job: &Job,
    revision: Revision,
) -> Result<Result<Change, StoreError>, redb::Error> {
    let key: Arc<str> = Arc::from(job.key.as_str());
    let current = records
        .get(job.key.as_str())?
        .map(|found| decode(Arc::clone(&key), found.value()));
    let expect = match &job.write {
        Operation::Put { expect, .. } => *expect,
        Operation::Delete { expect } => Expect::At(*expect),
    };
    if !expect.holds(current.as_ref().map(|record| record.modified)) {
        return Ok(Err(StoreError::Conflict {
            key: job.key.clone(),
            current,
        }));
    }
    let value = match &job.write {
        Operation::Put { value, .. } => {
            let created = current.as_ref().map_or(revision, |record| record.created);
            let mut bytes = Vec::with_capacity(16 + value.len());
            bytes.extend_from_slice(&created.to_be_bytes());
            bytes.extend_from_slice(&revision.to_be_bytes());
            bytes.extend_from_slice(value);
            records.insert(job.key.as_str(), bytes.as_slice())?;
            Some(value.clone())
        }
        Operation::Delete { .. } => {
            records.remove(job.key.as_str())?;
            None
        }
    };
    Ok(Ok(Change {
        revision,
        key,
        created: value.is_some() && current.is_none(),
        value,
    }))
}

fn decode(key: Arc<str>, bytes: &[u8]) -> Record {
    let number = |at: usize| {
        let mut eight = [0; 8];
        if let Some(found) = bytes.get(at..at + 8) {
            eight.copy_from_slice(found);
        }
        u64::from_be_bytes(eight)
    };
    Record {
        key,
        created: number(0),
        modified: number(8),
        value: Bytes::copy_from_slice(bytes.get(16..).unwrap_or_default()),
    }
}

fn range(database: &Database, prefix: &str) -> Result<(Revision, Vec<Record>), redb::Error> {
    let transaction = database.begin_read()?;
    let revision = transaction
        .open_table(META)?
        .get("revision")?
        .map_or(1, |found| found.value());
    let mut found = Vec::new();
    for entry in transaction.open_table(RECORDS)?.range(prefix..)? {
        let (key, value) = entry?;
        if !key.value().starts_with(prefix) {
            break;
        }
        found.push(decode(Arc::from(key.value()), value.value()));
    }
    Ok((revision, found))
}

/// Makes the tables, checks the format, and returns the newest revision.
fn prepare(database: &Database, directory: &Path) -> Result<Revision, StoreError> {
    let attempt = || -> Result<(u64, Revision), redb::Error> {
        let transaction = database.begin_write()?;
        let answer = {
            transaction.open_table(RECORDS)?;
            let mut meta = transaction.open_table(META)?;
            let format = meta.get("format")?.map(|found| found.value());
            if format.is_none() {
                meta.insert("format", FORMAT)?;
                meta.insert("revision", 1)?;
            }
            let revision = meta.get("revision")?.map_or(1, |found| found.value());
            (format.unwrap_or(FORMAT), revision)
        };
        if answer.0 <= FORMAT {
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok(answer)
    };
    let (format, revision) = attempt().map_err(|error| unusable(directory, "cannot be prepared", &error))?;
    if format > FORMAT {
        return Err(StoreError::Unusable(format!(
            "data in {} has format {format}, newer than the {FORMAT} this binary knows: use a newer binary",
            directory.display()
        )));
    }
    Ok(revision)
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join("lock");
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
    };
    let mut file = open().map_err(|error| unusable(&path, "cannot be opened", &error))?;
    if let Err(error) = file.try_lock() {
        let std::fs::TryLockError::Error(error) = error else {
            let mut holder = String::new();
            // Who holds it is a courtesy; without it the refusal stands.
            let _ = file.read_to_string(&mut holder);
            return Err(in_use(directory, holder.trim()));
        };
        return Err(unusable(&path, "cannot be locked", &error));
    }
    let write = |file: &mut File| -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(|error| unusable(&path, "cannot be written", &error))?;
    Ok(file)
}

fn in_use(directory: &Path, holder: &str) -> StoreError {
    let by = if holder.is_empty() {
        "another process".to_owned()
    } else {
        format!("process {holder}")
    };
    StoreError::Unusable(format!("data directory {} is in use by {by}", directory.display()))
}

fn unusable(path: &Path, what: &str, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unusable(format!("{} {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
