//! Whose turn it is at the runtime: pods that start or stop come first, the removal of what has stopped waits.
//!
//! Somebody waits for a pod to run or to be gone; nobody waits for a dead container's removal, and it costs the runtime as
//! much as the stop did. Owns the count of what is under way. Holds no removal up for longer than [`PATIENCE`].

use crate::pod::operation::Operation;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// How long nothing may have started or stopped before removals begin: between its steps a pod is at no call.
const CALM: Duration = Duration::from_millis(100);
/// The longest a removal waits for that.
const PATIENCE: Duration = Duration::from_secs(5);
/// Removals at a time.
const REMOVALS_MAX: usize = 8;

/// What is under way at the runtime. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RuntimeLoad {
    /// How many calls are under way for which somebody waits, and how many there have been.
    calls: watch::Sender<Calls>,
    removals: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    under_way: usize,
    begun: u64,
}

/// An operation's turn, as long as it lives.
#[derive(Debug, Default)]
pub(super) struct Turn<'r> {
    _urgent: Option<Urgent<'r>>,
    _removal: Option<SemaphorePermit<'r>>,
}

/// A call for which somebody waits.
#[derive(Debug)]
struct Urgent<'r> {
    runtime_load: &'r RuntimeLoad,
}

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        self.runtime_load.calls.send_modify(|calls| calls.under_way -= 1);
    }
}

impl Default for RuntimeLoad {
    fn default() -> Self {
        Self {
            calls: watch::Sender::default(),
            removals: Arc::new(Semaphore::new(REMOVALS_MAX)),
        }
    }
}

impl RuntimeLoad {
    /// Waits for an operation's turn.
    pub(super) async fn turn(&self, operation: &Operation) -> Turn<'_> {
        match operation {
            Operation::StartSandbox { .. }
            | Operation::StartContainer { .. }
            | Operation::StopContainer { .. }
            | Operation::StopSandbox { .. }
            | Operation::ReleaseVolumes
            | Operation::ReleaseCgroup => Turn {
                _urgent: Some(self.urgent()),
                _removal: None,
            },
            Operation::RemoveContainer { starts_anew: false, .. } | Operation::RemoveSandbox { .. } => Turn {
                _urgent: None,
                _removal: self.removal().await,
            },
            _ => Turn::default(),
        }
    }

    fn urgent(&self) -> Urgent<'_> {
        self.calls.send_modify(|calls| {
            calls.under_way += 1;
            calls.begun += 1;
        });
        Urgent { runtime_load: self }
    }

    async fn removal(&self) -> Option<SemaphorePermit<'_>> {
        // Out of patience, a removal comes all the same.
        drop(tokio::time::timeout(PATIENCE, self.calm()).await);
        self.removals.acquire().await.ok()
    }

    async fn calm(&self) {
        let mut calls = self.calls.subscribe();
        loop {
            // The sender lives in `self`, so this cannot fail.
            let begun = calls
                .wait_for(|calls| calls.under_way == 0)
                .await
                .map_or(0, |calls| calls.begun);
            let more = calls.wait_for(|calls| calls.begun != begun);
            if tokio::time::timeout(CALM, more).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    async fn removal_waits(runtime_load: &RuntimeLoad) -> Duration {
        let begin = Instant::now();
        let permit = runtime_load.removal().await;
        assert!(permit.is_some());
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn removals_wait_until_nothing_starts_or_stops() {
        let runtime_load = RuntimeLoad::default();
        assert_eq!(removal_waits(&runtime_load).await, CALM);
        let other = runtime_load.clone();
        let busy = tokio::spawn(async move {
            for _ in 0..10 {
                let urgent = other.urgent();
                tokio::time::sleep(CALM * 2).await;
                drop(urgent);
                // The next step of a pod comes sooner than removals begin.
                tokio::time::sleep(CALM / 2).await;
            }
        });
        tokio::task::yield_now().await;
        let waited = removal_waits(&runtime_load).await;
        assert!(waited >= CALM * 25, "{waited:?}");
        busy.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_holds_no_removal_up() {
        let runtime_load = RuntimeLoad::default();
        let _hung = runtime_load.urgent();
        assert_eq!(removal_waits(&runtime_load).await, PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_removals_run_at_a_time() {
        let runtime_load = RuntimeLoad::default();
        let mut held = Vec::new();
        for _ in 0..REMOVALS_MAX {
            held.push(runtime_load.removal().await);
        }
        let next = tokio::time::timeout(PATIENCE * 10, runtime_load.removal()).await;
        assert!(next.is_err());
        held.pop();
        assert!(runtime_load.removal().await.is_some());
    }
}
