//! (to be written: grace)
