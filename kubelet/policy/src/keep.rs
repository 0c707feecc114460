//! Keeping what is known for the next start. Owns what of it is on disk, and when a failure is tried again; tells a failure
//! once.

use std::path::PathBuf;
use std::time::Duration;

use client::Backoff;
use tokio::time::Instant;

use crate::last::Last;

/// How long a file that cannot be written is left alone, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// See the module.
pub(crate) struct Keeper {
    path: Option<PathBuf>,
    kept: Option<Last>,
    /// What could not be written, and when to try again.
    failed: Option<(Last, Instant)>,
    backoff: Backoff,
}

impl Keeper {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            kept: None,
            failed: None,
            backoff: Backoff::new(RETRY.0, RETRY.1, 0),
        }
    }

    /// When something is to be kept that could not be yet.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.failed.as_ref().map(|(_, at)| *at)
    }

    /// Keeps this, where it is not what is kept. What could not be written is tried again when it is time, or when it is
    /// something else.
    pub(crate) async fn keep(&mut self, now: Last) {
        let waits = |(last, at): &(Last, Instant)| *last == now && Instant::now() < *at;
        if self.kept.as_ref() == Some(&now) || self.failed.as_ref().is_some_and(waits) {
            return;
        }
        let Some(path) = self.path.clone() else { return };
        let written = now.clone();
        let outcome = client::blocking::spawn(move || written.write(&path)).await;
        match outcome {
            Ok(Ok(())) => {
                (self.kept, self.failed) = (Some(now), None);
                self.backoff.reset();
            }
            Ok(Err(error)) => {
                if self.failed.is_none() {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "whether there are network policies is not kept for the next start, retrying"
                    );
                }
                self.fail(now);
            }
            Err(_) => self.fail(now),
        }
    }

    fn fail(&mut self, now: Last) {
        // What is on disk is not known any more.
        self.kept = None;
        self.failed = Some((now, Instant::now() + self.backoff.fail()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(has_policies: bool) -> Last {
        let ranges = Vec::new();
        Last { ranges, has_policies }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_tried_again_when_it_is_time_or_when_it_is_something_else() {
        let directory = std::env::temp_dir().join(format!("policy-keep-{}", std::process::id()));
        let path = directory.join("state");
        let mut keeper = Keeper::new(Some(path.clone()));
        assert_eq!(keeper.again_at(), None);
        keeper.keep(last(true)).await;
        let at = keeper.again_at().unwrap();
        // It could be written now, but it is not time.
        std::fs::create_dir_all(&directory).unwrap();
        keeper.keep(last(true)).await;
        assert_eq!((keeper.again_at(), Last::read(&path)), (Some(at), None));
        tokio::time::sleep_until(at).await;
        keeper.keep(last(true)).await;
        assert_eq!((keeper.again_at(), Last::read(&path)), (None, Some(last(true))));
        // What is something else does not wait.
        std::fs::remove_dir_all(&directory).unwrap();
        keeper.keep(last(true)).await;
        assert_eq!(keeper.again_at(), None, "it is what was kept");
        keeper.keep(last(false)).await;
        assert!(keeper.again_at().is_some());
        std::fs::create_dir_all(&directory).unwrap();
        keeper.keep(last(true)).await;
        assert_eq!((keeper.again_at(), Last::read(&path)), (None, Some(last(true))));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
