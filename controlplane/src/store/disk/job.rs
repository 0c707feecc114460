//! One write on its way to the writer, and the answer on its way back.
//!
//! Owns neither: never writes, never retries.

use crate::store::{Expect, Revision, StoreError};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// What is done to a key.
pub(super) enum Operation {
    Put {
        value: Bytes,
        expect: Expect,
        is_for_deletion: bool,
    },
    Delete {
        expect: Revision,
    },
}

/// A write that waits, and who waits for it.
pub(super) struct Job {
    pub(super) key: String,
    pub(super) write: Operation,
    pub(super) reply: oneshot::Sender<Reply>,
}

/// What is said of a write.
pub(super) type Reply = Result<Revision, StoreError>;

impl Job {
    /// The length of what it writes.
    pub(super) fn bytes(&self) -> usize {
        match &self.write {
            Operation::Put { value, .. } => value.len(),
            Operation::Delete { .. } => 0,
        }
    }
}

/// What the writer says of a write that has been sent to it.
///
/// The writer may end between giving a place in its queue away and the write taking it: such a write lies there as long as anybody
/// can send, with the means to answer it, and nobody takes it out.
///
/// # Errors
/// The writer's; `Closed` if it has ended without an answer.
pub(super) async fn answered(jobs: &mpsc::Sender<Job>, mut answer: oneshot::Receiver<Reply>) -> Reply {
    let told = tokio::select! {
        biased;
        told = &mut answer => told.ok(),
        // It lets go of its queue last: what it has not answered by then it never will.
        () = jobs.closed() => answer.try_recv().ok(),
    };
    told.unwrap_or(Err(StoreError::Closed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn job() -> (Job, oneshot::Receiver<Reply>) {
        let (reply, answer) = oneshot::channel();
        let write = Operation::Delete { expect: 1 };
        let key = "/registry/a".to_owned();
        (Job { key, write, reply }, answer)
    }

    async fn in_time(jobs: &mpsc::Sender<Job>, answer: oneshot::Receiver<Reply>) -> Reply {
        let told = tokio::time::timeout(Duration::from_secs(60), answered(jobs, answer)).await;
        told.expect("an answer, whatever becomes of the writer")
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_comes_as_the_writer_ends_is_answered() {
        let (jobs, queue) = mpsc::channel(1);
        let place = jobs.reserve().await.unwrap();
        drop(queue);
        let (job, answer) = job();
        place.send(job);
        assert!(matches!(in_time(&jobs, answer).await, Err(StoreError::Closed)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_of_a_write_before_the_writer_ended_stands() {
        let (jobs, mut queue) = mpsc::channel(1);
        let (job, answer) = job();
        jobs.send(job).await.unwrap();
        queue.recv().await.unwrap().reply.send(Ok(7)).unwrap();
        drop(queue);
        assert!(matches!(in_time(&jobs, answer).await, Ok(7)));
    }
}
