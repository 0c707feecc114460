//! Faults that a simulation plants in our own decisions, to see that its judges find them (feature `test-util`).
//!
//! Without that feature nothing can be planted, and every question is answered by a constant.

/// A fault in a decision of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The scheduler does not ask whether a pod's requests fit a node.
    FitLeftOut,
    /// A rollout takes every pod for one that may be unavailable.
    UnavailableIgnored,
    /// The garbage collector takes an owner it does not know for gone, without asking the server.
    NoLiveLookup,
}

#[cfg(feature = "test-util")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Commits the fault on this thread from now on.
#[cfg(feature = "test-util")]
pub fn plant(fault: Fault) {
    PLANTED.set(Some(fault));
}

#[cfg(feature = "test-util")]
pub(crate) fn is(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

#[cfg(not(feature = "test-util"))]
pub(crate) const fn is(_fault: Fault) -> bool {
    false
}
