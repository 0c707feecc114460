//! What happens while a pod is placed, for whoever counts it: a pod that is judged again and again is counted once.

use crate::metrics::PinningMetrics;
use std::cell::RefCell;
use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A container asked for CPUs, and whether it got them; with `full-pcpus-only` they are whole cores.
    Cpus {
        /// It got them.
        given: bool,
        /// They are whole cores.
        whole_cores: bool,
    },
    /// They all have one cache.
    OneCache,
    /// A container asked for memory, and whether it got it.
    Memory {
        /// It got it.
        given: bool,
    },
    /// A pod or a container was to be on one NUMA node, and whether it is.
    OneNode {
        /// A pod.
        by_pod: bool,
        /// It is.
        worked: bool,
    },
    /// It could not be aligned.
    Misaligned,
}

/// What happened while one pod was placed, until that is counted or dropped.
#[derive(Debug, Default)]
pub struct Tally {
    events: RefCell<Vec<Event>>,
    took: Duration,
}

impl Tally {
    pub(super) fn note(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }

    pub(super) fn took(&mut self, time: Duration) {
        self.took = time;
    }

    /// Counts a pod that was judged.
    pub fn tell(self, metrics: &PinningMetrics) {
        for event in self.events.into_inner() {
            match event {
                Event::Cpus { given, whole_cores } => metrics.pinned(given, whole_cores),
                Event::OneCache => metrics.in_one_cache(),
                Event::Memory { given } => metrics.memory_pinned(given),
                Event::OneNode { by_pod, worked } => metrics.on_one_node(by_pod, worked),
                Event::Misaligned => metrics.misaligned(),
            }
        }
        metrics.admitted(self.took);
    }
}
