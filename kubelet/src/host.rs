//! The syscalls: mounts, safe file trees, `/proc` and `/sys`.
//!
//! Everything takes its paths as arguments; nothing here knows what a pod is.

pub mod addresses;
pub mod beneath;
pub mod directory;
pub mod file_work;
pub(crate) mod kept;
pub mod load;
pub mod machine;
pub mod mount;
pub mod project;
pub mod readiness;
pub mod traffic;
pub mod tree;
pub mod usage;

pub use file_work::{FileWork, WorkError};
#[cfg(any(test, feature = "test-util"))]
pub use mount::fake::FakeMounter;
pub use mount::{KernelMounter, Mounter};
