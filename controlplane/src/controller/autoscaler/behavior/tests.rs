//! Windows, rates and bounds, as sequences of recommendations.

use super::*;
use serde_json::{Value, json};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn behavior(value: &Value) -> Option<HorizontalPodAutoscalerBehavior> {
    (!value.is_null()).then(|| serde_json::from_value(value.clone()).unwrap())
}

fn rules(window: i64, select: &str, policies: &[(&str, i32, i32)]) -> Value {
    let policy =
        |(kind, value, period): &(&str, i32, i32)| json!({"type": kind, "value": value, "periodSeconds": period});
    let policies: Vec<Value> = policies.iter().map(policy).collect();
    json!({"stabilizationWindowSeconds": window, "selectPolicy": select, "policies": policies})
}

/// Follows recommendations made at these seconds, from so many replicas between 1 and 20: what becomes of each, and why.
fn follow(behave: &Value, start: i32, wanted: &[(i64, i32)]) -> Vec<(i32, &'static str, &'static str)> {
    let behave = behavior(behave);
    let mut history = History::default();
    let mut current = start;
    let mut all = Vec::new();
    for (second, wanted) in wanted {
        let now = at(*second);
        history.begin(now, current);
        let bounds = Bounds {
            min: 1,
            max: 20,
            current,
        };
        let settled = settle(behave.as_ref(), bounds, *wanted, &mut history, now);
        if settled.replicas != current {
            history.rescaled(now, current, settled.replicas);
        }
        current = settled.replicas;
        assert_eq!(
            settled.limited.0,
            settled.limited.1.0 != "DesiredWithinRange",
            "{second}"
        );
        all.push((settled.replicas, settled.able.0, settled.limited.1.0));
    }
    all
}

const READY: &str = "ReadyForNewScale";
const UP: &str = "ScaleUpStabilized";
const DOWN: &str = "ScaleDownStabilized";
const WITHIN: &str = "DesiredWithinRange";

#[test]
fn without_a_behavior_down_waits_five_minutes_and_up_at_most_doubles() {
    let found = follow(
        &Value::Null,
        3,
        &[(0, 10), (15, 10), (30, 40), (45, 2), (330, 2), (331, 2)],
    );
    assert_eq!(
        found,
        [
            (6, READY, "ScaleUpLimit"),
            (10, READY, WITHIN),
            (20, READY, "TooManyReplicas"),
            (20, DOWN, "TooManyReplicas"),
            // 40 was recommended 300 seconds ago: it holds to the last.
            (2, READY, WITHIN),
            (2, READY, WITHIN),
        ]
    );
    assert_eq!(follow(&Value::Null, 1, &[(0, 9)]), [(4, READY, "ScaleUpLimit")]);
    assert_eq!(
        follow(&Value::Null, 1, &[(0, 0), (400, 0)])[1],
        (1, READY, "TooFewReplicas")
    );
}

#[test]
fn windows_hold_in_both_directions() {
    let both = json!({"scaleUp": rules(60, "Max", &[("Percent", 900, 15)]), "scaleDown": rules(60, "Max", &[("Percent", 100, 15)])});
    let found = follow(
        &both,
        4,
        &[(0, 8), (30, 8), (61, 8), (90, 2), (120, 3), (150, 3), (180, 3)],
    );
    assert_eq!(
        found,
        [
            (4, UP, WITHIN),
            (4, UP, WITHIN),
            (8, READY, WITHIN),
            // 8 was recommended within the last minute,
            (8, DOWN, WITHIN),
            (8, DOWN, WITHIN),
            // and now the highest is 3.
            (3, READY, WITHIN),
            (3, READY, WITHIN),
        ]
    );
}

#[test]
fn policies_limit_changes_per_period() {
    let up = |select: &str, policies: &[(&str, i32, i32)]| json!({"scaleUp": rules(0, select, policies), "scaleDown": rules(0, "Max", &[("Percent", 100, 15)])});
    let down = |select: &str, policies: &[(&str, i32, i32)]| json!({"scaleUp": rules(0, "Max", &[("Percent", 900, 15)]), "scaleDown": rules(0, select, policies)});
    let replicas = |behave: &Value, start, wanted: &[(i64, i32)]| -> Vec<i32> {
        follow(behave, start, wanted)
            .into_iter()
            .map(|settled| settled.0)
            .collect()
    };
    let often = |wanted: i32| -> Vec<(i64, i32)> { (0..6).map(|i| (i * 15, wanted)).collect() };
    let two_a_minute = [("Pods", 2, 60)];
    assert_eq!(replicas(&up("Max", &two_a_minute), 1, &often(20)), [3, 3, 3, 3, 5, 5]);
    assert_eq!(replicas(&down("Max", &two_a_minute), 9, &often(1)), [7, 7, 7, 7, 5, 5]);
    // The most or the least that any policy allows.
    let two = [("Pods", 2, 15), ("Percent", 100, 15)];
    assert_eq!(replicas(&up("Max", &two), 1, &often(20)), [3, 6, 12, 20, 20, 20]);
    assert_eq!(replicas(&up("Min", &two), 1, &often(20)), [2, 4, 6, 8, 10, 12]);
    let two = [("Pods", 2, 15), ("Percent", 50, 15)];
    assert_eq!(replicas(&down("Max", &two), 16, &often(1)), [8, 4, 2, 1, 1, 1]);
    assert_eq!(replicas(&down("Min", &two), 16, &often(1)), [14, 12, 10, 8, 6, 4]);
    // A percentage of little is still a change on the way up.
    assert_eq!(
        replicas(&up("Max", &[("Percent", 10, 15)]), 1, &often(20))[..3],
        [2, 3, 4]
    );
    assert_eq!(replicas(&up("Disabled", &two_a_minute), 3, &often(20)), [3; 6]);
    assert_eq!(replicas(&down("Disabled", &two_a_minute), 3, &often(1)), [3; 6]);
    assert_eq!(
        follow(&up("Disabled", &two_a_minute), 3, &[(0, 9)]),
        [(3, READY, "ScaleUpLimit")]
    );
    assert_eq!(
        follow(&down("Disabled", &two_a_minute), 3, &[(0, 2)]),
        [(3, READY, "ScaleDownLimit")]
    );
}

#[test]
fn what_went_the_other_way_gives_the_period_its_start_back() {
    let behave =
        json!({"scaleUp": rules(0, "Max", &[("Pods", 4, 60)]), "scaleDown": rules(0, "Max", &[("Pods", 4, 60)])});
    let replicas: Vec<i32> = follow(&behave, 10, &[(0, 14), (15, 6), (30, 14), (45, 20)])
        .into_iter()
        .map(|settled| settled.0)
        .collect();
    // Ten at the start of the minute: never below six nor above fourteen in it.
    assert_eq!(replicas, [14, 6, 14, 14]);
}

#[test]
fn bounds_hold_whatever_policies_say() {
    let wide = json!({"scaleUp": rules(0, "Max", &[("Percent", 100_000, 15)]), "scaleDown": rules(0, "Max", &[("Percent", 100, 15)])});
    assert_eq!(follow(&wide, 5, &[(0, 99)]), [(20, READY, "TooManyReplicas")]);
    assert_eq!(follow(&wide, 5, &[(0, 0)]), [(1, READY, "TooFewReplicas")]);
    assert_eq!(follow(&wide, 5, &[(0, i32::MAX), (15, i32::MIN)])[1].0, 1);
}

#[test]
fn what_is_of_a_time_to_come_is_forgotten() {
    let mut history = History::default();
    history.begin(at(1000), 9);
    history.rescaled(at(1000), 5, 9);
    history.rescaled(at(500), 9, 5);
    history.begin(at(1000), 3);
    assert_eq!(history.recommendations, [(at(1000), 9)]);
    // The clock went back.
    history.begin(at(600), 3);
    assert_eq!(history.recommendations, [(at(600), 3)]);
    assert_eq!((history.ups, history.downs), (vec![], vec![(at(500), 4)]));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut history = History::default();
    for second in 0..10_000 {
        let bounds = Bounds {
            min: 1,
            max: 20,
            current: 5,
        };
        settle(None, bounds, 5, &mut history, at(second));
        history.rescaled(at(second), 5, 6);
    }
    assert!(history.recommendations.len() <= KEPT_MAX && history.ups.len() <= KEPT_MAX);
    // The newest are the ones that stay.
    assert_eq!(history.recommendations.last(), Some(&(at(9_999), 5)));
}
