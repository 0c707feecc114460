//! Flags, parsed and validated.
