use super::*;
use crate::kernel::Tested::{Alone, Done, Doubtful, Silent};
use crate::own::Way;
use crate::plan::{Own, Underlay};

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

#[test]
fn another_way_is_tested_again() {
    let way = |device: u32, address: [u8; 4], index: u32, mtu: u32| {
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
    };
    let first = way(7, [192, 0, 2, 1], 2, 1500);
    for (ways, is_due) in [
        (first.clone(), false),
        (way(8, [192, 0, 2, 1], 2, 1500), true),
        (way(7, [192, 0, 2, 2], 2, 1500), true),
        (way(7, [192, 0, 2, 1], 3, 1500), true),
        (way(7, [192, 0, 2, 1], 2, 1400), true),
        (BTreeMap::new(), true),
    ] {
        let mut tests = Tests::default();
        tests.follow(first.clone());
        tests.take(Done, AGAIN, Instant::now());
        tests.follow(ways.clone());
        assert_eq!(tests.is_due(Instant::now()), is_due, "{ways:?}");
    }
}
