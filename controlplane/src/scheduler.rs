//! The scheduler: queue, snapshot, cycle, plugins.
