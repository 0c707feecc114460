//! When the tunnels are tested. Pure but for the moments it is told.

use crate::own::Way;
use crate::state::Family;
use crate::trial::{Tested, Tried};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How often tunnels are tested while nobody answers.
const TESTS_MAX: u32 = 6;

/// The tests of the tunnels.
#[derive(Debug, Default)]
pub(super) struct Tests {
    is_done: bool,
    /// How often nobody answered.
    silent: u32,
    /// When to ask again.
    pub(super) at: Option<Instant>,
    /// By what the tunnels' packets go that this is of.
    ways: BTreeMap<Family, Way>,
    /// How often that changed: ways that were away meanwhile look like those before.
    generation: u64,
    /// The nodes that may be asked.
    nodes: BTreeSet<String>,
}

impl Tests {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.is_done && self.silent < TESTS_MAX && self.at.is_none_or(|at| at <= now)
    }

    /// What is known of other ways says nothing of these. A node that was not there before may answer where the others were silent.
    pub(super) fn follow(&mut self, ways: BTreeMap<Family, Way>, nodes: BTreeSet<String>) {
        if self.ways != ways {
            *self = Self {
                ways,
                generation: self.generation + 1,
                ..Self::default()
            };
        } else if self.silent > 0 && !nodes.is_subset(&self.nodes) {
            (self.silent, self.at) = (0, None);
        }
        self.nodes = nodes;
    }

    /// Which ways a test that begins now is of.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether that was found out of ways that are no more, or were not there all the time.
    pub(super) fn is_past(&self, begun: u64, tried: &Tried) -> bool {
        let mut outcomes = tried.outcomes.iter();
        begun != self.generation || outcomes.any(|(family, way, _)| self.ways.get(family) != Some(way))
    }

    /// Where nobody answered, who has yet to hear of this node may; nobody is asked for ever.
    pub(super) fn take(&mut self, tested: Tested, again: Duration, now: Instant) {
        self.silent += u32::from(tested == Tested::Silent);
        self.is_done = tested == Tested::Done;
        self.at = match tested {
            Tested::Done | Tested::Alone => None,
            Tested::Silent => Some(now + Duration::from_secs(1 << self.silent.min(5))),
            Tested::Doubtful => Some(now + again),
        };
    }
}
