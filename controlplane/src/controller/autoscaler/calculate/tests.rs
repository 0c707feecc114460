//! Upstream's documented formulas on cases of our own.

use super::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn before(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

/// A pod that has been ready for an hour, whose container requests 100m.
fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Ki"}}}]},
        "status": {"phase": "Running", "startTime": before(3600),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": before(3590)}]}})
}

/// As [`pod`], in a state.
fn in_state(name: &str, state: &str) -> Value {
    let mut pod = pod(name);
    let condition = |status: &str, changed: i64| json!([{"type": "Ready", "status": status, "lastTransitionTime": before(changed)}]);
    match state {
        "ready" => {}
        "pending" => pod["status"]["phase"] = json!("Pending"),
        "failed" => pod["status"]["phase"] = json!("Failed"),
        "ending" => pod["metadata"]["deletionTimestamp"] = json!(NOW),
        // Started a minute ago, not ready.
        "starting" => {
            pod["status"]["startTime"] = json!(before(60));
            pod["status"]["conditions"] = condition("False", 60);
        }
        // Ready for less than the metric's window.
        "fresh" => {
            pod["status"]["startTime"] = json!(before(60));
            pod["status"]["conditions"] = condition("True", 5);
        }
        "never" => pod["status"]["conditions"] = condition("False", 3599),
        // It was ready once, so what it uses counts.
        "broken" => pod["status"]["conditions"] = condition("False", 600),
        other => panic!("{other}"),
    }
    pod
}

fn pods(all: &[Value]) -> Vec<Arc<Pod>> {
    let typed = all
        .iter()
        .map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap()));
    typed.collect()
}

fn sample(milli: i64) -> Sample {
    Sample {
        at: now(),
        window: SignedDuration::from_secs(15),
        milli,
    }
}

fn ask(
    pods: &[Arc<Pod>],
    (resource, container): (&str, &str),
    current: i32,
    samples: Samples,
    wanted: Wanted,
) -> Result<Proposal, String> {
    let question = Question {
        pods,
        resource,
        container,
        current,
        tolerances: Tolerances::of(None),
        now: now(),
    };
    let prepared = Prepared::of(&question, samples)?;
    replicas(&question, &prepared, wanted)
}

/// Pods `p0`, `p1`, ... in these states that use so much, or say nothing.
fn case(states: &[(&str, Option<i64>)], wanted: Wanted) -> Result<(i32, Option<i32>, i64), String> {
    let all: Vec<Value> = states
        .iter()
        .enumerate()
        .map(|(i, (state, _))| in_state(&format!("p{i}"), state))
        .collect();
    let samples = states.iter().enumerate();
    let samples = samples.filter_map(|(i, (_, milli))| Some((format!("p{i}"), sample((*milli)?))));
    let current = i32::try_from(states.len()).unwrap();
    let found = ask(&pods(&all), ("cpu", ""), current, samples.collect(), wanted)?;
    Ok((found.replicas, found.utilization, found.average_milli))
}

#[test]
fn utilization_of_ready_pods() {
    let ready = |milli: &[i64]| -> Vec<(&'static str, Option<i64>)> {
        milli.iter().map(|milli| ("ready", Some(*milli))).collect()
    };
    for (used, target, expected) in [
        // ceil(3 * 90/60)
        (vec![90, 90, 90], 60, (5, Some(90), 90)),
        // ceil(3 * 30/60)
        (vec![30, 30, 30], 60, (2, Some(30), 30)),
        // 1.1 and 0.9 are within the tolerance, the next percent is not.
        (vec![55, 55], 50, (2, Some(55), 55)),
        (vec![45, 45], 50, (2, Some(45), 45)),
        (vec![56, 56], 50, (3, Some(56), 56)),
        (vec![22, 22], 50, (1, Some(22), 22)),
        // What counts is the sum, not each.
        (vec![150, 50, 40], 80, (3, Some(80), 80)),
        (vec![0, 0], 50, (0, Some(0), 0)),
        // More than requested.
        (vec![1000], 100, (10, Some(1000), 1000)),
    ] {
        let found = case(&ready(&used), Wanted::Utilization(target));
        assert_eq!(found, Ok(expected), "{used:?} of {target} %");
    }
}

#[test]
fn pods_that_say_nothing_or_are_not_ready_make_changes_smaller() {
    let half = Wanted::Utilization(50);
    for (states, expected, what) in [
        (
            vec![("ready", Some(100)), ("ready", Some(100)), ("ready", None)],
            // (100 + 100 + 0) / 300 is 66 %: ceil(66/50 * 3)
            4,
            "up: a missing one uses nothing",
        ),
        (
            vec![("ready", Some(10)), ("ready", Some(10)), ("ready", None)],
            // (10 + 10 + 100) / 300 is 40 %: ceil(0.8 * 3)
            3,
            "down: a missing one uses all it requests",
        ),
        (
            vec![("ready", Some(20)), ("ready", None), ("ready", None)],
            3,
            "down would become up",
        ),
        (vec![("ready", Some(60)), ("ready", None)], 2, "up would become down"),
        (
            vec![("ready", Some(100)), ("starting", Some(900))],
            // 100 / 200 is 50 %
            2,
            "up: what starts uses nothing, whatever it says",
        ),
        (
            vec![("ready", Some(100)), ("fresh", Some(900)), ("pending", None)],
            3,
            "up: nor what has not been ready for a window, nor what is pending",
        ),
        (
            vec![("ready", Some(10)), ("starting", Some(900))],
            1,
            "down: what starts does not count",
        ),
        (
            vec![("ready", Some(100)), ("never", Some(100))],
            2,
            "what has never been ready",
        ),
        (
            vec![("ready", Some(100)), ("broken", Some(100))],
            4,
            "what was ready once counts",
        ),
        (
            vec![("ready", Some(100)), ("ending", Some(100)), ("failed", Some(100))],
            2,
            "what ends or has failed is no pod",
        ),
    ] {
        let found = case(&states, half).map(|found| found.0);
        assert_eq!(found, Ok(expected), "{what}");
    }
}

#[test]
fn a_target_above_all_that_is_requested() {
    let states = [("ready", Some(100)), ("ready", Some(100)), ("ready", None)];
    // (100 + 100 + 200) / 300 is 133 %: ceil(133/200 * 3)
    let found = case(&states, Wanted::Utilization(200)).map(|found| found.0);
    assert_eq!(found, Ok(2));
}

#[test]
fn averages() {
    for (states, wanted, expected) in [
        (vec![("ready", Some(300)), ("ready", Some(100))], 100, (4, None, 200)),
        (vec![("ready", Some(100)), ("ready", Some(110))], 100, (2, None, 105)),
        (vec![("ready", Some(50)), ("ready", Some(10))], 100, (1, None, 30)),
        // Missing: the target itself on the way down, nothing on the way up.
        (
            vec![("ready", Some(10)), ("ready", Some(10)), ("ready", None)],
            100,
            (2, None, 10),
        ),
        (vec![("ready", Some(400)), ("ready", None)], 100, (4, None, 400)),
    ] {
        let found = case(&states, Wanted::AverageMilli(wanted));
        assert_eq!(found, Ok(expected), "{states:?}");
    }
}

#[test]
fn memory_counts_whether_a_pod_is_ready_or_not() {
    let pods = pods(&[in_state("p0", "starting"), in_state("p1", "ready")]);
    let samples = || {
        Samples::from([
            ("p0".to_owned(), sample(1_024_000)),
            ("p1".to_owned(), sample(1_024_000)),
        ])
    };
    let found = ask(&pods, ("memory", ""), 2, samples(), Wanted::Utilization(50)).unwrap();
    assert_eq!(
        (found.replicas, found.utilization, found.average_milli),
        (4, Some(100), 1_024_000)
    );
    // Amounts beyond every machine stay numbers.
    let huge = || Samples::from([("p0".to_owned(), sample(i64::MAX)), ("p1".to_owned(), sample(i64::MAX))]);
    let found = ask(&pods, ("memory", ""), 2, huge(), Wanted::Utilization(1)).unwrap();
    assert_eq!((found.replicas, found.utilization), (i32::MAX, Some(i32::MAX)));
    let found = ask(&pods, ("memory", ""), 2, huge(), Wanted::AverageMilli(1)).unwrap();
    assert_eq!((found.replicas, found.average_milli), (i32::MAX, i64::MAX));
}

#[test]
fn requests_are_those_of_the_pod_of_sidecars_or_of_one_container() {
    let requests = |containers: Value, sidecar: Option<&str>, own: Option<&str>| {
        let mut pod = pod("p");
        pod["spec"]["containers"] = containers;
        if let Some(cpu) = sidecar {
            pod["spec"]["initContainers"] = json!([{"name": "once"},
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}}]);
        }
        if let Some(cpu) = own {
            pod["spec"]["resources"] = json!({"requests": {"cpu": cpu}});
        }
        pods(&[pod])
    };
    let with = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let percent = |pods: &[Arc<Pod>], container: &str| {
        let samples = Samples::from([("p".to_owned(), sample(100))]);
        let found = ask(pods, ("cpu", container), 1, samples, Wanted::Utilization(50))?;
        Ok(found.utilization.unwrap())
    };
    let two = json!([with("c", "100m"), with("d", "300m")]);
    assert_eq!(percent(&requests(two.clone(), None, None), ""), Ok(25));
    assert_eq!(percent(&requests(two.clone(), None, None), "c"), Ok(100));
    assert_eq!(percent(&requests(two.clone(), Some("100m"), None), ""), Ok(20));
    assert_eq!(percent(&requests(two.clone(), None, Some("1")), ""), Ok(10));
    assert_eq!(percent(&requests(two.clone(), None, Some("1")), "d"), Ok(33));
    let lacking = json!([with("c", "100m"), {"name": "d"}]);
    assert_eq!(
        percent(&requests(lacking.clone(), None, None), ""),
        Err("missing request for cpu in container d of Pod p".to_owned())
    );
    assert_eq!(percent(&requests(lacking.clone(), None, None), "c"), Ok(100));
    assert_eq!(percent(&requests(lacking, None, Some("1")), ""), Ok(10));
    assert_eq!(
        percent(&requests(two, None, None), "e"),
        Err("container e not found in Pod p".to_owned())
    );
    let zero = json!([with("c", "0")]);
    assert_eq!(
        percent(&requests(zero, None, None), ""),
        Err("no metrics returned matched known pods".to_owned())
    );
}

#[test]
fn without_pods_or_samples_there_is_no_answer() {
    let half = Wanted::Utilization(50);
    assert_eq!(
        case(&[], half),
        Err("no pods returned by selector while calculating replica count".to_owned())
    );
    let unready = "did not receive metrics for targeted pods (pods might be unready)";
    for states in [[("ready", None)], [("starting", Some(5))], [("ending", Some(5))]] {
        assert_eq!(case(&states, half), Err(unready.to_owned()), "{states:?}");
    }
}

#[test]
fn tolerances_may_differ_by_direction() {
    let behavior = json!({"scaleUp": {"tolerance": "500m"}, "scaleDown": {"tolerance": "0"}});
    let tolerances = Tolerances::of(Some(&serde_json::from_value(behavior).unwrap()));
    for (ratio, is_within) in [(1.5, true), (1.51, false), (1.0, true), (0.99, false)] {
        assert_eq!(tolerances.is_within(ratio), is_within, "{ratio}");
    }
}
