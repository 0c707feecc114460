//! Probes: one check against a container, the state machine over its results, and the tasks that tie both to a container.
//!
//! Owns probing. Never stops or starts a container: its outcomes are read by the pod's plan.

pub mod check;
mod grpc;
pub(crate) mod http;
pub mod outcome;
pub mod prober;
mod redirect;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
