//! Stands in for the C library's fsync and fdatasync: counts them and makes each take longer, for every engine alike.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static COUNT: AtomicU64 = AtomicU64::new(0);
static DELAY_MICROS: AtomicU64 = AtomicU64::new(0);

/// Makes every later call take `delay` longer.
pub fn delay(delay: Duration) {
    DELAY_MICROS.store(delay.as_micros() as u64, Ordering::Relaxed);
}

/// Calls so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

fn enter() {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let delay = DELAY_MICROS.load(Ordering::Relaxed);
    if delay > 0 {
        std::thread::sleep(Duration::from_micros(delay));
    }
}

// SAFETY: the name is the C library's own, and the function keeps its contract; the executable's definition is the one used.
#[unsafe(no_mangle)]
extern "C" fn fsync(file: c_int) -> c_int {
    enter();
    // SAFETY: a system call on a number; it touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_fsync, file) as c_int }
}

// SAFETY: as for `fsync`.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(file: c_int) -> c_int {
    enter();
    // SAFETY: as in `fsync`.
    unsafe { libc::syscall(libc::SYS_fdatasync, file) as c_int }
}
