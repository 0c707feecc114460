//! What ends the process: a disk that cannot be written, a file that is damaged, a part of the store that has panicked.
//!
//! Owns what is said then. A process without its writer would answer readers for ever and be started anew by nobody.

use super::StoreError;
use super::directory::unusable;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// What happens when the store cannot go on; by default the process ends.
pub type OnFatal = Box<dyn Fn(&StoreError) + Send + Sync>;

/// Ends the process.
pub(super) fn end_process(error: &StoreError) {
    tracing::error!(%error, "the store cannot go on; ending the process");
    eprintln!("the store cannot go on: {error}");
    // Not an abort: a core dump is the last thing a full disk needs.
    std::process::exit(1);
}

/// Does what may find the file damaged, which redb tells by panics, too.
///
/// # Errors
/// As `work`; `Unusable`, naming the file, if it panics.
pub(super) fn guarded<T>(file: &Path, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    // Nothing that `work` has touched is used any more.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = "is damaged, or what reads and writes it is wrong; `controlplane restore` makes the store anew from a backup";
        Err(unusable(file, what, &text(&*panic)))
    })
}

/// What a panic says.
fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref().copied()).unwrap_or("it panicked")
}
