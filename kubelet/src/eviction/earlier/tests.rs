//! Tables over counts and over passes.

use super::*;

/// How long one pass counts, and for how long at most it only glances.
const PASS: Duration = Duration::from_secs(30);
const GLANCES: Duration = Duration::from_secs(10);

fn used(bytes: u64, incomplete: bool) -> PodUse {
    PodUse {
        volumes: TreeUsage {
            bytes,
            incomplete,
            ..TreeUsage::default()
        },
        ..PodUse::default()
    }
}

#[test]
fn what_was_counted_last_holds_until_the_next_count_ends_and_who_never_ends_is_uncountable() {
    let mut earlier = Earlier::default();
    let uid = PodUid::from("p");
    // What each count told, whether it had its time, and then: what was known before, and whether it is given up.
    for (bytes, incomplete, had_time, before, uncountable) in [
        (1, true, true, 0, false),
        (900, false, true, 0, false),
        (2, true, true, 900, false),
        (3, true, true, 900, false),
        // The disk kept it from its end: that is nobody's doing.
        (0, true, false, 900, false),
        (0, true, false, 900, false),
        (4, true, true, 900, true),
        (0, true, false, 900, true),
        (800, false, false, 0, false),
        // What is found in its own time is not less for a glance that finds less.
        (950, true, true, 800, false),
        (4, true, false, 950, false),
        (700, false, false, 0, false),
        (4, true, true, 700, false),
    ] {
        let mut count = used(bytes, incomplete);
        let time = if had_time { Time::Fair } else { Time::Moment };
        earlier.complete(&uid, &mut count, time, true);
        assert_eq!(
            (count.before.bytes, count.volumes.uncountable),
            (before, uncountable),
            "{bytes}"
        );
    }
    assert!(earlier.complete_all(Vec::new()).is_empty());
    assert!(earlier.known.is_empty());
}

#[test]
fn a_disk_that_stands_still_makes_nobody_uncountable() {
    let mut earlier = Earlier::default();
    let mut uncountable = |others_end: bool| {
        let counts = vec![
            (PodUid::from("p"), used(1, true), Time::Fair),
            (PodUid::from("q"), used(1, !others_end), Time::Fair),
        ];
        let uses = earlier.complete_all(counts);
        uses.iter().map(|used| used.volumes.uncountable).collect::<Vec<_>>()
    };
    for _ in 0..2 * MISSES_MAX {
        assert_eq!(uncountable(false), [false, false]);
    }
    for _ in 1..MISSES_MAX {
        assert_eq!(uncountable(true), [false, false]);
    }
    assert_eq!(uncountable(true), [true, false], "another one's count ends");
}

#[test]
fn what_is_left_is_for_as_many_as_can_have_their_time() {
    for (left_ms, waiting, expected_ms) in [
        (30_000, 0, None),
        (30_000, 1, Some(30_000)),
        (30_000, 10, Some(3_000)),
        (30_000, 11, Some(3_000)),
        (28_000, 500, Some(3_111)),
        (2_900, 500, Some(2_900)),
        (200, 1, None),
        (0, 3, None),
    ] {
        let share = share(Duration::from_millis(left_ms), waiting);
        let share = share.and_then(|share| u64::try_from(share.as_millis()).ok());
        assert_eq!(share, expected_ms, "{left_ms} ms for {waiting}");
    }
}

/// What a pass came to.
struct Passed {
    uncountable: BTreeSet<PodUid>,
    /// Whether all that do not hide were counted.
    others: bool,
}

/// One pass, as [`super::super::sight`] makes it, over pods of which those that hide take all the time they are given.
fn pass(earlier: &mut Earlier, uids: &[PodUid], hides: impl Fn(&PodUid) -> bool) -> Passed {
    let (mut spent, mut left) = (Duration::ZERO, Vec::new());
    let mut uses: Vec<(PodUse, Time)> = uids.iter().map(|_| (used(0, true), Time::None)).collect();
    for place in earlier.glances(uids) {
        let hiding = hides(&uids[place]);
        if spent < GLANCES {
            uses[place] = (used(1, hiding), Time::Moment);
            spent += if hiding { GLANCE } else { Duration::ZERO };
        }
        left.extend(uses[place].0.files().incomplete.then_some(place));
    }
    let mut turns = earlier.turns(uids, left).into_iter();
    while let Some(share) = share(PASS.saturating_sub(spent), turns.len()) {
        let Some(place) = turns.next() else { break };
        let hiding = hides(&uids[place]);
        // It takes a little longer until a count that is told to end has ended.
        let took = share + Duration::from_millis(10);
        spent += if hiding { took } else { Duration::ZERO };
        let time = if share >= COUNT_FAIR { Time::Fair } else { Time::Moment };
        uses[place] = (used(500, hiding), time);
    }
    assert!(spent <= PASS + Duration::from_secs(1), "{spent:?}");
    let counts = uids.iter().zip(uses);
    let counts = counts.map(|(uid, (used, time))| (uid.clone(), used, time));
    let uses = earlier.complete_all(counts.collect());
    let told = uids.iter().zip(&uses);
    let uncountable = told.clone().filter(|(_, used)| used.files().uncountable);
    Passed {
        uncountable: uncountable.map(|(uid, _)| uid.clone()).collect(),
        others: told
            .filter(|(uid, _)| !hides(uid))
            .all(|(_, used)| !used.files().incomplete),
    }
}

#[test]
fn however_many_hide_each_has_its_time_and_is_known_for_it() {
    // How many hide; from which pass on all others are counted; after how many the first that hide are uncountable, and all.
    for (hiding, others, first, all) in [
        (1, 1, 3, 3),
        (8, 1, 3, 3),
        (11, 1, 3, 6),
        (25, 1, 3, 12),
        // What a pass learns before anybody's count ends may be the disk's doing.
        (60, 2, 4, 31),
        (110, 3, 5, 59),
    ] {
        let mut earlier = Earlier::default();
        let uids: Vec<PodUid> = (0..hiding + 5)
            .map(|number| PodUid::from(format!("p{number:03}").as_str()))
            .collect();
        let hides = |uid: &PodUid| uids[..hiding].contains(uid);
        let (mut begun, mut number) = (None, 0);
        loop {
            number += 1;
            let passed = pass(&mut earlier, &uids, hides);
            assert!(passed.others || number < others, "{hiding} hide, pass {number}");
            if !passed.uncountable.is_empty() {
                begun = begun.or(Some(number));
            }
            if passed.uncountable.len() == hiding {
                break;
            }
            assert!(number < all, "{hiding} hide: {} are known", passed.uncountable.len());
        }
        assert_eq!((begun, number), (Some(first), all), "{hiding} hide");
    }
}

#[test]
fn who_comes_later_keeps_nobody_waiting() {
    let mut earlier = Earlier::default();
    let named = |name: &str| {
        (0..12)
            .map(|place| PodUid::from(format!("{name}-{place}").as_str()))
            .collect()
    };
    let (stay, other): (Vec<PodUid>, _) = (named("stays"), PodUid::from("counted"));
    let mut uncountable = BTreeSet::new();
    // Twelve that hide stay, and twelve more are new at each pass.
    for number in 0..8 {
        let mut uids: Vec<PodUid> = named(&format!("new{number}"));
        uids.extend(stay.iter().chain([&other]).cloned());
        uncountable = pass(&mut earlier, &uids, |uid| *uid != other).uncountable;
    }
    assert_eq!(uncountable, stay.into_iter().collect());
}
