//! A disk with a cache that is lost when power is: what is written is seen at once, and is on the platter once it is synced.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redb::StorageBackend;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What reaches the platter whole or not at all.
const SECTOR: usize = 512;
/// How long a disk stands still: less than a test is worth, more than anybody's turn.
const STALL: Duration = Duration::from_millis(700);
/// The same in a campaign by command.
const LONG_STALL: Duration = Duration::from_secs(5);

/// What the disk does at the next opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    None,
    /// Power goes.
    Off,
    /// Power goes within the next sync.
    OffInSync,
    /// Power goes after the next sync.
    OffAfterSync,
    /// The next sync fails, and all after it.
    Sync,
    /// The next write fails with this number, and all after it.
    Write(i32),
    /// The next sync takes very long.
    Stall,
}

/// All clones are one disk.
#[derive(Clone, Debug)]
pub(super) struct Platter(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    durable: Vec<u8>,
    cached: Vec<u8>,
    /// Sectors that differ, perhaps.
    dirty: BTreeSet<usize>,
    failure: Failure,
    has_stalled: bool,
    is_off: bool,
    dice: StdRng,
}

impl Platter {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            durable: Vec::new(),
            cached: Vec::new(),
            dirty: BTreeSet::new(),
            failure: Failure::None,
            has_stalled: false,
            is_off: false,
            dice: StdRng::seed_from_u64(seed ^ 0xd15c),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.failure = failure;
        state.has_stalled = false;
        state.is_off = failure == Failure::Off;
    }

    /// Whether a sync has stood still since it was told to.
    pub(super) fn has_stalled(&self) -> bool {
        self.state().has_stalled
    }

    /// Power is back, and the process is another: of what was not synced each sector is there or not.
    pub(super) fn power_on(&self) {
        let mut state = self.state();
        state.reach(0.5);
        state.dirty.clear();
        state.cached = state.durable.clone();
        (state.failure, state.is_off) = (Failure::None, false);
    }

    /// The process is another, of the same machine: it reads what is cached.
    pub(super) fn next_process(&self) {
        self.state().failure = Failure::None;
    }

    /// What is cached and is not dirty is read from the platter again.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        let (mut found, end) = (state.durable.clone(), state.cached.len());
        found.resize(end, 0);
        for from in state.dirty.iter().map(|sector| sector * SECTOR) {
            let to = (from + SECTOR).min(end);
            if from < to {
                found[from..to].copy_from_slice(&state.cached[from..to]);
            }
        }
        state.cached = found;
    }

    /// What is on it.
    pub(super) fn contents(&self) -> Vec<u8> {
        self.state().durable.clone()
    }
}

impl State {
    /// Each sector that is not synced reaches the platter with this probability, and so does the length.
    fn reach(&mut self, probability: f64) {
        if self.dice.random_bool(probability) {
            self.durable.resize(self.cached.len(), 0);
        }
        for sector in &self.dirty {
            let from = sector * SECTOR;
            let to = (from + SECTOR).min(self.cached.len()).min(self.durable.len());
            if from < to && self.dice.random_bool(probability) {
                self.durable[from..to].copy_from_slice(&self.cached[from..to]);
            }
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.is_off {
            true => Err(io::Error::from_raw_os_error(nix::libc::EIO)),
            false => Ok(()),
        }
    }

    fn check_write(&self) -> io::Result<()> {
        self.check()?;
        match self.failure {
            Failure::Write(number) => Err(io::Error::from_raw_os_error(number)),
            _ => Ok(()),
        }
    }
}

impl StorageBackend for Platter {
    fn len(&self) -> io::Result<u64> {
        let state = self.state();
        state.check()?;
        Ok(state.cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        state.check()?;
        let from = usize::try_from(offset).unwrap();
        let found = state
            .cached
            .get(from..from + out.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.check_write()?;
        state.cached.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        match state.failure {
            Failure::OffInSync => {
                state.is_off = true;
                return Err(io::Error::from_raw_os_error(nix::libc::EIO));
            }
            Failure::Sync => {
                // As Linux has it: what did not reach the platter counts as written from now on, and is shown as it was to be.
                state.reach(0.5);
                state.dirty.clear();
                return Err(io::Error::from_raw_os_error(nix::libc::EIO));
            }
            Failure::Stall => {
                state.failure = Failure::None;
                drop(state);
                let is_campaign = std::env::var_os(super::ROUNDS).is_some();
                std::thread::sleep(if is_campaign { LONG_STALL } else { STALL });
                state = self.state();
                state.has_stalled = true;
            }
            _ => {}
        }
        let length = state.cached.len();
        state.durable.resize(length, 0);
        state.reach(1.0);
        state.dirty.clear();
        state.is_off = state.failure == Failure::OffAfterSync;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.check_write()?;
        let from = usize::try_from(offset).unwrap();
        let place = state
            .cached
            .get_mut(from..from + data.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        place.copy_from_slice(data);
        state.dirty.extend(from / SECTOR..(from + data.len()).div_ceil(SECTOR));
        Ok(())
    }
}
