//! What happened in a simulation, line by line: every revision of the store and every event of every runtime, with the simulated
//! time. Two runs of one seed write the same lines.

use client::{Clock, TokioClock};
use std::sync::{Arc, Mutex};

/// The lines so far; clones share them.
#[derive(Clone)]
pub struct Trace {
    lines: Arc<Mutex<Vec<String>>>,
    clock: TokioClock,
}

impl Trace {
    pub fn new(clock: TokioClock) -> Self {
        let lines = Arc::default();
        Self { lines, clock }
    }

    pub fn write(&self, text: &str) {
        let line = format!("{} {text}", self.clock.now());
        self.lines.lock().expect("no holder panics").push(line);
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().expect("no holder panics"))
    }
}
