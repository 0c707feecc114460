//! When the observer looks at what: events as they come, sweeps by the clock.
//!
//! Owns the pace of sweeps: one list at a time, slow while events are reported, quick while none are. A list that takes long
//! is followed by a pause like any other.

use super::{Pleg, RELIST_EVERY};
use crate::runtime::RuntimeError;
use crate::runtime::events::{self, Report};
use futures::FutureExt;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Events waiting to be handled; the sender waits when it is full, and the runtime buffers.
const REPORTS_MAX: usize = 1000;

/// When the next list begins.
struct Pace {
    /// Between lists while events are reported.
    slow: Duration,
    is_subscribed: bool,
    /// A subscription began while a list was under way, which may have missed what came before it.
    is_due_again: bool,
    due: Instant,
}

impl Pace {
    fn pause(&self) -> Duration {
        match self.is_subscribed {
            true => self.slow,
            false => self.slow.min(RELIST_EVERY),
        }
    }

    fn take_subscribed(&mut self, now: Instant) {
        (self.is_subscribed, self.is_due_again, self.due) = (true, true, now);
    }

    fn take_lost(&mut self, now: Instant) {
        self.is_subscribed = false;
        self.due = self.due.min(now + self.pause());
    }

    fn take_list_begun(&mut self) {
        self.is_due_again = false;
    }

    fn take_list_ended(&mut self, now: Instant) {
        self.due = match self.is_due_again {
            true => now,
            false => now + self.pause(),
        };
    }
}

impl Pleg {
    /// Handles events and sweeps until shut down.
    pub async fn run(self, shutdown: CancellationToken) {
        let (sender, mut reports) = mpsc::channel(REPORTS_MAX);
        let runtime = self.inner.runtime.clone();
        let forwarding = tokio::spawn(events::forward(runtime, sender, shutdown.clone()).boxed());
        let mut pace = Pace {
            slow: self.inner.sweep_every,
            is_subscribed: false,
            is_due_again: false,
            due: Instant::now(),
        };
        let (mut list, mut is_failing, mut open) = (JoinSet::new(), false, true);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                report = reports.recv(), if open => match report {
                    Some(Report::Event(event)) => self.handle(event),
                    Some(Report::Subscribed) => pace.take_subscribed(Instant::now()),
                    Some(Report::Lost) => pace.take_lost(Instant::now()),
                    None => {
                        open = false;
                        pace.take_lost(Instant::now());
                    }
                },
                Some(listed) = list.join_next() => {
                    is_failing = told(listed, is_failing);
                    pace.take_list_ended(Instant::now());
                }
                () = tokio::time::sleep_until(pace.due), if list.is_empty() => {
                    pace.take_list_begun();
                    let pleg = self.clone();
                    list.spawn(async move { pleg.begin().await }.boxed());
                }
            }
        }
        self.inner.tasks.close();
        forwarding.abort();
    }
}

/// Tells of a list that failed, once, and whether it did: the next comes soon.
fn told(listed: Result<Result<(), RuntimeError>, JoinError>, is_failing: bool) -> bool {
    let error = match listed {
        Ok(Ok(())) => return false,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    if !is_failing {
        tracing::warn!(%error, "sweeping the runtime failed");
    }
    true
}
