use super::*;

const BOUNDS: Bounds = Bounds {
    connections: 4,
    connections_per_source: 3,
    idle: Duration::from_secs(10),
    slow: Duration::from_secs(5),
};

/// Sources that hold one each, the number of each its last octet, all of them idle since `now`.
fn full(open: &Open, now: Instant) -> Vec<Place> {
    let places = (1..=4).map(|last| place(open, source(last), u64::from(last), BOUNDS, now));
    places.map(Option::unwrap).collect()
}

fn source(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

#[test]
fn one_connection_of_each_of_many_keeps_nobody_out_who_has_none() {
    let (open, began) = (Open::default(), Instant::now());
    let held = full(&open, began);
    let late = began + Duration::from_secs(5);
    // Just asked, waits for an answer, idles, idles longer.
    held[0].idle_since.set(Some(late));
    held[1].idle_since.set(None);
    held[2].idle_since.set(Some(began + Duration::from_secs(2)));
    held[3].idle_since.set(Some(began + Duration::from_secs(1)));
    let ended = || -> Vec<u64> {
        let ended = held.iter().filter(|place| place.end.is_cancelled());
        ended.map(|place| place.number).collect()
    };
    let first = place(&open, source(5), 5, BOUNDS, late);
    assert!(first.is_some());
    assert_eq!(ended(), [4], "the one that idled longest");
    let second = place(&open, source(6), 6, BOUNDS, late);
    assert!(second.is_some());
    assert_eq!(ended(), [3, 4]);
    assert!(
        place(&open, source(7), 7, BOUNDS, late).is_none(),
        "nobody idles any more"
    );
    let later = late + RESTED;
    assert!(
        place(&open, source(5), 8, BOUNDS, later).is_none(),
        "who has one takes nobody's only one"
    );
    assert!(place(&open, source(7), 9, BOUNDS, later).is_some());
    assert_eq!(ended(), [1, 3, 4]);
}

#[test]
fn who_has_most_gives_way_idle_or_not() {
    let (open, now) = (Open::default(), Instant::now());
    let held: Vec<Place> = [1, 2, 2, 2]
        .into_iter()
        .zip(1..)
        .map(|(last, number)| place(&open, source(last), number, BOUNDS, now).unwrap())
        .collect();
    assert!(place(&open, source(2), 9, BOUNDS, now).is_none(), "its bound");
    let third = place(&open, source(3), 5, BOUNDS, now);
    assert!(third.is_some() && held[1].end.is_cancelled(), "its oldest");
    // Two, one and one: who has none gets one, and who has one none unless it idles.
    assert!(place(&open, source(1), 6, BOUNDS, now).is_none());
    assert!(place(&open, source(1), 7, BOUNDS, now + RESTED).is_some());
    assert!(held[2].end.is_cancelled() && !held[0].end.is_cancelled());
    drop(held);
    assert_eq!(open.borrow().len(), 1, "places are given back, but for the third's");
}
