//! Waiting for a predicate, with a deadline.

use std::time::{Duration, Instant};

/// Asks until the answer is `Ok`, at most for `seconds`; the last answer is the error.
pub(crate) fn until<T>(seconds: u64, what: &str, mut ask: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        match ask() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context(format!("not within {seconds} s: {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
