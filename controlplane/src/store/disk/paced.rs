//! The embedded store with its writer on tokio's clock: for simulations, where commits take time, crashes come in between, and
//! everything follows from a seed.
//!
//! Owns only the pace. What is written, and in which order it is told, is the same code as ever, but for the planted fault that
//! shows a checker at work.

use super::{BATCH, Disk, FILE, Hand, Job, Writer, builder, unusable};
use crate::store::StoreError;
use crate::store::disk::directory::Directory;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How a paced writer works.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seed of the commits' lengths.
    pub seed: u64,
    /// The longest a commit takes.
    pub commit_max: Duration,
    /// The planted fault: writers are answered before the commit.
    pub answers_first: bool,
}

/// The writer's task.
pub(super) struct Task(Mutex<Option<JoinHandle<()>>>);

impl Task {
    fn take(&self) -> Option<JoinHandle<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) async fn ended(&self) {
        if let Some(task) = self.take() {
            // Its panic has been told already.
            let _ = task.await;
        }
    }
}

impl Disk {
    /// As [`Disk::open`], at the given pace.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn open_paced(directory: impl AsRef<Path>, pace: Pace) -> Result<Self, StoreError> {
        let path = directory.as_ref();
        let directory = Directory::hold(path)?;
        let database = builder().create(path.join(FILE));
        let database = database.map_err(|error| unusable(path, "cannot be opened", &error))?;
        let writer = Writer::new(directory, database, path, Box::new(|error| panic!("{error}")))?;
        Self::with(writer, |writer, queue| {
            let task = tokio::spawn(run(writer, queue, pace));
            Ok(Hand::Task(Task(Mutex::new(Some(task)))))
        })
    }

    /// Ends the writer where it stands, as the death of the process would: what is not committed is lost.
    pub async fn crash(&self) {
        if let Hand::Task(task) = &self.hand
            && let Some(task) = task.take()
        {
            task.abort();
            // The error says that it was aborted.
            let _ = task.await;
        }
    }
}

async fn run(mut writer: Writer, mut queue: mpsc::Receiver<Job>, pace: Pace) {
    let mut rng = StdRng::seed_from_u64(pace.seed);
    let mut batch = Vec::with_capacity(BATCH);
    // What there was no space for in one commit is still in the batch.
    while !batch.is_empty() || queue.recv_many(&mut batch, BATCH).await > 0 {
        let commit = pace.commit_max.mul_f64(rng.random::<f64>());
        if pace.answers_first {
            let mut staged = writer.stage(&batch).unwrap_or_else(|error| panic!("{error}"));
            let answers = std::mem::take(&mut staged.answers);
            writer.tell(&mut batch, staged.changes.clone(), answers);
            tokio::time::sleep(commit).await;
            staged.commit().unwrap_or_else(|error| panic!("{error}"));
        } else {
            tokio::time::sleep(commit).await;
            writer.commit(&mut batch).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
