//! The CNI protocol (contract §1): what a runtime sends and what it gets back. Knows no plugin and no kernel.

pub mod args;
pub mod dispatch;
pub mod env;
pub mod error;
pub mod json;
pub mod result;
pub mod version;

pub use error::Error;
pub use version::Version;
