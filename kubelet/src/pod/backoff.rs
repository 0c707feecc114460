//! (to be written: backoff)
