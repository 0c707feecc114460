//! Sockets over which a running daemon gives what is in its store: beside the store, for who may read that anyway.
//!
//! Owns the socket, and over one of them a backup. One asks at a time; who stops taking what is given is left.

use crate::store::StoreError;
use crate::store::disk::snapshot::Snapshots;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// How long somebody may take for the next bytes. The file grows as long as old records are read.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a backup may take in all, however steadily it is taken.
const WHOLE: Duration = Duration::from_secs(3600);
/// Bytes written at once.
const BUFFER: usize = 256 << 10;

/// The socket for backups.
const NAME: &str = "backup.sock";

/// Where it is, of a store's directory.
#[cfg(test)]
pub(super) fn path(store: &Path) -> PathBuf {
    store.join(NAME)
}

/// What is done for somebody who has connected; it blocks.
pub(crate) type Giving = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// Gives backups to whoever connects, until shutdown.
pub async fn serve(store: PathBuf, snapshots: Snapshots, cluster: String, shutdown: CancellationToken) {
    let giving = move |stream| -> Giving {
        let (snapshots, cluster) = (snapshots.again(), cluster.clone());
        Box::new(move || give(stream, (&snapshots, &cluster), WHOLE))
    };
    answer(&store, (NAME, "a backup"), giving, shutdown).await;
}

/// Answers whoever connects to the socket of this name, until shutdown. That the socket cannot be made is told, and stops nothing.
pub(crate) async fn answer(
    store: &Path,
    (name, what): (&str, &'static str),
    mut giving: impl FnMut(UnixStream) -> Giving,
    shutdown: CancellationToken,
) {
    let path = store.join(name);
    let listener = match listen(store, name) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "{what} can be made only while the daemon is stopped");
            // A part that ends by itself ends the daemon.
            shutdown.cancelled().await;
            return;
        }
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = accepted.and_then(|(stream, _)| stream.into_std());
        let (stream, held) = match stream.and_then(|stream| Ok((prepared(stream.try_clone()?)?, stream))) {
            Ok(both) => both,
            Err(error) => {
                tracing::warn!(%error, "nobody can be given {what}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        answer_one(giving(stream), (held, what), &shutdown).await;
    }
    // The next start would remove it, too.
    let _ = std::fs::remove_file(path);
}

/// A connection that blocks, but for no longer than our patience.
fn prepared(stream: UnixStream) -> std::io::Result<UnixStream> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Connects to the socket of this name.
pub(crate) fn connect(store: &Path, name: &str) -> std::io::Result<UnixStream> {
    let (_held, address) = address(store, name)?;
    UnixStream::connect(address)
}

/// Connects to the socket for backups.
pub(super) fn connect_for_backup(store: &Path) -> std::io::Result<UnixStream> {
    connect(store, NAME)
}

/// The socket as it is bound and connected to, good as long as the directory is held: a socket's address has no more than 107 bytes,
/// and a directory's name may have more.
fn address(store: &Path, name: &str) -> std::io::Result<(File, PathBuf)> {
    let held = File::open(store)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}/{name}", held.as_raw_fd()));
    Ok((held, short))
}

fn listen(store: &Path, name: &str) -> std::io::Result<UnixListener> {
    let path = store.join(name);
    // Left by a process that was killed: the store's lock is ours.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_held, address) = address(store, name)?;
    let listener = UnixListener::bind(address)?;
    // The directory is closed to others before and after.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Waits until one has been given, not longer than the daemon lives.
async fn answer_one(giving: Giving, (held, what): (UnixStream, &str), shutdown: &CancellationToken) {
    let giving = client::blocking::spawn(giving);
    tokio::pin!(giving);
    let given = tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        given = &mut giving => Some(given),
    };
    let given = match given {
        Some(given) => given,
        None => {
            // Who takes it slowly holds nobody up: the next bytes find nobody.
            let _ = held.shutdown(Shutdown::Both);
            giving.await
        }
    };
    match given {
        Ok(Ok(())) => tracing::info!("{what} has been given"),
        Ok(Err(error)) => tracing::warn!(%error, "{what} has not been given whole"),
        Err(error) => tracing::error!(%error, "{what} has not been given whole"),
    }
}

/// Gives a backup to somebody who has so long for all of it.
fn give(stream: UnixStream, (snapshots, cluster): (&Snapshots, &str), whole: Duration) -> Result<(), StoreError> {
    let stream = Timed {
        stream,
        end: Instant::now() + whole,
    };
    super::write(snapshots, cluster, &mut BufWriter::with_capacity(BUFFER, stream))
}

/// A connection whose other end has until then, however steadily it takes what it is given.
pub(crate) struct Timed {
    pub(crate) stream: UnixStream,
    pub(crate) end: Instant,
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::Error::new(ErrorKind::TimedOut, "it is taken too slowly"));
        }
        self.stream.set_write_timeout(Some(left.min(PATIENCE)))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests;
