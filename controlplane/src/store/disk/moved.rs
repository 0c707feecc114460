//! What becomes of a store whose objects move elsewhere: nothing is written while they are read, nor ever again once they are there.
//!
//! Owns the hold on writes, the file that says where everything is now, and the names of what is about to arrive. Never copies anything.

use super::directory::{Directory, unusable};
use super::snapshot::Snapshots;
use crate::store::StoreError;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file that says where the objects are: the move's name and a line for people.
const MOVED: &str = "moved";
/// In a store that is whole and perhaps not yet in its place: the move's name, and what was moved.
pub const WHOLE: &str = "whole";

/// Why nothing is written, if so. Held by the writer through each commit: who sets it sees everything that was written before.
#[derive(Clone, Default)]
pub(super) struct Hold(Arc<Mutex<Option<String>>>);

impl Hold {
    pub(super) fn why(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nothing is written as long as this lives; [`Held::leave`] makes that for good.
pub struct Held<'s> {
    snapshots: &'s Snapshots,
    is_left: bool,
}

impl Snapshots {
    /// Refuses all writes from now on, with this text. Those before are there for a reading that begins now.
    ///
    /// # Errors
    /// `Unusable`: the objects are elsewhere already, or may be, or are on their way.
    pub fn hold(&self, why: &str) -> Result<Held<'_>, StoreError> {
        check(&self.path)?;
        let mut held = self.hold.why();
        if let Some(present) = &*held {
            return Err(unusable(&self.path, "takes no writes already", present));
        }
        *held = Some(why.to_owned());
        drop(held);
        Ok(Held {
            snapshots: self,
            is_left: false,
        })
    }
}

impl Held<'_> {
    /// The objects are elsewhere now, as the line says that begins with the move's name. Nobody opens the store any more.
    ///
    /// # Errors
    /// `Unusable`: it cannot be noted, and writes are taken again; or nobody knows whether it is, and they are not, as the text says.
    pub fn leave(self, line: &str) -> Result<(), StoreError> {
        self.leave_with(line, sync)
    }

    fn leave_with(mut self, line: &str, sync: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), StoreError> {
        let directory = &self.snapshots.path;
        let next = directory.join(format!("{MOVED}.next"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&next)?;
            writeln!(file, "{line}")?;
            file.sync_all()
        };
        write().map_err(|error| unusable(&next, "cannot be written", &error))?;
        // Who moves the objects believes the file: from here on nothing is written whatever becomes of it.
        self.is_left = true;
        *self.snapshots.hold.why() = Some(text_of(line).to_owned());
        std::fs::rename(&next, path(directory))
            .and_then(|()| sync(directory))
            .map_err(|error| {
                let what =
                    "is perhaps not there for good, and no writes are taken until the control plane is started again";
                unusable(&path(directory), what, &error)
            })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.is_left {
            *self.snapshots.hold.why() = None;
        }
    }
}

fn text_of(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(_, text)| text)
}

fn path(directory: &Path) -> PathBuf {
    directory.join(MOVED)
}

/// The line that [`Held::leave`] wrote into a store's directory, if it did.
///
/// # Errors
/// `Unusable`: it cannot be read.
pub fn line(directory: &Path) -> Result<Option<String>, StoreError> {
    match std::fs::read_to_string(path(directory)) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(&path(directory), "cannot be read", &error)),
    }
}

/// As [`line`], of what a power cut does not take back.
///
/// # Errors
/// `Unusable`: it cannot be read, or not be made to last.
pub fn lasting_line(directory: &Path) -> Result<Option<String>, StoreError> {
    let found = line(directory)?;
    if found.is_some() {
        // Whoever wrote it may have died, or failed, before it did that.
        sync(directory).map_err(|error| unusable(&path(directory), "cannot be made to last", &error))?;
    }
    Ok(found)
}

fn sync(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Where a store is made that is to take this one's place.
pub fn arriving(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".moving");
    PathBuf::from(name)
}

/// Refuses a directory that the objects of a move are about to be put in the place of: a store made there would hide them.
///
/// # Errors
/// `Unusable`, saying what helps.
pub(super) fn check_arrived(directory: &Path) -> Result<(), StoreError> {
    let arriving = arriving(directory);
    let is_whole = arriving.join(WHOLE).try_exists();
    match is_whole.map_err(|error| unusable(&arriving, "cannot be read", &error))? {
        false => Ok(()),
        true => Err(StoreError::Unusable(format!(
            "{} holds objects that have been moved out of etcd, and {} is not yet in its place: run the same `controlplane migrate --to \
             embedded` once more (whoever removes {} gives them up)",
            arriving.display(),
            directory.display(),
            arriving.display()
        ))),
    }
}

/// Keeps everybody from a directory that another store is to take the place of, as long as the value lives; makes it if there is none.
///
/// # Errors
/// `Unusable`: somebody has it open, as the text says.
pub fn keep_out(directory: &Path) -> Result<impl Send + use<>, StoreError> {
    Directory::hold(directory)
}

/// Refuses a store whose objects are elsewhere.
///
/// # Errors
/// `Unusable`, saying where.
pub fn check(directory: &Path) -> Result<(), StoreError> {
    match line(directory)? {
        None => Ok(()),
        Some(line) => Err(StoreError::Unusable(format!(
            "the store in {} is not used any more: {} (whoever removes {} goes back to what was there then)",
            directory.display(),
            text_of(&line),
            path(directory).display()
        ))),
    }
}

/// Another store is in the directory now.
pub(super) fn forget(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path(directory)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::Disk;
    use crate::store::{Expect, Store};

    #[tokio::test]
    async fn nothing_is_written_while_it_is_held_and_nobody_opens_what_was_left() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        let put = async |value: &'static str, expect| disk.put("/a", value.into(), expect).await;
        let first = put("1", Expect::Absent).await.unwrap();
        let snapshots = disk.snapshots();
        let held = snapshots.hold("it moves").unwrap();
        let refused = put("2", Expect::At(first)).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly(why)) if why == "it moves"));
        let refused = disk.delete("/a", first).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly(_))));
        assert_eq!(disk.range("").await.unwrap().1.len(), 1, "it is read");
        drop(held);
        put("2", Expect::At(first)).await.unwrap();

        snapshots.hold("it moves").unwrap().leave("17 it is in etcd").unwrap();
        assert!(snapshots.hold("again").is_err(), "it is moved once");
        let refused = put("3", Expect::Absent).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly(why)) if why == "it is in etcd"));
        drop(snapshots);
        disk.close().await;
        assert_eq!(line(directory.path()).unwrap().as_deref(), Some("17 it is in etcd"));
        let refused = Disk::open(directory.path()).err().unwrap().to_string();
        assert!(refused.contains("is not used any more: it is in etcd ("), "{refused}");
        let refused = Snapshots::of_closed(directory.path()).err().unwrap().to_string();
        assert!(refused.contains("it is in etcd"), "neither is it backed up: {refused}");
        // Who opens it while it is being left waits for nobody, and finds out.
        let kept = keep_out(directory.path()).unwrap();
        let refused = Disk::open(directory.path()).err().unwrap().to_string();
        assert!(refused.contains("is in use by process"), "{refused}");
        drop(kept);
        forget(directory.path()).unwrap();
        Disk::open(directory.path()).unwrap().close().await;
    }

    /// The note may be there, and be believed.
    #[tokio::test]
    async fn writes_are_never_taken_again_once_the_note_may_be_there() {
        for is_renamed in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let disk = Disk::open(directory.path()).unwrap();
            let snapshots = disk.snapshots();
            let held = snapshots.hold("it moves").unwrap();
            assert!(snapshots.hold("another moves it").is_err(), "one at a time");
            if !is_renamed {
                std::fs::create_dir(path(directory.path())).unwrap();
            }
            let failed = held.leave_with("17 it is in etcd", |_| Err(ErrorKind::StorageFull.into()));
            let failed = failed.unwrap_err().to_string();
            assert!(failed.contains("no writes are taken until"), "{failed}");
            let refused = disk.put("/a", "1".into(), Expect::Absent).await;
            assert!(
                matches!(&refused, Err(StoreError::ReadOnly(why)) if why == "it is in etcd"),
                "{refused:?}"
            );
            if !is_renamed {
                std::fs::remove_dir(path(directory.path())).unwrap();
            }
            assert!(snapshots.hold("again").is_err());
            let refused = disk.put("/a", "1".into(), Expect::Absent).await;
            assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
            drop(snapshots);
            disk.close().await;
            assert_eq!(Disk::open(directory.path()).is_err(), is_renamed);
        }
    }

    #[tokio::test]
    async fn what_could_not_be_noted_is_not_left() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        std::fs::create_dir(directory.path().join("moved.next")).unwrap();
        let snapshots = disk.snapshots();
        let held = snapshots.hold("it moves").unwrap();
        assert!(held.leave("17 it is in etcd").is_err());
        disk.put("/a", "1".into(), Expect::Absent).await.unwrap();
        drop(snapshots);
        disk.close().await;
    }

    #[tokio::test]
    async fn no_store_is_made_in_the_place_of_one_that_arrives() {
        let parent = tempfile::tempdir().unwrap();
        let store = parent.path().join("store");
        let arriving = arriving(&store);
        // Before it is whole, it is nothing to anybody.
        Disk::open(&arriving).unwrap().close().await;
        std::fs::write(arriving.join(WHOLE), "1f 2 0 17\n").unwrap();
        let refused = Disk::open(&store).err().unwrap().to_string();
        assert!(
            refused.contains("run the same `controlplane migrate --to embedded` once more"),
            "{refused}"
        );
        assert!(!store.exists(), "it would be in the way");
        // Nor is one opened that is given up for it, or made of a backup.
        std::fs::create_dir(&store).unwrap();
        assert!(Disk::open(&store).is_err() && !store.join("state.redb").exists());
        let begins = super::super::snapshot::Beginning {
            format: ::store::form::PRESENT,
            revision: 1,
            replaces: true,
        };
        let refused = super::super::snapshot::write(&store, begins, &mut || Ok(None)).unwrap_err();
        assert!(refused.to_string().contains("once more"), "{refused}");
        std::fs::remove_file(arriving.join(WHOLE)).unwrap();
        Disk::open(&store).unwrap().close().await;
    }
}
