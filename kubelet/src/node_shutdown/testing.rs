//! A logind that follows a script. Its locks are pipes: whoever closes his end has let go.

use super::logind::{Lock, Logind, LogindError, Session};
use crate::dbus::bus::BusError;
use async_trait::async_trait;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::PipeReader;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// One machine's logind. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct FakeLogind {
    state: Arc<Mutex<State>>,
    preparing: watch::Sender<bool>,
    /// Which of its lives it is in; 0: it is not there.
    life: watch::Sender<u64>,
    /// Whether nobody who is new is answered.
    hangs: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    delay_max: Duration,
    is_stubborn: bool,
    raised: Vec<Duration>,
    locks: Vec<PipeReader>,
    /// What is held while no kubelet runs.
    kept: Option<OwnedFd>,
}

impl FakeLogind {
    /// It allows five seconds, until it is told to allow more.
    pub(crate) fn new() -> Self {
        let state = State {
            delay_max: Duration::from_secs(5),
            is_stubborn: false,
            raised: Vec::new(),
            locks: Vec::new(),
            kept: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            preparing: watch::Sender::new(false),
            life: watch::Sender::new(1),
            hangs: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a shutdown, or takes that back.
    pub(crate) fn prepare(&self, preparing: bool) {
        self.preparing.send_replace(preparing);
    }

    /// Is gone, with every conversation.
    pub(crate) fn leave(&self) {
        self.life.send_replace(0);
    }

    /// Answers nobody who is new from now on.
    pub(crate) fn hang(&self) {
        self.hangs.send_replace(true);
    }

    /// Comes back as another.
    pub(crate) fn live(&self, life: u64) {
        self.life.send_replace(life);
    }

    /// Allows no more than it does, whatever it is told.
    pub(crate) fn be_stubborn(&self) {
        self.state().is_stubborn = true;
    }

    /// What it was told to allow.
    pub(crate) fn raised(&self) -> Vec<Duration> {
        self.state().raised.clone()
    }

    /// Locks that were given, and those of them that are held.
    pub(crate) fn locks(&self) -> (usize, usize) {
        let state = self.state();
        let is_held = |reader: &&PipeReader| {
            let mut asked = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
            poll(&mut asked, PollTimeout::ZERO).expect("a poll");
            !asked[0].revents().is_some_and(|told| told.contains(PollFlags::POLLHUP))
        };
        (state.locks.len(), state.locks.iter().filter(is_held).count())
    }
}

struct Conversation {
    logind: FakeLogind,
    owner: String,
    preparing: watch::Receiver<bool>,
    life: watch::Receiver<u64>,
}

#[async_trait]
impl Logind for FakeLogind {
    async fn connect(&self) -> Result<Box<dyn Session>, LogindError> {
        let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
        let life = self.life.subscribe();
        let owner = life.borrow().to_string();
        if owner == "0" {
            return Err(BusError::Authenticate("nobody is there".to_owned()).into());
        }
        Ok(Box::new(Conversation {
            logind: self.clone(),
            owner,
            preparing: self.preparing.subscribe(),
            life,
        }))
    }

    fn keep(&self, lock: &Lock) {
        self.state().kept = Some(lock.try_clone().expect("another descriptor"));
    }

    fn release(&self) {
        self.state().kept = None;
    }
}

#[async_trait]
impl Session for Conversation {
    fn owner(&self) -> &str {
        &self.owner
    }

    async fn delay_max(&mut self) -> Result<Duration, LogindError> {
        Ok(self.logind.state().delay_max)
    }

    async fn raise_delay_max(&mut self, to: Duration) -> Result<(), LogindError> {
        let mut state = self.logind.state();
        state.raised.push(to);
        if !state.is_stubborn {
            state.delay_max = to;
        }
        Ok(())
    }

    async fn inhibit(&mut self) -> Result<Lock, LogindError> {
        if *self.logind.preparing.borrow() {
            return Err(LogindError::Bus(BusError::Refused {
                call: "Inhibit",
                name: "org.freedesktop.login1.OperationInProgress".to_owned(),
                message: "The operation inhibition has been requested for is already running".to_owned(),
            }));
        }
        let (reader, writer) = std::io::pipe().expect("a pipe");
        self.logind.state().locks.push(reader);
        Ok(writer.into())
    }

    async fn is_preparing(&mut self) -> Result<bool, LogindError> {
        Ok(*self.preparing.borrow_and_update())
    }

    async fn next(&mut self) -> Result<bool, LogindError> {
        tokio::select! {
            biased;
            _ = self.life.changed() => Err(LogindError::Restarted),
            _ = self.preparing.changed() => Ok(*self.preparing.borrow_and_update()),
        }
    }
}
