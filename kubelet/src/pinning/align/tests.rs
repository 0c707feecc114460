use super::*;
use crate::metrics::Metrics;
use crate::pinning::hint::NumaMask;
use crate::pod_object::Kind;

/// Wishes the same for everybody, and notes where it gives.
struct Maker {
    wishes: Vec<Wishes>,
    refuses: bool,
    gave: Vec<(String, Hint)>,
}

impl Giver for Maker {
    fn wishes(&self, _: Wanted<'_>) -> Vec<Wishes> {
        self.wishes.clone()
    }

    fn give(&mut self, asking: &Asking, near: Hint) -> Result<(), Rejection> {
        self.gave.push((asking.container.clone(), near));
        match self.refuses {
            true => Err(Rejection {
                reason: "No".to_owned(),
                message: "no".to_owned(),
            }),
            false => Ok(()),
        }
    }
}

fn maker(of: &[&[u32]]) -> Maker {
    let hints = |ids: &&[u32]| Hint {
        numas: Some(NumaMask::of(ids.iter().copied())),
        preferred: ids.len() == 1,
    };
    Maker {
        wishes: match of {
            [] => Vec::new(),
            some => vec![Wishes::One(some.iter().map(hints).collect())],
        },
        refuses: false,
        gave: Vec::new(),
    }
}

fn asked() -> Vec<Asking> {
    let of = |container: &str| Asking {
        container: container.to_owned(),
        kind: Kind::Regular,
        cpus: 0,
        memory: Default::default(),
    };
    vec![of("a"), of("b")]
}

fn given(rules: TopologyRules, givers: &mut [&mut dyn Giver]) -> Result<(), String> {
    let nodes = Nodes {
        all: NumaMask::of(0..2),
        ..Nodes::default()
    };
    give_all((&rules, &nodes), givers, &asked(), &Tally::default()).map_err(|refused| refused.reason)
}

#[test]
fn all_give_under_what_all_wish_and_nobody_after_one_refused() {
    for by_pod in [false, true] {
        let rules = TopologyRules {
            policy: Policy::SingleNumaNode,
            by_pod,
            ..TopologyRules::default()
        };
        let (mut either, mut second, mut nobody) = (maker(&[&[0], &[1], &[0, 1]]), maker(&[&[1], &[0, 1]]), maker(&[]));
        given(rules, &mut [&mut either, &mut second, &mut nobody]).expect("together");
        let near = Hint {
            numas: Some(NumaMask::of([1])),
            preferred: true,
        };
        let both = [("a".to_owned(), near), ("b".to_owned(), near)];
        for maker in [&either, &second, &nobody] {
            assert_eq!(maker.gave, both, "{by_pod}");
        }
        let mut first = maker(&[&[0]]);
        let refused = given(rules, &mut [&mut first, &mut second]);
        assert_eq!(refused, Err("TopologyAffinityError".to_owned()));
        assert!(first.gave.is_empty());
    }
    let (mut first, mut other) = (maker(&[&[0]]), maker(&[&[1]]));
    first.refuses = true;
    for by_pod in [false, true] {
        let rules = TopologyRules {
            policy: Policy::SingleNumaNode,
            by_pod,
            ..TopologyRules::default()
        };
        let all = Metrics::new("n");
        let nodes = Nodes {
            all: NumaMask::of(0..2),
            ..Nodes::default()
        };
        let tally = Tally::default();
        give_all((&rules, &nodes), &mut [&mut first], &asked(), &tally).expect_err("refused");
        tally.tell(&all.pinning);
        let text = all.text(&crate::pod::view::PodView::default());
        assert!(
            !text.contains("numa_node\"} 1"),
            "what was not given is on no node: {text}"
        );
        assert!(
            text.contains("kubelet_topology_manager_admission_errors_total 1"),
            "{text}"
        );
    }
    first.gave.clear();
    let refused = given(TopologyRules::default(), &mut [&mut first, &mut other]);
    assert_eq!(refused, Err("No".to_owned()));
    assert_eq!(first.gave, [("a".to_owned(), Hint::default())], "nothing is aligned");
    assert!(other.gave.is_empty());
}
