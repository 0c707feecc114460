//! What the allocator keeps for itself. glibc holds on to freed memory: per thread in arenas, and below whatever still lives at a
//! heap's end. A daemon that was busy once would look busy for ever.
//!
//! Owns the allocator's settings, for binaries alone. With another C library it does nothing.

use std::time::Duration;

/// How often freed memory goes back.
const EVERY: Duration = Duration::from_secs(30);

/// Keeps the number of arenas small. To be called before the first thread starts.
#[allow(unsafe_code)]
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: sets a number inside the allocator, before there are other threads. If it is refused nothing changes.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    }
}

/// Gives freed memory back to the system now and then, for as long as the future is polled.
pub async fn give_back() {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        trim();
    }
}

#[allow(unsafe_code)]
fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes the allocator's own locks, and touches only what is free.
        unsafe { libc::malloc_trim(0) };
    }
}
