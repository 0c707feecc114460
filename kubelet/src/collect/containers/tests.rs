use super::*;
use crate::pod::testing::{at, observed};

const NOW: i64 = 1_000;

/// What is to go of these pods, by id.
fn check(pods: &[(bool, &ObservedPod)], limits: &Limits, all: bool) -> Vec<String> {
    let remains: Vec<Remains<'_>> = pods
        .iter()
        .map(|(ended, observed)| Remains {
            ended: *ended,
            observed,
        })
        .collect();
    let garbage = decide(&remains, limits, all, at(NOW));
    let mut ids: Vec<String> = pods
        .iter()
        .flat_map(|(_, observed)| garbage.left_in(observed))
        .collect();
    assert_eq!(garbage.len(), ids.len());
    assert_eq!(garbage.by_pod().values().map(Garbage::len).sum::<usize>(), ids.len());
    ids.sort();
    ids
}

fn limits(per_container: Option<usize>, total: Option<usize>) -> Limits {
    Limits {
        per_container,
        total,
        ..Limits::default()
    }
}

#[test]
fn workers_keep_the_newest_dead_of_each_name() {
    let pod = observed("p")
        .sandbox(false)
        .exited("a", 0, 1)
        .exited("a", 1, 2)
        .exited("b", 0, 3)
        .sandbox(true);
    let pod = pod
        .exited("a", 1, 4)
        .container("c", ContainerState::Created, 0, 0)
        .running("c")
        .build();
    let ids = |keep| {
        superfluous(&pod, keep)
            .iter()
            .map(|c| c.id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(1), ["c0", "a1", "a0"], "one that was never started has a newer one");
    assert_eq!(ids(2), ["c0", "a0"]);
    assert_eq!(ids(9), ["c0"]);
    assert!(empty_sandboxes(&pod).is_empty(), "something is in the old one");
    let pod = observed("p")
        .sandbox(false)
        .sandbox(false)
        .sandbox(true)
        .running("c")
        .build();
    let ids: Vec<_> = empty_sandboxes(&pod).iter().map(|s| s.id.to_string()).collect();
    assert_eq!(ids, ["s1", "s0"]);
    let ended = observed("p").sandbox(false).build();
    assert!(empty_sandboxes(&ended).is_empty(), "the last one is the pod's own");
}

#[test]
fn limits_over_the_node() {
    // a crashed thrice and runs, b and c are done; the other pod has ended.
    let crashing = observed("p")
        .sandbox(true)
        .exited("a", 1, 1)
        .exited("a", 1, 2)
        .exited("a", 1, 3)
        .running("a");
    let crashing = crashing.exited("b", 0, 4).build();
    let ended = observed("q").sandbox(false).exited("x", 0, 5).exited("x", 0, 6).build();
    let pods = [(false, &crashing), (true, &ended)];
    for (what, limits, all, expected) in [
        ("upstream's", limits(Some(1), None), false, vec!["a0", "a1", "x0"]),
        ("no limit", limits(None, None), false, vec![]),
        ("more of each", limits(Some(2), None), false, vec!["a0"]),
        (
            "none: but the newest of a pod that goes on",
            limits(Some(0), None),
            false,
            vec!["a0", "a1", "a2", "x0", "x1"],
        ),
        (
            "in all, as many of each as go",
            limits(None, Some(4)),
            false,
            vec!["a0", "a1", "x0"],
        ),
        (
            "in all, then the oldest",
            limits(None, Some(2)),
            false,
            vec!["a0", "a1", "x0", "x1"],
        ),
        (
            "in all, none",
            limits(None, Some(0)),
            false,
            vec!["a0", "a1", "a2", "x0", "x1"],
        ),
        ("enough", limits(None, Some(6)), false, vec![]),
        (
            "all of what has ended, its sandbox too",
            limits(Some(1), None),
            true,
            vec!["a0", "a1", "s0", "x0", "x1"],
        ),
    ] {
        assert_eq!(check(&pods, &limits, all), expected, "{what}");
    }
}

#[test]
fn what_is_young_or_runs_stays() {
    let pod = observed("p").sandbox(false).exited("a", 0, 1).exited("a", 0, 2);
    let pod = pod.container("b", ContainerState::Unknown, 0, 0).running("c").build();
    let young = |seconds| Limits {
        per_container: Some(0),
        total: Some(0),
        youngest: SignedDuration::from_secs(seconds),
    };
    assert_eq!(
        check(&[(true, &pod)], &young(0), true),
        ["a0", "a1"],
        "and the sandbox with what may run in it"
    );
    // They were created in seconds 2 and 3.
    assert_eq!(check(&[(true, &pod)], &young(NOW - 2), true), ["a0"]);
    assert!(check(&[(true, &pod)], &young(NOW), true).is_empty());
    let quiet = observed("q").sandbox(false).exited("a", 0, 1).build();
    assert!(
        check(&[(true, &quiet)], &young(NOW), true).is_empty(),
        "its sandbox is not empty yet"
    );
    assert_eq!(check(&[(true, &quiet)], &young(0), true), ["a0", "s0"]);
}

#[test]
fn limits_that_workers_keep_alone() {
    for (limits, beyond, kept) in [
        (Limits::default(), false, 1),
        (limits(None, None), false, 1),
        (limits(Some(5), None), false, 5),
        (limits(Some(0), None), true, 1),
        (limits(Some(1), Some(9)), true, 1),
    ] {
        assert_eq!(
            (limits.are_beyond_workers(), limits.kept_at_once()),
            (beyond, kept),
            "{limits:?}"
        );
        assert!(Garbage::keeping(&limits).is_empty());
    }
}
