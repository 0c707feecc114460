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
        .map(|subset| subset.numas.ids().collect())
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
    assert_eq!(NumaMask::subsets([]), []);
    let weights = over_subsets([1_u64, 10, 100], |sum, one| sum + one);
    for Subset { numas, at } in NumaMask::subsets(0..3) {
        let expected: u64 = numas.ids().map(|id| 10_u64.pow(id)).sum();
        assert_eq!(weights[at], expected, "{numas:?}");
    }
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
            numas: Some(masks.iter().fold(nodes.all, |all, mask| {
                NumaMask::of(all.ids().filter(|id| mask.has(*id)))
            })),
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

/// As [`merge`], one way after the other.
fn merged_one_by_one(policy: Policy, nodes: &Nodes, wishes: &[Wishes]) -> (Hint, bool) {
    let anywhere = |preferred| Hint { numas: None, preferred };
    let of = |wishes: &Wishes| match wishes {
        Wishes::Any => vec![anywhere(true)],
        Wishes::One(hints) if hints.is_empty() => vec![anywhere(false)],
        Wishes::One(hints) => hints.clone(),
    };
    let mut hints: Vec<Vec<Hint>> = wishes.iter().map(of).collect();
    let on_one = policy == Policy::SingleNumaNode;
    let is_on_one = |hint: &Hint| hint.preferred && hint.numas.is_none_or(|numas| numas.len() < 2);
    hints
        .iter_mut()
        .for_each(|hints| hints.retain(|hint| !on_one || is_on_one(hint)));
    let mut best = one_by_one(nodes, &hints);
    if on_one && best.numas == Some(nodes.all) {
        best.numas = None;
    }
    (best, policy == Policy::BestEffort || best.preferred)
}

/// Nodes with these ids, and what some givers wish of them.
fn wished() -> impl Strategy<Value = (Vec<u32>, Vec<Wishes>)> {
    // As they are numbered on most machines, and on others.
    let ids = prop_oneof![
        Just(vec![0, 1, 2, 3]),
        Just(vec![1, 3, 8, 60]),
        Just(vec![2]),
        Just(vec![0, 1, 2])
    ];
    ids.prop_flat_map(|ids: Vec<u32>| {
        let places = 0..ids.len();
        let own = ids.clone();
        let numas = proptest::collection::btree_set(places, 1..=ids.len());
        let numas = numas.prop_map(move |places| NumaMask::of(places.into_iter().map(|place| own[place])));
        let hint = (proptest::option::weighted(0.8, numas), any::<bool>());
        let hint = hint.prop_map(|(numas, preferred)| Hint { numas, preferred });
        let hints = proptest::collection::vec(hint, 0..5).prop_map(Wishes::One);
        let wishes = prop_oneof![1 => Just(Wishes::Any), 6 => hints];
        (Just(ids), proptest::collection::vec(wishes, 0..4))
    })
}

proptest! {
    #[test]
    fn the_best_is_what_going_through_all_ways_finds((ids, wishes) in wished()) {
        let nodes = Nodes { all: NumaMask::of(ids), distances: Vec::new() };
        for policy in [Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode] {
            let expected = merged_one_by_one(policy, &nodes, &wishes);
            prop_assert_eq!(merge(policy, &nodes, wishes.clone()), expected, "{:?}", policy);
        }
    }
}
