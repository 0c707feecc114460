//! What the node runs short of, from what is left of everything and what is remembered (kubelet contract §10). Pure.
//!
//! Times are monotonic, since an instant of the caller's: a clock that is set shortens and lengthens no grace.

use super::threshold::{Condition, Rules, Signal, Starved, Threshold};
use client::ordered::Arrange;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The fastest that memory is expected to be taken, bytes a second: between two looks no more is gone than half of what is above
/// the threshold.
const TAKEN_PER_SECOND: i64 = 2 << 30;
/// How far apart two looks at memory are, at least and at most.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(100);
/// As at least, where the kernel tells of stalls in between.
pub(super) const LOOK_MIN_TOLD: Duration = Duration::from_secs(1);
pub(super) const LOOK_MAX: Duration = Duration::from_secs(10);

/// What is left of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// So much.
    pub available: i64,
    /// Of so much.
    pub capacity: i64,
}

/// What is left of everything that could be read.
pub(super) type Signals = BTreeMap<Signal, Reading>;

/// What is remembered from one look to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Remembered {
    /// Thresholds that are met, each by its place in the rules, and since when.
    since: BTreeMap<usize, Duration>,
    /// Those of them that were acted on: only with their minimum reclaim are they over.
    due: BTreeSet<usize>,
    /// When the node was last seen to run short.
    last: BTreeMap<Condition, Duration>,
}

/// What follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// What the node runs short of, or did until a moment ago.
    pub conditions: BTreeSet<Condition>,
    /// What is to be acted on, the most urgent first.
    pub due: Vec<Threshold>,
    /// When something changes though nothing is used: a grace or a condition is over.
    pub wake: Option<Duration>,
}

/// Whether less is left than must be; with what is to be reclaimed beyond it, if it was acted on before.
pub(super) fn is_met(threshold: &Threshold, reading: Reading, with_reclaim: bool) -> bool {
    let mut wanted = threshold.amount.of(reading.capacity);
    if let Some(more) = threshold.reclaim.filter(|_| with_reclaim) {
        wanted = wanted.plus(more.of(reading.capacity));
    }
    wanted > threshold.signal.starved().amount(reading.available)
}

/// Judges what is left by `thresholds`, which are the same every time. What could not be read stays as it was, and nothing is done
/// about it.
pub(super) fn judge(
    thresholds: &[Threshold],
    transition: Duration,
    signals: &Signals,
    remembered: &mut Remembered,
    now: Duration,
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut wake: Vec<Duration> = Vec::new();
    let mut due = Vec::new();
    for (place, threshold) in thresholds.iter().enumerate() {
        let met = match signals.get(&threshold.signal) {
            None => remembered.since.contains_key(&place),
            Some(reading) => is_met(threshold, *reading, remembered.due.contains(&place)),
        };
        if !met {
            remembered.since.remove(&place);
            remembered.due.remove(&place);
            continue;
        }
        let since = *remembered.since.entry(place).or_insert(now);
        remembered.last.insert(threshold.signal.condition(), now);
        verdict.conditions.insert(threshold.signal.condition());
        if now.saturating_sub(since) < threshold.grace {
            wake.push(since + threshold.grace);
            continue;
        }
        remembered.due.insert(place);
        if signals.contains_key(&threshold.signal) {
            due.push(place);
        }
    }
    for (condition, last) in &remembered.last {
        let until = *last + transition;
        if until > now && !verdict.conditions.contains(condition) {
            verdict.conditions.insert(*condition);
            wake.push(until);
        }
    }
    remembered
        .last
        .retain(|condition, _| verdict.conditions.contains(condition));
    due.arrange_by_key(|place| thresholds.get(*place).map(|threshold| urgency(threshold, *place)));
    verdict.due = due
        .into_iter()
        .filter_map(|place| thresholds.get(place).copied())
        .collect();
    verdict.wake = wake.into_iter().min();
    verdict
}

/// Hard thresholds before soft ones, whose pods may take their time; of each kind memory before everything else.
fn urgency(threshold: &Threshold, place: usize) -> (bool, bool, usize) {
    let other = threshold.signal.starved() != Starved::Memory;
    (!threshold.is_hard(), other, place)
}

/// When memory is to be looked at again: sooner the less is left above the next threshold that is not met yet, so that nothing which
/// takes it as fast as machines do gets far past it unseen.
pub(super) fn next_look(thresholds: &[Threshold], signals: &Signals) -> Duration {
    let Some(least) = above(thresholds, signals).filter(|above| *above >= 0).min() else {
        return LOOK_MAX;
    };
    let millis = least / 2 / (TAKEN_PER_SECOND / 1000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(0)).clamp(LOOK_MIN, LOOK_MAX)
}

/// How much memory is left above the threshold that is nearest, bytes; less than nothing once it is met.
pub(super) fn least_above(thresholds: &[Threshold], signals: &Signals) -> Option<i64> {
    above(thresholds, signals).min()
}

fn above(thresholds: &[Threshold], signals: &Signals) -> impl Iterator<Item = i64> {
    thresholds.iter().filter_map(|threshold| {
        let reading = signals.get(&threshold.signal)?;
        let of_memory = threshold.signal.starved() == Starved::Memory;
        of_memory.then(|| reading.available - threshold.amount.of(reading.capacity).value())
    })
}

/// Whether memory has fallen below a threshold of which nothing is remembered: it is time to look at everything.
pub(super) fn is_news(thresholds: &[Threshold], signals: &Signals, remembered: &Remembered) -> bool {
    news(thresholds, signals, remembered).next().is_some()
}

/// Whether one of these is hard, so that something is to be done at once.
pub(super) fn is_urgent_news(thresholds: &[Threshold], signals: &Signals, remembered: &Remembered) -> bool {
    news(thresholds, signals, remembered).any(Threshold::is_hard)
}

fn news<'a>(
    thresholds: &'a [Threshold],
    signals: &'a Signals,
    remembered: &'a Remembered,
) -> impl Iterator<Item = &'a Threshold> {
    let placed = thresholds.iter().enumerate().filter(|(place, threshold)| {
        let met = signals
            .get(&threshold.signal)
            .is_some_and(|reading| is_met(threshold, *reading, false));
        met && !remembered.since.contains_key(place)
    });
    placed.map(|(_, threshold)| threshold)
}

/// The grace of a pod that goes for a threshold, seconds; nothing for its own.
pub(super) fn grace_seconds(rules: &Rules, threshold: &Threshold, own: Option<i64>) -> Option<i64> {
    if threshold.is_hard() {
        return Some(super::GRACE_SECONDS);
    }
    let most = rules.grace_seconds_max;
    (most >= 0).then(|| own.map_or(most, |own| own.min(most)))
}

#[cfg(test)]
mod tests;
