//! Counts by size.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often what was measured was at most each bound, and the sum of it.
#[derive(Debug)]
pub(super) struct Histogram<const N: usize> {
    counts: [AtomicU64; N],
    beyond: AtomicU64,
    /// In millionths, so that it is one addition.
    sum: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self {
            counts: super::counters(),
            beyond: AtomicU64::default(),
            sum: AtomicU64::default(),
        }
    }
}

impl<const N: usize> Histogram<N> {
    pub(super) fn observe(&self, bounds: &[f64; N], value: f64) {
        let at = bounds.partition_point(|bound| *bound < value);
        super::add(self.counts.get(at).unwrap_or(&self.beyond));
        self.sum.fetch_add((value * 1e6) as u64, Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        let counts = self.counts.iter().chain([&self.beyond]);
        counts.map(|count| count.load(Relaxed)).sum()
    }

    pub(super) fn write(&self, out: &mut String, name: &str, labels: &str, bounds: &[f64; N]) -> std::fmt::Result {
        if self.count() == 0 {
            return Ok(());
        }
        let mut below = 0;
        for (count, bound) in self.counts.iter().zip(bounds) {
            below += count.load(Relaxed);
            writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}")?;
        }
        below += self.beyond.load(Relaxed);
        writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {below}")?;
        let sum = self.sum.load(Relaxed) as f64 / 1e6;
        writeln!(out, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {below}")
    }
}
