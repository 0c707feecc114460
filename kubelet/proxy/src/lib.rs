//! Services, their endpoints and this node, made into rules of the kernel. Runs no program and owns no rule outside its own
//! tables; knows nothing of pods, of the kubelet's configuration or of how it was started.
//!
//! | module | owns |
//! |---|---|
//! | [`model`] | values: a Service's ports, its endpoints, what was chosen of them; how they are read (pure) |
//! | [`settings`] | what the node and its configuration decide |
//! | [`notice`] | what the run loop tells whoever listens |
//! | [`run`] | the loop from watched objects to written rules |

pub mod apply;
pub mod config;
pub mod conntrack;
mod duration;
pub mod flags;
pub mod health_check;
pub mod healthz;
pub mod http;
pub mod metrics;
pub mod model;
pub mod notice;
pub mod program;
pub mod run;
pub mod serve;
pub mod settings;
#[cfg(test)]
mod testing;
pub mod told;
