//! The socket over which a running daemon gives a backup of itself: beside the store, for who may read that anyway.
//!
//! Owns the socket. One backup is given at a time; who stops taking it is left.

use crate::store::disk::snapshot::Snapshots;
use std::io::{BufWriter, ErrorKind};
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
    let listener = match listen(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "backups can be made only while the daemon is stopped");
            return;
        }
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "nobody can be given a backup");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (snapshots, cluster) = (snapshots.again(), cluster.clone());
        let giving = client::blocking::spawn(move || give(stream, &snapshots, &cluster));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            given = giving => match given {
                Ok(Ok(())) => tracing::info!("a backup has been given"),
                Ok(Err(error)) => tracing::warn!(%error, "a backup has not been given whole"),
                Err(error) => tracing::error!(%error, "a backup has not been given whole"),
            }
        }
    }
    // The next start would remove it, too.
    let _ = std::fs::remove_file(path);
}

fn listen(path: &Path) -> std::io::Result<UnixListener> {
    // Left by a process that was killed: the store's lock is ours.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
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
