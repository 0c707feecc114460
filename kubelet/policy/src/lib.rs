//! Which traffic of pods is let through.
pub mod change;
pub mod facts;
pub mod kernel;
pub mod range;
pub mod selector;
pub mod spec;
pub mod world;
