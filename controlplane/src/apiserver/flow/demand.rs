//! How many places a level could have used lately: average, deviation and maximum over time. Pure.

use std::time::Duration;

/// What a level could have used in one period, in places.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Demand {
    pub(super) average: f64,
    pub(super) deviation: f64,
    pub(super) high: f64,
}

/// Sums a value up over time.
#[derive(Debug, Default)]
pub(super) struct Integrator {
    since: Duration,
    last: Duration,
    value: f64,
    high: f64,
    sum: f64,
    sum_of_squares: f64,
}

impl Integrator {
    /// Begins at `now` with 0.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            since: now,
            last: now,
            ..Self::default()
        }
    }

    fn advance(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.last).as_secs_f64();
        self.sum += self.value * seconds;
        self.sum_of_squares += self.value * self.value * seconds;
        self.last = self.last.max(now);
    }

    /// The value from now on.
    pub(super) fn set(&mut self, value: usize, now: Duration) {
        self.advance(now);
        self.value = value as f64;
        self.high = self.high.max(self.value);
    }

    /// What was since the last call; another period begins.
    pub(super) fn take(&mut self, now: Duration) -> Demand {
        self.advance(now);
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        let demand = match seconds > 0.0 {
            true => {
                let average = self.sum / seconds;
                let variance = (self.sum_of_squares / seconds - average * average).max(0.0);
                Demand {
                    average,
                    deviation: variance.sqrt(),
                    high: self.high,
                }
            }
            false => Demand {
                average: self.value,
                deviation: 0.0,
                high: self.high,
            },
        };
        *self = Self {
            since: now,
            last: now,
            value: self.value,
            high: self.value,
            sum: 0.0,
            sum_of_squares: 0.0,
        };
        demand
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_weighed_by_time() {
        let at = Duration::from_secs;
        let mut demand = Integrator::new(at(10));
        demand.set(4, at(12));
        demand.set(0, at(14));
        let found = demand.take(at(20));
        assert!(
            (found.average - 0.8).abs() < 1e-9 && (found.deviation - 1.6).abs() < 1e-9,
            "{found:?}"
        );
        assert!((found.high - 4.0).abs() < 1e-9);
        demand.set(2, at(20));
        let found = demand.take(at(30));
        assert!(
            (found.average - 2.0).abs() < 1e-9 && found.deviation < 1e-6,
            "{found:?}"
        );
    }
}
