//! Files that tell by themselves when there is something new.

use std::fs::File;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for a file's readiness from now on. Must be called inside a tokio runtime.
///
/// # Errors
/// The file cannot be waited for.
#[expect(
    deprecated,
    reason = "what takes its place is unsafe, for types that lend descriptors they do not own; a file owns its"
)]
pub fn watched(file: File, interest: Interest) -> io::Result<AsyncFd<File>> {
    AsyncFd::with_interest(file, interest)
}
