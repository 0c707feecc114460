//! `--lock-file`: one kubelet at a time, and a way for the next one to ask this one to go.

use futures::FutureExt;
use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a lock that somebody else holds is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Waits for the lock; nothing if told to stop before.
pub(super) async fn acquire(path: &Path, stop: &CancellationToken) -> io::Result<Option<Flock<File>>> {
    let mut file = File::options().create(true).append(true).open(path)?;
    let mut told = false;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => return Ok(Some(held)),
            Err((file, Errno::EWOULDBLOCK)) => file,
            Err((_, errno)) => return Err(errno.into()),
        };
        if !told {
            told = true;
            tracing::warn!(path = %path.display(), "waiting for the lock file, which another process holds");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// Ends this kubelet as soon as somebody else opens the file, or removes it.
pub(super) fn yield_on_contention(path: &Path, stop: CancellationToken) -> io::Result<()> {
    let inotify = Inotify::init()?;
    inotify.watches().add(path, WatchMask::OPEN | WatchMask::DELETE_SELF)?;
    let mut events = inotify.into_event_stream([0; 4096])?;
    let path = path.to_owned();
    tokio::spawn(
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                _ = events.next() => {
                    tracing::info!(path = %path.display(), "somebody wants the lock file, ending; pods keep running");
                    stop.cancel();
                }
            }
        }
        .boxed(),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_waits_and_the_first_goes_when_asked() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("lock");
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        let held = acquire(&path, &first).await.expect("a lock").expect("held");
        yield_on_contention(&path, first.clone()).expect("a watch");
        assert!(!first.is_cancelled());
        let next = acquire(&path, &second);
        let end_of_first = async {
            first.cancelled().await;
            drop(held);
        };
        let patience = Duration::from_secs(20);
        let (next, ()) = tokio::time::timeout(patience, async { tokio::join!(next, end_of_first) })
            .await
            .expect("in time");
        assert!(next.expect("a lock").is_some());
        let third = CancellationToken::new();
        third.cancel();
        drop(acquire(&path, &third).await.expect("no error"));
    }
}
