use super::*;
use crate::pinning::topology::testing::{ALL, ARM, BIG, CACHES, DIVIDED, SMALL, Shape, TWO};
use proptest::prelude::*;

const PACKED: Manner = Manner {
    distribute: None,
    spread: false,
    by_cache: false,
};

fn taken(shape: Shape, free: &str, wanted: usize, manner: Manner) -> String {
    let free = CpuSet::parse(free).expect("a list");
    match take(&shape.topology(), &free, wanted, manner) {
        Ok(cpus) => cpus.to_string(),
        Err(why) => why.to_string(),
    }
}

#[test]
fn whole_groups_come_first_and_the_fullest_of_them() {
    let few = "not enough cpus available to satisfy request: requested=3, available=2";
    for (shape, free, wanted, expected) in [
        (SMALL, "0-7", 0, ""),
        (SMALL, "0-7", 1, "0"),
        (SMALL, "0-7", 2, "0,4"),
        (SMALL, "0-7", 8, "0-7"),
        (SMALL, "0-2,4-7", 2, "0,4"),
        // Core 3 has one CPU left: what is begun is used up.
        (SMALL, "0-2,4-7", 1, "7"),
        (SMALL, "0-2,4-7", 3, "0,4,7"),
        (SMALL, "0,1", 3, few),
        (TWO, "0-11", 6, "0-2,6-8"),
        (TWO, "0-11", 7, "0-3,6-8"),
        // The first socket is begun: six come whole from the second, four from the first.
        (TWO, "1-11", 6, "3-5,9-11"),
        (TWO, "1-11", 4, "1-2,7-8"),
        (TWO, "1-2,4-11", 1, "6"),
        (BIG, "0-255", 128, "0-63,128-191"),
        (BIG, "2-127,130-255", 4, "2-3,130-131"),
        (BIG, "2-127,130-255", 128, "64-127,192-255"),
        // A divided socket gives a NUMA node before single cores, and a socket before that.
        (DIVIDED, "0-255", 32, "0-15,128-143"),
        (DIVIDED, "1-255", 32, "16-31,144-159"),
        (DIVIDED, "1-255", 128, "64-127,192-255"),
        (ARM, "0-79", 20, "0-19"),
        (ARM, "1-79", 40, "40-79"),
        (ARM, "1-79", 21, "1,20-39"),
    ] {
        assert_eq!(
            taken(shape, free, wanted, PACKED),
            expected,
            "{shape:?} {free} {wanted}"
        );
    }
}

#[test]
fn caches_are_taken_whole_or_one_gives_the_rest() {
    let by_cache = Manner {
        by_cache: true,
        ..PACKED
    };
    for (shape, free, wanted, expected) in [
        (CACHES, "1-15", 10, "1-2,4-11"),
        (CACHES, "1-15", 4, "4-7"),
        (CACHES, "1-15", 3, "1-3"),
        (CACHES, "1-2,4-5,8-9", 4, "1-2,4-5"),
        (CACHES, "0-15", 16, "0-15"),
        // Of a cache's cores the lowest, and of an odd number one CPU of the last.
        (BIG, "2-127,130-255", 8, "2-5,130-133"),
        (BIG, "2-127,130-255", 5, "2-4,130-131"),
        (BIG, "2-127,130-255", 16, "8-15,136-143"),
    ] {
        assert_eq!(
            taken(shape, free, wanted, by_cache),
            expected,
            "{shape:?} {free} {wanted}"
        );
    }
}

#[test]
fn spread_cpus_come_from_as_many_cores_as_there_are() {
    let spread = Manner { spread: true, ..PACKED };
    for (shape, free, wanted, expected) in [
        (SMALL, "0-7", 4, "0-3"),
        (SMALL, "0-7", 5, "0-4"),
        (TWO, "0-11", 3, "0-2"),
        (TWO, "1-11", 3, "1-2,6"),
        (BIG, "0-255", 64, "0-63"),
    ] {
        assert_eq!(
            taken(shape, free, wanted, spread),
            expected,
            "{shape:?} {free} {wanted}"
        );
    }
}

#[test]
fn distributed_cpus_are_as_many_on_each_numa_node() {
    let evenly = |group| Manner {
        distribute: Some(group),
        ..PACKED
    };
    for (shape, free, wanted, group, expected) in [
        // What one node has comes from one.
        (TWO, "0-11", 6, 1, "0-2,6-8"),
        (TWO, "0-11", 8, 1, "0-1,3-4,6-7,9-10"),
        (TWO, "0-11", 7, 1, "0-1,3-4,6-7,9"),
        (TWO, "0-11", 8, 2, "0-1,3-4,6-7,9-10"),
        // Cores are not divided: one node gives a core more.
        (TWO, "0-11", 10, 2, "0-4,6-10"),
        // Not in whole groups: packed.
        (TWO, "0-11", 7, 2, "0-3,6-8"),
        // The first node cannot give as many: packed again.
        (TWO, "0,3-5,9-11", 7, 1, "0,3-5,9-11"),
        (DIVIDED, "0-255", 64, 2, "0-31,128-159"),
    ] {
        assert_eq!(
            taken(shape, free, wanted, evenly(group)),
            expected,
            "{shape:?} {free} {wanted} {group}"
        );
    }
    // Forty over three nodes of twenty: two of them, that of the fuller socket first.
    assert_eq!(taken(ARM, "0-59", 40, evenly(1)), "0-19,40-59");
    assert_eq!(taken(ARM, "0-59", 42, evenly(1)), "0-13,20-33,40-53");
}

#[test]
fn a_machine_of_many_numa_nodes_is_judged_in_bounded_time() {
    let many = Shape {
        sockets: 64,
        numas: 1,
        caches: 1,
        cores: 4,
        threads: 1,
    };
    let free: CpuSet = (0..256).filter(|cpu| cpu % 7 != 0).collect();
    let evenly = Manner {
        distribute: Some(1),
        ..PACKED
    };
    let cpus = take(&many.topology(), &free, 131, evenly).expect("they are there");
    assert_eq!((cpus.len(), cpus.is_within(&free)), (131, true));
}

fn manners() -> impl Strategy<Value = Manner> {
    let distribute = proptest::option::of(1_usize..3);
    (distribute, any::<bool>(), any::<bool>()).prop_map(|(distribute, spread, by_cache)| Manner {
        distribute,
        spread,
        by_cache,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn just_so_many_of_the_free_ones_are_taken(
        shape in proptest::sample::select(ALL.to_vec()),
        manner in manners(),
        holes in proptest::collection::vec(0_u32..256, 0..60),
        wanted in 0_usize..140,
    ) {
        let topology = shape.topology();
        let free = topology.all.difference(&holes.into_iter().collect());
        match take(&topology, &free, wanted, manner) {
            Ok(cpus) => {
                prop_assert_eq!(cpus.len(), wanted);
                prop_assert!(cpus.is_within(&free));
            }
            Err(Shortage::TooFew { requested, available }) => {
                prop_assert_eq!((requested, available), (wanted, free.len()));
                prop_assert!(wanted > free.len());
            }
        }
    }

    #[test]
    fn whole_cores_stay_whole(
        shape in proptest::sample::select(vec![SMALL, TWO, BIG, DIVIDED]),
        by_cache: bool,
        gone in proptest::collection::vec(0_usize..128, 0..30),
        wanted in 1_usize..40,
    ) {
        // As `full-pcpus-only` has it: whole cores are free, and whole cores are wanted.
        let topology = shape.topology();
        let gone = gone.iter().filter_map(|index| topology.cores.get(*index));
        let free = gone.fold(topology.all.clone(), |free, core| free.difference(&core.cpus));
        let manner = Manner { by_cache, ..PACKED };
        if let Ok(cpus) = take(&topology, &free, wanted * 2, manner) {
            prop_assert_eq!(topology.whole_cores(&cpus), cpus);
        }
    }
}
