//! Which sockets are below a directory, and when that changes: one inotify instance for all directories there are.
//!
//! Names that begin with a dot are passed over, links are not followed, and what is there is counted up to a bound: whoever may write
//! here is no stranger, but one that writes too much costs no more than that.

use crate::wake;
use futures::{FutureExt, StreamExt};
use inotify::{EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use std::collections::{BTreeMap, HashSet};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// The most sockets that are looked at.
const SOCKETS_MAX: usize = 512;
/// The most directories.
const DIRECTORIES_MAX: usize = 256;
/// The most names in all of them.
const NAMES_MAX: usize = 16_384;
/// How often is looked where the kernel gives no notice.
const BLIND: Duration = Duration::from_secs(10);
/// The least pause after a look, and the longest: whoever may write here may do so without end. A look takes no more than one part in so many
/// of the time.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_SHARE: u32 = 20;
/// How often one look begins anew for directories that were not there before.
const ROUNDS_MAX: u32 = 8;

/// How long nobody looks after a look that took so long. Pure.
fn pause(took: Duration) -> Duration {
    took.saturating_mul(PAUSE_SHARE).clamp(PAUSE, PAUSE_MAX)
}

/// What tells a socket from one that is made anew at the same place. Permissions may change, these do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The file system.
    pub device: u64,
    /// The file.
    pub inode: u64,
    /// When it was made: seconds and nanoseconds.
    pub made: (i64, i64),
}

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) sockets: BTreeMap<PathBuf, Identity>,
    directories: Vec<PathBuf>,
    /// There is more than is looked at.
    pub(super) cut: bool,
}

/// Lists what is there; the directory is made if it is not. What vanishes meanwhile is not there.
fn scan(root: &Path) -> io::Result<Found> {
    DirBuilder::new().recursive(true).mode(0o750).create(root)?;
    let mut found = Found::default();
    let (mut waiting, mut names) = (vec![root.to_owned()], 0);
    while let Some(directory) = waiting.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if directory == root => return Err(error),
            Err(_) => continue,
        };
        found.directories.push(directory);
        for entry in entries.flatten() {
            names += 1;
            if names > NAMES_MAX {
                found.cut = true;
                return Ok(found);
            }
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Some(about) = entry.metadata().ok().filter(|_| !hidden) else {
                continue;
            };
            if about.is_dir() {
                let room = found.directories.len() + waiting.len() < DIRECTORIES_MAX;
                found.cut |= !room;
                waiting.extend(room.then(|| entry.path()));
            } else if about.file_type().is_socket() {
                if found.sockets.len() == SOCKETS_MAX {
                    found.cut = true;
                    continue;
                }
                let identity = Identity {
                    device: about.dev(),
                    inode: about.ino(),
                    made: (about.mtime(), about.mtime_nsec()),
                };
                found.sockets.insert(entry.path(), identity);
            }
        }
    }
    Ok(found)
}

/// Looks, and tells when to look again.
pub(super) struct Watcher {
    root: PathBuf,
    stream: Option<(Watches, EventStream<[u8; 4096]>)>,
    watched: HashSet<WatchDescriptor>,
    /// Before that nobody looks again.
    rested: Instant,
    /// Whether the last look ended before directories stopped coming.
    behind: bool,
}

impl Watcher {
    pub(super) fn new(root: PathBuf) -> Self {
        let stream = Inotify::init()
            .and_then(|inotify| Ok((inotify.watches(), inotify.into_event_stream([0; 4096])?)))
            .inspect_err(|error| tracing::warn!(%error, "no notice of new plugins, their directory is only listed"));
        Self {
            root,
            stream: stream.ok(),
            watched: HashSet::new(),
            rested: Instant::now(),
            behind: false,
        }
    }

    /// What is there now. Every directory is watched before it is listed for the last time, so that no change falls between; while new ones
    /// come faster than that, the next look is due at once.
    pub(super) async fn look(&mut self) -> io::Result<Found> {
        let begun = Instant::now();
        let found = self.look_until_all_is_watched().await;
        self.rested = Instant::now() + pause(begun.elapsed());
        found
    }

    async fn look_until_all_is_watched(&mut self) -> io::Result<Found> {
        let mut rounds = 0;
        // A look that fails is not one that was too slow.
        self.behind = false;
        loop {
            let root = self.root.clone();
            let found = client::blocking::spawn(move || scan(&root)).await;
            let found = found.map_err(io::Error::other)??;
            rounds += 1;
            let has_new = self.watch(&found.directories);
            if !has_new || rounds == ROUNDS_MAX {
                self.behind = has_new;
                return Ok(found);
            }
        }
    }

    /// Watches these directories; tells whether some of them were not watched before.
    fn watch(&mut self, directories: &[PathBuf]) -> bool {
        let Some((watches, _)) = &mut self.stream else {
            return false;
        };
        let mask = WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MOVED_FROM
            | WatchMask::MOVED_TO
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR
            | WatchMask::DONT_FOLLOW;
        let mut now = HashSet::new();
        for directory in directories {
            match watches.add(directory, mask) {
                // One directory has one descriptor, however often it is added.
                Ok(watch) => drop(now.insert(watch)),
                Err(error) => {
                    tracing::debug!(path = %directory.display(), %error, "a directory of plugins is not watched");
                }
            }
        }
        for gone in self.watched.difference(&now) {
            // Mostly it went with its directory.
            drop(watches.remove(gone.clone()));
        }
        let news = now.iter().any(|watch| !self.watched.contains(watch));
        self.watched = now;
        news
    }

    /// Waits until something may have changed or it is time to look, and for the pause since the last look in any case: what changes
    /// meanwhile is looked at once. Cancel safe.
    pub(super) async fn changed(&mut self, at: Option<Instant>) {
        tokio::time::sleep_until(self.rested).await;
        if self.behind {
            return;
        }
        tokio::select! {
            biased;
            () = wake::at(at) => {}
            () = self.told() => {}
        }
    }

    /// Waits for the kernel. Cancel safe.
    async fn told(&mut self) {
        let told = match &mut self.stream {
            // A directory that is not watched cannot tell when it is there again.
            Some((_, stream)) if !self.watched.is_empty() => {
                let told = stream.next().await;
                // What else there is to tell is seen with it.
                while stream
                    .next()
                    .now_or_never()
                    .is_some_and(|event| matches!(event, Some(Ok(_))))
                {}
                matches!(told, Some(Ok(_)))
            }
            _ => {
                tokio::time::sleep(BLIND).await;
                true
            }
        };
        if !told {
            self.stream = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn sockets_are_found_at_any_depth_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("registry");
        assert!(scan(&root).expect("made").sockets.is_empty());
        std::fs::create_dir_all(root.join("a/b")).expect("made");
        std::fs::create_dir_all(root.join(".hidden")).expect("made");
        std::fs::write(root.join("file.sock"), "").expect("written");
        std::os::unix::fs::symlink(root.join("a/b/deep.sock"), root.join("link.sock")).expect("linked");
        let _listeners = ["top.sock", "a/b/deep.sock", "a/.not.sock", ".hidden/x.sock"]
            .map(|name| UnixListener::bind(root.join(name)).expect("bound"));
        let found = scan(&root).expect("listed");
        let paths: Vec<&Path> = found
            .sockets
            .keys()
            .map(|path| path.strip_prefix(&root).expect("below"))
            .collect();
        assert_eq!(paths, [Path::new("a/b/deep.sock"), Path::new("top.sock")]);
        assert_eq!((found.directories.len(), found.cut), (3, false));
    }

    #[test]
    fn one_made_anew_is_another_and_one_given_other_rights_is_not() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.sock");
        let identity = || scan(dir.path()).expect("listed").sockets[&path];
        let first = UnixListener::bind(&path).expect("bound");
        let before = identity();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changed");
        assert_eq!(identity(), before);
        // The inode may be given again, and a coarse clock may not have gone on: here they differ.
        std::fs::rename(&path, dir.path().join("old")).expect("moved");
        let _second = UnixListener::bind(&path).expect("bound");
        assert_ne!(identity(), before);
        drop(first);
    }

    #[test]
    fn looks_take_a_small_part_of_the_time() {
        let millis = Duration::from_millis;
        for (took, expected) in [(0, 100), (5, 100), (6, 120), (100, 2_000), (u64::MAX, 2_000)] {
            assert_eq!(pause(millis(took)), millis(expected), "{took}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_end_are_looked_at_with_pauses_and_one_after_a_rest_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut watcher = Watcher::new(dir.path().to_owned());
        let mut changes = 0..;
        let mut change = || {
            let name = changes.next().expect("endless").to_string();
            std::fs::write(dir.path().join(name), "").expect("written");
        };
        watcher.look().await.expect("listed");
        for _ in 0..3 {
            let begun = Instant::now();
            change();
            change();
            // Neither is a registration that failed tried again sooner.
            watcher.changed(Some(begun)).await;
            assert!(begun.elapsed() >= PAUSE, "{:?}", begun.elapsed());
            watcher.look().await.expect("listed");
        }
        tokio::time::advance(PAUSE).await;
        let begun = Instant::now();
        change();
        watcher.changed(None).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        watcher.look().await.expect("listed");
        let at = Instant::now() + PAUSE * 7;
        watcher.changed(Some(at)).await;
        assert!((at..at + PAUSE).contains(&Instant::now()));
    }

    #[test]
    fn what_is_looked_at_has_a_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        for number in 0..=DIRECTORIES_MAX {
            std::fs::create_dir(dir.path().join(number.to_string())).expect("made");
        }
        let found = scan(dir.path()).expect("listed");
        assert_eq!((found.directories.len(), found.cut), (DIRECTORIES_MAX, true));
    }
}
