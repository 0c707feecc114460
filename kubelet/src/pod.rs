//! A pod's life on this node: one worker per pod UID owns it.

pub mod backoff;
pub mod grace;
pub mod operation;
pub mod plan;
pub mod spec;
pub mod state;
pub mod status;
pub mod view;
pub mod worker;
pub mod workers;
