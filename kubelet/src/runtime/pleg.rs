//! (being written: pleg)
