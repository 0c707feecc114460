//! Keeps the conversation with logind: begins it anew after it broke, holds the lock while it is wanted, tells what logind says.
//!
//! Decides nothing about pods. A machine without a bus, or without logind, costs a try now and then and one line in the log.

use super::logind::{Lock, Logind, LogindError, Session};
use crate::pod::failure::chain;
use client::Backoff;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The first and the longest wait before another conversation is tried.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// The waits for logind to allow more than it did: it reads its settings in its own time.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

/// What is known of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing yet: logind is being asked.
    Nothing,
    /// logind could not be asked so far.
    NoAnswer,
    /// Whether a shutdown was asked for, when logind was last heard of.
    Preparing(bool),
}

/// The conversation.
pub(super) struct Link {
    logind: Arc<dyn Logind>,
    /// How long a shutdown is to be delayed at most.
    need: Duration,
    told: watch::Sender<Told>,
    wanted: watch::Receiver<bool>,
    lock: Option<Lock>,
    waits: Backoff,
    /// The last thing that went wrong: it is told once.
    complained: Option<String>,
}

impl Link {
    /// A conversation that tells `told`, and holds the lock while it is `wanted`.
    pub(super) fn new(
        logind: Arc<dyn Logind>,
        need: Duration,
        told: watch::Sender<Told>,
        wanted: watch::Receiver<bool>,
        seed: u64,
    ) -> Self {
        Self {
            logind,
            need,
            told,
            wanted,
            lock: None,
            waits: Backoff::new(AGAIN, AGAIN_MAX, seed),
            complained: None,
        }
    }

    /// Keeps it for as long as it is polled; then the lock goes.
    pub(super) async fn keep(mut self) -> Infallible {
        loop {
            let Err(error) = self.converse().await;
            self.complain(&error);
            self.told.send_if_modified(|told| {
                let first = *told == Told::Nothing;
                if first {
                    *told = Told::NoAnswer;
                }
                first
            });
            self.wait().await;
        }
    }

    /// Waits before the next try. The lock that is held may be all that keeps the machine up: it goes when it may.
    async fn wait(&mut self) {
        let until = Instant::now() + self.waits.fail();
        let Self { wanted, lock, .. } = self;
        let unwanted = async { wanted.wait_for(|wanted| !wanted).await.is_ok() };
        tokio::select! {
            biased;
            is_unwanted = unwanted, if lock.is_some() => if is_unwanted { *lock = None },
            () = tokio::time::sleep_until(until) => {}
        }
        tokio::time::sleep_until(until).await;
    }

    async fn converse(&mut self) -> Result<Infallible, LogindError> {
        let mut session = self.logind.connect().await?;
        let mut preparing = session.is_preparing().await?;
        let (mut is_new, mut is_asked) = (true, false);
        loop {
            self.hold(&mut *session, preparing, &mut is_new).await?;
            self.told.send_if_modified(|told| {
                let news = *told != Told::Preparing(preparing);
                *told = Told::Preparing(preparing);
                news
            });
            if self.complained.take().is_some() {
                tracing::info!("logind is heard of again");
            }
            self.waits.reset();
            if !preparing && !std::mem::replace(&mut is_asked, true) {
                self.ask_for_time(&mut *session).await?;
            }
            tokio::select! {
                biased;
                said = session.next() => preparing = said?,
                Ok(()) = self.wanted.changed() => {}
            }
        }
    }

    /// Takes the lock or lets go of it. A logind that is new to us gives another one, and only then the old one goes.
    async fn hold(&mut self, session: &mut dyn Session, preparing: bool, is_new: &mut bool) -> Result<(), LogindError> {
        if !*self.wanted.borrow_and_update() {
            self.lock = None;
        } else if !preparing && (self.lock.is_none() || *is_new) {
            self.lock = Some(session.inhibit().await?);
        }
        *is_new = false;
        Ok(())
    }

    /// Has logind allow as much time as pods may take. If it does not, what it allows is better than nothing.
    async fn ask_for_time(&mut self, session: &mut dyn Session) -> Result<(), LogindError> {
        let mut allowed = session.delay_max().await?;
        if allowed >= self.need {
            return Ok(());
        }
        if let Err(error) = session.raise_delay_max(self.need).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "logind's InhibitDelayMaxSec is too small and cannot be raised");
        }
        for look in LOOKS {
            tokio::time::sleep(look).await;
            allowed = session.delay_max().await?;
            if allowed >= self.need {
                return Ok(());
            }
        }
        let need = self.need;
        tracing::warn!(
            ?allowed,
            ?need,
            "logind delays a shutdown for less time than the configured grace periods: pods may be ended early"
        );
        Ok(())
    }

    /// Tells once what stands between us and logind.
    fn complain(&mut self, error: &LogindError) {
        let text = chain(error);
        if self.complained.as_ref() != Some(&text) {
            tracing::warn!(
                error = text,
                "a shutdown of this machine would not be noticed: its pods would not be ended within their grace"
            );
            self.complained = Some(text);
        }
    }
}
