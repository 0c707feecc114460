//! Pod specs, as Pods and every workload template have them: defaults and validation (control-plane contract §4). Pure.

pub(super) mod defaults;
pub(super) mod validate;

mod annotation;
mod container;
mod environment;
mod handler;
mod placement;
mod resize_policy;
mod resources;
mod rule;
mod volume;
