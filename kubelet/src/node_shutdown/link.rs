//! Keeps the conversation with logind: begins it anew after it broke, holds the lock while it is wanted, tells what logind says.
//!
//! Decides nothing about pods. A machine without a bus, or without logind, costs a try now and then and one line in the log.

use super::logind::{Lock, Logind, LogindError, Session};
use crate::pod::failure::chain;
use client::Backoff;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The first and the longest wait before another conversation is tried.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// A conversation that lasted this long was a good one: the next is tried soon.
const LASTED: Duration = Duration::from_secs(30);
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

/// The lock, while it is held: by this kubelet, and for the next one, should this one die.
struct Held {
    lock: Mutex<Option<Lock>>,
    logind: Arc<dyn Logind>,
}

impl Held {
    fn put(&self, lock: Option<Lock>) {
        match &lock {
            Some(lock) => self.logind.keep(lock),
            None => self.logind.release(),
        }
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = lock;
    }

    fn is_some(&self) -> bool {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// The conversation.
pub(super) struct Link {
    logind: Arc<dyn Logind>,
    /// How long a shutdown is to be delayed at most.
    need: Duration,
    told: watch::Sender<Told>,
    wanted: watch::Receiver<bool>,
    held: Arc<Held>,
    waits: Backoff,
    /// The logind that was last told to allow more: once is enough for each.
    raised: Option<String>,
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
            held: Arc::new(Held {
                lock: Mutex::default(),
                logind: logind.clone(),
            }),
            logind,
            need,
            told,
            wanted,
            waits: Backoff::new(AGAIN, AGAIN_MAX, seed),
            raised: None,
            complained: None,
        }
    }

    /// Keeps it for as long as it is polled; then the lock goes.
    pub(super) async fn keep(self) -> Infallible {
        let (wanted, held) = (self.wanted.clone(), self.held.clone());
        tokio::select! {
            biased;
            never = let_go(wanted, &held) => never,
            never = self.talk() => never,
        }
    }

    async fn talk(mut self) -> Infallible {
        loop {
            let begun = Instant::now();
            let Err(error) = self.converse().await;
            self.complain(&error);
            self.told.send_if_modified(|told| {
                let first = *told == Told::Nothing;
                if first {
                    *told = Told::NoAnswer;
                }
                first
            });
            if begun.elapsed() >= LASTED {
                self.waits.reset();
            }
            tokio::time::sleep(self.waits.fail()).await;
        }
    }

    async fn converse(&mut self) -> Result<Infallible, LogindError> {
        let mut session = self.logind.connect().await?;
        let mut preparing = session.is_preparing().await?;
        let (mut is_new, mut is_asked) = (true, false);
        loop {
            // First of all: a lock may take its time, and pods wait for this.
            self.told.send_if_modified(|told| {
                let news = *told != Told::Preparing(preparing);
                *told = Told::Preparing(preparing);
                news
            });
            self.hold(&mut *session, preparing, &mut is_new).await?;
            if self.complained.take().is_some() {
                tracing::info!("logind is heard of again");
            }
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
            self.held.put(None);
        } else if !preparing && (!self.held.is_some() || *is_new) {
            let lock = session.inhibit().await?;
            // It may have become unwanted meanwhile.
            self.held.put(Some(lock).filter(|_| *self.wanted.borrow()));
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
        if self.raised.as_deref() == Some(session.owner()) {
            return Ok(());
        }
        self.raised = Some(session.owner().to_owned());
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

/// Lets the lock go whenever it is not wanted, whatever the conversation waits for: it may be all that keeps the machine up.
async fn let_go(mut wanted: watch::Receiver<bool>, held: &Held) -> Infallible {
    while wanted.wait_for(|wanted| !wanted).await.is_ok() {
        held.put(None);
        if wanted.changed().await.is_err() {
            break;
        }
    }
    std::future::pending().await
}
