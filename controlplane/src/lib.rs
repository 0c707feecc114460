//! The control plane in one daemon: API server, scheduler and controllers over one store.
//!
//! Data flows one way: [`store`] (revisions) to [`apiserver`] (one service, over TLS or in process) to its clients, of which
//! [`scheduler`] and [`controller`] are two with identities of their own. This crate never touches a container or a cgroup.

pub mod apiserver;
pub mod backup;
pub mod bootstrap;
mod cel;
pub mod config;
pub mod controller;
pub mod cron;
pub mod daemon;
#[cfg(feature = "test-util")]
pub mod fuzzing;
pub mod held;
pub mod kubeconfig_command;
pub mod leader;
pub mod managed_fields;
pub mod metrics;
pub mod migrate;
pub mod patch;
mod pattern;
pub mod pki;
pub mod planted;
pub mod quota;
pub mod resource;
pub mod scheduler;
pub mod schema;
pub mod store;
pub mod token_command;
pub mod tree;
mod turn;

pub(crate) use client::json_text;

#[cfg(test)]
mod tests;
