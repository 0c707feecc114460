//! How long the node's start took, from the machine's boot to the node's being ready; told once.

use crate::host::load::Load;
use crate::host::machine::Roots;
use crate::parts::Parts;
use jiff::Timestamp;

/// The steps of the start that are over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Startup {
    began: Timestamp,
    tried: Option<Timestamp>,
    registered: Option<Timestamp>,
    over: bool,
}

impl Startup {
    /// The kubelet starts.
    pub(super) fn begin(now: Timestamp) -> Self {
        Self {
            began: now,
            tried: None,
            registered: None,
            over: false,
        }
    }

    /// The node is tried to be registered; the first time counts.
    pub(super) fn tries(&mut self, now: Timestamp) {
        self.tried.get_or_insert(now);
    }

    /// Whether the node was not registered yet in this kubelet's life.
    pub(super) fn is_first(&self) -> bool {
        self.registered.is_none()
    }

    /// The node is registered; the first time counts. Of a node whose object was there before nothing is told: its start is long over.
    pub(super) fn registered(&mut self, is_new: bool, now: Timestamp) {
        self.over |= !is_new && self.registered.is_none();
        self.registered.get_or_insert(now);
    }

    /// The node is ready. Of a node that somebody else registers nothing is told.
    pub(super) async fn ready(&mut self, parts: &Parts) {
        let (Some(tried), Some(registered), false) = (self.tried, self.registered, self.over) else {
            return;
        };
        self.over = true;
        let load = client::blocking::spawn(|| Load::read(&Roots::default())).await;
        let Some(booted) = load.unwrap_or_default().booted else {
            return;
        };
        let seconds = |at: Timestamp| at.as_millisecond() as f64 / 1e3;
        let (began, ready) = (seconds(self.began), seconds(parts.clock.now()));
        let node = &parts.metrics.node;
        node.startup(booted as f64, began, seconds(tried), seconds(registered), ready);
    }
}
