//! Labels, buckets and families in the one form all our metrics have, so that the library's code is there once.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

/// Names with values, in the order they are shown.
pub(super) type Labels = Vec<(&'static str, Cow<'static, str>)>;
/// A number that may have a fraction.
pub(super) type Number = Gauge<f64, AtomicU64>;
/// Counters by labels.
pub(super) type Counters = Family<Labels, Counter>;
/// Numbers by labels.
pub(super) type Numbers = Family<Labels, Number>;
/// Histograms by labels.
pub(super) type Histograms = Family<Labels, Histogram, Buckets>;

/// Upper bounds of buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets(pub(super) &'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Prometheus' default buckets, seconds.
pub(super) const DEFAULT_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// One label.
pub(super) fn label(name: &'static str, value: impl Into<Cow<'static, str>>) -> Labels {
    vec![(name, value.into())]
}

/// Adds counters to a registry; the name without `_total`.
pub(super) fn counters(registry: &mut Registry, name: &str, help: &str) -> Counters {
    let new = Counters::default();
    registry.register(name, help, new.clone());
    new
}

/// Adds a counter to a registry; the name without `_total`.
pub(super) fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let new = Counter::default();
    registry.register(name, help, new.clone());
    new
}

/// Adds numbers to a registry.
pub(super) fn numbers(registry: &mut Registry, name: &str, help: &str) -> Numbers {
    let new = Numbers::default();
    registry.register(name, help, new.clone());
    new
}

/// Adds a number to a registry.
pub(super) fn number(registry: &mut Registry, name: &str, help: &str) -> Number {
    let new = Number::default();
    registry.register(name, help, new.clone());
    new
}

/// Adds histograms to a registry.
pub(super) fn histograms(registry: &mut Registry, name: &str, help: &str, buckets: &'static [f64]) -> Histograms {
    let new = Histograms::new_with_constructor(Buckets(buckets));
    registry.register(name, help, new.clone());
    new
}

/// Adds a histogram to a registry.
pub(super) fn histogram(registry: &mut Registry, name: &str, help: &str, buckets: &'static [f64]) -> Histogram {
    let new = Buckets(buckets).new_metric();
    registry.register(name, help, new.clone());
    new
}
