//! Lifecycle hooks (kubelet contract §4.3): which a container has ([`declared`]), what one does and how it fails ([`handler`]),
//! and how the worker's operations carry it out, a preStop hook once per instance (`execution`).
//!
//! When a hook is due is decided with everything else that a pod needs: [`super::plan`] says so, [`super::memory`] knows how
//! far each one is.

pub mod declared;
mod execution;
pub mod handler;
