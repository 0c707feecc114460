//! (being written: fake)
