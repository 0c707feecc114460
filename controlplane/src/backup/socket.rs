//! The socket over which a running daemon gives a backup of itself: beside the store, for who may read that anyway.
//!
//! Owns the socket. One backup is given at a time; who stops taking it is left.

use crate::store::disk::snapshot::Snapshots;
use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// How long somebody may take for the next bytes. The file grows as long as old records are read.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes written at once.
const BUFFER: usize = 256 << 10;

/// Where it is, of a store's directory.
pub(super) fn path(store: &Path) -> PathBuf {
    store.join("backup.sock")
}

/// Answers whoever connects, until shutdown. That the socket cannot be made is told, and stops nothing.
pub async fn serve(store: PathBuf, snapshots: Snapshots, cluster: String, shutdown: CancellationToken) {
    let path = path(&store);
    let listener = match listen(&store, &path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "backups can be made only while the daemon is stopped");
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
        let (stream, held) = match stream.and_then(|stream| Ok((stream.try_clone()?, stream))) {
            Ok(both) => both,
            Err(error) => {
                tracing::warn!(%error, "nobody can be given a backup");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (snapshots, cluster) = (snapshots.again(), cluster.clone());
        let giving = client::blocking::spawn(move || give(stream, &snapshots, &cluster));
        tokio::pin!(giving);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {
                // Who takes it slowly holds nobody up: the next bytes find nobody.
                let _ = held.shutdown(Shutdown::Both);
                let _ = giving.await;
                break;
            }
            given = &mut giving => match given {
                Ok(Ok(())) => tracing::info!("a backup has been given"),
                Ok(Err(error)) => tracing::warn!(%error, "a backup has not been given whole"),
                Err(error) => tracing::error!(%error, "a backup has not been given whole"),
            }
        }
    }
    // The next start would remove it, too.
    let _ = std::fs::remove_file(path);
}

/// The socket as it is bound and connected to, good as long as the directory is held: a socket's address has no more than 107 bytes,
/// and a directory's name may have more.
pub(super) fn address(store: &Path) -> std::io::Result<(File, PathBuf)> {
    let held = File::open(store)?;
    let short = path(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd())));
    Ok((held, short))
}

fn listen(store: &Path, path: &Path) -> std::io::Result<UnixListener> {
    // Left by a process that was killed: the store's lock is ours.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_held, address) = address(store)?;
    let listener = UnixListener::bind(address)?;
    // The directory is closed to others before and after.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn give(stream: UnixStream, snapshots: &Snapshots, cluster: &str) -> Result<(), crate::store::StoreError> {
    let prepared = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    prepared.map_err(|error| crate::store::StoreError::Unusable(error.to_string()))?;
    super::write(snapshots, cluster, &mut BufWriter::with_capacity(BUFFER, stream))
}
