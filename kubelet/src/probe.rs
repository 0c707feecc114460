//! Probes: the one check that runs now, the state machine over its results, and the tasks that tie both to a container.
//!
//! Owns probing. Never stops or starts a container: its outcomes are read by the pod's plan.

pub mod outcome;
