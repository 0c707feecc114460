//! Which traffic of pods is let through.
