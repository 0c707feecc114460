use super::*;
use proptest::prelude::*;

fn hint(ids: &[u32], preferred: bool) -> Hint {
    Hint {
        numas: Some(NumaMask::of(ids.iter().copied())),
        preferred,
    }
}

fn nodes(ids: std::ops::Range<u32>) -> Nodes {
    Nodes {
        all: NumaMask::of(ids),
        distances: Vec::new(),
    }
}

fn ids(found: Hint) -> Vec<u32> {
    found.numas.into_iter().flat_map(NumaMask::ids).collect()
}

#[test]
fn policies_admit_what_is_near_enough() {
    let either = Wishes::One(vec![hint(&[0], true), hint(&[1], true), hint(&[0, 1], false)]);
    let second = Wishes::One(vec![hint(&[1], true), hint(&[0, 1], false)]);
    let wide = Wishes::One(vec![hint(&[0, 1], true)]);
    let elsewhere = Wishes::One(vec![hint(&[0, 1], false)]);
    let nowhere = Wishes::One(Vec::new());
    for (wishes, expected) in [
        // What is best, and who admits it: best-effort, restricted, single-numa-node.
        (vec![either.clone()], (vec![0], [true, true, true])),
        (vec![either.clone(), second.clone()], (vec![1], [true, true, true])),
        (vec![Wishes::Any, second], (vec![1], [true, true, true])),
        (vec![wide.clone()], (vec![0, 1], [true, true, false])),
        // It could be on one node, and there is none with room.
        (vec![elsewhere], (vec![0, 1], [true, false, false])),
        (vec![either.clone(), wide], (vec![0, 1], [true, false, false])),
        (vec![either, nowhere], (vec![0], [true, false, false])),
        (vec![Wishes::Any], (vec![0, 1], [true, true, true])),
    ] {
        let judged = |policy| merge(policy, &nodes(0..2), wishes.clone());
        let (best, admits) = (
            judged(Policy::BestEffort),
            [Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode],
        );
        assert_eq!(
            (ids(best.0), admits.map(|policy| judged(policy).1)),
            expected,
            "{wishes:?}"
        );
        assert_eq!(judged(Policy::None), (Hint::default(), true));
    }
    let (anywhere, admitted) = merge(Policy::SingleNumaNode, &nodes(0..2), vec![Wishes::Any]);
    assert_eq!((anywhere.numas, admitted), (None, true), "it does not matter where");
}

#[test]
fn of_as_few_nodes_the_closest_are_taken_where_that_is_asked_for() {
    let wishes = vec![Wishes::One(vec![hint(&[0, 1], true), hint(&[2, 3], true)])];
    let line = |from: u32| {
        (0..4)
            .map(|to: u32| (to, 10 + 10 * from.abs_diff(to) * (4 - from.max(to))))
            .collect()
    };
    let far = Nodes {
        distances: (0..4).map(|from| (from, line(from))).collect(),
        ..nodes(0..4)
    };
    assert_eq!(ids(merge(Policy::BestEffort, &nodes(0..4), wishes.clone()).0), [0, 1]);
    assert_eq!(ids(merge(Policy::BestEffort, &far, wishes).0), [2, 3]);
}

#[test]
fn subsets_come_small_ones_first_and_are_bounded() {
    let all: Vec<Vec<u32>> = NumaMask::subsets([0, 2, 5])
        .into_iter()
        .map(|mask| mask.ids().collect())
        .collect();
    assert_eq!(
        all,
        [
            vec![0],
            vec![2],
            vec![5],
            vec![0, 2],
            vec![0, 5],
            vec![2, 5],
            vec![0, 2, 5]
        ]
    );
    assert_eq!(NumaMask::subsets(0..60).len(), (1 << NODES_MAX) - 1);
}

/// One way after the other, as upstream goes through them.
fn one_by_one(nodes: &Nodes, hints: &[Vec<Hint>]) -> Hint {
    let counts = |hints: &Vec<Hint>| hints.iter().filter_map(|hint| hint.numas.map(NumaMask::len)).min();
    let aim = hints.iter().filter_map(counts).max().unwrap_or(0);
    let mut ways: Vec<Vec<Hint>> = vec![Vec::new()];
    for hints in hints {
        let longer = ways
            .iter()
            .flat_map(|way| hints.iter().map(|hint| [way.as_slice(), &[*hint]].concat()));
        ways = longer.collect();
    }
    let mut best: Option<Hint> = None;
    for way in ways {
        let masks: Vec<NumaMask> = way.iter().filter_map(|hint| hint.numas).collect();
        let candidate = Hint {
            numas: Some(masks.iter().fold(nodes.all, |all, mask| all.and(*mask))),
            preferred: way.iter().all(|hint| hint.preferred) && masks.iter().all(|mask| *mask == masks[0]),
        };
        best = Some(match best {
            _ if candidate.numas == Some(NumaMask::default()) => match best {
                Some(best) => best,
                None => continue,
            },
            None => candidate,
            Some(best) => better(best, candidate, aim),
        });
    }
    best.unwrap_or(Hint {
        numas: Some(nodes.all),
        preferred: false,
    })
}

fn better(current: Hint, candidate: Hint, aim: usize) -> Hint {
    let count = |hint: Hint| hint.numas.unwrap_or_default().len();
    let narrower = |a: Hint, b: Hint| {
        if (count(a), a.numas) < (count(b), b.numas) {
            a
        } else {
            b
        }
    };
    match (current.preferred, candidate.preferred) {
        (false, true) => return candidate,
        (true, false) => return current,
        (true, true) => return narrower(candidate, current),
        (false, false) => {}
    }
    let (now, other) = (count(current), count(candidate));
    if now > aim {
        return narrower(candidate, current);
    }
    match other {
        _ if now == aim && other != aim => current,
        _ if now == aim => narrower(candidate, current),
        _ if other > aim || other < now => current,
        _ if other == aim || other > now => candidate,
        _ => narrower(candidate, current),
    }
}

fn wished() -> impl Strategy<Value = Vec<Hint>> {
    let hint = (proptest::option::of(1_u64..16), any::<bool>());
    let hint = hint.prop_map(|(bits, preferred)| Hint {
        numas: bits.map(NumaMask),
        preferred,
    });
    proptest::collection::vec(hint, 1..5)
}

proptest! {
    #[test]
    fn the_best_is_what_going_through_all_ways_finds(hints in proptest::collection::vec(wished(), 1..4)) {
        let nodes = nodes(0..4);
        prop_assert_eq!(best(&nodes, &hints), one_by_one(&nodes, &hints));
    }
}
