use super::*;
use crate::pinning::topology::testing::{ALL, ARM, SMALL, Shape, TWO};
use proptest::prelude::*;

const PLAIN: Options = Options {
    full_pcpus_only: false,
    distribute_across_numa: false,
    align_by_socket: false,
    distribute_across_cores: false,
    strict_reservation: false,
    prefer_caches: false,
};

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).expect("a list")
}

fn policy(shape: Shape, reserved: i64, options: Options) -> Static {
    let topology = Arc::new(shape.topology());
    Static::new(topology, reserved * 1000, &CpuSet::default(), options).expect("a policy")
}

fn begun(policy: &Static) -> Assignments {
    let mut held = Assignments::default();
    assert_eq!(policy.check(&mut held), Ok(true));
    held
}

fn asking(container: &str, kind: Kind, cpus: usize) -> Asking {
    Asking {
        container: container.to_owned(),
        kind,
        cpus,
        memory: Default::default(),
    }
}

fn given(policy: &Static, held: &Assignments, asked: &[Asking]) -> Result<Vec<String>, String> {
    let mut draft = policy.draft(held, "pod");
    for asking in asked {
        draft.give(asking, None).map_err(|why| why.to_string())?;
    }
    let given = draft.given();
    Ok(asked
        .iter()
        .map(|asking| {
            given
                .get(&asking.container)
                .map_or_else(String::new, ToString::to_string)
        })
        .collect())
}

#[test]
fn what_is_reserved_is_lowest_rounded_up_or_as_named() {
    let reserved = |shape: Shape, milli, named: &str| {
        let policy = Static::new(Arc::new(shape.topology()), milli, &set(named), PLAIN);
        policy.map(|policy| (policy.reserved.to_string(), policy.reserved_cores.to_string()))
    };
    let sets = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
    assert_eq!(reserved(SMALL, 1500, ""), sets("0,4", "0,4"));
    assert_eq!(reserved(SMALL, 1, ""), sets("0", "0,4"));
    assert_eq!(reserved(SMALL, 2000, "1-2"), sets("1-2", "1-2,5-6"));
    assert_eq!(reserved(SMALL, 0, ""), Err(PolicyError::NothingReserved));
    let why = reserved(SMALL, 9000, "").expect_err("too many").to_string();
    assert_eq!(
        why,
        "[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 9)"
    );
    let sockets = Shape { numas: 1, ..TWO };
    let one_node = Topology::new(sockets.places().into_iter().map(|(cpu, place)| {
        let numa = 0;
        (cpu, super::super::topology::Place { numa, ..place })
    }));
    let by_socket = Options {
        align_by_socket: true,
        ..PLAIN
    };
    let refused = Static::new(Arc::new(one_node), 1000, &CpuSet::default(), by_socket);
    assert_eq!(refused.err(), Some(PolicyError::SocketsOverNumas));
}

#[test]
fn init_containers_leave_their_cpus_to_those_after_them_and_sidecars_do_not() {
    use Kind::{Init, Regular, Sidecar};
    let policy = policy(SMALL, 1, PLAIN);
    let held = begun(&policy);
    for (asked, expected) in [
        (vec![asking("a", Regular, 2)], vec!["1,5"]),
        (
            vec![asking("i", Init, 2), asking("a", Regular, 4)],
            vec!["1,5", "1-2,5-6"],
        ),
        (
            vec![asking("i", Init, 4), asking("s", Sidecar, 2), asking("a", Regular, 2)],
            vec!["1-2,5-6", "1,5", "2,6"],
        ),
        (
            vec![asking("s", Sidecar, 1), asking("i", Init, 2), asking("a", Regular, 2)],
            vec!["4", "1,5", "1,5"],
        ),
        (
            vec![asking("none", Regular, 0), asking("a", Regular, 7)],
            vec!["", "1-7"],
        ),
    ] {
        assert_eq!(given(&policy, &held, &asked).expect("room"), expected, "{asked:?}");
    }
    let too_many = given(&policy, &held, &[asking("a", Regular, 8)]).expect_err("one is reserved");
    assert_eq!(
        too_many,
        "not enough cpus available to satisfy request: requested=8, available=7"
    );
}

#[test]
fn whole_cores_or_none() {
    let whole = Options {
        full_pcpus_only: true,
        ..PLAIN
    };
    let policy = policy(SMALL, 1, whole);
    let held = begun(&policy);
    let one = |cpus| given(&policy, &held, &[asking("a", Kind::Regular, cpus)]).map(|mut sets| sets.remove(0));
    assert_eq!(one(2), Ok("1,5".to_owned()));
    assert_eq!(
        one(3),
        Err("SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2".to_owned())
    );
    // The reserved CPU's sibling is free and of no use.
    let few = "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, CPUs per core = 2";
    assert_eq!(one(8), Err(few.to_owned()));
    let init = [asking("i", Kind::Init, 6), asking("a", Kind::Regular, 6)];
    assert_eq!(given(&policy, &held, &init).expect("the same"), ["1-3,5-7", "1-3,5-7"]);
}

#[test]
fn a_state_that_does_not_fit_is_told_in_upstreams_words() {
    let strict = Options {
        strict_reservation: true,
        ..PLAIN
    };
    let (plain, strict) = (policy(SMALL, 1, PLAIN), policy(SMALL, 1, strict));
    let own = |cpus: &str| BTreeMap::from([("pod".to_owned(), BTreeMap::from([("c".to_owned(), set(cpus))]))]);
    let held = |shared: &str, cpus: &str| Assignments {
        shared: set(shared),
        exclusive: if cpus.is_empty() { BTreeMap::new() } else { own(cpus) },
    };
    for (policy, mut held, why) in [
        (&plain, held("0-7", ""), ""),
        (&plain, held("0,2-4,6-7", "1,5"), ""),
        (&strict, held("1-7", ""), ""),
        (&plain, held("", "1,5"), "default cpuset cannot be empty"),
        (&plain, held("", "0-7"), "default cpuset cannot be empty"),
        (&strict, held("", "1-7"), ""),
        (&strict, held("", "1-6"), "default cpuset cannot be empty"),
        (
            &plain,
            held("1-7", ""),
            "not all reserved cpus: \"0\" are present in defaultCpuSet: \"1-7\"",
        ),
        (
            &strict,
            held("0-7", ""),
            "some of strictly reserved cpus: \"0\" are present in defaultCpuSet: \"0-7\"",
        ),
        (
            &plain,
            held("0-6", "6-7"),
            "pod: pod, container: c cpuset: \"6-7\" overlaps with default cpuset \"0-6\"",
        ),
        (
            &plain,
            held("0-3", "4-5"),
            "current set of available CPUs \"0-7\" doesn't match with CPUs in state \"0-5\"",
        ),
    ] {
        let found = policy
            .check(&mut held)
            .map_or_else(|why| why.to_string(), |_| String::new());
        assert_eq!(found, why, "{held:?}");
    }
}

#[test]
fn a_state_that_gives_a_cpu_to_two_pods_is_told_by_both() {
    let policy = policy(SMALL, 1, PLAIN);
    let check = |entries: &[(&str, &str, &str)]| {
        let mut held = Assignments {
            shared: set("0,3-4,7"),
            ..Assignments::default()
        };
        for (pod, container, cpus) in entries {
            let own = held.exclusive.entry((*pod).to_owned()).or_default();
            own.insert((*container).to_owned(), set(cpus));
        }
        policy.check(&mut held).map_err(|why| why.to_string())
    };
    // What an init container had is given again in its pod.
    assert_eq!(
        check(&[("a", "init", "1-2"), ("a", "main", "1"), ("b", "main", "5-6")]),
        Ok(false)
    );
    let twice =
        "entries: pod: b, container: main cpuset: \"2,6\" overlaps with pod: a, container: main cpuset: \"1-2\"";
    assert_eq!(
        check(&[("a", "init", "5"), ("a", "main", "1-2"), ("b", "main", "2,6")]),
        Err(twice.to_owned())
    );
}

#[test]
fn hints_are_the_nodes_with_room_and_the_fewest_are_preferred() {
    let hints = |shape, options, cpus, shared: &str| {
        let policy = policy(shape, 1, options);
        let mut held = begun(&policy);
        held.shared = set(shared);
        let Wishes::One(hints) = policy.draft(&held, "pod").hints(&asking("a", Kind::Regular, cpus)) else {
            panic!("a wish");
        };
        let told = hints.into_iter().map(|hint| {
            let ids: Vec<String> = hint.numas.expect("nodes").ids().map(|id| id.to_string()).collect();
            format!("{}{}", ids.join("+"), if hint.preferred { "!" } else { "" })
        });
        told.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(hints(TWO, PLAIN, 2, "0-11"), "0! 1! 0+1");
    assert_eq!(hints(TWO, PLAIN, 6, "0-11"), "1! 0+1");
    assert_eq!(hints(TWO, PLAIN, 7, "0-11"), "0+1!");
    // One node would do on an empty machine: two are not preferred.
    assert_eq!(hints(TWO, PLAIN, 5, "0-2,5-11"), "0! 0+1");
    assert_eq!(hints(TWO, PLAIN, 12, "0-11"), "");
    let by_socket = Options {
        align_by_socket: true,
        ..PLAIN
    };
    assert_eq!(
        hints(ARM, PLAIN, 10, "0-79").matches('!').count(),
        4,
        "the four nodes alone"
    );
    assert_eq!(
        hints(ARM, by_socket, 10, "0-79").matches('!').count(),
        6,
        "and the two of each socket"
    );
    let policy = policy(TWO, 1, PLAIN);
    let held = begun(&policy);
    let draft = policy.draft(&held, "pod");
    assert_eq!(draft.hints(&asking("a", Kind::Regular, 0)), Wishes::Any);
    let all = [
        asking("i", Kind::Init, 7),
        asking("a", Kind::Regular, 2),
        asking("b", Kind::Regular, 2),
    ];
    let Wishes::One(of_pod) = draft.pod_hints(&all) else {
        panic!("a wish")
    };
    assert_eq!(of_pod.len(), 1, "the init container needs both");
}

#[test]
fn what_is_near_comes_first_and_the_rest_from_elsewhere() {
    let policy = policy(TWO, 1, PLAIN);
    let held = begun(&policy);
    for (cpus, expected) in [(4, "3-4,9-10"), (7, "3-6,9-11")] {
        let mut draft = policy.draft(&held, "pod");
        draft
            .give(&asking("a", Kind::Regular, cpus), Some(NumaMask::of([1])))
            .expect("room");
        assert_eq!(draft.given()["a"].to_string(), expected);
    }
}

fn options() -> impl Strategy<Value = Options> {
    (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(full_pcpus_only, distribute_across_numa, distribute_across_cores, strict_reservation, prefer_caches)| {
                Options {
                    full_pcpus_only,
                    distribute_across_numa,
                    align_by_socket: false,
                    distribute_across_cores,
                    strict_reservation,
                    prefer_caches,
                }
            },
        )
}

fn pods() -> impl Strategy<Value = Vec<(usize, Vec<Asking>, bool)>> {
    let kind = proptest::sample::select(vec![Kind::Init, Kind::Sidecar, Kind::Regular]);
    let containers = proptest::collection::vec((kind, 0_usize..9), 1..4).prop_map(|of| {
        let mut asked: Vec<Asking> = (0..)
            .zip(of)
            .map(|(i, (kind, cpus))| asking(&format!("c{i}"), kind, cpus))
            .collect();
        asked.sort_by_key(|asking| asking.kind == Kind::Regular);
        asked
    });
    proptest::collection::vec((0_usize..8, containers, any::<bool>()), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Whatever comes and goes: no CPU is two pods', or two containers' that run at a time, those that are reserved are given to nobody, something is always shared, and the
    /// next kubelet can go on from the file.
    #[test]
    fn nothing_is_given_twice_and_nothing_is_lost(
        shape in proptest::sample::select(ALL.to_vec()),
        options in options(),
        steps in pods(),
        near in proptest::option::of(0_u32..4),
    ) {
        let policy = policy(shape, 1, options);
        let mut held = begun(&policy);
        let everything = held.shared.clone();
        let mut running: BTreeMap<String, Vec<Asking>> = BTreeMap::new();
        for (pod, asked, ends) in steps {
            let uid = format!("pod{pod}");
            if ends {
                held.retain(|of| of != uid);
                running.remove(&uid);
            } else if !running.contains_key(&uid) {
                let mut draft = policy.draft(&held, &uid);
                let near = near.map(|id| NumaMask::of([id]));
                if asked.iter().all(|asking| draft.give(asking, near).is_ok()) {
                    held.commit(&uid, draft.given());
                    running.insert(uid.clone(), asked);
                }
            }
            for (uid, asked) in &running {
                let mut at_a_time = CpuSet::default();
                for asking in asked.iter().filter(|asking| asking.cpus > 0) {
                    let own = held.of(uid, &asking.container);
                    prop_assert_eq!(own.len(), asking.cpus);
                    if asking.kind != Kind::Init {
                        prop_assert_eq!(own.shared(&at_a_time), 0, "two run on it");
                        at_a_time = at_a_time.union(own);
                    }
                }
            }
            let mut all = held.shared.clone();
            for own in held.exclusive.values() {
                let of_pod = own.values().fold(CpuSet::default(), |all, cpus| all.union(cpus));
                prop_assert_eq!(of_pod.shared(&all), 0, "somebody else has it");
                prop_assert_eq!(of_pod.shared(&policy.reserved), 0);
                all = all.union(&of_pod);
            }
            prop_assert_eq!(&all, &everything);
            prop_assert!(options.strict_reservation || policy.reserved.is_within(&held.shared));
            let file = state::write("static", &held);
            let mut read = state::read(&file, "static").expect("sound");
            prop_assert_eq!(&read, &held);
            if !held.shared.is_empty() {
                prop_assert_eq!(policy.check(&mut read), Ok(false));
            }
        }
    }
}

#[test]
fn a_pod_may_ask_for_more_than_there_are_numbers() {
    let policy = policy(SMALL, 1, PLAIN);
    let draft = policy.draft(&Assignments::default(), "p");
    let most = usize::MAX / 2 + 1;
    for kinds in [
        [Kind::Regular, Kind::Regular, Kind::Regular],
        [Kind::Sidecar, Kind::Sidecar, Kind::Init],
        [Kind::Sidecar, Kind::Regular, Kind::Regular],
    ] {
        let asked = kinds.map(|kind| asking("c", kind, most));
        assert_eq!(draft.pod_hints(&asked), Wishes::One(Vec::new()), "{kinds:?}");
    }
}

#[test]
fn nodes_without_all_that_is_to_be_used_again_are_not_wished_for() {
    let policy = policy(TWO, 2, PLAIN);
    let held = begun(&policy);
    let mut draft = policy.draft(&held, "pod");
    let second = Some(NumaMask::of([1]));
    draft.give(&asking("init", Kind::Init, 2), second).expect("given");
    let numas = |wishes: Wishes| match wishes {
        Wishes::One(hints) => hints.into_iter().filter_map(|hint| hint.numas).collect::<Vec<_>>(),
        Wishes::Any => Vec::new(),
    };
    let wished = numas(draft.hints(&asking("main", Kind::Regular, 2)));
    assert_eq!(wished, [NumaMask::of([1]), NumaMask::of([0, 1])]);
    let of_another = numas(policy.draft(&held, "other").hints(&asking("main", Kind::Regular, 2)));
    assert_eq!(of_another, [NumaMask::of([0]), NumaMask::of([1]), NumaMask::of([0, 1])]);
}
