//! Verbs, written once for all kinds.
