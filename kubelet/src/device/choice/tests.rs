use super::*;
use crate::pinning::hint::Subset;
use proptest::prelude::*;

/// Devices by name, healthy unless it ends with `!`, with their NUMA nodes.
fn devices(list: &[(&str, &[i64])]) -> BTreeMap<String, Device> {
    let of = list.iter().map(|(name, nodes)| {
        let device = Device {
            healthy: !name.ends_with('!'),
            placed: !nodes.is_empty(),
            nodes: nodes.to_vec(),
        };
        ((*name).to_owned(), device)
    });
    of.collect()
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn healthy(devices: &BTreeMap<String, Device>) -> BTreeSet<String> {
    let healthy = devices.iter().filter(|(_, device)| device.healthy);
    healthy.map(|(id, _)| id.clone()).collect()
}

const SPREAD: &[(&str, &[i64])] = &[("a", &[0]), ("b", &[0]), ("c", &[1]), ("d", &[1]), ("e", &[])];

#[test]
fn devices_are_chosen_in_upstreams_order() {
    let placed = devices(SPREAD);
    let plain = devices(&[("a", &[]), ("b", &[]), ("c", &[]), ("d!", &[])]);
    // Devices, count, reuse, near, preferred; chosen.
    type Case<'a> = (
        &'a BTreeMap<String, Device>,
        usize,
        &'a [&'a str],
        Option<u32>,
        &'a [&'a str],
        &'a [&'a str],
    );
    let cases: &[Case<'_>] = &[
        (&plain, 2, &[], None, &[], &["a", "b"]),
        (&plain, 2, &[], None, &["c"], &["a", "c"]),
        (&plain, 1, &[], None, &["unknown", "d!"], &["a"]),
        (&plain, 2, &["c"], None, &[], &["a", "c"]),
        (&plain, 1, &["b", "c"], None, &["a"], &["b"]),
        (&placed, 1, &[], Some(1), &[], &["c"]),
        (&placed, 1, &[], Some(1), &["d"], &["d"]),
        // What is preferred elsewhere does not take a container from its nodes.
        (&placed, 1, &[], Some(1), &["a"], &["c"]),
        (&placed, 3, &[], Some(1), &["e"], &["c", "d", "e"]),
        (&placed, 4, &[], Some(1), &[], &["a", "b", "c", "d"]),
        (&placed, 5, &[], Some(1), &[], &["a", "b", "c", "d", "e"]),
        (&plain, 1, &["d!"], None, &[], &["a"]),
    ];
    for (devices, count, reuse, near, preferred, expected) in cases {
        let (reuse, free) = (set(reuse), healthy(devices).difference(&set(reuse)).cloned().collect());
        let pool = Pool { devices, free: &free };
        let wanted = Wanted {
            resource: "r",
            count: *count,
            reuse: &reuse,
            near: near.map(|node| NumaMask::of([node])),
        };
        let chosen = choose(pool, wanted, &set(preferred));
        assert_eq!(
            chosen,
            Ok(set(expected)),
            "{count} with {reuse:?} near {near:?} preferring {preferred:?}"
        );
    }
}

#[test]
fn a_plugin_is_asked_only_where_there_is_a_choice() {
    let devices = devices(SPREAD);
    let free = healthy(&devices);
    let none = BTreeSet::new();
    let pool = Pool {
        devices: &devices,
        free: &free,
    };
    let ask = |count, near: Option<u32>| {
        let wanted = Wanted {
            resource: "r",
            count,
            reuse: &none,
            near: near.map(|node| NumaMask::of([node])),
        };
        question(pool, wanted)
    };
    let of = |available: &[&str], must: &[&str]| {
        Ok(Some(Question {
            available: set(available),
            must: set(must),
        }))
    };
    assert_eq!(ask(1, None), of(&["a", "b", "c", "d", "e"], &[]));
    assert_eq!(ask(1, Some(0)), of(&["a", "b"], &[]));
    assert_eq!(ask(2, Some(0)), Ok(None), "both of the node");
    assert_eq!(ask(3, Some(0)), of(&["a", "b", "c", "d", "e"], &["a", "b"]));
    let short = ask(6, None).map_err(|why| why.to_string());
    assert_eq!(
        short,
        Err("requested number of devices unavailable for r. Requested: 6, Available: 5".to_owned())
    );
}

#[test]
fn hints_are_every_set_of_nodes_that_has_enough() {
    let devices = devices(SPREAD);
    let numas = NumaMask::of([0, 1]);
    let hints = |count: usize, free: &[&str], reuse: &[&str], given: Option<&[&str]>| {
        let (free, reuse, given) = (set(free), set(reuse), given.map(set));
        let pool = Pool {
            devices: &devices,
            free: &free,
        };
        let wanted = Wanted {
            resource: "r",
            count,
            reuse: &reuse,
            near: None,
        };
        match wishes(pool, wanted, given.as_ref(), numas) {
            Wishes::Any => None,
            Wishes::One(hints) => {
                let of = hints.iter().map(|hint| {
                    let ids: Vec<u32> = hint.numas.map(|numas| numas.ids().collect()).unwrap_or_default();
                    (ids, hint.preferred)
                });
                Some(of.collect::<Vec<_>>())
            }
        }
    };
    let all = ["a", "b", "c", "d", "e"];
    assert_eq!(
        hints(1, &all, &[], None),
        Some(vec![(vec![0], true), (vec![1], true), (vec![0, 1], false)])
    );
    // One node would be enough on an empty machine, so two are not preferred.
    assert_eq!(hints(2, &["a", "c"], &[], None), Some(vec![(vec![0, 1], false)]));
    assert_eq!(hints(3, &all, &[], None), Some(vec![(vec![0, 1], true)]));
    assert_eq!(hints(6, &all, &[], None), Some(vec![]));
    assert_eq!(
        hints(1, &["c", "d"], &["a"], None),
        Some(vec![(vec![0], true), (vec![0, 1], false)])
    );
    assert_eq!(
        hints(1, &["a"], &[], Some(&["c"])),
        Some(vec![(vec![1], true), (vec![0, 1], false)])
    );
    assert_eq!(hints(2, &all, &[], Some(&["c"])), Some(vec![]));
    let plain = super::tests::devices(&[("a", &[])]);
    let free = set(&["a"]);
    let pool = Pool {
        devices: &plain,
        free: &free,
    };
    let wanted = Wanted {
        resource: "r",
        count: 1,
        reuse: &BTreeSet::new(),
        near: None,
    };
    assert_eq!(wishes(pool, wanted, None, numas), Wishes::Any);
}

#[test]
fn as_many_entries_as_ways_to_choose_nodes_however_many_devices_are_on_nodes_of_their_own() {
    let devices: BTreeMap<String, Device> = (0..1 << 16)
        .map(|number: u32| {
            let nodes = (0..16)
                .filter(|bit| number & (1 << bit) != 0)
                .map(|bit| 4 * i64::from(bit));
            let device = Device {
                healthy: true,
                placed: true,
                nodes: nodes.collect(),
            };
            (number.to_string(), device)
        })
        .collect();
    let free = healthy(&devices);
    let pool = Pool {
        devices: &devices,
        free: &free,
    };
    // Four of the machine's eight nodes are among those that the devices are on.
    let numas = NumaMask::of((0..8).map(|id| 2 * id));
    let table = Table::of(pool, &BTreeSet::new(), numas);
    assert_eq!((table.within.len(), table.all().all), (256, 1 << 16));
    assert_eq!(table.meeting(table.at(NumaMask::of([0]))).free, 1 << 15);
    assert_eq!(table.meeting(table.at(NumaMask::of([0, 2, 4]))).free, 3 << 14);
    let whole = Table::of(pool, &BTreeSet::new(), NumaMask::of(0..64));
    assert_eq!(whole.within.len(), 1 << NODES_MAX);
}

proptest! {
    #[test]
    fn who_is_on_some_of_the_nodes_is_counted_once(
        nodes in prop::collection::vec(prop::collection::btree_set(-1_i64..70, 0..4), 0..20),
        taken in prop::collection::btree_set(0_usize..20, 0..6),
        reuse in prop::collection::btree_set(0_usize..20, 0..6),
        numas in prop::collection::btree_set(0_u32..8, 1..6),
    ) {
        let devices: BTreeMap<String, Device> = nodes.iter().enumerate().map(|(index, nodes)| {
            let nodes = nodes.iter().copied().collect();
            (index.to_string(), Device { healthy: true, placed: index % 5 != 0, nodes })
        }).collect();
        let name = |ids: &BTreeSet<usize>| -> BTreeSet<String> { ids.iter().map(usize::to_string).collect() };
        let (taken, reuse) = (name(&taken), name(&reuse));
        let free = devices.keys().filter(|id| !taken.contains(*id)).cloned().collect();
        let pool = Pool { devices: &devices, free: &free };
        let numas = NumaMask::of(numas);
        let table = Table::of(pool, &reuse, numas);
        for Subset { numas: mask, at } in NumaMask::subsets(numas.ids()) {
            let mut expected = Group::default();
            let meets = |device: &Device| device.placed && device.numas().meets(mask);
            for (id, _) in devices.iter().filter(|(_, device)| meets(device)) {
                let again = reuse.contains(id);
                let free = free.contains(id) && !again;
                expected.add(Group { all: 1, free: usize::from(free), again: usize::from(again) });
            }
            prop_assert_eq!(table.meeting(at), expected, "{:?}", mask);
        }
    }

    #[test]
    fn as_many_as_wanted_and_none_that_is_not_there(
        nodes in prop::collection::vec((any::<bool>(), 0_i64..4), 0..12),
        count in 1_usize..8,
        near in prop::option::of(0_u32..4),
        reuse in prop::collection::btree_set(0_usize..12, 0..4),
        taken in prop::collection::btree_set(0_usize..12, 0..6),
        preferred in prop::collection::btree_set(0_usize..14, 0..6),
    ) {
        let devices: BTreeMap<String, Device> = nodes.iter().enumerate().map(|(index, (placed, node))| {
            let nodes = if *placed { vec![*node] } else { Vec::new() };
            (index.to_string(), Device { healthy: true, placed: *placed, nodes })
        }).collect();
        let name = |ids: &BTreeSet<usize>| -> BTreeSet<String> { ids.iter().map(usize::to_string).collect() };
        let reuse: BTreeSet<String> = name(&reuse).into_iter().filter(|id| devices.contains_key(id)).collect();
        let taken = name(&taken);
        let free = devices.keys().filter(|id| !taken.contains(*id) && !reuse.contains(*id)).cloned().collect();
        let pool = Pool { devices: &devices, free: &free };
        let wanted = Wanted { resource: "r", count, reuse: &reuse, near: near.map(|node| NumaMask::of([node])) };
        let preferred = name(&preferred);
        let there = free.len() + reuse.len();
        match choose(pool, wanted, &preferred) {
            Ok(chosen) => {
                prop_assert_eq!(chosen.len(), count);
                prop_assert!(chosen.iter().all(|id| free.contains(id) || reuse.contains(id)));
                let again = chosen.iter().filter(|id| reuse.contains(*id)).count();
                prop_assert_eq!(again, reuse.len().min(count), "what can be used again is");
                let asked = question(pool, wanted).expect("enough");
                if let Some(asked) = asked {
                    prop_assert!(asked.available.len() > count || asked.available.len() == there);
                    prop_assert!(asked.must.is_subset(&chosen));
                }
            }
            Err(_) => prop_assert!(there < count),
        }
    }
}
