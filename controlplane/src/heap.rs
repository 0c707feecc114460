//! What the daemon allocates with: mimalloc, whose threads have heaps of their own. With glibc's two arenas, which kept a quiet daemon
//! small, busy threads waited for one another and for what had fallen apart: that took longer than all else of a write.
//!
//! Owns the setting that what is freed goes back soon, so that a daemon that was busy once does not look busy for ever. For the
//! binary alone: who only uses this crate allocates with what it likes.

use libmimalloc_sys::{mi_option_set, mi_option_t};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// mimalloc's `mi_option_purge_delay`, in ms, of which its bindings have no name (its place among the options is the same in versions 2
/// and 3). What waits for that time goes back when something else is freed after it: where all is quiet, never.
const PURGE_DELAY: mi_option_t = 15;
/// Long enough that a busy daemon does not give back what it asks for again at once (a tenth of all it did was that), short enough that
/// little waits when it becomes quiet.
const SOON_MS: std::ffi::c_long = 30;

/// Has freed memory go back to the system soon. To be called before the first thread starts.
#[allow(unsafe_code)]
pub(super) fn give_back_soon() {
    // SAFETY: sets a number inside the allocator, before there are other threads.
    unsafe { mi_option_set(PURGE_DELAY, SOON_MS) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::mi_option_get;

    /// It has a number here: a version that counts its options anew has another default under it.
    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: reads a number inside the allocator.
        #[allow(unsafe_code)]
        let read = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(read(), 1000, "mimalloc's default");
        give_back_soon();
        assert_eq!(read(), SOON_MS);
    }
}
