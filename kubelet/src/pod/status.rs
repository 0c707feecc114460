//! (to be written: status)
