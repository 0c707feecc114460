//! The embedded store: one redb file, one writer thread, group commit.
//!
//! Owns durability. Writes that wait together share one commit (one fsync); a later write of a batch sees the earlier ones'
//! effect on its precondition; nobody sees or is told anything before the commit is on disk. What is opened is what was written, or is
//! refused by name (`intact`). A commit that fails leaves it
//! unknown what the disk holds, so it ends the process, and what the kernel has cached of the file goes with it; before the disk is
//! full, writes are refused (`reserve`), unless the file
//! can give room back (`compaction`). The writer waits for the window to read what it was told. Never interprets a value.

mod backend;
mod compaction;
mod directory;
mod fatal;
mod intact;
mod job;
pub mod moved;
#[cfg(feature = "test-util")]
pub mod paced;
mod past;
mod records;
mod reserve;
pub mod snapshot;
mod staged;
mod upgrade;

use super::feed::Feed;
use super::{Change, Replaced, Revision, StoreError};
use compaction::{Freed, When};
use directory::{Directory, unusable};
pub use fatal::OnFatal;
use fatal::{end_process, guarded};
use job::{Job, Operation};
use moved::Hold;
use past::Past;
use records::{META, RECORDS};
use redb::{CompactionError, Database};
use reserve::{Budget, Leaving, Scarcity, Verdict};
use staged::{Answer, Staged};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::{mpsc, oneshot};
pub use upgrade::Describe;
use upgrade::NEXT;
#[cfg(test)]
pub(crate) use upgrade::testing as old_data;

/// The file in the data directory.
const FILE: &str = "state.redb";
/// Most writes in one commit.
const BATCH: usize = 512;
/// Values beyond which no further write joins a commit: what one commit publishes stays far below what the feed holds.
const BATCH_BYTES: usize = 4 << 20;
/// Writes that may wait for the writer before callers are held back.
const QUEUE: usize = 1024;
/// redb's page cache; reads are served from the window, so it only helps the writer.
const CACHE_BYTES: usize = 4 << 20;

/// Written to by who compacts the file, read by everybody else, the writer too.
type SharedDatabase = Arc<RwLock<Database>>;

/// The on-disk backend.
pub struct Disk {
    jobs: mpsc::Sender<Job>,
    database: SharedDatabase,
    feed: Feed,
    path: PathBuf,
    /// Of before it was opened, until somebody asks.
    remembered: Mutex<Vec<Replaced>>,
    on_fatal: Arc<OnFatal>,
    hold: Hold,
    hand: Hand,
}

/// What runs the writer.
enum Hand {
    Thread(std::thread::JoinHandle<()>),
    #[cfg(feature = "test-util")]
    Task(paced::Task),
}

impl Disk {
    /// Opens or makes the store in `directory`. A second process on it, or data of a newer format, is refused by name.
    ///
    /// # Errors
    /// `Unusable`, naming the directory and the reason.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(directory, Box::new(end_process))
    }

    /// As [`Disk::open`], with something else to do when a commit fails (tests).
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn open_with(directory: impl AsRef<Path>, on_fatal: OnFatal) -> Result<Self, StoreError> {
        let path = directory.as_ref();
        // Before anything is made that is in the way of what arrives.
        moved::check_arrived(path)?;
        let directory = Directory::hold(path)?;
        // Not before: who moved it may have let go of it just now.
        moved::check_arrived(path)?;
        moved::check(path)?;
        let file = path.join(FILE);
        guarded(&file, || {
            let database = match is_empty(&file) {
                true => begin(&directory, path)?,
                false => intact::open(&directory.private(FILE)?)?,
            };
            Self::start(directory, database, path, on_fatal)
        })
    }

    fn start(directory: Directory, database: Database, path: &Path, on_fatal: OnFatal) -> Result<Self, StoreError> {
        let writer = Writer::new(directory, database, path, on_fatal)?;
        Self::with(writer, |writer, queue| {
            let thread = std::thread::Builder::new().name("store-writer".to_owned());
            let (file, on_fatal) = (path.join(FILE), Arc::clone(&writer.on_fatal));
            let thread = thread.spawn(move || {
                let ended = guarded(&file, || {
                    writer.run(queue);
                    Ok(())
                });
                if let Err(error) = ended {
                    on_fatal(&error);
                }
            });
            Ok(Hand::Thread(
                thread.map_err(|error| unusable(path, "has no writer thread", &error))?,
            ))
        })
    }

    /// The store around a writer, which `begin` sets going.
    fn with(
        mut writer: Writer,
        begin: impl FnOnce(Writer, mpsc::Receiver<Job>) -> Result<Hand, StoreError>,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (database, feed, path) = (writer.database.clone(), writer.feed.clone(), writer.path.clone());
        Ok(Self {
            on_fatal: Arc::clone(&writer.on_fatal),
            hold: writer.hold.clone(),
            jobs,
            database,
            feed,
            path,
            remembered: Mutex::new(std::mem::take(&mut writer.remembered)),
            hand: begin(writer, queue)?,
        })
    }

    /// What holds the records.
    pub fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// Finishes the writes under way and lets go of the directory.
    pub async fn close(self) {
        let Self {
            jobs, hand, database, ..
        } = self;
        drop((jobs, database));
        match hand {
            // It does not panic: what it does is guarded.
            Hand::Thread(writer) => drop(client::blocking::spawn(move || writer.join()).await),
            #[cfg(feature = "test-util")]
            Hand::Task(writer) => writer.ended().await,
        }
    }

    /// As [`Disk::close`], once a window that has been dropped lets go of the store, at its task's next turn.
    #[cfg(test)]
    pub(crate) async fn close_when_alone(mut disk: Arc<Self>) {
        let alone = loop {
            match Arc::try_unwrap(disk) {
                Ok(alone) => break alone,
                Err(shared) => disk = shared,
            }
            tokio::task::yield_now().await;
        };
        alone.close().await;
    }

    /// What is read of the file, where blocking keeps nobody waiting.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (database, path) = (Arc::clone(&self.database), self.path.clone());
        let reading = client::blocking::spawn(move || {
            let database = database.read().unwrap_or_else(PoisonError::into_inner);
            let read = || read(&database).map_err(|error| unusable(&path, "cannot be read", &error));
            guarded(&path.join(FILE), read)
        });
        reading.await.map_err(|_| StoreError::Closed)?
    }

    async fn submit(&self, key: &str, write: Operation) -> Result<Revision, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            key: key.to_owned(),
            write,
            reply,
        };
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        job::answered(&self.jobs, answer).await
    }
}

struct Writer {
    database: SharedDatabase,
    feed: Feed,
    path: PathBuf,
    on_fatal: Arc<OnFatal>,
    hold: Hold,
    /// Held as long as anything may be written.
    directory: Directory,
    leaving: Leaving,
    scarcity: Scarcity,
    freed: Freed,
    past: Past,
    remembered: Vec<Replaced>,
}

impl Writer {
    fn new(directory: Directory, database: Database, path: &Path, on_fatal: OnFatal) -> Result<Self, StoreError> {
        let revision = records::prepare(&database, path)?;
        let (past, remembered) = Past::open(path, revision);
        let mut writer = Self {
            database: Arc::new(RwLock::new(database)),
            feed: Feed::after(revision),
            path: path.to_owned(),
            on_fatal: Arc::new(on_fatal),
            hold: Hold::default(),
            leaving: Leaving::default(),
            scarcity: Scarcity::default(),
            freed: Freed::before_this_process(directory.compaction_failed()),
            directory,
            past,
            remembered,
        };
        writer.compact_before_anybody_waits().map_err(|error| {
            writer.directory.distrust(FILE);
            unusable(path, "cannot be written", &error)
        })?;
        Ok(writer)
    }

    fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(first) = queue.blocking_recv() {
            let mut bytes = first.bytes();
            batch.push(first);
            while batch.len() < BATCH && bytes < BATCH_BYTES {
                match queue.try_recv() {
                    Ok(job) => {
                        bytes += job.bytes();
                        batch.push(job);
                    }
                    Err(_) => break,
                }
            }
            while !batch.is_empty() {
                self.feed.wait_for_space(|| queue.is_closed());
                if let Err(error) = self.commit(&mut batch) {
                    self.directory.distrust(FILE);
                    let error = unusable(&self.path, "cannot be written", &error);
                    (self.on_fatal)(&error);
                    for job in batch.drain(..) {
                        // The caller may have gone; nobody is left to tell then.
                        let _ = job.reply.send(Err(error.clone()));
                    }
                    return;
                }
            }
        }
    }

    /// Writes as many jobs from the front of the batch as there is certainly space for, at least one, and takes them out.
    fn commit(&mut self, batch: &mut Vec<Job>) -> Result<(), redb::Error> {
        let hold = self.hold.clone();
        let held = hold.why();
        if let Some(why) = &*held {
            for job in batch.drain(..) {
                // The caller may have gone.
                let _ = job.reply.send(Err(StoreError::ReadOnly(why.clone())));
            }
            return Ok(());
        }
        let staged = self.stage(batch)?;
        let (changes, answers) = staged.commit()?;
        self.tell(batch, changes, answers);
        Ok(())
    }

    /// Applies as much of the batch as there is certainly space for in a transaction that nobody sees yet.
    fn stage(&mut self, batch: &[Job]) -> Result<Staged, redb::Error> {
        let mut revision = self.feed.newest();
        let before = revision;
        let mut changes = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        let free_bytes = self.free_bytes_for(batch)?;
        let mut budget = Budget::new(free_bytes);
        let transaction = self
            .database
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            for job in batch {
                let refusal = match budget.judge(job) {
                    Verdict::Later => break,
                    Verdict::Write => None,
                    Verdict::WriteIfSmall => {
                        let present = records::value_bytes(&records, &job.key)?;
                        let fits = self.leaving.may_have(&job.key, present, job.bytes());
                        (!fits).then(|| self.directory.refusal(reserve::PUT_FLOOR_BYTES))
                    }
                    Verdict::Refuse { needed_bytes } => Some(self.directory.refusal(needed_bytes)),
                };
                if let Some(refusal) = refusal {
                    answers.push(Err(refusal));
                    continue;
                }
                let answer = records::apply(&mut records, job, revision + 1)?;
                answers.push(answer.map(|(change, old)| {
                    revision = change.revision;
                    self.past.note(&change, old.as_ref());
                    let replaced_bytes = old.map_or(0, |old| old.value.len());
                    self.freed.replaced(replaced_bytes, job.bytes());
                    if change.value.is_none() {
                        self.leaving.removed(&change.key);
                    }
                    changes.push(change);
                    revision
                }));
            }
            if revision != before {
                transaction.open_table(META)?.insert("revision", revision)?;
            }
        }
        let mut refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        let refusal = refused.rfind(|error| matches!(error, StoreError::Full { .. }));
        if let Some(told) = self.scarcity.commit(free_bytes, refusal.is_some()) {
            self.directory.tell(told, refusal);
        }
        // Ahead of the commit: what is never committed is known by its revision.
        self.past.write(free_bytes);
        Ok(Staged {
            transaction,
            changes,
            answers,
        })
    }

    /// The free space for a commit; if some of the batch would be refused for want of it, after the file has given back what it can.
    fn free_bytes_for(&mut self, batch: &[Job]) -> Result<Option<u64>, redb::Error> {
        let free_bytes = self.directory.free_bytes();
        let is_refused = |job: &Job| matches!(Budget::new(free_bytes).judge(job), Verdict::Refuse { .. });
        if !batch.iter().any(is_refused) {
            return Ok(free_bytes);
        }
        let now = (self.directory.now)();
        let file_bytes = self.directory.backed_bytes(FILE);
        if !self.freed.is_worth_it(file_bytes, now) {
            return Ok(free_bytes);
        }
        if !self.freed.is_soon_done(file_bytes) {
            // Said once a minute at most.
            self.directory.tell_room(file_bytes);
            self.freed.left(now);
            return Ok(free_bytes);
        }
        self.compact(When::Serving, free_bytes.unwrap_or(0))?;
        Ok(self.directory.free_bytes())
    }

    /// As long as nobody waits for a write: what would take long later, if it is needed.
    fn compact_before_anybody_waits(&mut self) -> Result<(), redb::Error> {
        let file_bytes = self.directory.backed_bytes(FILE);
        let free_bytes = self.directory.free_bytes().filter(|free| reserve::is_scarce(*free));
        let now = (self.directory.now)();
        match free_bytes {
            Some(free_bytes) if self.freed.is_worth_it(file_bytes, now) && !self.freed.is_soon_done(file_bytes) => {
                self.compact(When::Opening, free_bytes)
            }
            _ => Ok(()),
        }
    }

    /// Compacts the file, if that is certainly possible and nobody reads it just now.
    fn compact(&mut self, when: When, free_bytes: u64) -> Result<(), redb::Error> {
        let shared = Arc::clone(&self.database);
        let Ok(mut database) = shared.try_write() else {
            return Ok(());
        };
        let outcome = self.compact_held(&mut database, when, free_bytes);
        self.freed.looked((self.directory.now)());
        outcome
    }

    fn compact_held(&self, database: &mut Database, when: When, free_bytes: u64) -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        let found = transaction.stats()?;
        transaction.abort()?;
        let page_bytes = found.page_size() as u64;
        let used_bytes = found.allocated_pages().saturating_mul(page_bytes);
        // A node of several pages has at most as many again as those beyond its first.
        let nodes = found.leaf_pages().saturating_add(found.branch_pages());
        let large_bytes = found
            .allocated_pages()
            .saturating_sub(nodes)
            .saturating_mul(2 * page_bytes);
        let front_bytes = compaction::front_bytes(used_bytes, large_bytes);
        let unbacked_bytes = self.directory.unbacked_bytes(FILE, front_bytes);
        if !compaction::is_possible(when, used_bytes, free_bytes, unbacked_bytes) {
            if compaction::is_possible(When::Opening, used_bytes, free_bytes, unbacked_bytes) {
                self.directory.tell_room(self.directory.backed_bytes(FILE));
            }
            return Ok(());
        }
        let path = self.path.display();
        if let Err(error) = self.directory.compaction_begins() {
            tracing::warn!(%path, %error, "the store is not compacted: that it is cannot be noted");
            return Ok(());
        }
        tracing::info!(%path, used_bytes, "the disk is nearly full; compacting the store");
        match database.compact() {
            Ok(_) => {
                if let Err(error) = self.directory.compaction_succeeded() {
                    tracing::warn!(%path, %error, "the store has been compacted, which cannot be noted");
                }
                Ok(())
            }
            Err(CompactionError::Storage(error)) => Err(error.into()),
            // It stays as it is. There are no savepoints, and nobody else has a transaction.
            Err(error) => {
                tracing::warn!(%path, %error, "the store cannot be compacted");
                Ok(())
            }
        }
    }

    /// Shows the changes to readers and answers the writers.
    fn tell(&self, batch: &mut Vec<Job>, changes: Vec<Change>, answers: Vec<Answer>) {
        self.feed.publish(changes);
        let done = batch.drain(..answers.len());
        for (job, answer) in done.zip(answers) {
            // The caller may have gone; the write stands.
            let _ = job.reply.send(answer);
        }
    }
}

/// Whether there is no file, or one that nothing was ever written to.
fn is_empty(file: &Path) -> bool {
    match std::fs::metadata(file) {
        Ok(found) => found.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Makes a store that holds nothing, under another name first: what a process leaves that dies meanwhile is no store, and no damaged one.
fn begin(directory: &Directory, path: &Path) -> Result<Database, StoreError> {
    let (file, next) = (path.join(FILE), path.join(NEXT));
    upgrade::remove(&next)?;
    directory.private(NEXT)?;
    let database = builder()
        .create(&next)
        .map_err(|error| unusable(&next, "cannot be written", &error))?;
    records::prepare(&database, path)?;
    let placed = std::fs::rename(&next, &file).and_then(|()| std::fs::File::open(path)?.sync_all());
    placed.map_err(|error| unusable(&file, "cannot be put in place", &error))?;
    Ok(database)
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

#[cfg(test)]
mod campaign_tests;
#[cfg(test)]
mod compaction_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
