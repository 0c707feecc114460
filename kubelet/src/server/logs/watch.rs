//! Changes of directories, told to all who follow logs in them by one inotify instance: a user has 128 of those, and every program of
//! that user needs some. There is none while nobody follows.

use futures::FutureExt;
use futures::StreamExt;
use inotify::{EventOwned, EventStream, Inotify, WatchDescriptor, WatchMask};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// The directories that are watched. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches(Arc<Mutex<Option<Instance>>>);

#[derive(Debug)]
struct Instance {
    watches: inotify::Watches,
    directories: HashMap<WatchDescriptor, Directory>,
    /// Reads the events.
    _reader: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Directory {
    followers: usize,
    changes: watch::Sender<()>,
}

/// A directory that is watched, until this is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    of: Watches,
    directory: WatchDescriptor,
    changes: watch::Receiver<()>,
}

impl Watches {
    fn locked(&self) -> MutexGuard<'_, Option<Instance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a directory from now on.
    ///
    /// # Errors
    /// The kernel has no instance or no watch left, or there is no such directory.
    pub(super) fn watch(&self, directory: &Path) -> io::Result<Watched> {
        let mut held = self.locked();
        let mut instance = match held.take() {
            Some(instance) => instance,
            None => self.begin()?,
        };
        let watched = self.add(&mut instance, directory);
        if !instance.directories.is_empty() {
            *held = Some(instance);
        }
        watched
    }

    fn begin(&self) -> io::Result<Instance> {
        let inotify = Inotify::init()?;
        let watches = inotify.watches();
        let events = inotify.into_event_stream([0; 4096])?;
        let reader = tokio::spawn(self.clone().read(events).boxed());
        Ok(Instance {
            watches,
            directories: HashMap::new(),
            _reader: AbortOnDropHandle::new(reader),
        })
    }

    fn add(&self, instance: &mut Instance, directory: &Path) -> io::Result<Watched> {
        let mask =
            WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_FROM | WatchMask::MOVED_TO | WatchMask::DELETE;
        // The kernel gives one directory one descriptor, however often it is added.
        let descriptor = instance.watches.add(directory, mask)?;
        let entry = instance.directories.entry(descriptor.clone());
        let entry = entry.or_insert_with(|| Directory {
            followers: 0,
            changes: watch::Sender::new(()),
        });
        entry.followers += 1;
        Ok(Watched {
            of: self.clone(),
            directory: descriptor,
            changes: entry.changes.subscribe(),
        })
    }

    async fn read(self, mut events: EventStream<[u8; 4096]>) {
        while let Some(event) = events.next().await {
            self.tell(event.ok().as_ref());
        }
    }

    /// Wakes who follows in the directory of an event; everybody when some were lost.
    fn tell(&self, event: Option<&EventOwned>) {
        let held = self.locked();
        let Some(instance) = held.as_ref() else { return };
        match event.and_then(|event| instance.directories.get(&event.wd)) {
            Some(directory) => directory.changes.send_replace(()),
            None => instance
                .directories
                .values()
                .for_each(|all| all.changes.send_replace(())),
        }
    }
}

impl Watched {
    /// Waits for the next change; forever if no more are told.
    pub(super) async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut held = self.of.locked();
        let Some(instance) = held.as_mut() else { return };
        let Some(directory) = instance.directories.get_mut(&self.directory) else {
            return;
        };
        directory.followers -= 1;
        if directory.followers == 0 {
            instance.directories.remove(&self.directory);
            // It fails where the directory is gone, and its watch with it.
            let _ = instance.watches.remove(self.directory.clone());
        }
        if instance.directories.is_empty() {
            *held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Directories and followers of the instance; nothing if there is none.
    fn held(watches: &Watches) -> Option<(usize, usize)> {
        let held = watches.locked();
        let directories = &held.as_ref()?.directories;
        Some((directories.len(), directories.values().map(|d| d.followers).sum()))
    }

    #[tokio::test]
    async fn all_followers_share_one_instance_that_goes_with_the_last() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for path in [&a, &b] {
            fs::create_dir(path).expect("made");
        }
        let watches = Watches::default();
        assert!(watches.watch(&dir.path().join("none")).is_err());
        assert_eq!(held(&watches), None);
        // More than a user has instances.
        let mut of_a: Vec<_> = (0..300).map(|_| watches.watch(&a).expect("watched")).collect();
        let mut of_b = watches.watch(&b).expect("watched");
        assert_eq!(held(&watches), Some((2, 301)));
        fs::write(a.join("0.log"), "x").expect("written");
        for follower in &mut of_a {
            follower.changed().await;
        }
        assert!(!of_b.changes.has_changed().expect("open"), "of the other directory");
        fs::write(b.join("0.log"), "x").expect("written");
        of_b.changed().await;
        drop(of_b);
        assert_eq!(held(&watches), Some((1, 300)));
        drop(of_a);
        assert_eq!(held(&watches), None);
        let mut again = watches.watch(&b).expect("watched");
        fs::write(b.join("1.log"), "x").expect("written");
        again.changed().await;
    }

    #[tokio::test]
    async fn a_directory_that_went_leaves_the_others_watched() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for path in [&a, &b] {
            fs::create_dir(path).expect("made");
        }
        let watches = Watches::default();
        let (gone, mut stays) = (watches.watch(&a).expect("watched"), watches.watch(&b).expect("watched"));
        fs::remove_dir(&a).expect("removed");
        drop(gone);
        assert_eq!(held(&watches), Some((1, 1)));
        fs::write(b.join("0.log"), "x").expect("written");
        stays.changed().await;
    }
}
