use super::draft::Refusal;
use super::reserve::{Reservation, ReserveError, reserve};
use super::*;
use crate::pinning::asking::Asking;
use crate::pinning::hint::{Hint, Wishes};
use crate::pinning::topology::testing::{ARM, DIVIDED, SMALL, Shape, TWO};
use crate::pod_object::Kind;
use proptest::prelude::*;
use proto::api::quantity::Quantity;

const GIB: u64 = 1 << 30;
const HUGE: &str = "hugepages-2Mi";

/// A machine whose first NUMA node keeps a GiB from pods: 14 GiB are left there, and 15 on every other.
fn policy_of(machine: &BTreeMap<u32, NodeMemory>) -> Static {
    let kept = BTreeMap::from([(0, Amounts::from([(MEMORY.to_owned(), GIB)]))]);
    Static::new(machine, &kept).expect("a policy")
}

fn policy(shape: Shape) -> Static {
    policy_of(&shape.topology().memory)
}

/// `gib` of memory and `huge` of huge pages.
fn amounts(gib: u64, huge: u64) -> Amounts {
    let all = [(MEMORY, gib), (HUGE, huge)];
    let some = all.into_iter().filter(|(_, gib)| *gib > 0);
    some.map(|(name, gib)| (name.to_owned(), gib * GIB)).collect()
}

fn asking(container: &str, kind: Kind, memory: Amounts) -> Asking {
    Asking {
        container: container.to_owned(),
        kind,
        cpus: 0,
        memory,
    }
}

fn near(ids: &[u32], preferred: bool) -> Hint {
    Hint {
        numas: Some(NumaMask::of(ids.iter().copied())),
        preferred,
    }
}

/// Gives a pod what it asks for; the NUMA nodes of each container.
fn given(
    policy: &Static,
    held: &mut Assignments,
    pod: &str,
    asked: &[Asking],
    near: Hint,
) -> Result<Vec<Vec<u32>>, Refusal> {
    let mut draft = policy.draft(&mut None, held, pod);
    for asking in asked {
        draft.give(asking, near)?;
    }
    held.commit(pod, draft.given());
    let of = |asking: &Asking| held.numas(pod, &asking.container).ids().collect();
    Ok(asked.iter().map(of).collect())
}

fn simple(policy: &Static, held: &mut Assignments, pod: &str, gib: u64, near: Hint) -> Result<Vec<u32>, Refusal> {
    let asked = [asking("c", Kind::Regular, amounts(gib, 0))];
    given(policy, held, pod, &asked, near).map(|mut all| all.remove(0))
}

#[test]
fn memory_is_of_one_node_or_of_a_group_that_serves_nobody_else() {
    let policy = policy(DIVIDED);
    let mut held = Assignments::default();
    let any = Hint::default();
    // Pod, GiB, what else it gets is near these, and what comes of it.
    for (pod, gib, near, expected) in [
        ("first", 10, any, Ok(vec![0])),
        ("next", 10, any, Ok(vec![1])),
        ("fits-beside", 4, any, Ok(vec![0])),
        ("wide", 20, any, Ok(vec![2, 3])),
        // The group has ten left: for others of its kind, and not for single ones.
        ("single", 10, near(&[2], true), Err(Refusal::SpreadNear)),
        ("same-group", 16, any, Ok(vec![4, 5])),
        ("across-groups", 16, near(&[3, 5], true), Err(Refusal::Grouped)),
        ("too-little", 16, near(&[1, 2], true), Err(Refusal::NotNear)),
        (
            "single-nodes-are-no-group",
            12,
            near(&[0, 6], false),
            Err(Refusal::Grouped),
        ),
        ("extended", 40, near(&[6], true), Err(Refusal::NotNear)),
        ("near", 15, near(&[7], true), Ok(vec![7])),
        ("last", 16, any, Err(Refusal::Nowhere)),
        ("rest", 5, any, Ok(vec![1])),
    ] {
        assert_eq!(simple(&policy, &mut held, pod, gib, near), expected, "{pod}");
    }
    let cells = |held: &Assignments| -> Vec<Vec<u32>> {
        let tables = policy.tables(held);
        tables.0.values().map(|node| node.cells.ids().collect()).collect()
    };
    let groups = [
        vec![0],
        vec![1],
        vec![2, 3],
        vec![2, 3],
        vec![4, 5],
        vec![4, 5],
        vec![6],
        vec![7],
    ];
    assert_eq!(cells(&held), groups);
    // Once the group serves nobody, its nodes are single ones again.
    assert!(held.retain(&mut None, |pod| pod != "wide"));
    assert_eq!(cells(&held)[2..4], [vec![2], vec![3]]);
    assert_eq!(simple(&policy, &mut held, "single", 10, near(&[2], true)), Ok(vec![2]));
}

#[test]
fn what_is_near_too_little_is_extended_to_who_has_it() {
    let policy = policy(TWO);
    let mut held = Assignments::default();
    assert_eq!(
        simple(&policy, &mut held, "wide", 20, near(&[1], false)),
        Ok(vec![0, 1])
    );
    assert_eq!(
        simple(&policy, &mut held, "beside", 2, near(&[0], false)),
        Ok(vec![0, 1])
    );
    let why = simple(&policy, &mut held, "beside", 2, near(&[0], true));
    assert_eq!(why, Ok(vec![0, 1]), "what it has, it keeps");
    // One node would do for it on an empty machine.
    let why = simple(&policy, &mut held, "strict", 2, near(&[0], true));
    assert_eq!(why, Err(Refusal::SpreadNear));
    let why = simple(
        &policy,
        &mut held,
        "strict",
        2,
        Hint {
            numas: None,
            preferred: true,
        },
    );
    assert_eq!(why, Err(Refusal::Spread));
    assert_eq!(
        simple(&policy, &mut held, "more", 8, Hint::default()),
        Err(Refusal::Nowhere)
    );
}

#[test]
fn machines_of_every_shape() {
    let huge = |gib, pages| [asking("c", Kind::Regular, amounts(gib, pages))];
    let uneven = BTreeMap::from([
        (
            0,
            NodeMemory {
                total: 4 * GIB,
                ..NodeMemory::default()
            },
        ),
        // Cores without memory of their own, and memory without cores.
        (1, NodeMemory::default()),
        (
            3,
            NodeMemory {
                total: 32 * GIB,
                huge_pages: [("2Mi".to_owned(), 2 * GIB)].into(),
            },
        ),
    ]);
    for (policy, asked, expected) in [
        (policy(SMALL), huge(14, 1), Ok(vec![0])),
        (policy(SMALL), huge(15, 0), Err(Refusal::Nowhere)),
        (policy(ARM), huge(1, 1), Ok(vec![0])),
        (policy(ARM), huge(15, 1), Ok(vec![1])),
        // Huge pages decide, whatever memory there is.
        (policy(ARM), huge(1, 3), Ok(vec![0, 1, 2])),
        (policy(ARM), huge(1, 5), Err(Refusal::Nowhere)),
        (policy_of(&uneven), huge(3, 0), Ok(vec![0])),
        (policy_of(&uneven), huge(4, 0), Ok(vec![3])),
        (policy_of(&uneven), huge(32, 0), Ok(vec![0, 3])),
        (policy_of(&uneven), huge(34, 0), Err(Refusal::Nowhere)),
        (
            policy(TWO),
            [asking("c", Kind::Regular, [("hugepages-32Mi".to_owned(), 1)].into())],
            Err(Refusal::Nowhere),
        ),
    ] {
        let mut held = Assignments::default();
        let found = given(&policy, &mut held, "p", &asked, Hint::default());
        assert_eq!(found.map(|mut all| all.remove(0)), expected, "{asked:?}");
        let tables = policy.tables(&held);
        assert_eq!(policy.check(&tables, &held), Ok(false));
    }
    let blocks: Vec<(Vec<u32>, String, u64)> = policy_of(&uneven)
        .allocatable()
        .into_iter()
        .map(|block| (block.numas.ids().collect(), block.resource, block.bytes / GIB))
        .collect();
    let memory = |id, gib| (vec![id], MEMORY.to_owned(), gib);
    assert_eq!(blocks, [memory(0, 3), (vec![3], HUGE.to_owned(), 2), memory(3, 30)]);
}

#[test]
fn what_init_containers_had_is_given_again_and_what_sidecars_have_is_not() {
    let policy = policy(SMALL);
    let mut held = Assignments::default();
    let asked = [
        asking("first", Kind::Init, amounts(10, 0)),
        asking("side", Kind::Sidecar, amounts(2, 0)),
        asking("second", Kind::Init, amounts(12, 0)),
        asking("app", Kind::Regular, amounts(9, 0)),
        asking("other", Kind::Regular, amounts(3, 0)),
    ];
    given(&policy, &mut held, "p", &asked, Hint::default()).expect("room");
    let sizes: Vec<u64> = asked
        .iter()
        .map(|a| held.of("p", &a.container)[0].bytes / GIB)
        .collect();
    assert_eq!(sizes, [0, 2, 0, 9, 3], "each counts once");
    assert_eq!(policy.tables(&held).0[&0].memory[MEMORY].free, 0);
    // Again, as after a restart: nothing changes.
    let before = held.clone();
    given(&policy, &mut held, "p", &asked, Hint::default()).expect("the same");
    assert_eq!(held, before);
    let more = [asking("app", Kind::Regular, amounts(1, 0))];
    assert_eq!(
        given(&policy, &mut held, "q", &more, Hint::default()),
        Err(Refusal::Nowhere)
    );
    // All at a time is what a pod's nodes must have.
    let hints = policy.draft(&mut None, &Assignments::default(), "p").pod_hints(&asked);
    assert_eq!(hints, [Wishes::One(vec![near(&[0], true)])]);
    let wider = [&asked[..], &[asking("more", Kind::Regular, amounts(1, 0))]].concat();
    assert!(
        policy
            .draft(&mut None, &Assignments::default(), "p")
            .pod_hints(&wider)
            .is_empty()
    );
}

#[test]
fn hints_are_one_list_for_each_resource_and_stay_once_given() {
    let policy = policy(TWO);
    let mut held = Assignments::default();
    simple(&policy, &mut held, "p", 12, Hint::default()).expect("room");
    let both = asking("c", Kind::Regular, amounts(12, 1));
    let list = Wishes::One(vec![near(&[1], true)]);
    assert_eq!(policy.draft(&mut None, &held, "q").hints(&both), [list.clone(), list]);
    let kept = Wishes::One(vec![near(&[0], true)]);
    assert_eq!(
        policy.draft(&mut None, &held, "p").hints(&both),
        std::slice::from_ref(&kept)
    );
    assert_eq!(policy.draft(&mut None, &held, "p").pod_hints(&[both]), [kept]);
    let wide = asking("c", Kind::Regular, amounts(13, 0));
    let empty = policy.draft(&mut None, &Assignments::default(), "q").hints(&wide);
    assert_eq!(
        empty,
        [Wishes::One(vec![
            near(&[0], true),
            near(&[1], true),
            near(&[0, 1], false)
        ])]
    );
    let none = policy
        .draft(&mut None, &held, "q")
        .hints(&asking("c", Kind::Regular, amounts(40, 0)));
    assert!(none.is_empty());
}

#[test]
fn what_an_earlier_kubelet_left_must_fit() {
    let policy = policy(TWO);
    let mut held = Assignments::default();
    assert_eq!(policy.check(&Tables::default(), &held), Ok(true));
    simple(&policy, &mut held, "p", 20, Hint::default()).expect("room");
    simple(&policy, &mut held, "q", 4, Hint::default()).expect("room");
    let tables = policy.tables(&held);
    assert_eq!(policy.check(&tables, &held), Ok(false));
    assert_eq!(policy.check(&Tables::default(), &held), Err(PolicyError::NoMachine));
    // Which node of the group has how much is of no account.
    let mut moved = tables.clone();
    for (id, sign) in [(0, 1), (1, -1)] {
        let table = moved
            .0
            .get_mut(&id)
            .and_then(|node| node.memory.get_mut(MEMORY))
            .expect("a table");
        table.free = table.free.saturating_add_signed(sign * 5);
        table.reserved = table.reserved.saturating_add_signed(-sign * 5);
    }
    assert_eq!(policy.check(&moved, &held), Ok(false));
    let other = |change: fn(&mut Tables)| {
        let mut tables = tables.clone();
        change(&mut tables);
        policy.check(&tables, &held)
    };
    let node = |tables: &mut Tables, of: fn(&mut Node)| of(tables.0.get_mut(&0).expect("a node"));
    type OfNode = fn(&mut Tables, fn(&mut Node));
    let changes: [fn(&mut Tables, OfNode); 6] = [
        |tables, _| _ = tables.0.remove(&1),
        |tables, node| node(tables, |node| node.assignments += 1),
        |tables, node| node(tables, |node| node.cells = NumaMask::of([0])),
        |tables, node| node(tables, |node| _ = node.memory.remove(HUGE)),
        |tables, node| node(tables, |node| node.memory.get_mut(MEMORY).expect("a table").total += 1),
        |tables, node| {
            node(tables, |node| {
                node.memory.get_mut(MEMORY).expect("a table").reserved -= 1
            })
        },
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut tables = tables.clone();
        change(&mut tables, node);
        assert_eq!(policy.check(&tables, &held), Err(PolicyError::OtherMachine), "{index}");
    }
    assert_eq!(other(|_| ()), Ok(false));
    let with = |numas: &[u32], resource: &str, bytes: u64| {
        let mut held = held.clone();
        let block = Block {
            numas: NumaMask::of(numas.iter().copied()),
            resource: resource.to_owned(),
            bytes,
        };
        held.commit("r", BTreeMap::from([("c".to_owned(), vec![block])]));
        let tables = policy.tables(&held);
        policy.check(&tables, &held).map_err(|why| why.to_string())
    };
    let of = "[memorymanager] (pod: r, container: c) the memory assignment uses";
    let differs = "[memorymanager] the expected machine state is different from the real one";
    assert_eq!(with(&[0, 1], MEMORY, 1), Ok(false));
    assert_eq!(
        with(&[0, 2], MEMORY, 1),
        Err(format!("{of} the NUMA that does not exist"))
    );
    assert_eq!(with(&[], MEMORY, 1), Err(format!("{of} the NUMA that does not exist")));
    assert_eq!(
        with(&[0, 1], "hugepages-64Ki", 1),
        Err(format!("{of} memory resource that does not exist"))
    );
    assert_eq!(with(&[0], MEMORY, 1), Err(differs.to_owned()), "it is in a group");
    assert_eq!(
        with(&[0, 1], MEMORY, 6 * GIB),
        Err(differs.to_owned()),
        "more than is left"
    );
}

#[test]
fn what_is_reserved_of_nodes_is_what_the_node_keeps() {
    let machine = TWO.topology().memory;
    let of = |items: &[(u32, &[(&str, &str)])], kept: i64| {
        let item = |(node, limits): &(u32, &[(&str, &str)])| Reservation {
            node: *node,
            limits: limits
                .iter()
                .map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).expect("a quantity")))
                .collect(),
        };
        let items: Vec<Reservation> = items.iter().map(item).collect();
        reserve(&machine, &items, kept).map_err(|why: ReserveError| why.to_string())
    };
    let first = [("memory", "1Gi")].as_slice();
    let second = [("memory", "512Mi")].as_slice();
    let kept = of(&[(0, first), (1, second)], 1536 << 20).expect("as much");
    assert_eq!((kept[&0][MEMORY], kept[&1][MEMORY]), (GIB, GIB / 2));
    assert_eq!(of(&[], 0), Ok(Reserved::new()));
    let sum = |has: &str, kind: &str, value: &str| {
        Err(format!(
            "the total amount \"{has}\" of type \"{kind}\" is not equal to the value \"{value}\" determined by Node Allocatable feature"
        ))
    };
    assert_eq!(of(&[(0, first)], 1636 << 20), sum("1Gi", "memory", "1636Mi"));
    assert_eq!(of(&[], 100 << 20), sum("0", "memory", "100Mi"));
    let pages: &[(&str, &str)] = &[("memory", "1Gi"), ("hugepages-2Mi", "4Mi")];
    assert_eq!(of(&[(1, pages)], 1 << 30), sum("4Mi", "hugepages-2Mi", "0"));
    let why = "the reserved memory configuration references a NUMA node 2 that does not exist on this machine";
    assert_eq!(of(&[(2, first)], 1 << 30), Err(why.to_owned()));

    let none = Static::new(&machine, &Reserved::new()).expect_err("nothing is kept");
    assert_eq!(
        none.to_string(),
        "[memorymanager] you should specify the system reserved memory"
    );
    let much = BTreeMap::from([(1, amounts(16, 0))]);
    let why = Static::new(&machine, &much).expect_err("a GiB of it are huge pages");
    assert!(
        matches!(why, PolicyError::Short { node: 1, has, .. } if has == 15 * GIB),
        "{why}"
    );
}

/// What happens to a node: a pod of these containers comes, wanting to be near somewhere, or goes.
#[derive(Clone, Debug)]
enum Step {
    Comes(usize, Vec<(Kind, u64, u64)>, Option<(u64, bool)>),
    Goes(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(Kind::Init), Just(Kind::Sidecar), Just(Kind::Regular)];
    let containers = proptest::collection::vec((kind, 0_u64..24, 0_u64..3), 1..4);
    let near = proptest::option::of((1_u64..16, any::<bool>()));
    let comes = (0_usize..12, containers, near).prop_map(|(pod, own, near)| Step::Comes(pod, own, near));
    prop_oneof![3 => comes, 1 => (0_usize..12).prop_map(Step::Goes)]
}

proptest! {
    #[test]
    fn nothing_is_given_twice_nor_of_what_is_reserved(steps in proptest::collection::vec(step(), 1..40)) {
        let policy = policy(ARM);
        let mut held = Assignments::default();
        let mut kept = None;
        for step in steps {
            match step {
                Step::Goes(pod) => {
                    held.retain(&mut kept, |uid| uid != pod.to_string());
                }
                Step::Comes(pod, own, close) => {
                    let close = close.map_or(Hint::default(), |(bits, preferred)| {
                        let ids: Vec<u32> = (0..4).filter(|id| bits & (1 << id) != 0).collect();
                        near(&ids, preferred)
                    });
                    let asked: Vec<Asking> = own
                        .iter()
                        .enumerate()
                        .map(|(index, (kind, gib, huge))| asking(&index.to_string(), *kind, amounts(*gib, *huge)))
                        .collect();
                    let (before, uid) = (held.clone(), pod.to_string());
                    let is_new = !held.0.contains_key(&uid);
                    match given(&policy, &mut held, &uid, &asked, close) {
                        Err(_) => prop_assert_eq!(&held, &before, "nothing comes of a refusal"),
                        Ok(numas) if is_new => {
                            for (asking, numas) in asked.iter().zip(numas) {
                                prop_assert_eq!(asking.memory.is_empty(), numas.is_empty());
                            }
                        }
                        Ok(_) => {}
                    }
                    let mut again = before;
                    again.commit_with(&mut kept, &uid, held.0.get(&uid).cloned().unwrap_or_default());
                    prop_assert_eq!(&again, &held);
                }
            }
            let tables = policy.tables(&held);
            prop_assert!(kept.get_or_insert_with(|| tables.clone()).agrees(&tables), "what is kept along is as good");
            for node in tables.0.values() {
                for table in node.memory.values() {
                    prop_assert_eq!(table.reserved + table.free, table.allocatable);
                }
            }
            for resource in [MEMORY, HUGE] {
                let blocks = held.0.values().flat_map(BTreeMap::values).flatten();
                let given: u64 = blocks.filter(|block| block.resource == resource).map(|block| block.bytes).sum();
                let reserved: u64 = tables.0.values().map(|node| node.memory[resource].reserved).sum();
                prop_assert_eq!(given, reserved, "all that is given is somebody's");
            }
            let kept = tables.0[&0].memory[MEMORY];
            prop_assert_eq!((kept.system_reserved, kept.allocatable), (GIB, 14 * GIB));
            // The next kubelet takes over just that.
            let text = state::write("Static", &tables, &held);
            let (found, taken) = state::read(&text, "Static").expect("sound");
            prop_assert_eq!(&taken, &held);
            prop_assert_eq!(policy.check(&found, &taken), Ok(found.0.is_empty()));
        }
    }
}
