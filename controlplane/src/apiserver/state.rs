//! What every request path of one API server reads: what is served, the store's window, the clock, the gate, the limits.
//!
//! Owns them, and no request: [`super::server`] is the path, and what answers there (`verbs`) knows this alone.

use super::flow::Flow;
use super::gate::Gate;
use super::quota::Charges;
use super::reader::Reader;
use super::served::{Publisher, Served};
use super::write_locks::WriteLocks;
use crate::metrics::Metrics;
use crate::resource::Registry;
use crate::store::Store;
use crate::store::window::{ENCODED_BYTES, EncodedForms, Window};
use client::Clock;
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// The state of one API server, shared by its requests.
pub(super) struct ServerState {
    publisher: Publisher,
    reader: Reader,
    clock: Arc<dyn Clock>,
    random: Mutex<StdRng>,
    gate: Arc<dyn Gate>,
    flow: Flow,
    forms: Arc<EncodedForms>,
    write_locks: WriteLocks,
    charges: Charges,
    closing: CancellationToken,
    metrics: Arc<Metrics>,
}

impl ServerState {
    pub(super) fn new(window: Window, clock: Arc<dyn Clock>, seed: u64, gate: Arc<dyn Gate>) -> Self {
        let publisher = Publisher::new(Arc::clone(Registry::built_in()), window);
        Self {
            reader: publisher.reader(),
            publisher,
            clock,
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            gate,
            flow: Flow::new(),
            forms: Arc::new(EncodedForms::new(ENCODED_BYTES)),
            write_locks: WriteLocks::default(),
            charges: Charges::default(),
            closing: CancellationToken::new(),
            metrics: Arc::default(),
        }
    }

    /// What is served now: one for each request.
    pub(super) fn served(&self) -> Arc<Served> {
        self.publisher.current()
    }

    /// Decides what is served.
    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Reads straight from memory.
    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The store behind the server.
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.publisher.window().store()
    }

    /// The time now.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Wall time.
    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Random bits from the server's seed.
    pub(super) fn random(&self) -> u64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.next_u64()
    }

    /// A random UUID (version 4) from the server's seed.
    pub(super) fn uuid(&self) -> String {
        let bits = (u128::from(self.random()) << 64) | u128::from(self.random());
        uuid::Builder::from_random_bytes(bits.to_be_bytes())
            .into_uuid()
            .to_string()
    }

    /// Cancelled when the server is about to end: watches end.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// What is counted here.
    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Who is served when there is more to do than can be done.
    pub(super) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// The protobuf forms that readers share.
    pub(super) fn forms(&self) -> &Arc<EncodedForms> {
        &self.forms
    }

    /// Who may write now where one object's revision is not enough to tell.
    pub(super) fn write_locks(&self) -> &WriteLocks {
        &self.write_locks
    }

    /// What is charged to quotas.
    pub(super) fn charges(&self) -> &Charges {
        &self.charges
    }

    /// The chain around storage.
    pub(super) fn gate(&self) -> &dyn Gate {
        &*self.gate
    }
}
