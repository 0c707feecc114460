//! Leader election over a Lease: of several processes that run the same part, one works at a time.
//!
//! [`decide`] says what a candidate does about what it has seen (pure), [`elector`] asks and writes, [`fence`] refuses the leader's own writes
//! once its time is over. Only what one's own clock measured counts: times written into a Lease are for people to read.
//! Source: contract §11 (times, names), upstream's `client-go/tools/leaderelection` for events and the metric.

pub mod decide;
pub mod elector;
pub mod fence;

pub use decide::Times;
pub use elector::{Election, Elector, Outcome};
pub use fence::Fence;

#[cfg(test)]
mod tests;
