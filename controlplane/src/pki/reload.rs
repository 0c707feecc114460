//! Files that may change while the daemon runs: what they say is taken up, and what cannot be used is told once and leaves the last
//! good state in use. Owns the looking; what is made of the files is the caller's.

use super::PkiError;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What a file was when it was last read: device, inode, length, and the time of the last change in seconds and nanoseconds.
type FileVersion = (u64, u64, u64, i64, i64);

fn version_of(path: &Path) -> Option<FileVersion> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
}

/// Files that belong together, such as a certificate and its key.
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    versions: Vec<Option<FileVersion>>,
}

impl WatchedFiles {
    /// Files as they are now; to be made before they are read, so that no change falls in between.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let versions = paths.iter().map(|path| version_of(path)).collect();
        Self { paths, versions }
    }

    /// Whether a file changed since the last look.
    fn has_changed(&mut self) -> bool {
        let versions: Vec<_> = self.paths.iter().map(|path| version_of(path)).collect();
        let changed = versions != self.versions;
        self.versions = versions;
        changed
    }

    /// Gives `take` what `read` makes of the files whenever they change, until shutdown. A failure is logged once for each change.
    pub async fn follow<T>(
        mut self,
        read: impl Fn() -> Result<T, PkiError>,
        take: impl Fn(T),
        shutdown: CancellationToken,
    ) {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if !self.has_changed() {
                continue;
            }
            match read() {
                Ok(new) => {
                    tracing::info!(files = ?self.paths, "changed files are in use");
                    take(new);
                }
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::error!(%error, cause, "changed files cannot be used; what was read before stays in use");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn changes_are_taken_up_and_mistakes_tried_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("number");
        std::fs::write(&path, "1").unwrap();
        let (taken, tries) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let shutdown = CancellationToken::new();
        let read = || {
            tries.fetch_add(1, Ordering::SeqCst);
            let text = super::super::files::read(&path)?;
            text.parse::<u32>().map_err(|error| PkiError::Content {
                path: path.clone(),
                why: error.to_string(),
            })
        };
        let following =
            WatchedFiles::new(vec![path.clone()]).follow(read, |new| taken.lock().unwrap().push(new), shutdown.clone());
        let script = async {
            let pause = || tokio::time::sleep(3 * LOOK_EVERY);
            pause().await;
            assert_eq!(tries.load(Ordering::SeqCst), 0, "nothing has changed");
            std::fs::write(&path, "22").unwrap();
            pause().await;
            std::fs::write(&path, "no number").unwrap();
            pause().await;
            assert_eq!(tries.load(Ordering::SeqCst), 2, "a mistake is told once");
            // Replaced as configuration tools do it, and gone for a while.
            std::fs::remove_file(&path).unwrap();
            pause().await;
            std::fs::write(dir.path().join("new"), "33").unwrap();
            std::fs::rename(dir.path().join("new"), &path).unwrap();
            pause().await;
            shutdown.cancel();
        };
        tokio::join!(following, script);
        assert_eq!(*taken.lock().unwrap(), [22, 33]);
    }
}
