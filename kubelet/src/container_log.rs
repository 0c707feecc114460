//! Containers' logs are kept short: one that is too long is put aside, its runtime opens a new one, and what was put aside before is
//! compressed or, beyond `containerLogMaxFiles`, removed (kubelet contract §10).
//!
//! Owns the names `<log>.YYYYMMDD-HHMMSS[.gz]` beside the logs of running containers. When a log is looked at is [`schedule`]'s to say,
//! what becomes of the files [`files`]' (both pure); [`rotation`] does it, so that a kubelet that is killed at any moment loses no line,
//! and the next one finishes. Writes no line and reads none but to compress it. Pod directories are strangers' ground: a container may
//! have them as a volume, so nothing here follows a link ([`crate::host::directory`]).

mod compress;
mod files;
mod rotation;
mod schedule;
#[cfg(test)]
mod tests;

use crate::host::{FileWork, WorkError};
use crate::id::ContainerId;
use crate::parts::Parts;
use crate::runtime::RuntimeError;
use crate::runtime::observed::ContainerState;
use futures::{FutureExt, StreamExt};
use rotation::{Log, Most, Step};
use schedule::Sample;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long file work is waited for: a log may have grown large before it was compressed.
const FILES_DEADLINE: Duration = Duration::from_secs(600);
/// Logs that are due so soon are looked at together with those that are: one wake-up for many.
const TOGETHER: Duration = Duration::from_millis(500);
/// How long a look at the sizes of one pod's logs is waited for: a file system that hangs holds the others up no longer.
const LOOK_DEADLINE: Duration = Duration::from_secs(5);
/// How many pods' logs are looked at at a time.
const LOOKS: usize = 4;

/// How long logs may become, and how many of them stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `containerLogMaxSize`, bytes; none for logs that are never rotated.
    pub size_max: Option<u64>,
    /// `containerLogMaxFiles`: of one container, the one that is written to among them.
    pub files_max: usize,
    /// `containerLogMaxWorkers`: logs that are worked on at a time.
    pub workers: usize,
    /// `containerLogMonitorInterval`: how long a log is not looked at, at most.
    pub interval: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            size_max: Some(10 << 20),
            files_max: 5,
            workers: 1,
            interval: Duration::from_secs(10),
        }
    }
}

/// Why a log was not rotated.
#[derive(Debug, thiserror::Error)]
enum RotateError {
    #[error("{0}")]
    Files(#[from] io::Error),
    #[error("failed to reopen container log: {0}")]
    Reopen(#[from] RuntimeError),
    #[error(transparent)]
    Work(#[from] WorkError),
}

/// The log of a running container.
struct Watched {
    log: Log,
    /// Its size when it was last looked at.
    sample: Option<Sample>,
    /// When it is looked at again.
    due: Instant,
    /// Something is being done with it.
    busy: bool,
    /// How often in a row that failed.
    failures: u32,
    /// The runtime said that it opened a log, and none was seen since.
    promised: bool,
}

/// Rotates the logs of one kubelet's containers.
pub struct Rotator {
    parts: Arc<Parts>,
    rules: Rules,
    files: FileWork,
    /// Looks at sizes, one at a time for each pod's directory.
    looks: FileWork,
    workers: Arc<Semaphore>,
    watched: BTreeMap<ContainerId, Watched>,
    /// Each tells whether the runtime said that it opened a log.
    tasks: JoinSet<Result<bool, RotateError>>,
    /// Which container a task is about.
    about: BTreeMap<Id, ContainerId>,
    /// Tells file work to leave off: it goes on at the next start.
    stopping: Arc<AtomicBool>,
}

impl Rotator {
    /// A rotator that does nothing yet.
    pub fn new(parts: Arc<Parts>, rules: Rules) -> Self {
        Self {
            parts,
            files: FileWork::new(FILES_DEADLINE),
            looks: FileWork::new(LOOK_DEADLINE),
            workers: Arc::new(Semaphore::new(rules.workers.min(Semaphore::MAX_PERMITS))),
            rules,
            watched: BTreeMap::new(),
            tasks: JoinSet::new(),
            about: BTreeMap::new(),
            stopping: Arc::default(),
        }
    }

    /// Rotates until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        let Some(size_max) = self.rules.size_max else {
            return;
        };
        loop {
            self.pass(size_max).await;
            let wake = self.next_wake();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => self.take(ended),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        self.stopping.store(true, Ordering::Relaxed);
        // Between two names a log is put back or opened anew, if there is time for it.
        while self.tasks.join_next().await.is_some() {}
    }

    /// Looks at the logs that are due, and begins what is to be done with them.
    async fn pass(&mut self, size_max: u64) {
        self.find();
        let now = Instant::now();
        let due = self
            .watched
            .iter()
            .filter(|(_, log)| !log.busy && log.due <= now + TOGETHER);
        let mut pods: BTreeMap<String, Vec<(ContainerId, Log)>> = BTreeMap::new();
        for (id, watched) in due {
            let of_pod = pods.entry(watched.log.pod()).or_default();
            of_pod.push((id.clone(), watched.log.clone()));
        }
        let (root, looks) = (self.parts.context.pod_logs_dir.clone(), self.looks.clone());
        let look = |(pod, due): (String, Vec<(ContainerId, Log)>)| {
            let logs: Vec<Log> = due.iter().map(|(_, log)| log.clone()).collect();
            let root = root.clone();
            let sizes = looks.run(&pod, move || rotation::sizes(&root, &logs));
            sizes.map(|sizes| (pod, due, sizes))
        };
        let mut looked = futures::stream::iter(pods).map(look).buffer_unordered(LOOKS);
        // Whoever is told of is worked on while others are waited for.
        while let Some((pod, due, sizes)) = looked.next().await {
            let now = Instant::now();
            let sizes = sizes.unwrap_or_else(|error| {
                tracing::warn!(pod, %error, "the sizes of containers' logs cannot be read");
                due.iter().map(|_| Err(io::ErrorKind::TimedOut.into())).collect()
            });
            for ((id, log), size) in due.into_iter().zip(sizes) {
                self.judge(id, log, size, size_max, now);
            }
        }
    }

    /// Begins with the logs of containers that run since, forgets those of others.
    fn find(&mut self) {
        let root = &self.parts.context.pod_logs_dir;
        let mut known = std::mem::take(&mut self.watched);
        for pod in self.parts.pods.list() {
            let running = pod.observed.containers.iter();
            for container in running.filter(|container| container.state == ContainerState::Running) {
                if let Some(watched) = known.remove(&container.id) {
                    self.watched.insert(container.id.clone(), watched);
                } else if let Some(log) = Log::below(root, Path::new(&container.log_path)) {
                    let fresh = Watched {
                        log,
                        sample: None,
                        due: Instant::now(),
                        busy: false,
                        failures: 0,
                        promised: false,
                    };
                    self.watched.insert(container.id.clone(), fresh);
                }
            }
        }
    }

    fn judge(&mut self, id: ContainerId, log: Log, size: io::Result<Option<u64>>, size_max: u64, now: Instant) {
        let interval = self.rules.interval;
        let Some(watched) = self.watched.get_mut(&id) else {
            return;
        };
        let promised = std::mem::take(&mut watched.promised);
        let step = match size {
            Ok(Some(size)) if size < size_max || size == 0 => {
                let sample = Sample { at: now, size };
                watched.due = now + schedule::next(watched.sample, sample, size_max, interval);
                watched.sample = Some(sample);
                watched.failures = 0;
                return;
            }
            Ok(Some(_)) => {
                if promised {
                    watched.failures = 0;
                }
                Step::Rotate
            }
            // Asked again at once it would say so again, without end.
            Ok(None) if promised => {
                tracing::warn!(container = %id, "the runtime says that it opened the container's log, and there is none");
                watched.due = now + schedule::after_failure(watched.failures, interval);
                watched.failures += 1;
                return;
            }
            // A rotation that a kubelet died in, or somebody removed it: the runtime writes to a file without this name.
            Ok(None) => Step::Reopen,
            Err(error) => {
                tracing::debug!(container = %id, %error, "a container's log cannot be looked at");
                watched.due = now + schedule::after_failure(watched.failures, interval);
                watched.failures += 1;
                return;
            }
        };
        watched.busy = true;
        let work = Work {
            parts: self.parts.clone(),
            files: self.files.clone(),
            workers: self.workers.clone(),
            most: Most {
                files: self.rules.files_max,
                bytes: size_max,
            },
            stopping: self.stopping.clone(),
        };
        let task = self.tasks.spawn(work.run(id.clone(), log, step).boxed());
        self.about.insert(task.id(), id);
    }

    fn take(&mut self, ended: Result<(Id, Result<bool, RotateError>), JoinError>) {
        let (task, done) = match ended {
            Ok((task, done)) => (task, done),
            Err(error) => (error.id(), Err(RotateError::Work(WorkError::Lost))),
        };
        let Some(id) = self.about.remove(&task) else { return };
        let Some(watched) = self.watched.get_mut(&id) else {
            return;
        };
        watched.busy = false;
        watched.sample = None;
        let now = Instant::now();
        match done {
            // Whether that was a success is seen at the next look.
            Ok(promised) => {
                watched.promised = promised;
                watched.due = now + schedule::SOONEST;
            }
            Err(error) => {
                tracing::warn!(container = %id, %error, "failed to rotate the container's log");
                watched.due = now + schedule::after_failure(watched.failures, self.rules.interval);
                watched.failures += 1;
            }
        }
    }

    /// When a log is due, or new containers are to be looked for.
    fn next_wake(&self) -> Instant {
        let due = self
            .watched
            .values()
            .filter(|watched| !watched.busy)
            .map(|watched| watched.due);
        let latest = Instant::now() + self.rules.interval;
        due.min().map_or(latest, |due| due.min(latest))
    }
}

/// What one piece of work is done with.
struct Work {
    parts: Arc<Parts>,
    files: FileWork,
    workers: Arc<Semaphore>,
    most: Most,
    stopping: Arc<AtomicBool>,
}

impl Work {
    async fn run(self, id: ContainerId, log: Log, step: Step) -> Result<bool, RotateError> {
        let turn = self.workers.acquire().await;
        let done = match step {
            Step::Reopen => self.reopen(&id, log).await,
            Step::Rotate => self.rotate(&id, log).await,
        };
        drop(turn);
        done
    }

    async fn reopen(&self, id: &ContainerId, log: Log) -> Result<bool, RotateError> {
        let root = self.parts.context.pod_logs_dir.clone();
        let missing = self.files.run(id.as_str(), move || rotation::is_missing(&root, &log));
        let is_missing = missing.await??;
        if is_missing {
            self.parts.runtime.reopen_log(id).await?;
        }
        Ok(is_missing)
    }

    async fn rotate(&self, id: &ContainerId, log: Log) -> Result<bool, RotateError> {
        let (root, most) = (self.parts.context.pod_logs_dir.clone(), self.most);
        let (of, now, stopping) = (log.clone(), self.parts.clock.now(), self.stopping.clone());
        let work = move || rotation::put_aside(&root, &of, most, now, &stopping, &mut |_| {});
        let Some(aside) = self.files.run(id.as_str(), work).await?? else {
            return Ok(false);
        };
        let Err(error) = self.parts.runtime.reopen_log(id).await else {
            tracing::debug!(container = %id, aside, "a container's log is rotated");
            return Ok(true);
        };
        let root = self.parts.context.pod_logs_dir.clone();
        let back = move || rotation::put_back(&root, &log, &aside);
        self.files.run(id.as_str(), back).await??;
        Err(error.into())
    }
}
