//! Patches: JSON, merge, strategic merge, apply. Pure.
