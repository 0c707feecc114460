//! Container logs on disk beside what the runtime writes: the links log collectors follow (`/var/log/containers`, kubelet
//! contract §2), and the removal of logs with their containers.
//!
//! Owns those links. Never writes a log. Whatever fails here is told in our log and holds no pod up.

use crate::host::directory::Directory;
use crate::host::{FileWork, WorkError};
use crate::pod_object;
use crate::runtime::observed::ObservedContainer;
use k8s_openapi::api::core::v1::Pod;
use std::io;
use std::path::{Path, PathBuf};

/// The most a link's name may have before `.log`, bytes.
const NAME_BYTES_MAX: usize = 251;
/// Names of a directory that are looked at.
const NAMES_MAX: usize = 10_000;

/// Where links are: `containers` beside the pods' logs, which is `/var/log/containers` beside `/var/log/pods`.
pub(crate) fn directory(pod_logs: &Path) -> Option<PathBuf> {
    pod_logs.parent().map(|parent| parent.join("containers"))
}

/// The link of one instance: `<pod>_<namespace>_<container>-<id>.log`.
fn link(pod_logs: &Path, pod: &Pod, container: &str, id: &str) -> Option<PathBuf> {
    let mut name = format!(
        "{}_{}_{container}-{id}",
        pod_object::name(pod),
        pod_object::namespace(pod)
    );
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    Some(directory(pod_logs)?.join(name + ".log"))
}

/// Links a started instance's log, if the runtime writes one.
pub(super) async fn make_link(files: &FileWork, pod_logs: &Path, pod: &Pod, container: &str, id: &str, log: PathBuf) {
    let Some(link) = link(pod_logs, pod, container, id) else {
        return;
    };
    let key = pod_object::uid(pod);
    let made = files.run(key.as_str(), move || {
        if !log.exists() {
            return;
        }
        let parent = link.parent().map_or(Ok(()), std::fs::create_dir_all);
        match parent.and_then(|()| std::os::unix::fs::symlink(&log, &link)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                tracing::warn!(link = %link.display(), %error, "a container's log is not linked");
            }
            _ => {}
        }
    });
    told(made.await);
}

/// Removes a removed container's link and its log with what rotation made of it.
pub(super) async fn remove(
    files: &FileWork,
    pod_logs: &Path,
    pod_dir: PathBuf,
    pod: &Pod,
    container: &ObservedContainer,
) {
    let link = link(pod_logs, pod, &container.name, container.id.as_str());
    let log = PathBuf::from(&container.log_path);
    let key = pod_object::uid(pod);
    let removed = files.run(key.as_str(), move || {
        if let Some(link) = link {
            gone(&link);
        }
        // Only what is in the pod's own log directory, reached without a link: the path is the runtime's word, and a container may have
        // the directory as a volume.
        let (Some(parent), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
            return;
        };
        let Some(relative) = parent.file_name().filter(|_| parent.parent() == Some(&pod_dir)) else {
            return;
        };
        if let Err(error) = remove_with_rotated(&pod_dir, Path::new(relative), name)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %log.display(), %error, "a container's log stays");
        }
    });
    told(removed.await);
}

/// Removes all of them it can, and tells the first reason why one stays: a container that has the directory as a volume may have made a
/// directory of such a name.
fn remove_with_rotated(pod_dir: &Path, relative: &Path, name: &str) -> io::Result<()> {
    let directory = Directory::open(pod_dir, relative)?;
    let mut removed = Ok(());
    for file in directory.names(NAMES_MAX)? {
        let rest = file.strip_prefix(name);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            removed = removed.and(directory.remove(&file));
        }
    }
    removed
}

/// Whether a link's log is gone for good. One that is being rotated has no name for a moment, but others beside it.
fn is_dead(link: &Path) -> bool {
    if link.exists() {
        return false;
    }
    let Ok(log) = std::fs::read_link(link) else { return true };
    let (Some(parent), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return true;
    };
    let mut beside = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .take(NAMES_MAX)
        .flatten();
    !beside.any(|entry| {
        let file = entry.file_name();
        let rest = file.to_str().and_then(|file| file.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with('.'))
    })
}

/// Removes links whose log is gone.
pub(crate) async fn remove_dead_links(files: &FileWork, pod_logs: &Path) {
    let Some(directory) = directory(pod_logs) else { return };
    let key = directory.to_string_lossy().into_owned();
    let removed = files.run(&key, move || {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if is_link && path.extension().is_some_and(|extension| extension == "log") && is_dead(&path) {
                gone(&path);
            }
        }
    });
    told(removed.await);
}

fn told(work: Result<(), WorkError>) {
    if let Err(error) = work {
        tracing::warn!(%error, "logs and their links are not as they should be");
    }
}

fn gone(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a container's log or its link stays");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{observed, pod};

    #[tokio::test]
    async fn links_follow_logs_and_go_with_them() {
        let dir = tempfile::tempdir().expect("temp dir");
        let files = FileWork::new(std::time::Duration::from_secs(60));
        let pod_logs = dir.path().join("pods");
        let own = pod_logs.join("ns_p_p");
        std::fs::create_dir_all(own.join("c")).expect("made");
        let p = pod("p").build();
        let log = own.join("c/0.log");
        make_link(&files, &pod_logs, &p, "c", "c0", log.clone()).await;
        let link = dir.path().join("containers/p_ns_c-c0.log");
        assert!(std::fs::symlink_metadata(&link).is_err(), "no log, no link");
        for file in ["0.log", "0.log.20260101-000000.gz", "1.log"] {
            std::fs::write(own.join("c").join(file), "x").expect("write");
        }
        for _ in 0..2 {
            make_link(&files, &pod_logs, &p, "c", "c0", log.clone()).await;
            assert_eq!(std::fs::read_link(&link).expect("a link"), log);
        }
        let mut seen = observed("p").sandbox(true).exited("c", 0, 9).build();
        seen.containers[0].log_path = log.display().to_string();
        remove(&files, &pod_logs, own.clone(), &p, &seen.containers[0]).await;
        let left: Vec<_> = std::fs::read_dir(own.join("c")).expect("read").flatten().collect();
        assert!(left.len() == 1 && left[0].file_name() == "1.log", "{left:?}");
        assert!(std::fs::symlink_metadata(&link).is_err());

        seen.containers[0].log_path = dir.path().join("elsewhere.log").display().to_string();
        std::fs::write(dir.path().join("elsewhere.log"), "x").expect("write");
        remove(&files, &pod_logs, own.clone(), &p, &seen.containers[0]).await;
        assert!(dir.path().join("elsewhere.log").exists(), "not the pod's");

        make_link(&files, &pod_logs, &p, "c", "c1", own.join("c/1.log")).await;
        let count = || std::fs::read_dir(dir.path().join("containers")).expect("read").count();
        std::fs::rename(own.join("c/1.log"), own.join("c/1.log.20260101-000000")).expect("rotated");
        remove_dead_links(&files, &pod_logs).await;
        assert_eq!(count(), 1, "between two names");

        // A container that has its log directory as a volume puts a link in its place.
        let others = pod_logs.join("ns_other_o/c");
        std::fs::create_dir_all(&others).expect("made");
        std::fs::write(others.join("0.log"), "x").expect("write");
        std::os::unix::fs::symlink(&others, own.join("link")).expect("link");
        seen.containers[0].log_path = own.join("link/0.log").display().to_string();
        remove(&files, &pod_logs, own.clone(), &p, &seen.containers[0]).await;
        assert!(others.join("0.log").exists(), "another pod's");
        std::fs::remove_dir_all(&own).expect("removed");
        remove_dead_links(&files, &pod_logs).await;
        assert_eq!(count(), 0);
    }

    #[test]
    fn a_directory_among_them_keeps_no_log_from_being_removed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let own = dir.path().join("c");
        // In whatever order they are found.
        for number in 0..9 {
            std::fs::create_dir_all(own.join(format!("0.log.{number}-is-one"))).expect("made");
            std::fs::write(own.join(format!("0.log.{number}")), "x").expect("write");
        }
        let error = remove_with_rotated(dir.path(), Path::new("c"), "0.log").expect_err("directories stay");
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let left = std::fs::read_dir(&own).expect("read").flatten();
        let left: Vec<_> = left.filter(|entry| entry.path().is_file()).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn long_names_are_cut() {
        let p = pod(&"x".repeat(250)).build();
        let path = link(Path::new("/var/log/pods"), &p, "c", "id").expect("a link");
        assert!(path.starts_with("/var/log/containers"));
        assert_eq!(path.file_name().map(|name| name.len()), Some(255));
    }
}
