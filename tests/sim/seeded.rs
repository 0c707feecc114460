//! What the operating system calls random, on the simulation's thread: drawn from the seed.
//!
//! The hasher of every `HashMap`, tokio's own generator (which waiter of a `watch` goes first) and whatever a dependency draws
//! all begin with `getrandom`. This module defines that symbol for this test binary: on a seeded thread it counts on from the seed,
//! on any other it asks the kernel. It is the only unsafe code of the tests.
#![allow(unsafe_code)]

use nix::libc;
use std::cell::Cell;

thread_local! {
    /// The generator's state; 0 on threads that are not seeded.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Seeds this thread, for the rest of its life.
pub fn seed_this_thread(seed: u64) {
    STATE.set((seed << 1) | 1);
}

/// SplitMix64: small, and every state gives another number.
fn next(state: u64) -> (u64, u64) {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (state, mixed ^ (mixed >> 31))
}

/// `getrandom(2)`.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes, as for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(
    buffer: *mut libc::c_void,
    length: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    let mut state = STATE.get();
    if state == 0 {
        // SAFETY: the caller's promise is the system call's.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as libc::ssize_t };
    }
    for at in 0..length {
        let (after, drawn) = next(state);
        state = after;
        // SAFETY: `at` is below `length`, for which the caller promises the buffer to be valid.
        unsafe { buffer.cast::<u8>().add(at).write(drawn as u8) };
    }
    STATE.set(state);
    length as libc::ssize_t
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The order in which a new `HashSet` on a new thread shows its members, and a number from the library others draw from.
    fn order(seed: u64) -> (Vec<u32>, u64) {
        let thread = std::thread::spawn(move || {
            seed_this_thread(seed);
            let set: HashSet<u32> = (0..100).collect();
            (set.into_iter().collect(), rand::random())
        });
        thread.join().unwrap()
    }

    #[test]
    fn a_seed_decides_the_order_of_hash_maps_and_what_libraries_draw() {
        assert_eq!(order(7), order(7));
        assert_ne!(order(7).0, order(8).0);
        assert_ne!(order(7).1, order(8).1);
    }
}
