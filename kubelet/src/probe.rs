//! Probes: the one check that runs now, the state machine over its results, and the tasks that tie both to a container.
//!
//! Owns probing. Never stops or starts a container: its outcomes are read by the pod's plan.

pub mod check;
pub mod http;
pub mod outcome;
pub mod tcp;
pub mod worker;

/// What one check found (kubelet contract §4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It passed.
    Pass,
    /// It passed, with something people should know.
    Warning(String),
    /// It failed, for this reason.
    Fail(String),
    /// It could not be carried out: no result at all.
    Error(String),
}
