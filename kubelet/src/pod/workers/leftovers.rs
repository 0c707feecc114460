//! What pods left on the node that nobody releases: those that ended while no kubelet ran, above all. Directories, cgroups, logs, and
//! links to logs that are gone.
//!
//! Owns their release, in tasks of its own with deadlines, because a file system may hang: the loop over pods only takes
//! what they report. Never decides which pods are gone: it asks, when it finds something and again when it begins with it.

use crate::host::tree;
use crate::id::PodUid;
use crate::pod::execute::{Executor, log_file};
use futures::FutureExt;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

/// Pods whose leftovers are released at a time: one that hangs holds a thread.
const AT_ONCE: usize = 8;
/// How often they are looked for, whether or not there may be some: a runtime may make a log directory late.
const EVERY: Duration = Duration::from_secs(300);

/// What there is of each pod.
type Found = BTreeMap<PodUid, Left>;

/// What one pod left. A log directory says only where logs are: anybody may have made it, so nothing else goes by its name.
#[derive(Default)]
pub(super) struct Left {
    directory: bool,
    cgroup: bool,
    logs: Vec<PathBuf>,
}

/// What a task reports.
pub(super) enum Report {
    /// What there is of pods, and whether all of it could be listed.
    Found(Found, bool),
    /// Whether everything of one pod is released.
    Released(bool),
}

/// What is left of earlier pods, and its release.
pub(super) struct Leftovers {
    executor: Arc<Executor>,
    /// There may be some that were not looked for.
    due: bool,
    looked: Option<Instant>,
    /// Something could not be listed or released since the last look.
    failed: bool,
    /// Found, and not begun with.
    waiting: Found,
    releasing: HashMap<Id, PodUid>,
    tasks: JoinSet<Report>,
}

impl Leftovers {
    pub(super) fn new(executor: Arc<Executor>) -> Self {
        Self {
            executor,
            due: true,
            looked: None,
            failed: false,
            waiting: Found::new(),
            releasing: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Has them looked for again.
    pub(super) fn look_again(&mut self) {
        self.due = true;
    }

    /// Looks for them if that is due and nothing is under way.
    pub(super) fn look(&mut self) {
        let is_time = self.looked.is_some_and(|looked| looked.elapsed() >= EVERY);
        if (self.due || is_time) && self.tasks.is_empty() {
            self.due = false;
            self.looked = Some(Instant::now());
            self.failed = false;
            self.tasks.spawn(list(self.executor.clone()).boxed());
        }
    }

    /// Whether something of that pod is being released: a pod of that UID has to wait.
    pub(super) fn holds(&self, uid: &PodUid) -> bool {
        self.releasing.values().any(|releasing| releasing == uid)
    }

    /// The next report; pends while there is none to come.
    pub(super) async fn next(&mut self) -> Result<(Id, Report), JoinError> {
        match self.tasks.join_next_with_id().await {
            Some(report) => report,
            None => std::future::pending().await,
        }
    }

    /// Takes a report; `is_gone` tells whether nobody else releases what there is of a pod. Tells whether all is done and
    /// something failed, so that it is to be tried again in a while.
    pub(super) fn take(&mut self, report: Result<(Id, Report), JoinError>, is_gone: impl Fn(&PodUid) -> bool) -> bool {
        match report {
            Ok((_, Report::Found(found, complete))) => {
                self.failed |= !complete;
                self.waiting = found;
            }
            Ok((id, Report::Released(worked))) => {
                self.failed |= !worked;
                self.releasing.remove(&id);
            }
            Err(error) => {
                self.failed = true;
                self.releasing.remove(&error.id());
            }
        }
        while self.releasing.len() < AT_ONCE
            && let Some((uid, left)) = self.waiting.pop_first()
        {
            if is_gone(&uid) {
                tracing::info!(pod = %uid, "releasing what an earlier pod left");
                let task = self
                    .tasks
                    .spawn(release(self.executor.clone(), uid.clone(), left).boxed());
                self.releasing.insert(task.id(), uid);
            }
        }
        let over = self.tasks.is_empty();
        self.due |= over && self.failed;
        over && self.failed
    }
}

async fn list(executor: Arc<Executor>) -> Report {
    let mut found = Found::new();
    let mut complete = true;
    let logs = executor.parts.context.pod_logs_dir.clone();
    let key = logs.to_string_lossy().into_owned();
    let (directories, cgroups, logs) = tokio::join!(
        executor.parts.volumes.list(),
        executor.parts.cgroups.list(),
        executor.files.run(&key, move || list_logs(&logs))
    );
    match directories {
        Ok(uids) => {
            for uid in uids {
                found.entry(uid).or_default().directory = true;
            }
        }
        Err(error) => {
            tracing::warn!(%error, "listing the directories of earlier pods failed");
            complete = false;
        }
    }
    match cgroups {
        Ok(uids) => {
            for uid in uids {
                found.entry(uid).or_default().cgroup = true;
            }
        }
        Err(error) => {
            tracing::warn!(%error, "listing the cgroups of earlier pods failed");
            complete = false;
        }
    }
    match logs {
        Ok(logs) => {
            for (uid, path) in logs {
                found.entry(uid).or_default().logs.push(path);
            }
        }
        Err(error) => {
            tracing::warn!(%error, "listing the logs of earlier pods failed");
            complete = false;
        }
    }
    log_file::remove_dead_links(&executor.files, &executor.parts.context.pod_logs_dir).await;
    Report::Found(found, complete)
}

/// Log directories, `<namespace>_<name>_<uid>`; what is named otherwise is not a pod's.
fn list_logs(directory: &Path) -> Vec<(PodUid, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let uid = PodUid::from_file_name(entry.file_name().to_str()?.splitn(3, '_').nth(2)?)?;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_directory.then(|| (uid, entry.path()))
    };
    entries.filter_map(of).collect()
}

async fn release(executor: Arc<Executor>, uid: PodUid, left: Left) -> Report {
    let mut worked = true;
    if left.directory
        && let Err(error) = executor.parts.volumes.release(&uid).await
    {
        tracing::warn!(pod = %uid, %error, "releasing an earlier pod's volumes failed");
        worked = false;
    }
    if left.cgroup
        && let Err(error) = executor.parts.cgroups.release_pod(&uid).await
    {
        tracing::warn!(pod = %uid, %error, "releasing an earlier pod's cgroup failed");
        worked = false;
    }
    let logs = left.logs;
    let has_logs = !logs.is_empty();
    let removed = executor.files.run(uid.as_str(), move || remove_logs(&logs)).await;
    if let Err(error) = removed.map_err(io::Error::other).flatten() {
        tracing::warn!(pod = %uid, %error, "removing an earlier pod's logs failed");
        worked = false;
    }
    if has_logs {
        log_file::remove_dead_links(&executor.files, &executor.parts.context.pod_logs_dir).await;
    }
    Report::Released(worked)
}

fn remove_logs(logs: &[PathBuf]) -> io::Result<()> {
    for directory in logs {
        tree::remove(directory)?;
    }
    Ok(())
}
