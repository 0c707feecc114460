//! Rates between points, and when there are none.

use super::*;

fn point(at_ms: i64, start_ms: i64, cpu_nanos: u64) -> Point {
    Point {
        at_ms,
        start_ms,
        cpu_nanos,
        memory: 7,
    }
}

/// The window and the rate after these points.
fn after(points: &[Point]) -> Option<(i64, u64)> {
    let mut track = None;
    for point in points {
        track = Some(Track::after(track.as_ref(), *point));
    }
    let rate = track?.rate()?;
    assert_eq!(rate.memory, 7);
    Some((rate.window_ms, rate.nanocores))
}

const T: i64 = 1_700_000_000_000;
const SECOND: u64 = 1_000_000_000;

#[test]
fn rates() {
    let old = T - 3_600_000;
    for (points, rate, what) in [
        (vec![point(T, old, SECOND)], None, "one point is none"),
        (
            vec![point(T, old, SECOND), point(T + 15_000, old, 4 * SECOND)],
            Some((15_000, SECOND / 5)),
            "two points",
        ),
        (
            vec![
                point(T, old, SECOND),
                point(T + 15_000, old, 4 * SECOND),
                point(T + 30_000, old, 4 * SECOND),
            ],
            Some((15_000, 0)),
            "the last two count",
        ),
        (
            vec![
                point(T, old, SECOND),
                point(T + 15_000, old, 4 * SECOND),
                point(T + 15_000, old, 4 * SECOND),
            ],
            Some((15_000, SECOND / 5)),
            "the same point again keeps the pair",
        ),
        (
            vec![
                point(T, old, SECOND),
                point(T + 15_000, old, 4 * SECOND),
                point(T + 15_500, old, 5 * SECOND),
            ],
            Some((15_500, 4 * SECOND * 1000 / 15_500)),
            "a point that comes too soon widens the window",
        ),
        (
            vec![point(T, old, SECOND), point(T - 60_000, old, 2 * SECOND)],
            None,
            "a clock that went back",
        ),
        (
            vec![
                point(T, old, SECOND),
                point(T - 60_000, old, 2 * SECOND),
                point(T - 45_000, old, 5 * SECOND),
            ],
            Some((15_000, SECOND / 5)),
            "and goes on from there",
        ),
        (
            vec![point(T, old, 9 * SECOND), point(T + 15_000, T + 12_000, SECOND)],
            None,
            "a restart, shortly after",
        ),
        (
            vec![point(T, old, SECOND), point(T + 15_000, T + 1_000, 9 * SECOND)],
            Some((14_000, 9 * SECOND * 1000 / 14_000)),
            "a restart within the resolution counts from its start",
        ),
        (
            vec![point(T, old, 9 * SECOND), point(T + 60_000, old, SECOND)],
            None,
            "a counter that went back without a word",
        ),
        (
            vec![point(T, 0, SECOND), point(T + 15_000, 0, 4 * SECOND)],
            Some((15_000, SECOND / 5)),
            "a node says no start",
        ),
        (
            vec![point(1, 0, 0), point(i64::MAX, 0, u64::MAX)],
            Some((i64::MAX - 1, 2000)),
            "the widest there is",
        ),
        (
            vec![point(i64::MAX, i64::MIN, 1), point(i64::MIN, i64::MAX, 2)],
            None,
            "nothing overflows",
        ),
    ] {
        assert_eq!(after(&points), rate, "{what}");
    }
}

fn page(at_ms: i64, cpu_nanos: u64, containers: &[&str]) -> Page {
    let containers = containers
        .iter()
        .map(|name| ((*name).into(), point(at_ms, 0, cpu_nanos)));
    Page {
        node: Some(point(at_ms, 0, cpu_nanos)),
        pods: vec![PodPoints {
            namespace: "a".into(),
            name: "p".into(),
            containers: containers.collect(),
        }],
    }
}

#[test]
fn a_pod_is_known_when_all_its_containers_are() {
    let first = NodeHistory::after(None, page(T, SECOND, &["c"]));
    assert_eq!(first.pod_rates("a", "p"), None);
    let second = NodeHistory::after(Some(&first), page(T + 15_000, 4 * SECOND, &["c", "d"]));
    assert_eq!(second.pod_rates("a", "p"), None, "d has one point");
    assert!(second.node_rate().is_some());
    let third = NodeHistory::after(Some(&second), page(T + 30_000, 7 * SECOND, &["c", "d"]));
    let rates = third.pod_rates("a", "p").unwrap();
    let names: Vec<&str> = rates.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["c", "d"]);
    assert!(rates.iter().all(|(_, rate)| rate.nanocores == SECOND / 5));
    assert_eq!(third.pod_rates("a", "q"), None);
    let gone = Page {
        pods: Vec::new(),
        ..page(T + 45_000, 8 * SECOND, &[])
    };
    assert_eq!(NodeHistory::after(Some(&third), gone).pod_rates("a", "p"), None);
}
