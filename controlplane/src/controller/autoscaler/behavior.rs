//! How fast the replicas may follow what metrics ask for: limits, rates, and what was recommended lately. Pure.

use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long the highest recommendation holds before replicas go away
/// (upstream's `--horizontal-pod-autoscaler-downscale-stabilization`).
const DOWN_WINDOW: SignedDuration = SignedDuration::from_mins(5);
/// Nothing is looked back upon longer than this: windows have an hour at most, periods half of one.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// Entries kept of one autoscaler; every 15 seconds for an hour are 241.
const KEPT_MAX: usize = 300;
/// Without a behavior, replicas are at most doubled, or become four.
const UP_FACTOR: i32 = 2;
const UP_MINIMUM: i32 = 4;

/// A number and when it was.
type Entry = (Timestamp, i32);

/// What an autoscaler did and would have done lately. Held in memory: after a restart what there is counts as recommended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    recommendations: Vec<Entry>,
    ups: Vec<Entry>,
    downs: Vec<Entry>,
}

fn keep(entries: &mut Vec<Entry>, now: Timestamp, number: i32) {
    entries.retain(|(at, _)| now.duration_since(*at) <= KEPT);
    if entries.len() >= KEPT_MAX {
        entries.remove(0);
    }
    entries.push((now, number));
}

impl History {
    /// What there is counts as recommended, before anything is. What is of a time to come is nothing that was: the clock went back.
    pub(super) fn begin(&mut self, now: Timestamp, current: i32) {
        for entries in [&mut self.recommendations, &mut self.ups, &mut self.downs] {
            entries.retain(|(at, _)| *at <= now);
        }
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// The replicas were changed.
    pub(super) fn rescaled(&mut self, now: Timestamp, from: i32, to: i32) {
        match to > from {
            true => keep(&mut self.ups, now, to.saturating_sub(from)),
            false => keep(&mut self.downs, now, from.saturating_sub(to)),
        }
    }

    /// What was recommended within a window that ends now.
    fn within(&self, now: Timestamp, window: SignedDuration) -> impl Iterator<Item = i32> {
        let entries = self.recommendations.iter();
        entries
            .filter(move |(at, _)| now.duration_since(*at) < window)
            .map(|(_, number)| *number)
    }

    /// The replicas there were at the start of a period, as far as this autoscaler changed them.
    fn at_start(&self, now: Timestamp, period: SignedDuration, current: i32) -> i32 {
        let changed = |entries: &[Entry]| {
            let lately = entries.iter().filter(|(at, _)| now.duration_since(*at) < period);
            lately.fold(0i32, |sum, (_, change)| sum.saturating_add(*change))
        };
        current
            .saturating_sub(changed(&self.ups))
            .saturating_add(changed(&self.downs))
    }
}

/// Between what the replicas have to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) min: i32,
    pub(super) max: i32,
    /// The replicas there should be now.
    pub(super) current: i32,
}

/// A condition's reason and message.
pub(super) type Said = (&'static str, &'static str);

/// What becomes of a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) replicas: i32,
    /// Of the condition `AbleToScale`.
    pub(super) able: Said,
    /// Of the condition `ScalingLimited`, and whether it is true.
    pub(super) limited: (bool, Said),
}

const READY: Said = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: Said = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: Said = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const WITHIN: Said = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: Said = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FEW: Said = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const UP_LIMIT: Said = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const DOWN_LIMIT: Said = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

/// Settles a recommendation, and remembers it.
pub(super) fn settle(
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    bounds: Bounds,
    wanted: i32,
    history: &mut History,
    now: Timestamp,
) -> Settled {
    let (stable, why) = match behavior {
        // Without a behavior the highest recommendation holds, even if there are fewer replicas by now.
        None => (history.within(now, DOWN_WINDOW).fold(wanted, i32::max), DOWN_STABILIZED),
        Some(behavior) => {
            let up = window(behavior.scale_up.as_ref()).unwrap_or(SignedDuration::ZERO);
            let down = window(behavior.scale_down.as_ref()).unwrap_or(DOWN_WINDOW);
            stable(bounds, wanted, (up, down), history, now)
        }
    };
    keep(&mut history.recommendations, now, wanted);
    let (replicas, said) = match behavior {
        None => limited(bounds, stable),
        Some(behavior) => rated(behavior, bounds, stable, history, now),
    };
    Settled {
        replicas,
        able: if stable == wanted { READY } else { why },
        limited: (replicas != stable, said),
    }
}

fn window(rules: Option<&HPAScalingRules>) -> Option<SignedDuration> {
    let seconds = rules?.stabilization_window_seconds?;
    Some(SignedDuration::from_secs(i64::from(seconds)))
}

/// What is recommended now, held between the lowest and the highest of the windows for up and down.
fn stable(
    bounds: Bounds,
    wanted: i32,
    (up, down): (SignedDuration, SignedDuration),
    history: &History,
    now: Timestamp,
) -> (i32, Said) {
    let lowest = history.within(now, up).fold(wanted, i32::min);
    let highest = history.within(now, down).fold(wanted, i32::max);
    let why = match wanted >= bounds.current {
        true => UP_STABILIZED,
        false => DOWN_STABILIZED,
    };
    (bounds.current.max(lowest).min(highest), why)
}

/// Within the bounds, and at most doubled.
fn limited(bounds: Bounds, wanted: i32) -> (i32, Said) {
    let most = bounds.current.saturating_mul(UP_FACTOR).max(UP_MINIMUM);
    let (most, why) = match bounds.max > most {
        true => (most, UP_LIMIT),
        false => (bounds.max, TOO_MANY),
    };
    if wanted < bounds.min {
        (bounds.min, TOO_FEW)
    } else if wanted > most {
        (most, why)
    } else {
        (wanted, WITHIN)
    }
}

/// Within the bounds, and no faster than the policies allow.
fn rated(
    behavior: &HorizontalPodAutoscalerBehavior,
    bounds: Bounds,
    wanted: i32,
    history: &History,
    now: Timestamp,
) -> (i32, Said) {
    let current = bounds.current;
    if wanted > current {
        let most = limit(behavior.scale_up.as_ref(), true, current, history, now).max(current);
        let (most, why) = match bounds.max > most {
            true => (most, UP_LIMIT),
            false => (bounds.max, TOO_MANY),
        };
        if wanted > most {
            return (most, why);
        }
    } else if wanted < current {
        let least = limit(behavior.scale_down.as_ref(), false, current, history, now).min(current);
        let (least, why) = match bounds.min < least {
            true => (least, DOWN_LIMIT),
            false => (bounds.min, TOO_FEW),
        };
        if wanted < least {
            return (least, why);
        }
    }
    (wanted, WITHIN)
}

/// How far the policies of a direction let the replicas go. The API server fills in policies, so there are some.
fn limit(rules: Option<&HPAScalingRules>, is_up: bool, current: i32, history: &History, now: Timestamp) -> i32 {
    let select = rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let policies = rules.and_then(|rules| rules.policies.as_ref()).into_iter().flatten();
    let allowed = policies.map(|policy| {
        let period = SignedDuration::from_secs(i64::from(policy.period_seconds));
        let start = history.at_start(now, period, current);
        let share = f64::from(policy.value) / 100.0;
        match (&*policy.type_, is_up) {
            ("Pods", true) => start.saturating_add(policy.value),
            ("Pods", false) => start.saturating_sub(policy.value),
            // Rounded so that it is a change at all.
            (_, true) => (f64::from(start) * (1.0 + share)).ceil() as i32,
            (_, false) => (f64::from(start) * (1.0 - share)) as i32,
        }
    });
    // The least change is the lowest number on the way up, and the highest on the way down.
    let found = match (select == "Min") == is_up {
        true => allowed.min(),
        false => allowed.max(),
    };
    found.unwrap_or(current)
}

#[cfg(test)]
mod tests;
