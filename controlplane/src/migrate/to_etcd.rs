//! From the embedded store into etcd.

use super::digest::{Digest, ENCRYPTED};
use super::giving::{ARRIVED, BEGIN, NAME, NOTED, STILL, give, line, say};
use super::{Moved, Plan, name, wrong};
use crate::backup::{Backup, socket};
use crate::store::disk::moved;
use crate::store::disk::snapshot::{Snapshots, value_of};
use crate::store::form::PRESENT;
use crate::store::{Revision, StoreError};
use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use etcd::moving::{Side, State};
use std::io::{BufReader, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the daemon is told that we are there; it waits for 30 seconds for a word, and longer for another number.
const STILL_EVERY: Duration = Duration::from_secs(5);
/// Bytes of values that are handed on together, and how many of those may wait.
const PART: (usize, usize) = (1 << 20, 4);
/// How long the daemon may take for the next bytes: longer than it takes to give somebody up, and to sync a file on a busy disk.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What failed, when the source is closed already.
const PUBLISH: &str =
    "all is there and the control plane's store is closed, but etcd cannot be opened: run the same migrate once more";

type Part = Vec<(String, Bytes)>;

/// Moves everything; gives what was moved.
pub(super) async fn run(plan: &Plan) -> anyhow::Result<Moved> {
    let mut target = Side::open(&plan.options).await?;
    if let Some(moved) = finished(plan, &mut target).await? {
        return Ok(moved);
    }
    let id = name();
    let why = format!("it is being moved to {} by process {}", plan.etcd(), std::process::id());
    let (stream, given) = source(plan, &id, &why)?;
    let moved = copy(plan, &id, &mut target, &stream).await;
    // Whatever came of it, nobody gives anything any more.
    let _ = stream.shutdown(Shutdown::Both);
    if let Some(given) = given {
        let given = given.join().map_err(|_| wrong("the store's reader failed"))?;
        if moved.is_ok() {
            given?;
        }
    }
    let moved = moved?;
    target.publish().await.context(PUBLISH)?;
    Ok(moved)
}

/// Copies, compares, and leaves the source for good.
async fn copy(plan: &Plan, id: &str, target: &mut Side, stream: &UnixStream) -> anyhow::Result<Moved> {
    let place = plan.store.display();
    let far = Arc::new(AtomicU64::new(0));
    let still = Still::begin(stream.try_clone()?, Arc::clone(&far));
    let mut backup = Backup::open_within(BufReader::new(stream.try_clone()?)).context("the control plane's store")?;
    let header = backup.header.clone();
    ensure!(
        header.format == PRESENT,
        "the store in {place} has format {}: start this version of the control plane on it once, which brings it to {PRESENT}",
        header.format
    );
    let text = format!("they are being moved here from {place}, or were when that ended");
    target.begin(id, &text, header.revision, plan.replaces).await?;
    let (parts, taken) = mpsc::channel(PART.1);
    let is_bound = plan.is_bound();
    let reading = client::blocking::spawn(move || -> anyhow::Result<_> {
        let digest = read(&mut backup, &parts, is_bound)?;
        Ok((digest, backup.into_inner()))
    });
    let filled = fill(target, taken, &far).await;
    let read = reading.await?;
    // If both failed, reading did because writing had.
    filled?;
    let (sent, mut lines) = read?;
    let (arrived, read_at) = count(target, &far).await?;
    ensure!(
        sent == arrived,
        "{} has {} objects after {} were written, or others: nothing is switched",
        plan.etcd(),
        arrived.count,
        sent.count
    );
    let text = format!("they have been moved here from {place}; run the same migrate once more");
    target.whole(id, &text).await?;
    // From here on only others can write there who know nothing of marks.
    target.check_unchanged((arrived.count, read_at)).await?;
    still.end();
    let (left, store) = (
        format!("{id} its objects have been moved to {}", plan.etcd()),
        plan.store.clone(),
    );
    let stream = stream.try_clone()?;
    client::blocking::spawn(move || leave(&store, &left, &stream, &mut lines)).await??;
    Ok(Moved {
        count: sent.count,
        encrypted: sent.encrypted,
        revision: header.revision,
    })
}

/// Finishes a move whose source has been left already; refuses a target that is not empty.
async fn finished(plan: &Plan, target: &mut Side) -> anyhow::Result<Option<Moved>> {
    let left = moved::lasting_line(&plan.store)?;
    let mark = target.mark().await?;
    if let Some(left) = left {
        let is_of = |id: &str| left.split(' ').next() == Some(id);
        ensure!(
            mark.is_some_and(|mark| mark.state == State::Whole && is_of(&mark.id)),
            "the store in {} was moved before: {left}",
            plan.store.display()
        );
        let (Digest { count, encrypted, .. }, revision) = count(target, &AtomicU64::new(0)).await?;
        target.publish().await.context(PUBLISH)?;
        return Ok(Some(Moved {
            count,
            encrypted,
            revision,
        }));
    }
    match mark {
        Some(mark) => ensure!(
            plan.replaces && mark.state != State::Leaving,
            "{} is not empty: {}; say --replace to give up what is there",
            plan.etcd(),
            mark.text
        ),
        None => ensure!(
            target.count().await? == 0,
            "{} is not empty: there are objects that no move has left",
            plan.etcd()
        ),
    }
    Ok(None)
}

pub(super) type Given = std::thread::JoinHandle<Result<(), StoreError>>;

/// A connection over which everything is given: by the daemon, or by a thread of ours if it does not run.
pub(super) fn source(plan: &Plan, id: &str, why: &str) -> anyhow::Result<(UnixStream, Option<Given>)> {
    let (stream, given) = match socket::connect(&plan.store, NAME) {
        Ok(stream) => (stream, None),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            let snapshots = Snapshots::of_closed(&plan.store)?;
            let (ours, theirs) = UnixStream::pair()?;
            let giving = std::thread::spawn(move || give(&theirs, &snapshots, ""));
            (ours, Some(giving))
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot ask the control plane on {}", plan.store.display()));
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    say(&stream, &format!("{BEGIN}{id} {why}"))?;
    Ok((stream, given))
}

/// Reads all records into parts.
fn read(
    backup: &mut Backup<BufReader<UnixStream>>,
    parts: &mpsc::Sender<Part>,
    is_bound: bool,
) -> anyhow::Result<Digest> {
    let (mut digest, mut part, mut bytes) = (Digest::default(), Vec::new(), 0);
    while let Some((key, record)) = backup.next_record().context("what the control plane gives")? {
        let value = value_of(&record);
        ensure!(!(is_bound && value.starts_with(ENCRYPTED)), "{}", super::bound(&key));
        digest.add(&key, value);
        bytes += value.len();
        part.push((key, Bytes::copy_from_slice(value)));
        if bytes > PART.0 {
            parts
                .blocking_send(std::mem::take(&mut part))
                .context("writing has ended")?;
            bytes = 0;
        }
    }
    parts.blocking_send(part).context("writing has ended")?;
    Ok(digest)
}

async fn fill(target: &Side, mut parts: mpsc::Receiver<Part>, far: &AtomicU64) -> Result<(), StoreError> {
    while let Some(part) = parts.recv().await {
        target.fill(&part).await?;
        far.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// What is in etcd, and the revision from which on it was read.
async fn count(target: &Side, far: &AtomicU64) -> Result<(Digest, Revision), StoreError> {
    let mut digest = Digest::default();
    let take = |records: Vec<crate::store::Record>| {
        records.iter().for_each(|record| digest.add(&record.key, &record.value));
        far.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(()))
    };
    let revision = target.read(take).await?;
    Ok((digest, revision))
}

/// Tells the source that everything has arrived.
pub(super) fn leave(
    store: &Path,
    text: &str,
    stream: &UnixStream,
    lines: &mut BufReader<UnixStream>,
) -> anyhow::Result<()> {
    let noted = say(stream, &format!("{ARRIVED}{text}")).and_then(|()| line(lines));
    if noted.as_ref().is_ok_and(|noted| noted == NOTED) || moved::lasting_line(store)?.as_deref() == Some(text) {
        return Ok(());
    }
    // It may have been told, and be about to note it.
    let unknown = format!(
        "whether {} is closed for good is not known: run the same migrate once more, with --replace, and start nothing before that",
        store.display()
    );
    Err(match noted {
        Ok(other) => anyhow!("the control plane has answered {other:?}").context(unknown),
        Err(error) => anyhow!(error).context(unknown),
    })
}

/// Says now and then that we are there, and how far.
struct Still {
    end: std::sync::mpsc::Sender<()>,
    saying: std::thread::JoinHandle<()>,
}

impl Still {
    fn begin(stream: UnixStream, far: Arc<AtomicU64>) -> Self {
        let (end, ended): (_, Receiver<()>) = channel();
        let saying = std::thread::spawn(move || {
            while ended.recv_timeout(STILL_EVERY) == Err(RecvTimeoutError::Timeout)
                && say(&stream, &format!("{STILL}{}", far.load(Ordering::Relaxed))).is_ok()
            {}
        });
        Self { end, saying }
    }

    /// Nothing more is said.
    fn end(self) {
        drop(self.end);
        // It does not panic.
        let _ = self.saying.join();
    }
}
