//! Which traffic of pods is let through.
pub mod change;
pub mod facts;
pub mod gate;
pub mod kernel;
pub mod range;
mod run;
pub mod selector;
pub mod settings;
pub mod spec;
pub mod world;
pub use run::{Sources, remove, run};
