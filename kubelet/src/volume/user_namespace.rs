//! The file `userns` of a pod's directory: which ids of the node the pod's users are. It is there before the pod's sandbox is, and
//! goes with the directory, so that no two pods ever have the same.

use super::{Inner, VolumeError, Volumes};
use crate::id::PodUid;
use crate::user_namespace::{self, IdRange, RangeError, Ranges};
use client::ordered::CollectOrdered;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{MutexGuard, PoisonError};

const FILE_NAME: &str = "userns";

impl Volumes {
    /// The ids of a pod that has users of its own: those it has had, or new ones. The pod's directory must be there.
    ///
    /// # Errors
    /// All are taken; the pod's file tells what no kubelet of this configuration wrote; or another's tells nothing at all, and this
    /// pod has no ids yet.
    pub async fn user_namespace(&self, uid: &PodUid) -> Result<IdRange, VolumeError> {
        let pod = uid.clone();
        self.files(uid, move |inner| inner.user_namespace(&pod)).await
    }
}

impl Inner {
    fn user_namespace(&self, uid: &PodUid) -> Result<IdRange, VolumeError> {
        let dir = self.own_dir(uid)?;
        let (range, is_new) = {
            let mut held = self.ranges();
            let ranges = match &mut *held {
                Some(ranges) => ranges,
                // Nobody asked before: what earlier kubelets gave is still given.
                empty => empty.insert(self.recovered()?),
            };
            for odd in ranges.foreign() {
                // Somebody may have put it right.
                recover(ranges, &odd, &self.own_dir(&odd)?.join(FILE_NAME));
            }
            ranges.take(uid)?
        };
        let path = dir.join(FILE_NAME);
        if fs::read(&path).is_ok_and(|text| text == user_namespace::write(range)) {
            return Ok(range);
        }
        write(&dir, range).map_err(|why| {
            // What the pod had before may be in use: only what was never told is free again.
            if is_new && fs::remove_file(&path).or_else(none_is_fine).is_ok() {
                self.forget_user_namespace(uid);
            }
            VolumeError::PodDirectory { path, why }
        })?;
        Ok(range)
    }

    pub(super) fn forget_user_namespace(&self, uid: &PodUid) {
        if let Some(ranges) = &mut *self.ranges() {
            ranges.release(uid);
        }
    }

    fn ranges(&self) -> MutexGuard<'_, Option<Ranges>> {
        self.user_namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the files of all pods tell.
    fn recovered(&self) -> Result<Ranges, VolumeError> {
        let mut ranges = Ranges::new(self.settings.ids);
        let pods = self.settings.root_dir.join("pods");
        let entries = fs::read_dir(&pods).map_err(|why| VolumeError::PodDirectory {
            path: pods.clone(),
            why,
        })?;
        let uid_of = |entry: fs::DirEntry| PodUid::from_file_name(entry.file_name().to_str()?);
        // In order, so that of two pods with one range it is always the same that keeps it.
        let uids: BTreeSet<PodUid> = entries.flatten().filter_map(uid_of).collect_ordered();
        for uid in uids {
            recover(&mut ranges, &uid, &pods.join(uid.as_str()).join(FILE_NAME));
        }
        Ok(ranges)
    }
}

/// Notes what a pod's file tells.
fn recover(ranges: &mut Ranges, uid: &PodUid, path: &Path) {
    match fs::read(path) {
        // Written by nobody to the end.
        Ok(text) if text.is_empty() => ranges.recover_none(uid),
        Ok(text) => ranges.recover(uid, path, Ok(&text)),
        Err(error) if is_nothing(&error) => ranges.recover_none(uid),
        Err(error) => ranges.recover(uid, path, Err(RangeError::File(error.to_string()))),
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn none_is_fine(error: io::Error) -> io::Result<()> {
    if is_nothing(&error) { Ok(()) } else { Err(error) }
}

/// Whole or not at all, and there for good before anything runs with these ids.
fn write(dir: &Path, range: IdRange) -> io::Result<()> {
    let new = dir.join(format!("{FILE_NAME}.new"));
    let mut file = fs::File::create(&new)?;
    file.write_all(&user_namespace::write(range))?;
    file.sync_all()?;
    fs::rename(&new, dir.join(FILE_NAME))?;
    fs::File::open(dir)?.sync_all()
}
