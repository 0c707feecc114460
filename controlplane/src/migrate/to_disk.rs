//! From etcd into the embedded store.

use super::digest::{Digest, ENCRYPTED};
use super::{Moved, Plan, name, wrong};
use crate::backup::command::BUMP;
use crate::pki::files;
use crate::store::disk::moved::{self, WHOLE};
use crate::store::disk::snapshot::{self, Beginning, Part, Snapshots, record_bytes, value_of};
use crate::store::form::PRESENT;
use crate::store::{Record, StoreError};
use anyhow::{Context, bail, ensure};
use etcd::moving::{Held, Mark, Side, State};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// How many pages of etcd's may wait for the disk.
const PAGES: usize = 2;
/// What reading says when there is nobody to take it.
const ENDED: &str = "writing has ended";

/// Moves everything; gives what was moved.
pub(super) async fn run(plan: &Plan) -> anyhow::Result<Moved> {
    let mut source = Side::open(&plan.options).await?;
    let next = moved::arriving(&plan.store);
    if let Some(mark) = source.mark().await? {
        return finish(plan, &mut source, &mark, &next).await;
    }
    let kept_out = check_target(plan)?;
    let id = name();
    let why = format!(
        "it is being moved to {} by process {} there",
        plan.store.display(),
        std::process::id()
    );
    let held = source.hold(&id, &why).await?;
    let moved = match copy(plan, &source, &next).await {
        Ok(moved) => moved,
        Err(error) => {
            give_up(held, &next).await;
            return Err(error);
        }
    };
    mark_whole(&next, &id, &moved)?;
    // From here on the source is of no use, or the target.
    let text = format!("its objects have been moved to {}", plan.store.display());
    let left = source.leave(held, &text, (moved.count, moved.revision)).await;
    or_given_up(left, &next)?;
    put_in_place(plan, &next)?;
    drop(kept_out);
    Ok(moved)
}

/// Refuses a place where there is a store, unless it was moved away from there and is to go; nobody begins one there as long as the
/// value lives.
fn check_target(plan: &Plan) -> anyhow::Result<impl Send + use<>> {
    let store = &plan.store;
    let kept_out = moved::keep_out(store).context("stop what runs there first")?;
    if store.join("state.redb").exists() {
        match moved::line(store)? {
            None => bail!("{} holds a store already", store.display()),
            Some(_) if plan.replaces => {}
            Some(_) => bail!(
                "{} holds a store already, which was moved away from there: say --replace to give it up",
                store.display()
            ),
        }
    }
    check_place(store)?;
    Ok(kept_out)
}

/// What becomes of a target that is whole if the source is not left for good: it goes if etcd is open again.
fn or_given_up(left: Result<(), StoreError>, next: &Path) -> anyhow::Result<()> {
    match left {
        Err(error @ StoreError::Refused(_)) => {
            // What is told is why; the next try would remove it, too.
            let _ = remove(next);
            Err(error.into())
        }
        left => left.context(
            "whether etcd takes writes is not known: run the same migrate once more, and start nothing before that",
        ),
    }
}

/// Refuses a directory that another cannot take the place of: a mount point, or a link to one elsewhere.
fn check_place(store: &Path) -> anyhow::Result<()> {
    let left = left_of(store);
    let place = || -> std::io::Result<()> {
        remove(&left)?;
        std::fs::create_dir(&left)?;
        File::create(left.join("full"))?;
        // What is not empty is never replaced: it would be told if nothing else were in the way, and nothing moves.
        let told = std::fs::rename(store, &left);
        remove(&left)?;
        match told {
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => Ok(()),
            told => told,
        }
    };
    place().with_context(|| {
        format!(
            "another directory cannot take the place of {} (it is to be no mount point and no link)",
            store.display()
        )
    })
}

async fn give_up(held: Held, next: &Path) {
    if let Err(error) = Side::release(held).await {
        eprintln!("etcd takes writes again in half a minute: {error}");
    }
    // The next try would remove it, too; what is told is why this one failed.
    let _ = remove(next);
}

/// Copies and compares.
async fn copy(plan: &Plan, source: &Side, next: &Path) -> anyhow::Result<Moved> {
    remove(next).with_context(|| format!("cannot remove {}", next.display()))?;
    if let Some(data_dir) = next.parent() {
        files::make_private_dir(data_dir)?;
    }
    let revision = source.revision().await?;
    let begins = Beginning {
        format: PRESENT,
        // Servers that only read may tell of later revisions yet: others move etcd's on.
        revision: revision.saturating_add(BUMP),
        replaces: false,
    };
    let (pages, taken) = mpsc::channel(PAGES);
    let place = next.to_owned();
    let writing = client::blocking::spawn(move || write(&place, begins, taken));
    let mut sent = Digest::default();
    let is_bound = plan.is_bound();
    let read = source.read(|records| {
        let mut bound = records
            .iter()
            .filter(|record| is_bound && record.value.starts_with(ENCRYPTED));
        let bound = bound.next().map(|record| super::bound(&record.key));
        records.iter().for_each(|record| sent.add(&record.key, &record.value));
        let sending = pages.clone();
        async move {
            bound.map_or(Ok(()), |why| Err(wrong(why)))?;
            sending.send(Some(records)).await.map_err(|_| wrong(ENDED))
        }
    });
    let read = read.await;
    if read.is_ok() {
        // Without it what is there is not taken for all.
        let _ = pages.send(None).await;
    }
    drop(pages);
    let written = writing.await?;
    match read {
        // Reading failed because writing had.
        Err(StoreError::Unusable(why)) if why == ENDED => {}
        // Otherwise it is the other way round.
        read => {
            read?;
        }
    }
    written?;
    let place = next.to_owned();
    let arrived = client::blocking::spawn(move || count(&place)).await??;
    ensure!(
        sent == arrived,
        "{} has {} objects after {} were written, or others: nothing is switched",
        next.display(),
        arrived.count,
        sent.count
    );
    Ok(Moved {
        count: sent.count,
        encrypted: sent.encrypted,
        revision,
    })
}

fn write(next: &Path, begins: Beginning, mut pages: mpsc::Receiver<Option<Vec<Record>>>) -> Result<u64, StoreError> {
    let mut page = Vec::new().into_iter();
    snapshot::write(next, begins, &mut || {
        loop {
            if let Some(record) = page.next() {
                let record: Record = record;
                return Ok(Some((record.key.to_string(), record_bytes(&record))));
            }
            match pages.blocking_recv() {
                Some(Some(records)) => page = records.into_iter(),
                Some(None) => return Ok(None),
                None => return Err(wrong("etcd cannot be read to the end")),
            }
        }
    })
}

/// What is in a store that nobody has open.
fn count(store: &Path) -> Result<Digest, StoreError> {
    let mut digest = Digest::default();
    Snapshots::of_closed(store)?.read(&mut |part| {
        if let Part::Record(key, record) = part {
            digest.add(key, value_of(record));
        }
        Ok(())
    })?;
    Ok(digest)
}

fn mark_whole(next: &Path, id: &str, moved: &Moved) -> anyhow::Result<()> {
    let path = next.join(WHOLE);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&path)?;
        let Moved {
            count,
            encrypted,
            revision,
        } = moved;
        file.write_all(format!("{id} {count} {encrypted} {revision}\n").as_bytes())?;
        file.sync_all()?;
        // And the directory itself, which is new, and the one it is in, which may be.
        for directory in next.ancestors().take(3).filter(|path| !path.as_os_str().is_empty()) {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// What is whole there of the move of this name.
fn whole(next: &Path, id: &str) -> anyhow::Result<Option<Moved>> {
    let text = match std::fs::read_to_string(next.join(WHOLE)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", next.display())),
    };
    // Cut off, it is not whole.
    let numbers = text.strip_prefix(id).and_then(|rest| rest.strip_suffix('\n'));
    let numbers: Option<Vec<u64>> =
        numbers.and_then(|rest| rest.split_whitespace().map(|word| word.parse().ok()).collect());
    Ok(match numbers.as_deref() {
        Some(&[count, encrypted, revision]) => Some(Moved {
            count,
            encrypted,
            revision,
        }),
        _ => None,
    })
}

/// A move whose source has been left already.
async fn finish(plan: &Plan, source: &mut Side, mark: &Mark, next: &Path) -> anyhow::Result<Moved> {
    let is_left = mark.state == State::Gone;
    if let Some(moved) = whole(&plan.store, &mark.id)?.filter(|_| is_left) {
        // It came as far as its place.
        clear(plan)?;
        return Ok(moved);
    }
    let moved = whole(next, &mark.id)?.filter(|_| is_left);
    let moved = moved.with_context(|| format!("{} cannot be moved: {}", plan.etcd(), mark.text))?;
    let kept_out = check_target(plan)?;
    or_given_up(source.stay_left((moved.count, moved.revision)).await, next)?;
    put_in_place(plan, next)?;
    drop(kept_out);
    Ok(moved)
}

fn remove(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where what was there before goes.
fn left_of(store: &Path) -> PathBuf {
    let mut left = store.as_os_str().to_owned();
    left.push(".left");
    PathBuf::from(left)
}

/// The store takes its place, whole. Others are kept out of what was there.
fn put_in_place(plan: &Plan, next: &Path) -> anyhow::Result<()> {
    let store = &plan.store;
    let put = || -> std::io::Result<()> {
        // In one step, so that no part of it is ever taken for a store.
        let left = left_of(store);
        remove(&left)?;
        std::fs::rename(store, &left)?;
        std::fs::rename(next, store)?;
        File::open(store.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    put().with_context(|| {
        format!(
            "{} cannot be put in place, and etcd takes no writes any more: run the same migrate once more",
            store.display()
        )
    })?;
    clear(plan)
}

/// What was there before goes, and last what says that there is something to do.
fn clear(plan: &Plan) -> anyhow::Result<()> {
    let store = &plan.store;
    let clear = || -> std::io::Result<()> {
        remove(&left_of(store))?;
        std::fs::remove_file(store.join(WHOLE))
    };
    clear().with_context(|| {
        format!(
            "{} is in its place, but what was there before cannot be removed",
            store.display()
        )
    })
}
