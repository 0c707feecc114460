//! Static pods of a directory (not below it) or of one file.
//!
//! Everything is read again when the kernel tells of a change, and every `fileCheckFrequency`. What is read is only ever a
//! regular file of bounded size: a FIFO, a device or a directory is told of and passed over. A file that was removed and put back
//! gives its pod anew, seen at another time: that pod ends and starts again, as upstream's does. A file that is broken keeps the
//! pod it last gave, until it is right again or gone; the others are not touched by it.

mod read;

use super::Delivered;
use super::manifest::{self, Place};
use super::merge::Origin;
use crate::pod_object::{self, annotation};
use client::{Clock, beat};
use futures::{FutureExt, StreamExt};
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use k8s_openapi::api::core::v1::Pod;
use read::{Content, Reading};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Changes that come closer together than this are read once.
const SETTLE: Duration = Duration::from_millis(50);
/// Names of removed files that are remembered until the next reading.
const REMOVED_MAX: usize = 10_000;

/// Reads static pods.
pub(super) struct FileSource {
    path: PathBuf,
    every: Duration,
    node: String,
    clock: Arc<dyn Clock>,
    files: BTreeMap<PathBuf, File>,
    missing_told: bool,
}

/// What is known of one file.
#[derive(Default)]
struct File {
    content: Option<Content>,
    /// What it last gave.
    pod: Option<Arc<Pod>>,
}

impl FileSource {
    pub(super) fn new(path: PathBuf, every: Duration, node: String, clock: Arc<dyn Clock>) -> Self {
        Self {
            path,
            every,
            node,
            clock,
            files: BTreeMap::new(),
            missing_told: false,
        }
    }

    /// Delivers until shut down.
    pub(super) async fn run(mut self, pods: watch::Sender<Delivered>, shutdown: CancellationToken) {
        let mut watcher = Watcher::new(&self.path);
        loop {
            // The watch comes before the reading, so that no change falls between.
            watcher.renew();
            for path in watcher.removed() {
                // What is there now is another file, though it may say the same.
                self.files.remove(&path);
            }
            let path = self.path.clone();
            let reading = client::blocking::spawn(move || read::read(&path)).await;
            match reading {
                Ok(Ok(reading)) => self.deliver(reading, &pods),
                Ok(Err(error)) => {
                    tracing::error!(path = %self.path.display(), %error, "static pod path not read, its pods stay as they are");
                }
                Err(error) => tracing::error!(%error, "reading static pods ended early"),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = watcher.changed() => tokio::time::sleep(SETTLE).await,
                () = beat::wait(self.every) => {}
            }
        }
    }

    fn deliver(&mut self, reading: Reading, pods: &watch::Sender<Delivered>) {
        if reading.missing && !self.missing_told {
            tracing::warn!(path = %self.path.display(), "static pod path does not exist, ignoring");
        }
        self.missing_told = reading.missing;
        self.files.retain(|path, _| reading.files.contains_key(path));
        for (path, content) in reading.files {
            self.take(path, content);
        }
        let listed: Vec<Arc<Pod>> = self.files.values().filter_map(|file| file.pod.clone()).collect();
        pods.send_if_modified(|delivered| {
            let same = delivered.as_ref().is_some_and(|old| {
                old.len() == listed.len() && old.iter().zip(&listed).all(|(a, b)| Arc::ptr_eq(a, b))
            });
            if !same {
                *delivered = Some(listed);
            }
            !same
        });
    }

    /// Takes what a file has now; the same content is the same pod.
    fn take(&mut self, path: PathBuf, content: Content) {
        let file = self.files.entry(path.clone()).or_default();
        if file.content.as_ref() == Some(&content) {
            return;
        }
        match &content {
            Content::Text(bytes) => {
                let place = Place {
                    origin: Origin::File,
                    source: &path.to_string_lossy(),
                    node: &self.node,
                    now: self.clock.now(),
                };
                match manifest::pods(bytes, place) {
                    Ok(mut pods) => {
                        let mut pod = pods.pop();
                        keep_seen(pod.as_mut(), file.pod.as_deref());
                        let pod = pod.map(Arc::new);
                        // Another layout of the same pod is no other pod.
                        let uid = |pod: &Option<Arc<Pod>>| pod.as_ref().and_then(|pod| pod.metadata.uid.clone());
                        if uid(&pod) != uid(&file.pod) || pod != file.pod {
                            file.pod = pod;
                        }
                    }
                    Err(error) => {
                        let kept = file.pod.is_some();
                        tracing::error!(path = %path.display(), %error, kept, "can't process manifest file");
                    }
                }
            }
            Content::Unreadable(error) => {
                tracing::error!(path = %path.display(), error, "can't read manifest file");
            }
            Content::NotRegular(what) => {
                tracing::error!(path = %path.display(), what, "manifest path is no regular file, ignoring");
                file.pod = None;
            }
        }
        file.content = Some(content);
    }
}

/// A pod of the same UID was first seen when its file first gave it, however often that is written anew.
fn keep_seen(new: Option<&mut Pod>, old: Option<&Pod>) {
    let Some((new, old)) = new.zip(old).filter(|(new, old)| new.metadata.uid == old.metadata.uid) else {
        return;
    };
    if let Some(seen) = pod_object::seen(old) {
        let annotations = new.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::SEEN.to_owned(), seen.to_owned());
    }
}

/// Tells of changes below a directory, or of one file in it.
struct Watcher {
    directory: PathBuf,
    /// The one file that matters, if the path is no directory.
    file: Option<OsString>,
    path: PathBuf,
    stream: Option<(Watches, EventStream<[u8; 4096]>)>,
    /// Files that were removed since somebody asked: they may be back, but as others.
    removed: BTreeSet<OsString>,
    watched: Option<WatchDescriptor>,
}

impl Watcher {
    fn new(path: &Path) -> Self {
        Self {
            directory: path.to_owned(),
            file: None,
            path: path.to_owned(),
            stream: None,
            removed: BTreeSet::new(),
            watched: None,
        }
    }

    /// Sets the watch where the path leads now: the directory, or the one its file is in or will be in.
    fn renew(&mut self) {
        if self.path.is_dir() {
            self.file = None;
            self.directory.clone_from(&self.path);
        } else {
            self.file = self.path.file_name().map(ToOwned::to_owned);
            self.directory = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        }
        let mask = WatchMask::CREATE
            | WatchMask::CLOSE_WRITE
            | WatchMask::ATTRIB
            | WatchMask::MOVED_FROM
            | WatchMask::MOVED_TO
            | WatchMask::DELETE;
        if self.stream.is_none() {
            self.stream = Inotify::init()
                .and_then(|inotify| Ok((inotify.watches(), inotify.into_event_stream([0; 4096])?)))
                .inspect_err(|error| tracing::warn!(%error, "no notice of changed manifests, they are only listed"))
                .ok();
        }
        let Some((watches, _)) = &mut self.stream else { return };
        match watches.add(&self.directory, mask) {
            Ok(watch) => {
                let before = self.watched.replace(watch.clone());
                // The same place has the same watch.
                if let Some(old) = before.filter(|old| *old != watch) {
                    drop(watches.remove(old));
                }
            }
            Err(error) => {
                tracing::debug!(path = %self.directory.display(), %error, "static pod path not watched");
            }
        }
    }

    /// The files that were removed since this was last asked, by what the kernel has told so far.
    fn removed(&mut self) -> Vec<PathBuf> {
        if let Some((_, stream)) = &mut self.stream {
            while let Some(Some(Ok(event))) = stream.next().now_or_never() {
                note(&mut self.removed, event, self.file.as_ref());
            }
        }
        let names = std::mem::take(&mut self.removed);
        names.iter().map(|name| self.directory.join(name)).collect()
    }

    /// Waits for a change; forever if there is no watch.
    async fn changed(&mut self) {
        let Some((_, stream)) = &mut self.stream else {
            return std::future::pending().await;
        };
        loop {
            match stream.next().await {
                Some(Ok(event)) => {
                    if note(&mut self.removed, event, self.file.as_ref()) {
                        return;
                    }
                }
                Some(Err(_)) | None => {
                    (self.stream, self.watched) = (None, None);
                    return std::future::pending().await;
                }
            }
        }
    }
}

/// Takes an event; tells whether it is about a file that matters.
fn note(removed: &mut BTreeSet<OsString>, event: EventOwned, file: Option<&OsString>) -> bool {
    if event.mask.contains(EventMask::IGNORED) || (file.is_some() && event.name.as_ref() != file) {
        return false;
    }
    let is_gone = event.mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM);
    if let Some(name) = event.name.filter(|_| is_gone && removed.len() < REMOVED_MAX) {
        removed.insert(name);
    }
    true
}

#[cfg(test)]
mod tests;
