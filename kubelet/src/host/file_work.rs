//! File work that may hang, done on the blocking pool: one job at a time for each key, and nobody waits past a deadline.
//!
//! A job whose deadline passed goes on, because a system call cannot be taken back; the next job of its key is begun only
//! when it is over. So a file system that hangs costs one thread for each key, not one for each try, and two jobs never
//! work on one pod's files at once. Owns the keys that are busy, nothing else.

use futures::FutureExt;
use futures::future::BoxFuture;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Why a job's result is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// It, or the job before it, is not over after the deadline.
    #[error("timed out waiting for the condition")]
    Overdue,
    /// It panicked, or the process ends.
    #[error("the task that did the file work ended early")]
    Lost,
}

type Anything = Box<dyn Any + Send>;
type Job = Box<dyn FnOnce() -> Anything + Send>;

/// Runs jobs. Clones share the keys.
#[derive(Clone, Debug)]
pub struct FileWork {
    deadline: Duration,
    turns: Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

impl FileWork {
    /// Work each job of which is waited for no longer than `deadline`.
    pub fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            turns: Arc::default(),
        }
    }

    /// Runs a job once the one before it with the same key is over. A job that was not begun by the deadline is not run.
    pub fn run<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        key: &str,
        job: F,
    ) -> impl Future<Output = Result<T, WorkError>> + Send + use<T, F> {
        // What waits is the same whatever the job is and gives.
        let done = self.run_any(key, Box::new(move || Box::new(job())));
        done.map(|done| done?.downcast().map(|result| *result).map_err(|_| WorkError::Lost))
    }

    /// As [`Self::run`], for a job that can end early: it is told to by its flag once it was waited for so long, or as soon as nobody
    /// waits for it any more.
    pub async fn run_for<T: Send + 'static>(
        &self,
        key: &str,
        most: Duration,
        job: impl FnOnce(&AtomicBool) -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let ends = Ends::default();
        let told = ends.0.clone();
        let working = self.run(key, move || job(&told));
        tokio::pin!(working);
        tokio::select! {
            biased;
            done = &mut working => done,
            () = tokio::time::sleep(most) => {
                drop(ends);
                working.await
            }
        }
    }

    /// Whether a job with this key is not over yet: the next one would wait for it.
    pub fn is_busy(&self, key: &str) -> bool {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.get(key).is_some_and(|turn| turn.try_lock().is_err())
    }

    fn run_any(&self, key: &str, job: Job) -> BoxFuture<'static, Result<Anything, WorkError>> {
        let (turn, deadline) = (self.turn(key), self.deadline);
        let work = async move {
            let turn = turn.lock_owned().await;
            let done = client::blocking::spawn(move || {
                let _turn = turn;
                job()
            });
            done.await.map_err(|_| WorkError::Lost)
        };
        let waited = async move {
            let waited = tokio::time::timeout(deadline, work).await;
            waited.unwrap_or(Err(WorkError::Overdue))
        };
        waited.boxed()
    }

    fn turn(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(key.to_owned()).or_default().clone()
    }
}

/// Tells a job to end when it goes.
#[derive(Default)]
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    const DEADLINE: Duration = Duration::from_secs(10);

    /// The paused clock does not go on by itself while a thread works.
    async fn after_the_deadline<T>(work: impl Future<Output = T>) -> T {
        let passing = async {
            tokio::task::yield_now().await;
            tokio::time::advance(DEADLINE + Duration::from_secs(1)).await;
        };
        futures::future::join(work, passing).await.0
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_hangs_is_given_up_and_holds_only_its_own_key() {
        let files = FileWork::new(DEADLINE);
        let (go_on, hangs) = mpsc::channel::<()>();
        let hung = files.run("a", move || hangs.recv().is_ok());
        assert_eq!(after_the_deadline(hung).await, Err(WorkError::Overdue));
        assert_eq!(files.run("b", || 2).await, Ok(2), "another key");
        let (begun, is_begun) = mpsc::channel();
        let behind = files.run("a", move || begun.send(()).is_ok());
        assert_eq!(after_the_deadline(behind).await, Err(WorkError::Overdue));
        assert!(is_begun.try_recv().is_err(), "one job of a key at a time");
        assert!(files.is_busy("a") && !files.is_busy("b"));
        go_on.send(()).expect("still there");
        assert_eq!(files.run("a", || 3).await, Ok(3), "once the first is over");
        assert!(!files.is_busy("a"));
    }

    #[tokio::test]
    async fn a_job_that_can_end_early_is_told_to_after_its_time_or_when_nobody_waits() {
        let files = FileWork::new(Duration::from_secs(600));
        let (tell, told) = mpsc::channel();
        let until_told = |begun: tokio::sync::oneshot::Sender<()>| {
            let tell = tell.clone();
            move |flag: &AtomicBool| {
                let _ = begun.send(());
                // It hangs for good if it is not told.
                let patience = Instant::now() + Duration::from_secs(60);
                while !flag.load(Ordering::Relaxed) && Instant::now() < patience {
                    std::thread::yield_now();
                }
                let was_told = flag.load(Ordering::Relaxed);
                let _ = tell.send(was_told);
                was_told
            }
        };
        let (begun, _) = tokio::sync::oneshot::channel();
        let short = files.run_for("a", Duration::from_millis(1), until_told(begun)).await;
        assert_eq!(
            (short, told.recv()),
            (Ok(true), Ok(true)),
            "what it came to is told all the same"
        );
        let (begun, is_begun) = tokio::sync::oneshot::channel();
        let (waiting, job) = (files.clone(), until_told(begun));
        let waits = tokio::spawn(async move { waiting.run_for("a", Duration::from_secs(600), job).await });
        is_begun.await.expect("begun");
        waits.abort();
        assert!(waits.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(told.recv(), Ok(true), "nobody waits for it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_told_and_keys_are_not_kept() {
        let files = FileWork::new(DEADLINE);
        let lost = files.run("a", || panic!("as a test")).await;
        assert_eq!(lost, Err::<(), _>(WorkError::Lost));
        for key in 0..100 {
            assert_eq!(files.run(&key.to_string(), || ()).await, Ok(()));
        }
        let kept = files.turns.lock().map(|turns| turns.len());
        assert!(kept.is_ok_and(|kept| kept <= 2));
    }
}
