//! Event recorder: aggregated, rate-limited, bounded.
