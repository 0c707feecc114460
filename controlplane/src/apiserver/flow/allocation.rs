//! Who has how many places: shares of the server's, and what levels lend to one another (KEP-1040, "Dispatching"). Pure.
//!
//! Rounding is upstream's: nominal limits are rounded up and present ones to the nearest, so that their sums may exceed the server's
//! places by less than one place for each level.

use super::spec::LevelSpec;

/// Upstream's: how much of the last target remains after a period.
const SMOOTHING: f64 = 0.977;
/// Halvings of the interval the common fraction is looked for in.
const STEPS: usize = 64;

/// Bounds of one level's places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Its share.
    pub(super) nominal: usize,
    /// What of it is not lent.
    pub(super) lower: usize,
    /// Its share with what it may borrow at most.
    pub(super) upper: usize,
}

impl Bounds {
    /// The bounds of a level, of `total` places for `shares` in all.
    pub(super) fn of(spec: &LevelSpec, total: usize, shares: u64) -> Self {
        let all = total as u128;
        let percent = |of: usize, percent: u64| {
            let rounded = (of as u128 * u128::from(percent) + 50) / 100;
            usize::try_from(rounded).unwrap_or(usize::MAX)
        };
        let nominal = match shares {
            0 => 0,
            shares => (all * u128::from(spec.shares)).div_ceil(u128::from(shares)),
        };
        let nominal = usize::try_from(nominal).unwrap_or(total).min(total);
        let upper = match spec.borrowing_percent {
            None => total,
            Some(borrowing) => nominal.saturating_add(percent(nominal, borrowing)).min(total),
        };
        Self {
            nominal,
            lower: nominal - percent(nominal, spec.lendable_percent).min(nominal),
            upper,
        }
    }
}

/// The target of the next period: follows a rise at once and a fall slowly.
pub(super) fn smoothed(before: f64, average: f64, deviation: f64) -> f64 {
    let envelope = average + deviation;
    envelope.max(SMOOTHING * before + (1.0 - SMOOTHING) * envelope)
}

/// One level as it takes part in the sharing out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) lower: f64,
    pub(super) upper: f64,
    pub(super) target: f64,
}

/// Shares `total` out: every level gets the same fraction of its target, within its bounds. Gives the fraction, and the levels'
/// places in their order. If not even the lower bounds fit they are what everybody gets; if the upper ones leave something
/// over, everybody gets those.
pub(super) fn share_out(total: f64, claims: &[Claim]) -> (f64, Vec<f64>) {
    let given = |fraction: f64| -> Vec<f64> {
        let one = |claim: &Claim| (claim.target * fraction).clamp(claim.lower, claim.upper.max(claim.lower));
        claims.iter().map(one).collect()
    };
    let sum = |fraction: f64| given(fraction).iter().sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    // Targets are at least one place and totals finite: it ends.
    while sum(high) < total && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        match sum(middle) < total {
            true => low = middle,
            false => high = middle,
        }
    }
    (high, given(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::flow_defaults::priority_levels;
    use proptest::prelude::*;

    #[test]
    fn shares_and_percents_are_upstreams() {
        let specs: Vec<LevelSpec> = priority_levels().iter().map(LevelSpec::read).collect();
        let shares = specs.iter().map(|spec| spec.shares).sum();
        let bounds: Vec<_> = specs.iter().map(|spec| Bounds::of(spec, 600, shares)).collect();
        let told: Vec<_> = bounds.iter().map(|one| (one.nominal, one.lower, one.upper)).collect();
        // exempt, catch-all, system, node-high, leader-election, workload-high, workload-low, global-default
        assert_eq!(
            told,
            [
                (0, 0, 600),
                (13, 13, 600),
                (74, 50, 600),
                (98, 73, 600),
                (25, 25, 600),
                (98, 49, 600),
                (245, 24, 600),
                (49, 24, 600)
            ]
        );
        let mut spec = specs[4].clone();
        spec.borrowing_percent = Some(100);
        assert_eq!(Bounds::of(&spec, 600, shares).upper, 50);
    }

    #[test]
    fn who_wants_more_gets_it_from_who_lends() {
        let claim = |lower: f64, upper: f64, target: f64| Claim { lower, upper, target };
        // One lends all but 10 and wants nothing, the other wants more than there is.
        let (_, given) = share_out(100.0, &[claim(10.0, 100.0, 10.0), claim(50.0, 100.0, 500.0)]);
        assert!(
            (given[0] - 10.0).abs() < 1e-6 && (given[1] - 90.0).abs() < 1e-6,
            "{given:?}"
        );
        // Both are used: the same fraction of what they want.
        let (fraction, given) = share_out(100.0, &[claim(10.0, 100.0, 80.0), claim(10.0, 100.0, 120.0)]);
        assert!(
            (given[0] - 40.0).abs() < 1e-6 && (fraction - 0.5).abs() < 1e-6,
            "{given:?}"
        );
        // What the bounds leave no room for.
        let (_, given) = share_out(10.0, &[claim(10.0, 20.0, 10.0), claim(10.0, 20.0, 10.0)]);
        assert_eq!(given, [10.0, 10.0]);
        let (_, given) = share_out(100.0, &[claim(10.0, 20.0, 10.0), claim(10.0, 20.0, 10.0)]);
        assert_eq!(given, [20.0, 20.0]);
    }

    #[test]
    fn targets_rise_at_once_and_fall_slowly() {
        assert!((smoothed(0.0, 10.0, 2.0) - 12.0).abs() < 1e-9);
        let later = smoothed(100.0, 0.0, 0.0);
        assert!((97.0..98.0).contains(&later), "{later}");
    }

    proptest! {
        #[test]
        fn bounds_hold_and_nothing_is_given_twice(
            total in 1.0..1000.0_f64,
            claims in proptest::collection::vec((0.0..100.0_f64, 0.0..500.0_f64, 1.0..1000.0_f64), 1..20),
        ) {
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(lower, more, target)| Claim { lower, upper: lower + more, target })
                .collect();
            let (_, given) = share_out(total, &claims);
            let lowest: f64 = claims.iter().map(|claim| claim.lower).sum();
            prop_assert!(given.iter().sum::<f64>() <= total.max(lowest) + 1e-6);
            for (claim, given) in claims.iter().zip(given) {
                prop_assert!(given >= claim.lower && given <= claim.upper);
            }
        }
    }
}
