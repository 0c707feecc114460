use super::*;
use crate::own::Way;
use crate::plan::{Own, Underlay};
use crate::state::Family;
use crate::trial::Tested::{Alone, Done, Doubtful, Silent};

const AGAIN: Duration = Duration::from_secs(120);

#[test]
fn tests_go_on_until_it_is_known_what_arrives_and_not_for_ever() {
    let now = Instant::now();
    let later = |seconds| now + Duration::from_secs(seconds);
    // What came of the tests; when there is another, if ever.
    for (outcomes, next) in [
        (&[][..], Some(0)),
        (&[Done], None),
        (&[Alone], Some(0)),
        (&[Silent], Some(2)),
        (&[Silent; 5], Some(32)),
        (&[Silent; 6], None),
        (&[Doubtful], Some(120)),
        (&[Silent, Doubtful], Some(120)),
        (&[Doubtful, Silent], Some(2)),
        (&[Doubtful, Doubtful, Done], None),
    ] {
        let mut tests = Tests::default();
        for outcome in outcomes {
            tests.take(*outcome, AGAIN, now);
        }
        let is_so = match next {
            Some(0) => tests.is_due(now),
            Some(next) => !tests.is_due(later(next - 1)) && tests.is_due(later(next)),
            None => !tests.is_due(later(1_000_000)),
        };
        assert!(is_so, "{outcomes:?} {next:?}: {tests:?}");
    }
}

/// The ways of one tunnel.
fn ways(device: u32, address: [u8; 4], index: u32, mtu: u32) -> BTreeMap<Family, Way> {
    let mut own = Own {
        peer: Peer::default(),
        underlay: Each::default(),
        macs: spare(),
        addresses: BTreeSet::new(),
    };
    own.underlay.v4 = Some(Underlay {
        address: address.into(),
        index,
        mtu,
        networks: Vec::new(),
    });
    Way::all(&own, &BTreeMap::from([(Family::V4, device)]))
}

#[test]
fn another_way_is_tested_again() {
    let first = ways(7, [192, 0, 2, 1], 2, 1500);
    for (now, is_due) in [
        (first.clone(), false),
        (ways(8, [192, 0, 2, 1], 2, 1500), true),
        (ways(7, [192, 0, 2, 2], 2, 1500), true),
        (ways(7, [192, 0, 2, 1], 3, 1500), true),
        (ways(7, [192, 0, 2, 1], 2, 1400), true),
        (BTreeMap::new(), true),
    ] {
        let mut tests = Tests::default();
        tests.follow(first.clone(), BTreeSet::new());
        tests.take(Done, AGAIN, Instant::now());
        tests.follow(now.clone(), BTreeSet::new());
        assert_eq!(tests.is_due(Instant::now()), is_due, "{now:?}");
    }
}

/// A link that goes and comes back while a test waits for answers: what the test found out is of the time without it.
#[test]
fn a_way_that_was_away_meanwhile_is_another() {
    let (first, away) = (ways(7, [192, 0, 2, 1], 2, 1500), BTreeMap::new());
    let tried = Tried {
        outcomes: vec![(Family::V4, first[&Family::V4], None)],
        is_alone: false,
    };
    let mut tests = Tests::default();
    tests.follow(first.clone(), BTreeSet::new());
    let begun = tests.generation();
    tests.follow(first.clone(), BTreeSet::new());
    assert!(!tests.is_past(begun, &tried), "nothing has changed");
    tests.follow(away, BTreeSet::new());
    assert!(tests.is_past(begun, &tried));
    tests.follow(first, BTreeSet::new());
    assert!(tests.is_past(begun, &tried));
    assert!(!tests.is_past(tests.generation(), &tried), "of one that begins now");
}

/// Others that boot after this node are asked once they are there, however long that was.
#[test]
fn a_new_node_is_asked_though_the_others_were_silent() {
    let now = Instant::now();
    let nodes = |names: &[&str]| -> BTreeSet<String> { names.iter().map(ToString::to_string).collect() };
    let way = ways(7, [192, 0, 2, 1], 2, 1500);
    let mut tests = Tests::default();
    tests.follow(way.clone(), nodes(&["a", "b"]));
    (0..6).for_each(|_| tests.take(Silent, AGAIN, now));
    for (names, is_due) in [(&["a", "b"][..], false), (&["a"], false), (&["a", "c"], true)] {
        tests.follow(way.clone(), nodes(names));
        assert_eq!(tests.is_due(now), is_due, "{names:?}");
    }
    tests.take(Done, AGAIN, now);
    tests.follow(way, nodes(&["a", "c", "d"]));
    assert!(!tests.is_due(now), "what is known stays known");
}

#[tokio::test]
async fn a_test_that_breaks_off_is_no_test() {
    let mut trial: Option<Trial> = Some((3, blocking::spawn(|| panic!("as planned"))));
    let (begun, tried) = ended(&mut trial).await;
    assert!(begun == 3 && tried.is_none() && trial.is_none());
}

/// Who ends before the test has switched off what it tried leaves it on for good.
#[tokio::test]
async fn the_end_waits_for_the_test_that_is_under_way() {
    let (go, goes) = std::sync::mpsc::channel();
    let is_back = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let switched = is_back.clone();
    let work = blocking::spawn(move || {
        goes.recv().expect("it is told to go on");
        switched.store(true, std::sync::atomic::Ordering::SeqCst);
        Tried::default()
    });
    let mut trial = Some((0, work));
    // The end is asked first, and waits; then the test may go on.
    let _ = tokio::join!(biased; end(&mut trial), async { go.send(()) });
    assert!(is_back.load(std::sync::atomic::Ordering::SeqCst) && trial.is_none());
    end(&mut trial).await;
}
