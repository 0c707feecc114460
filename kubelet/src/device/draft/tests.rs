use super::*;
use crate::device::state::Options;
use crate::pinning::asking;
use serde_json::{Value, json};

const R: &str = "example.com/dev";

fn state(devices: &[(&str, &[i64])]) -> State {
    let mut state = State::default();
    state.connect(R, 1, Options::default());
    let of = devices.iter().map(|(id, nodes)| {
        let device = Device {
            healthy: true,
            placed: !nodes.is_empty(),
            nodes: nodes.to_vec(),
        };
        ((*id).to_owned(), device)
    });
    state.list(R, 1, of.collect());
    state
}

fn container(name: &str, devices: &str, sidecar: bool) -> Value {
    let policy = if sidecar { json!("Always") } else { Value::Null };
    json!({"name": name, "restartPolicy": policy, "resources": {"limits": {R: devices, "cpu": "1", "example.com/none": "1"}}})
}

fn pod(inits: Value, containers: Value) -> Pod {
    let pod =
        json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"initContainers": inits, "containers": containers}});
    serde_json::from_value(pod).expect("a pod")
}

fn try_all(pod: &Pod, state: &State, near: Option<u32>) -> Result<Option<Plan>, String> {
    let mut draft = Draft::new(pod, state, NumaMask::of([0, 1]));
    let near = Hint {
        numas: near.map(|node| NumaMask::of([node])),
        preferred: true,
    };
    for asking in asking::of_pod(pod) {
        draft.give(&asking, near).map_err(|why| why.to_string())?;
    }
    Ok(draft.plan())
}

#[test]
fn only_what_plugins_know_is_asked_for() {
    let state = state(&[("a", &[])]);
    let pod = pod(
        json!([]),
        json!([container("c", "1", false), container("d", "0", false)]),
    );
    let asked = asked(&pod, &state);
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].resources, BTreeMap::from([(R.to_owned(), 1)]));
    assert!(super::asked(&pod, &State::default()).is_empty());
    assert!(
        Draft::new(&pod, &State::default(), NumaMask::default())
            .plan()
            .is_none()
    );
}

#[test]
fn inits_leave_what_they_have_to_those_after_them() {
    let two = state(&[("a", &[]), ("b", &[])]);
    let run = |inits, containers| try_all(&pod(inits, containers), &two, None).map(|plan| plan.is_some());
    let plain = json!([container("i", "2", false)]);
    assert_eq!(run(plain, json!([container("c", "2", false)])), Ok(true));
    let sidecar = json!([container("s", "1", true)]);
    assert_eq!(run(sidecar.clone(), json!([container("c", "1", false)])), Ok(true));
    let short = "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for example.com/dev. \
                 Requested: 2, Available: 1, which is unexpected";
    assert_eq!(run(sidecar, json!([container("c", "2", false)])), Err(short.to_owned()));
    // A sidecar keeps what an init left it.
    let both = json!([container("i", "2", false), container("s", "1", true)]);
    let one = json!([container("c", "1", false)]);
    assert_eq!(run(both.clone(), one), Ok(true));
    assert!(run(both, json!([container("c", "2", false)])).is_err());
}

#[test]
fn a_trial_says_where_containers_are_to_be() {
    let state = state(&[("a", &[0]), ("b", &[1])]);
    let pod = pod(
        json!([]),
        json!([container("c", "1", false), container("d", "1", false)]),
    );
    let draft = Draft::new(&pod, &state, NumaMask::of([0, 1]));
    let asked = asking::of_pod(&pod);
    let wishes = draft.wishes(Whose::Container(&asked[0]));
    let Wishes::One(hints) = &wishes[0] else {
        panic!("{wishes:?}")
    };
    assert_eq!(hints.iter().filter(|hint| hint.preferred).count(), 2);
    let whole = draft.wishes(Whose::Pod(&asked));
    let Wishes::One(hints) = &whole[0] else {
        panic!("{whole:?}")
    };
    let both = Hint {
        numas: Some(NumaMask::of([0, 1])),
        preferred: true,
    };
    assert_eq!(*hints, vec![both], "a pod of two needs both nodes");
    let plan = try_all(&pod, &state, Some(1)).expect("given").expect("a plan");
    assert_eq!(plan.near["c"], NumaMask::of([1]));
    assert_eq!(plan.pod, "u");
}

#[test]
fn pods_need_at_a_time_what_their_containers_do() {
    let asked = |kind, count: usize| Asked {
        container: String::new(),
        kind,
        resources: [(R.to_owned(), count)].into(),
    };
    for (all, expected) in [
        (vec![asked(Kind::Init, 3), asked(Kind::Regular, 1)], 3),
        (
            vec![asked(Kind::Sidecar, 1), asked(Kind::Init, 3), asked(Kind::Regular, 1)],
            4,
        ),
        (
            vec![asked(Kind::Init, 1), asked(Kind::Sidecar, 2), asked(Kind::Regular, 2)],
            4,
        ),
    ] {
        assert_eq!(at_a_time(&all)[R], expected, "{all:?}");
    }
}
