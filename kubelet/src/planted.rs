//! Faults that a simulation plants in our own decisions, to see that its judges find them (feature `test-util`).
//!
//! Without that feature nothing can be planted, and every question is answered by a constant.

/// A fault in a decision of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A pod's object is removed while its containers are still being stopped.
    ObjectBeforeEnd,
    /// A pod counts as stopped although its sandbox is not.
    SandboxNotStopped,
    /// What the runtime has of a pod stays once its object is gone.
    SandboxKept,
    /// A pod's directory stays once everything else is gone.
    DirectoryKept,
    /// A container that runs is started once more.
    StartedTwice,
    /// A pod that has a sandbox gets another.
    SandboxDoubled,
    /// Init containers are not waited for.
    InitLeftOut,
    /// Every other restart is forgotten.
    RestartsForgotten,
    /// A terminal phase is told when the pod begins to end.
    EndToldEarly,
    /// A pod that was told to have ended is told to run, once.
    EndTakenBack,
    /// A terminal phase is not told.
    EndUntold,
    /// Addresses are not told.
    AddressLeftOut,
    /// Node autonomy: what is kept stays as it was written first.
    KeptForGood,
    /// Node autonomy: what is kept is not delivered.
    KeptInVain,
    /// Node autonomy: a container that ended for good is not remembered once the runtime forgot it.
    EndForgotten,
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

/// Likewise, the first time it is asked.
#[cfg(feature = "test-util")]
pub(crate) fn once(fault: Fault) -> bool {
    let is = is(fault);
    if is {
        PLANTED.set(None);
    }
    is
}

#[cfg(not(feature = "test-util"))]
pub(crate) const fn once(_fault: Fault) -> bool {
    false
}

#[cfg(not(feature = "test-util"))]
pub(crate) const fn is(_fault: Fault) -> bool {
    false
}
