use super::*;
use crate::pod_object::Kind;
use proptest::prelude::*;

const R: &str = "example.com/dev";

fn devices(ids: &[(&str, bool)]) -> BTreeMap<String, Device> {
    let of = ids.iter().map(|(id, healthy)| {
        let device = Device {
            healthy: *healthy,
            ..Device::default()
        };
        ((*id).to_owned(), device)
    });
    of.collect()
}

fn claim<'a>(pod: &'a str, container: &'a str, count: usize, reuse: &'a BTreeSet<String>) -> Claim<'a> {
    Claim {
        pod,
        container,
        wanted: Wanted {
            resource: R,
            count,
            reuse,
            near: None,
        },
    }
}

/// (capacity, allocatable) of the resource.
fn counts(state: &State) -> Option<(usize, usize)> {
    let told = state.capacity();
    Some((*told.capacity.get(R)?, *told.allocatable.get(R)?))
}

#[test]
fn a_resource_lives_from_its_registration_until_five_minutes_after_its_plugin_went() {
    let (mut state, start) = (State::default(), Duration::from_secs(100));
    assert_eq!((counts(&state), state.knows(R)), (None, false));
    assert!(state.connect(R, 1, Options::default()));
    assert_eq!(counts(&state), Some((0, 0)));
    let listed = state.list(R, 1, devices(&[("a", true), ("b", true), ("c", false)]));
    assert_eq!(
        listed,
        Some(News {
            capacity: true,
            health: false
        })
    );
    assert_eq!(counts(&state), Some((3, 2)));
    assert!(state.disconnect(R, 1, start));
    assert_eq!(counts(&state), Some((3, 0)), "all are ill, and counted");
    assert_eq!(state.expire(start + GRACE), [""; 0], "not yet");
    assert_eq!(counts(&state), Some((3, 0)));
    assert_eq!(state.expire(start + GRACE + Duration::from_secs(1)), [R]);
    assert_eq!(
        (counts(&state), state.knows(R)),
        (Some((0, 0)), false),
        "zero, and removed"
    );
    assert_eq!(state.expire(start + GRACE * 2), [""; 0]);
    // It comes back.
    assert!(state.connect(R, 2, Options::default()));
    state.list(R, 2, devices(&[("a", true)]));
    assert_eq!(counts(&state), Some((1, 1)));
}

#[test]
fn who_registers_anew_takes_over_and_the_old_one_says_nothing_any_more() {
    let mut state = State::default();
    state.connect(R, 1, Options::default());
    state.list(R, 1, devices(&[("a", true)]));
    state.connect(R, 2, Options::default());
    assert_eq!(counts(&state), Some((1, 1)), "until the new one lists");
    assert_eq!(state.list(R, 1, devices(&[])), None);
    assert!(!state.disconnect(R, 1, Duration::ZERO));
    assert_eq!(state.expire(GRACE * 2), [""; 0]);
    assert_eq!(counts(&state), Some((1, 1)));
    state.list(R, 2, devices(&[("b", true), ("c", true)]));
    assert_eq!(counts(&state), Some((2, 2)));
}

#[test]
fn refusals_are_upstreams_words() {
    let none = BTreeSet::new();
    let mut state = State::default();
    let why = |state: &State, count| {
        state
            .is_met(claim("u", "c", count, &none))
            .map_err(|why| why.to_string())
    };
    assert_eq!(
        why(&state, 1),
        Err("cannot allocate unregistered device example.com/dev".to_owned())
    );
    state.connect(R, 1, Options::default());
    let ill = "no healthy devices present; cannot allocate unhealthy devices example.com/dev";
    assert_eq!(why(&state, 1), Err(ill.to_owned()));
    state.list(R, 1, devices(&[("a", true), ("b", true)]));
    assert_eq!(why(&state, 1), Ok(false));
    state.reserve(claim("u", "c", 1, &none), &none).expect("reserves");
    assert_eq!(why(&state, 1), Ok(false), "its plugin has not answered");
    assert!(state.answered("u", "c", R, Vec::new()));
    assert_eq!(why(&state, 1), Ok(true));
    assert_eq!(
        why(&state, 2),
        Err(r#"pod "u" container "c" changed request for resource "example.com/dev" from 1 to 2"#.to_owned())
    );
    state.list(R, 1, devices(&[("a", false), ("b", true)]));
    let gone = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/dev";
    assert_eq!(why(&state, 1), Err(gone.to_owned()));
}

#[test]
fn what_somebody_has_is_told_when_its_health_changes() {
    let none = BTreeSet::new();
    let mut state = State::default();
    state.connect(R, 1, Options::default());
    state.list(R, 1, devices(&[("a", true), ("b", true)]));
    state.reserve(claim("u", "c", 1, &none), &none).expect("reserves");
    let other = state.list(R, 1, devices(&[("a", true), ("b", false)]));
    assert_eq!(
        other,
        Some(News {
            capacity: true,
            health: false
        })
    );
    let own = state.list(R, 1, devices(&[("a", false), ("b", false)]));
    assert_eq!(
        own,
        Some(News {
            capacity: true,
            health: true
        })
    );
    let same = state.list(R, 1, devices(&[("a", false), ("b", false)]));
    assert_eq!(same, Some(News::default()));
}

#[test]
fn inits_leave_their_devices_and_sidecars_keep_theirs() {
    let ids = |list: &[&str]| -> BTreeSet<String> { list.iter().map(|id| (*id).to_owned()).collect() };
    let mut reuse = Reuse::default();
    reuse.after(Kind::Init, R, &ids(&["a", "b"]));
    assert_eq!(*reuse.of(R), ids(&["a", "b"]));
    reuse.after(Kind::Sidecar, R, &ids(&["a"]));
    assert_eq!(*reuse.of(R), ids(&["b"]));
    reuse.after(Kind::Init, R, &ids(&["b", "c"]));
    reuse.after(Kind::Regular, R, &ids(&["b"]));
    assert_eq!(*reuse.of(R), ids(&["c"]));
    assert!(reuse.of("other").is_empty());
}

#[test]
fn resources_are_bounded() {
    let mut state = State::default();
    for index in 0..RESOURCES_MAX {
        assert!(state.connect(&format!("example.com/{index}"), 1, Options::default()));
    }
    assert!(!state.connect(R, 1, Options::default()));
    assert!(
        state.connect("example.com/0", 2, Options::default()),
        "one that is there"
    );
}

/// Names come and go without end; what went last is told of, or the node's status would keep what it had of it.
#[test]
fn of_resources_that_went_the_latest_are_told_to_have_nothing() {
    let mut state = State::default();
    let many = |round: usize| (0..RESOURCES_MAX).map(move |index| format!("example.com/{round}-{index}"));
    for round in 1..4 {
        let at = GRACE * 4 * u32::try_from(round).expect("few");
        for name in many(round) {
            assert!(state.connect(&name, 1, Options::default()));
            state.list(&name, 1, devices(&[("a", true)]));
            state.disconnect(&name, 1, at);
        }
        assert_eq!(state.expire(at + GRACE * 2).len(), RESOURCES_MAX);
        let told = state.capacity().capacity;
        assert!(many(round).all(|name| told.get(&name) == Some(&0)), "{round}");
        assert_eq!(told.len(), RESOURCES_MAX);
    }
}

/// A plugin may list other devices for each pod: what containers have of earlier lists is theirs as long as they are there.
#[test]
fn what_containers_have_is_bounded_whatever_plugins_list() {
    const COUNT: usize = 500;
    let (mut state, none) = (State::default(), BTreeSet::new());
    assert!(state.connect(R, 1, Options::default()));
    let nodes: Vec<i64> = (0..64).collect();
    let give = |state: &mut State, pod: usize| {
        let device = |index: usize| {
            let device = Device {
                healthy: true,
                placed: true,
                nodes: nodes.clone(),
            };
            (format!("{pod:0100}-{index}"), device)
        };
        let all = (0..COUNT).map(device).collect();
        assert!(state.has_room(R, &all));
        state.list(R, 1, all);
        let (pod, container) = (pod.to_string(), "c");
        state.reserve(claim(&pod, container, COUNT, &none), &none).map(|_| {
            assert!(state.answered(&pod, container, R, vec![0; 1000]));
        })
    };
    let fits = (0..9).take_while(|pod| give(&mut state, *pod).is_ok()).count();
    assert_eq!(fits, 4, "each takes four megabytes");
    assert_eq!(give(&mut state, 9), Err(Refusal::TooMuch(R.to_owned())));
    // Who goes makes room, to the last byte.
    state.retain(|pod| pod != "0");
    assert_eq!(give(&mut state, 10), Ok(()));
    state.retain(|_| false);
    assert_eq!(state.pods().weight(), 0);
}

/// A step of somebody's.
#[derive(Clone, Debug)]
enum Step {
    Give {
        pod: u8,
        container: u8,
        count: usize,
        answers: bool,
    },
    Ends(u8),
    Lists(BTreeSet<u8>),
    Goes,
    Comes,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..4, 0_u8..2, 1_usize..4, any::<bool>())
            .prop_map(|(pod, container, count, answers)| Step::Give { pod, container, count, answers }),
        1 => (0_u8..4).prop_map(Step::Ends),
        1 => prop::collection::btree_set(0_u8..8, 0..8).prop_map(Step::Lists),
        1 => Just(Step::Goes),
        1 => Just(Step::Comes),
    ]
}

proptest! {
    /// Whatever happens, no device is two containers' at a time, and those that nobody has are free.
    #[test]
    fn no_device_twice(steps in prop::collection::vec(step(), 1..60)) {
        let (mut state, none, mut connection) = (State::default(), BTreeSet::new(), 1_u64);
        state.connect(R, connection, Options::default());
        for step in steps {
            match step {
                Step::Give { pod, container, count, answers } => {
                    let (pod, container) = (pod.to_string(), container.to_string());
                    let claim = claim(&pod, &container, count, &none);
                    let reserved = state.is_met(claim) == Ok(false) && state.reserve(claim, &none).is_ok();
                    if reserved && answers {
                        prop_assert!(state.answered(&pod, &container, R, Vec::new()));
                    } else if reserved && count == 3 {
                        state.unreserve(&pod, &container, R);
                    }
                }
                Step::Ends(pod) => { state.retain(|of| of != pod.to_string()); }
                Step::Lists(ids) => {
                    let names: Vec<String> = ids.iter().map(u8::to_string).collect();
                    let list: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), true)).collect();
                    state.list(R, connection, devices(&list));
                }
                Step::Goes => { state.disconnect(R, connection, Duration::ZERO); }
                Step::Comes => {
                    connection += 1;
                    state.connect(R, connection, Options::default());
                }
            }
            let mut seen = BTreeSet::new();
            for (.., given) in state.pods().iter() {
                for id in given.ids() {
                    prop_assert!(seen.insert(id.clone()), "{id} twice");
                }
            }
            // What is kept along is what a count says.
            let (devices, free) = state.pool(R);
            let healthy = devices.iter().filter(|(_, device)| device.healthy);
            let unused = healthy.map(|(id, _)| id).filter(|id| !seen.contains(*id));
            prop_assert!(unused.eq(free.iter()), "{free:?}");
            prop_assert!(state.pods().of_resource(R).eq(seen.iter().map(String::as_str)));
            prop_assert_eq!(state.pods().has_resource(R), state.pods().iter().next().is_some());
        }
    }
}

#[test]
fn all_resources_devices_have_one_bound() {
    let many = |count: usize| {
        let name = |index| (format!("{index:0100}"), Device::default());
        (0..count).map(name).collect::<BTreeMap<_, _>>()
    };
    let (half, more) = (
        many(TOGETHER_MAX / (DEVICE_BYTES + 100) / 2),
        many(TOGETHER_MAX / (DEVICE_BYTES + 100) / 2 + 2),
    );
    let mut state = State::default();
    for (connection, name) in [(1, "example.com/a"), (2, "example.com/b")] {
        state.connect(name, connection, Options::default());
        assert!(state.has_room(name, &half));
        state.list(name, connection, half.clone());
    }
    assert!(state.has_room("example.com/a", &half), "what it has itself makes room");
    assert!(!state.has_room("example.com/a", &more));
    assert!(!state.has_room("example.com/c", &more));
    state.list("example.com/b", 2, BTreeMap::new());
    assert!(state.has_room("example.com/a", &more), "what is gone does, too");
}
