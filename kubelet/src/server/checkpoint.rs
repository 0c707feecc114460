//! `/checkpoint`: the runtime writes a container's state into an archive below the kubelet's directory (`ContainerCheckpoint`).
//!
//! Archives are large and nobody else removes them: there is one at a time, a bound on their number, and none where the disk is nearly
//! full (CVE-2025-0426).

use super::Server;
use super::answer::{self, Answer};
use super::request::Query;
use super::router::Target;
use crate::host::machine::{self, Disk};
use crate::id::ContainerId;
use crate::runtime::observed::{ContainerState, ObservedContainer};
use crate::runtime::{Runtime, RuntimeError};
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::json;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Code;

/// Below the root directory.
const DIRECTORY: &str = "checkpoints";
/// Archives that may be there.
const ARCHIVES_MAX: usize = 32;
/// Of the disk, what stays free: a fifth, more than what evicts pods.
const FREE_PARTS: i64 = 5;
/// The longest time a request may give the runtime.
const TIMEOUT_MAX: Duration = Duration::from_secs(4 * 3600);

/// Why no archive may be written now.
#[derive(Debug, thiserror::Error)]
enum NoRoom {
    #[error("there are {0} checkpoints in {1} already: remove some")]
    Archives(usize, PathBuf),
    #[error("less than a fifth of the disk of {0} would stay free")]
    Disk(PathBuf),
    #[error("checkpoint directory {0}")]
    Directory(PathBuf, #[source] io::Error),
}

/// Lets one archive be written at a time, where there is room.
pub(super) struct Turn {
    one: Arc<Semaphore>,
    disk: fn(&Path) -> Disk,
}

impl Default for Turn {
    fn default() -> Self {
        let one = Arc::new(Semaphore::new(1));
        let disk = machine::disk;
        Self { one, disk }
    }
}

pub(super) async fn checkpoint(server: &Server, target: &Target, query: &Query) -> Answer {
    let Some(snapshot) = server.parts.pods.get(&target.namespace, &target.pod) else {
        return answer::text(404, "pod does not exist\n");
    };
    let mut runs = snapshot
        .observed
        .containers
        .iter()
        .filter(|c| c.name == target.container);
    let Some(container) = runs.find(|c| c.state == ContainerState::Running) else {
        return answer::text(404, &format!("container {} does not exist\n", target.container));
    };
    let timeout = match query.first("timeout").unwrap_or("0").parse::<u32>().map(u64::from) {
        Ok(seconds) if seconds <= TIMEOUT_MAX.as_secs() => Duration::from_secs(seconds),
        _ => return answer::text(400, "cannot parse value of timeout parameter\n"),
    };
    let of = format!("{}/{}/{}", target.namespace, target.pod, target.container);
    let failed =
        |code: u16, why: &dyn std::fmt::Display| answer::text(code, &format!("checkpointing of {of} failed ({why})\n"));
    let Ok(turn) = server.checkpoints.one.clone().try_acquire_owned() else {
        return failed(429, &"another checkpoint is being written");
    };
    let directory = server.parts.context.root_dir.join(DIRECTORY);
    let path = directory.join(file_name(target, server.parts.clock.now()));
    let needed = match size(server, container).await {
        Ok(needed) => needed,
        Err(why) => return failed(500, &why),
    };
    let disk = server.checkpoints.disk;
    let room = client::blocking::spawn(move || has_room(&directory, disk, needed)).await;
    match room {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return failed(507, &why),
        Err(why) => return failed(500, &why),
    }
    // A task of its own: who does not wait for the end leaves neither a part of an archive nor a free turn behind.
    let written = tokio::spawn(
        write(
            server.parts.runtime.clone(),
            container.id.clone(),
            path.clone(),
            timeout,
            turn,
        )
        .boxed(),
    );
    let written = written.await.unwrap_or_else(|error| {
        let why = error.to_string();
        Err(RuntimeError::new("CheckpointContainer", Code::Internal, why))
    });
    match written {
        Ok(()) => answer::json(json!({"items": [path]}).to_string()),
        Err(error) if error.is_unimplemented() => {
            failed(501, &format!("the container runtime cannot do that: {error}"))
        }
        Err(error) => failed(500, &error),
    }
}

/// Has the runtime write an archive, and removes what a failure leaves: it is no archive, and would count as one.
async fn write(
    runtime: Arc<dyn Runtime>,
    container: ContainerId,
    path: PathBuf,
    timeout: Duration,
    turn: OwnedSemaphorePermit,
) -> Result<(), RuntimeError> {
    let was_there = path.exists();
    let written = runtime.checkpoint_container(&container, &path, timeout).await;
    if written.is_err() && !was_there {
        let _ = client::blocking::spawn(move || fs::remove_file(path)).await;
    }
    drop(turn);
    written
}

/// What an archive of a container may need, bytes: its memory and its layer, as far as the runtime knows them.
async fn size(server: &Server, container: &ObservedContainer) -> Result<i64, RuntimeError> {
    let usages = server.parts.runtime.list_container_stats().await?;
    let usage = usages
        .iter()
        .find(|usage| usage.pod.as_ref() == Some(&container.pod) && usage.name == container.name);
    Ok(usage.map_or(0, |usage| {
        let layer = usage.layer.map_or(0, |(bytes, _)| bytes);
        let bytes = usage.memory.unwrap_or_default().saturating_add(layer);
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }))
}

fn file_name(target: &Target, now: Timestamp) -> String {
    let at = now.strftime("%Y-%m-%dT%H:%M:%SZ");
    format!(
        "checkpoint-{}_{}-{}-{at}.tar",
        target.pod, target.namespace, target.container
    )
}

/// Whether another archive of so many bytes may be written; makes the directory.
fn has_room(directory: &Path, disk: fn(&Path) -> Disk, needed: i64) -> Result<(), NoRoom> {
    let wrong = |why| NoRoom::Directory(directory.to_owned(), why);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(wrong)?;
    let there = fs::read_dir(directory).map_err(wrong)?.take(ARCHIVES_MAX).count();
    if there >= ARCHIVES_MAX {
        return Err(NoRoom::Archives(there, directory.to_owned()));
    }
    let disk = disk(directory);
    match disk.available.saturating_sub(needed) < disk.capacity / FREE_PARTS {
        true => Err(NoRoom::Disk(directory.to_owned())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn half_free(_: &Path) -> Disk {
        Disk {
            capacity: 100,
            available: 50,
            ..Disk::default()
        }
    }

    impl Turn {
        /// The one turn.
        pub(in crate::server) fn one(&self) -> Arc<Semaphore> {
            self.one.clone()
        }

        /// On a disk with space, whatever this machine has.
        pub(in crate::server) fn with_space() -> Self {
            Self {
                disk: half_free,
                ..Self::default()
            }
        }
    }

    #[test]
    fn archives_are_bounded_and_nobody_else_reads_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(DIRECTORY);
        has_room(&path, half_free, 30).expect("room");
        let why = has_room(&path, half_free, 31).expect_err("too large");
        assert!(matches!(why, NoRoom::Disk(_)), "{why}");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for number in 0..ARCHIVES_MAX {
            fs::write(path.join(number.to_string()), "").expect("written");
        }
        let why = has_room(&path, half_free, 0).expect_err("full").to_string();
        assert!(why.starts_with("there are 32 checkpoints"), "{why}");
    }

    #[test]
    fn an_archive_is_named_as_upstreams() {
        let target = Target {
            namespace: "ns".into(),
            pod: "p".into(),
            uid: None,
            container: "c".into(),
        };
        let name = file_name(&target, Timestamp::from_second(1_700_000_000).expect("a time"));
        assert_eq!(name, "checkpoint-p_ns-c-2023-11-14T22:13:20Z.tar");
    }
}
