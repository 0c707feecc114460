//! Each rule by itself, and what holds of all looks one after another.

use super::super::threshold::Amount;
use super::*;
use proptest::prelude::*;
use proto::api::quantity::{Format, Quantity};

fn bytes(value: i64) -> Amount {
    Amount::Quantity(Quantity::from_units(value, Format::BinarySi))
}

fn hard(signal: Signal, value: i64) -> Threshold {
    Threshold {
        signal,
        amount: bytes(value),
        grace: Duration::ZERO,
        reclaim: None,
    }
}

fn soft(signal: Signal, value: i64, grace: u64) -> Threshold {
    Threshold {
        grace: Duration::from_secs(grace),
        ..hard(signal, value)
    }
}

fn left(signal: Signal, available: i64) -> Signals {
    Signals::from([(
        signal,
        Reading {
            available,
            capacity: 1000,
        },
    )])
}

const MEMORY: Signal = Signal::MemoryAvailable;
const TRANSITION: u64 = 300;

/// What follows from looks at these seconds.
fn looks(thresholds: &[Threshold], looks: &[(u64, Signals)]) -> Vec<Verdict> {
    let mut remembered = Remembered::default();
    let judged = looks.iter().map(|(at, signals)| {
        let (transition, now) = (Duration::from_secs(TRANSITION), Duration::from_secs(*at));
        judge(thresholds, transition, signals, &mut remembered, now)
    });
    judged.collect()
}

fn acted(verdicts: &[Verdict]) -> Vec<bool> {
    verdicts.iter().map(|verdict| !verdict.due.is_empty()).collect()
}

fn pressed(verdicts: &[Verdict]) -> Vec<bool> {
    verdicts.iter().map(|verdict| !verdict.conditions.is_empty()).collect()
}

#[test]
fn a_hard_threshold_is_acted_on_at_once_and_only_below_it() {
    let rules = [hard(MEMORY, 100)];
    let verdicts = looks(
        &rules,
        &[(0, left(MEMORY, 100)), (1, left(MEMORY, 99)), (2, left(MEMORY, 100))],
    );
    assert_eq!(acted(&verdicts), [false, true, false]);
    assert_eq!(verdicts[1].due, rules);
    let part = [Threshold {
        amount: Amount::Percent(10.0),
        ..hard(MEMORY, 0)
    }];
    assert_eq!(
        acted(&looks(&part, &[(0, left(MEMORY, 101)), (1, left(MEMORY, 99))])),
        [false, true]
    );
}

#[test]
fn a_soft_threshold_waits_for_its_grace_which_begins_anew_after_a_recovery() {
    let rules = [soft(MEMORY, 100, 60)];
    let verdicts = looks(
        &rules,
        &[
            (0, left(MEMORY, 50)),
            (59, left(MEMORY, 50)),
            (60, left(MEMORY, 50)),
            (70, left(MEMORY, 500)),
            (80, left(MEMORY, 50)),
            (139, left(MEMORY, 50)),
            (140, left(MEMORY, 50)),
        ],
    );
    assert_eq!(acted(&verdicts), [false, false, true, false, false, false, true]);
    assert_eq!(
        verdicts[1].wake,
        Some(Duration::from_secs(60)),
        "and is looked at when it is over"
    );
    assert_eq!(pressed(&verdicts), [true; 7], "the condition is told at once");
}

#[test]
fn what_cannot_be_read_is_neither_over_nor_acted_on() {
    let rules = [soft(MEMORY, 100, 60)];
    let unread = Signals::new();
    let verdicts = looks(
        &rules,
        &[
            (0, unread.clone()),
            (1, left(MEMORY, 50)),
            (30, unread.clone()),
            (61, unread),
            (62, left(MEMORY, 50)),
        ],
    );
    assert_eq!(acted(&verdicts), [false, false, false, false, true]);
    assert_eq!(pressed(&verdicts), [false, true, true, true, true]);
}

#[test]
fn once_acted_on_the_minimum_reclaim_is_wanted_too() {
    let rules = [Threshold {
        reclaim: Some(bytes(50)),
        ..hard(MEMORY, 100)
    }];
    let verdicts = looks(
        &rules,
        &[
            (0, left(MEMORY, 120)),
            (1, left(MEMORY, 99)),
            (2, left(MEMORY, 149)),
            (3, left(MEMORY, 150)),
            (4, left(MEMORY, 149)),
        ],
    );
    assert_eq!(acted(&verdicts), [false, true, true, false, false]);
}

#[test]
fn the_condition_stays_for_the_transition_period_after_it_was_last_seen() {
    let rules = [hard(MEMORY, 100)];
    let verdicts = looks(
        &rules,
        &[
            (0, left(MEMORY, 99)),
            (10, left(MEMORY, 99)),
            (11, left(MEMORY, 500)),
            (309, left(MEMORY, 500)),
            (310, left(MEMORY, 500)),
        ],
    );
    assert_eq!(pressed(&verdicts), [true, true, true, true, false]);
    assert_eq!(verdicts[2].wake, Some(Duration::from_secs(310)));
    assert_eq!(verdicts[4].wake, None);
}

#[test]
fn hard_comes_before_soft_and_memory_before_all_else() {
    let (disk, pid) = (Signal::NodeFsAvailable, Signal::PidAvailable);
    let rules = [soft(MEMORY, 100, 1), hard(disk, 100), hard(pid, 100), hard(MEMORY, 90)];
    let mut all = left(MEMORY, 50);
    all.extend(left(disk, 50));
    all.extend(left(pid, 50));
    let verdicts = looks(&rules, &[(0, all.clone()), (5, all)]);
    let order: Vec<(Signal, bool)> = verdicts[1].due.iter().map(|t| (t.signal, t.is_hard())).collect();
    assert_eq!(order, [(MEMORY, true), (disk, true), (pid, true), (MEMORY, false)]);
    let conditions: Vec<String> = verdicts[1].conditions.iter().map(ToString::to_string).collect();
    assert_eq!(conditions, ["DiskPressure", "MemoryPressure", "PIDPressure"]);
}

#[test]
fn memory_is_looked_at_the_sooner_the_less_there_is_above_a_threshold() {
    let rules = [hard(MEMORY, 100 << 20), soft(MEMORY, 1 << 30, 60)];
    let next = |available: i64| next_look(&rules, &left(MEMORY, available)).as_millis();
    assert_eq!(next(1000 << 30), 10_000);
    assert_eq!(next(9 << 30), 2000);
    assert_eq!(next((1 << 30) + 1), 100);
    assert_eq!(next((1 << 30) - 1), 225, "the soft one is met: the hard one is next");
    assert_eq!(next(100), 10_000, "all are met: looking oftener helps nobody");
    assert_eq!(next_look(&rules, &Signals::new()).as_millis(), 10_000);
}

#[test]
fn news_is_what_is_not_remembered() {
    let rules = [hard(MEMORY, 100), soft(MEMORY, 200, 60)];
    let mut remembered = Remembered::default();
    assert!(!is_news(&rules, &left(MEMORY, 200), &remembered));
    assert!(is_news(&rules, &left(MEMORY, 150), &remembered));
    judge(
        &rules,
        Duration::ZERO,
        &left(MEMORY, 150),
        &mut remembered,
        Duration::ZERO,
    );
    assert!(!is_news(&rules, &left(MEMORY, 150), &remembered));
    assert!(is_news(&rules, &left(MEMORY, 50), &remembered));
}

#[test]
fn the_grace_is_one_second_or_at_most_what_is_allowed() {
    let of = |max, threshold: Threshold, own| {
        let rules = Rules {
            grace_seconds_max: max,
            ..Rules::default()
        };
        grace_seconds(&rules, &threshold, own)
    };
    assert_eq!(of(60, hard(MEMORY, 1), Some(30)), Some(1));
    assert_eq!(of(60, soft(MEMORY, 1, 1), Some(30)), Some(30));
    assert_eq!(of(10, soft(MEMORY, 1, 1), Some(30)), Some(10));
    assert_eq!(of(0, soft(MEMORY, 1, 1), Some(30)), Some(0));
    assert_eq!(of(10, soft(MEMORY, 1, 1), None), Some(10));
    assert_eq!(of(-1, soft(MEMORY, 1, 1), Some(30)), None);
}

fn some_look() -> impl Strategy<Value = (u64, Option<i64>)> {
    (1u64..120, proptest::option::weighted(0.9, 0i64..1000))
}

proptest! {
    /// Whatever is read when: nothing is acted on before its grace, or while enough is left; a condition is there whenever something is
    /// met and goes no earlier than the transition period after that.
    #[test]
    fn graces_and_periods_are_kept(steps in proptest::collection::vec(some_look(), 1..60), grace in 0u64..200, reclaim in 0i64..300) {
        let rule = Threshold { reclaim: Some(bytes(reclaim)), ..soft(MEMORY, 400, grace) };
        let mut remembered = Remembered::default();
        let (mut now, mut last_met, mut met_since) = (0, None, None);
        for (pause, available) in steps {
            now += pause;
            let signals = available.map(|available| left(MEMORY, available)).unwrap_or_default();
            let verdict = judge(&[rule], Duration::from_secs(TRANSITION), &signals, &mut remembered, Duration::from_secs(now));
            match available {
                Some(available) if available >= 400 + reclaim => met_since = None,
                Some(available) if available < 400 => { met_since.get_or_insert(now); last_met = Some(now); }
                _ => {}
            }
            if !verdict.due.is_empty() {
                prop_assert!(available.is_some_and(|available| available < 400 + reclaim));
                prop_assert!(met_since.is_some_and(|since: u64| now - since >= grace));
            }
            if last_met.is_some_and(|at: u64| now - at < TRANSITION) {
                prop_assert!(!verdict.conditions.is_empty());
            }
            if last_met.is_none() {
                prop_assert!(verdict.conditions.is_empty());
            }
            if let Some(wake) = verdict.wake {
                prop_assert!(wake > Duration::from_secs(now));
            }
        }
    }
}
