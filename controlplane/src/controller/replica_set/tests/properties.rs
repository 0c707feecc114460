//! Whatever there is at first and whatever happens: in the end there are as many pods as asked for, never more on the way, and nobody
//! else's were touched.

use super::*;
use crate::controller::tests::world::{World, candidates};
use crate::controller::write::{PODS, REPLICA_SETS};
use proptest::prelude::*;

/// A pod that is there at first.
#[derive(Clone, Debug)]
struct Found {
    owner: Option<&'static str>,
    is_selected: bool,
    phase: &'static str,
    is_going: bool,
}

/// What happens next; pods are those of the set.
#[derive(Clone, Debug)]
enum Event {
    /// The controller plans and does so much of it.
    Turn(usize),
    /// It learns of what others did.
    Look,
    /// A pod runs or, on its way out, goes.
    Node(usize),
    Fails(usize),
    Deleted(usize),
    Relabelled(usize),
    Scaled(i64),
}

fn found() -> impl Strategy<Value = Found> {
    let owner = prop_oneof![3 => Just(Some("rs")), 1 => Just(Some("another")), 2 => Just(None)];
    let phase = prop_oneof![2 => Just("Running"), 1 => Just("Pending"), 1 => Just("Failed"), 1 => Just("Succeeded")];
    (owner, prop::bool::weighted(0.8), phase, prop::bool::weighted(0.2)).prop_map(
        |(owner, is_selected, phase, is_going)| Found {
            owner,
            is_selected,
            phase,
            is_going,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..5_usize).prop_map(Event::Turn),
        3 => Just(Event::Look),
        4 => (0..8_usize).prop_map(Event::Node),
        1 => (0..8_usize).prop_map(Event::Fails),
        1 => (0..8_usize).prop_map(Event::Deleted),
        1 => (0..8_usize).prop_map(Event::Relabelled),
        1 => (0..7_i64).prop_map(Event::Scaled),
    ]
}

fn start(all: &[Found]) -> World {
    let mut world = World::default();
    world.put(&REPLICA_SETS, serde_json::to_value(set(3, json!({}))).unwrap());
    for (n, found) in all.iter().enumerate() {
        let mut object = serde_json::to_value(&*pod(&format!("p{n}"), json!({}))).unwrap();
        let owner = |uid: &str| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": uid, "controller": true}]);
        object["metadata"]["ownerReferences"] = found.owner.map_or(json!([]), owner);
        object["metadata"]["labels"] = json!({"app": if found.is_selected { "web" } else { "other" }});
        object["status"] = json!({"phase": found.phase});
        if found.is_going {
            object["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
        }
        world.put(&PODS, object);
    }
    world.look(&REPLICA_SETS);
    world.look(&PODS);
    world
}

/// As [`ReplicaSets`] does on its informers.
fn next(world: &World) -> Vec<Write> {
    let rs: Arc<ReplicaSet> = world.seen(&REPLICA_SETS).remove(0);
    let (controlled, orphans) = candidates(world.seen::<Pod>(&PODS), "rs");
    let orphans = orphans.into_iter().filter(|pod| is_active(pod)).collect();
    let selector = selector(&rs).unwrap();
    let claims = owner::claim((&REPLICA_SETS, &*rs), &selector, &PODS, controlled, orphans);
    if claims.writes.is_empty() {
        plan(&REPLICA_SETS, &rs, &claims.owned, || claims.owned.clone(), world.time())
    } else {
        claims.writes
    }
}

fn of_set(world: &World) -> Vec<Arc<Pod>> {
    candidates(world.all::<Pod>(&PODS), "rs").0
}

fn active(world: &World) -> usize {
    of_set(world).iter().filter(|pod| is_active(pod)).count()
}

fn wanted(world: &World) -> usize {
    let rs: Arc<ReplicaSet> = world.all(&REPLICA_SETS).remove(0);
    usize::try_from(rs.spec.as_ref().unwrap().replicas.unwrap()).unwrap()
}

fn node(world: &mut World, pod: &Pod) {
    if pod.metadata.deletion_timestamp.is_some() {
        world.remove(&PODS, &Key::of(pod));
    } else if is_active(pod) {
        world.change(&PODS, &Key::of(pod), |pod| pod["status"] = json!({"phase": "Running"}));
    }
}

fn act(world: &mut World, event: &Event) {
    let picked = |world: &World, n: usize| {
        let all = of_set(world);
        (!all.is_empty()).then(|| all[n % all.len()].clone())
    };
    match event {
        Event::Turn(some) => {
            let before = active(world);
            let adopts = |write: &&Write| write.adopter.is_some();
            let writes = next(world);
            let adopted = writes.iter().filter(adopts).count();
            for write in writes.iter().take(*some) {
                let _ = world.apply(write);
            }
            // It is told what it seeks to have beside, and lets go of what is too many when it knows.
            assert!(
                active(world) <= before.max(wanted(world)) + adopted,
                "too many are made"
            );
        }
        Event::Look => [&PODS, &REPLICA_SETS]
            .into_iter()
            .for_each(|resource| world.look(resource)),
        Event::Node(n) => {
            if let Some(pod) = picked(world, *n) {
                node(world, &pod);
            }
        }
        Event::Fails(n) => {
            if let Some(pod) = picked(world, *n) {
                world.change(&PODS, &Key::of(&*pod), |pod| pod["status"] = json!({"phase": "Failed"}));
            }
        }
        Event::Deleted(n) => {
            if let Some(pod) = picked(world, *n) {
                world.remove(&PODS, &Key::of(&*pod));
            }
        }
        Event::Relabelled(n) => {
            if let Some(pod) = picked(world, *n) {
                world.change(&PODS, &Key::of(&*pod), |pod| {
                    pod["metadata"]["labels"] = json!({"app": "other"})
                });
            }
        }
        Event::Scaled(to) => {
            let key = Key::new("default", "web-1");
            world.change(&REPLICA_SETS, &key, |set| set["spec"]["replicas"] = json!(to));
            world.look(&REPLICA_SETS);
        }
    }
}

/// Everybody does what there is to do until nothing is.
fn settle(world: &mut World) {
    for _ in 0..100 {
        act(world, &Event::Look);
        let writes = next(world);
        let is_idle = writes.is_empty();
        for write in &writes {
            world.apply(write).unwrap();
        }
        let pods = of_set(world);
        pods.iter().for_each(|pod| node(world, pod));
        if is_idle && pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none()) {
            return;
        }
    }
    panic!("it never comes to rest: {:?}", next(world));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn from_any_pods_it_comes_to_as_many_as_asked_for(
        all in prop::collection::vec(found(), 0..10), events in prop::collection::vec(event(), 0..60),
    ) {
        let mut world = start(&all);
        let is_strange = |found: &Found| found.owner == Some("another") || (found.owner.is_none() && !found.is_selected);
        let strange = all.iter().enumerate().filter(|(_, found)| is_strange(found));
        let strange: Vec<Key> = strange.map(|(n, _)| Key::new("default", format!("p{n}"))).collect();
        let before: Vec<Option<Value>> = strange.iter().map(|key| world.object(&PODS, key)).collect();
        for event in &events {
            act(&mut world, event);
        }
        settle(&mut world);
        prop_assert_eq!(active(&world), wanted(&world));
        let selected = |pod: &Arc<Pod>| pod.metadata.labels.as_ref().is_some_and(|labels| labels["app"] == "web");
        prop_assert!(of_set(&world).iter().all(selected), "it has others");
        let after: Vec<Option<Value>> = strange.iter().map(|key| world.object(&PODS, key)).collect();
        prop_assert_eq!(after, before, "somebody else's");
    }
}
