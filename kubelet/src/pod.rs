//! A pod's life on this node: one worker per pod UID owns it.
//!
//! [`plan`] and [`status`] decide, purely, from a snapshot; [`worker`] takes the snapshots, runs the [`operation`]s the plan
//! asks for and publishes the status. [`state`] is the only place that moves a pod forward.

pub mod backoff;
pub mod execute;
pub mod failure;
pub mod grace;
pub mod hook;
pub mod memory;
pub mod mirror;
pub mod operation;
pub mod plan;
pub mod resize;
pub mod spec;
pub mod state;
pub mod status;
#[cfg(test)]
pub(crate) mod testing;
pub mod view;
pub mod worker;
pub mod workers;
