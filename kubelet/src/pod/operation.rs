//! (to be written: operation)
