//! The table of kinds and their strategies. Pure.
