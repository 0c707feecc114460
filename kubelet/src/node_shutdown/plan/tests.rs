//! Groups, graces and waits.

use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn periods(list: &[(i32, u64)]) -> Periods {
    let period = |(priority, seconds): &(i32, u64)| Period {
        priority: *priority,
        length: s(*seconds),
    };
    Periods::by_priority(list.iter().map(period).collect())
}

fn pods(list: &[(&str, i32)]) -> Vec<Candidate> {
    let pod = |(uid, priority): &(&str, i32)| Candidate {
        uid: PodUid::from(*uid),
        priority: *priority,
    };
    list.iter().map(pod).collect()
}

/// Names with their graces.
fn ends(turn: &Turn) -> Vec<(&str, i64)> {
    turn.ends.iter().map(|(uid, grace)| (uid.as_str(), *grace)).collect()
}

#[test]
fn the_two_plain_periods_are_two_groups() {
    for (all, critical, expected) in [
        (s(0), s(0), vec![]),
        (s(30), s(10), vec![(0, 20), (2_000_000_000, 10)]),
        (s(30), s(0), vec![(0, 30), (2_000_000_000, 0)]),
        (s(10), s(10), vec![(0, 0), (2_000_000_000, 10)]),
        (Duration::from_millis(4900), s(2), vec![(0, 2), (2_000_000_000, 2)]),
    ] {
        assert_eq!(
            Periods::of_kinds(all, critical),
            periods(&expected),
            "{all:?} {critical:?}"
        );
    }
    assert!(Periods::of_kinds(s(0), s(0)).is_empty());
    assert_eq!(Periods::of_kinds(s(30), s(10)).total(), s(30));
}

#[test]
fn a_priority_belongs_to_the_nearest_period_below() {
    let sorted = periods(&[(1000, 3), (0, 5), (100, 4)]);
    for (priority, group) in [
        (-5, 0),
        (0, 0),
        (1, 0),
        (99, 0),
        (100, 1),
        (999, 1),
        (1000, 2),
        (2_000_001_000, 2),
    ] {
        assert_eq!(sorted.group_of(priority), group, "{priority}");
    }
    let high = periods(&[(100, 4), (1000, 3)]);
    assert_eq!(
        (high.group_of(5), high.group_of(500)),
        (0, 0),
        "who is below all is in the first"
    );
}

#[test]
fn a_group_is_waited_for_until_it_has_ended_or_had_its_time() {
    let periods = periods(&[(0, 20), (100, 10), (1000, 5)]);
    let all = pods(&[("low", 0), ("mid", 100), ("high", 2000)]);
    let mut course = Course::default();
    let first = turn(&periods, &mut course, &all, s(0));
    assert_eq!((ends(&first), first.until), (vec![("low", 20)], Some(s(20))));
    let again = turn(&periods, &mut course, &all, s(19));
    assert_eq!(again, first, "nothing is new");
    // It ended early: the next has its whole period from here on.
    let mut early = course;
    let second = turn(&periods, &mut early, &all[1..], s(8));
    assert_eq!((ends(&second), second.until), (vec![("mid", 10)], Some(s(18))));
    // It did not end: the next ones' turn comes all the same.
    let late = turn(&periods, &mut course, &all, s(20));
    assert_eq!((ends(&late), late.until), (vec![("low", 20), ("mid", 10)], Some(s(30))));
    assert_eq!(late.given_up, [PodUid::from("low")]);
    let last = turn(&periods, &mut course, &all[2..], s(25));
    assert_eq!((ends(&last), last.until), (vec![("high", 5)], Some(s(30))));
    assert_eq!(turn(&periods, &mut course, &[], s(26)).until, None);
}

#[test]
fn groups_without_pods_or_time_are_passed_at_once() {
    let periods = periods(&[(0, 0), (100, 10), (1000, 5)]);
    let mut course = Course::default();
    let only = turn(&periods, &mut course, &pods(&[("low", 0), ("high", 1000)]), s(0));
    assert_eq!(ends(&only), [("low", 0), ("high", 5)], "ended, though nobody waits");
    assert_eq!((only.until, only.given_up), (Some(s(5)), vec![PodUid::from("low")]));
    let mut course = Course::default();
    let nobody = turn(&periods, &mut course, &[], s(3));
    assert_eq!((nobody.until, ends(&nobody)), (None, vec![]));
}

#[test]
fn who_comes_after_its_turn_ends_too() {
    let periods = periods(&[(0, 20), (100, 10)]);
    let mut course = Course::default();
    let pods = pods(&[("late", 0), ("mid", 100)]);
    turn(&periods, &mut course, &pods[1..], s(0));
    let then = turn(&periods, &mut course, &pods, s(1));
    assert_eq!(
        (ends(&then), then.until),
        (vec![("late", 20), ("mid", 10)], Some(s(10)))
    );
}

#[test]
fn a_kubelet_that_comes_in_the_middle_gives_no_more_than_was_left() {
    let periods = periods(&[(0, 20), (100, 10)]);
    for (elapsed, low, mid) in [(5, (20 - 5, s(20)), (10, s(15))), (25, (0, s(25)), (5, s(30)))] {
        let mut course = Course::default();
        let begun = turn(&periods, &mut course.clone(), &[], s(elapsed));
        assert_eq!(begun.until, None);
        course.since = s(elapsed);
        let pods = pods(&[("low", 0), ("mid", 100)]);
        assert_eq!(periods.deadline(&course), low.1, "{elapsed}");
        let first = turn(&periods, &mut course, &pods, s(elapsed));
        assert_eq!(first.ends.first().map(|(_, grace)| *grace), Some(low.0), "{elapsed}");
        let mut course = Course {
            group: 0,
            since: s(elapsed),
        };
        let second = turn(&periods, &mut course, &pods[1..], s(elapsed));
        assert_eq!(
            (ends(&second), second.until),
            (vec![("mid", mid.0)], Some(mid.1)),
            "{elapsed}"
        );
    }
}
