//! (to be written: state)
