//! (to be written: workers)
