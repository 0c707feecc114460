//! The CNI protocol (contract §1): what a runtime sends and what it gets back. Knows no plugin, and of the
//! kernel only which capabilities it lets us have.

pub mod args;
pub mod dispatch;
pub mod env;
pub mod error;
pub mod json;
pub mod privilege;
pub mod result;
pub mod version;

pub use error::Error;
pub use version::Version;
