//! Pure functions on Kubernetes types that two or more crates need.
//!
//! Each submodule owns one notion (a quantity, a selector, a QoS class) and nothing here does I/O, awaits, or asks what
//! time it is.

pub mod affinity;
pub mod condition;
pub mod names;
pub mod qos;
pub mod quantity;
pub mod resources;
pub mod selector;
pub mod signal;
pub mod taint;
