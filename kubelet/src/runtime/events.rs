//! (being written: events)
