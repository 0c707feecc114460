//! From any state (sets of any sizes, annotations that are untrue, any strategy, paused or not) and whatever happens on the way, the
//! controllers of deployments and replica sets come to rest with what is asked for, and never go beyond the surge or below what has to be
//! available by their own doing.

use super::*;
use crate::controller::replica_set;
use crate::controller::tests::world::{World, candidates};
use crate::controller::write::{DEPLOYMENTS, PODS, REPLICA_SETS};
use crate::held::Pod;

const IMAGES: [&str; 4] = ["a", "b", "c", "d"];

/// A replica set that is there at first.
#[derive(Clone, Debug)]
struct Found {
    image: usize,
    size: i32,
    revision: Option<i64>,
    desired: Option<i32>,
    most: Option<i32>,
    /// Whether each of its pods is ready.
    pods: Vec<bool>,
}

/// What a user changes.
#[derive(Clone, Debug)]
enum Change {
    Image(usize),
    Size(i32),
    /// Surge and unavailability of a rolling update; none replaces all at once.
    Strategy(Option<(i32, i32)>),
    Paused(bool),
}

#[derive(Clone, Debug)]
enum Event {
    /// The deployment's controller plans and does so much of it.
    Turn(usize),
    /// That of one replica set does all of its own.
    SetTurn(usize),
    /// Both learn of what others did.
    Look,
    /// A pod becomes ready or, on its way out, goes.
    Node(usize),
    Unready(usize),
    Fails(usize),
    Asked(Change),
    /// By hand.
    Scaled(usize, i32),
    Annotated(usize, Option<i32>, Option<i32>),
}

fn found() -> impl Strategy<Value = Found> {
    let number = || prop::option::of(-1..30i32);
    let pods = prop::collection::vec(any::<bool>(), 0..8);
    (0..4usize, 0..14i32, prop::option::of(0..9i64), number(), number(), pods).prop_map(
        |(image, size, revision, desired, most, pods)| Found {
            image,
            size,
            revision,
            desired,
            most,
            pods,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let fences = prop::option::weighted(0.7, (0..4i32, 0..4i32));
    prop_oneof![
        (0..4usize).prop_map(Change::Image),
        (0..12i32).prop_map(Change::Size),
        fences.prop_map(Change::Strategy),
        any::<bool>().prop_map(Change::Paused),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let number = || prop::option::of(-1..30i32);
    prop_oneof![
        6 => (0..4usize).prop_map(Event::Turn),
        6 => (0..6usize).prop_map(Event::SetTurn),
        4 => Just(Event::Look),
        8 => (0..30usize).prop_map(Event::Node),
        1 => (0..30usize).prop_map(Event::Unready),
        1 => (0..30usize).prop_map(Event::Fails),
        2 => change().prop_map(Event::Asked),
        1 => (0..6usize, 0..14i32).prop_map(|(set, size)| Event::Scaled(set, size)),
        1 => (0..6usize, number(), number()).prop_map(|(set, desired, most)| Event::Annotated(set, desired, most)),
    ]
}

fn ask(world: &mut World, change: &Change) {
    world.change(&DEPLOYMENTS, &Key::new("default", "web"), |d| match change {
        Change::Image(image) => d["spec"]["template"]["spec"]["containers"][0]["image"] = json!(IMAGES[*image]),
        Change::Size(size) => d["spec"]["replicas"] = json!(size),
        Change::Strategy(None) => d["spec"]["strategy"] = json!({"type": "Recreate"}),
        Change::Strategy(Some((surge, unavailable))) => {
            let fences = json!({"maxSurge": surge, "maxUnavailable": unavailable});
            d["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": fences});
        }
        Change::Paused(is_paused) => d["spec"]["paused"] = json!(is_paused),
    });
}

fn annotate(set: &mut Value, desired: Option<i32>, most: Option<i32>) {
    for (name, number) in [(annotation::DESIRED, desired), (annotation::MAX, most)] {
        let annotations = set["metadata"]["annotations"].as_object_mut().unwrap();
        match number {
            Some(number) => annotations.insert(name.to_owned(), json!(number.to_string())),
            None => annotations.remove(name),
        };
    }
}

fn start(all: &[Found], asked: &[Change]) -> World {
    let mut world = World::default();
    world.put(
        &DEPLOYMENTS,
        serde_json::to_value(deployment(4, "a", json!({}))).unwrap(),
    );
    asked.iter().for_each(|change| ask(&mut world, change));
    for (number, found) in all.iter().enumerate() {
        let mut object = serde_json::to_value(&*set(IMAGES[found.image], 0, found.size, 0, 4)).unwrap();
        let name = format!("web-{number}");
        object["metadata"]["name"] = json!(name);
        object["metadata"]["uid"] = json!(name);
        object["metadata"]["creationTimestamp"] = json!(at(i64::try_from(number).unwrap()).to_string());
        object["status"] = json!({"replicas": 0});
        annotate(&mut object, found.desired, found.most);
        object["metadata"]["annotations"][annotation::REVISION] = json!(found.revision.map(|r| r.to_string()));
        let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|_, value| !value.is_null());
        world.put(&REPLICA_SETS, object);
        for (n, is_ready) in found.pods.iter().enumerate() {
            let owner =
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true});
            let meta = json!({"name": format!("{name}-{n}"), "namespace": "default", "labels": {"app": "web"}, "ownerReferences": [owner]});
            world.put(
                &PODS,
                json!({"metadata": meta, "spec": {"containers": []}, "status": status_of(*is_ready)}),
            );
        }
    }
    look(&mut world);
    world
}

fn look(world: &mut World) {
    [&DEPLOYMENTS, &REPLICA_SETS, &PODS]
        .into_iter()
        .for_each(|resource| world.look(resource));
}

fn status_of(is_ready: bool) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "1970-01-01T00:00:00Z"}]})
}

fn pods_of(world: &World, set: &ReplicaSet) -> Vec<Arc<Pod>> {
    candidates(world.seen::<Pod>(&PODS), &set.uid().unwrap()).0
}

/// What the deployment's controller knows, as [`Deployments`] has it of its informers.
struct Known {
    deployment: Arc<Deployment>,
    sets: Vec<Arc<ReplicaSet>>,
    running: Vec<String>,
}

impl Known {
    fn of(world: &World) -> Self {
        let sets = world.seen::<ReplicaSet>(&REPLICA_SETS);
        let runs = |rs: &&Arc<ReplicaSet>| {
            let reported = rs.status.as_ref().is_some_and(|s| s.replicas > 0);
            reported || pods_of(world, rs).iter().any(|pod| !pod::is_terminal(pod))
        };
        Self {
            deployment: world.seen(&DEPLOYMENTS).remove(0),
            running: sets.iter().filter(runs).map(|rs| rs.name_any()).collect(),
            sets,
        }
    }

    fn view(&self) -> View<'_> {
        let runs = |rs: &ReplicaSet| self.running.contains(&rs.name_any());
        View::new(&self.deployment, self.sets.clone(), runs).unwrap()
    }
}

/// Sizes and what is available of them, by what the controller knows and these writes make of it.
fn counts(view: &View<'_>, writes: &[Write]) -> (i64, i64, BTreeMap<String, i64>) {
    let of = |rs: &Arc<ReplicaSet>| (rs.name_any(), (i64::from(size(rs)), i64::from(available(rs))));
    let mut all: BTreeMap<String, (i64, i64)> = view.all().map(of).collect();
    for write in writes {
        let (Verb::Create(body) | Verb::Patch(_, _, body)) = &write.verb else {
            continue;
        };
        if let Some(size) = body["spec"]["replicas"].as_i64() {
            all.entry(write.key.name.clone()).or_default().0 = size;
        }
    }
    let sizes: BTreeMap<String, i64> = all.iter().map(|(name, (size, _))| (name.clone(), *size)).collect();
    let available = all.values().map(|(size, available)| size.min(available)).sum();
    (sizes.values().sum(), available, sizes)
}

/// No part of a plan goes beyond what there may be, nor, in a rolling update, below what has to be available.
fn judge(known: &Known, writes: &[Write]) {
    let view = known.view();
    let is_paused = view.spec.paused == Some(true);
    let is_resized = annotation::is_scaling(&view);
    let (total, available, before) = counts(&view, &[]);
    let least = i64::from(view.wanted() - rolling::max_unavailable(&view));
    for done in 0..=writes.len() {
        let (after, left, sizes) = counts(&view, &writes[..done]);
        assert!(after <= total.max(rolling::allowed(&view)), "{after} pods: {writes:?}");
        if !is_paused && !is_resized && !view.recreates() {
            assert!(left >= available.min(least), "{left} available: {writes:?}");
        }
        let grows = sizes
            .iter()
            .any(|(name, size)| before.get(name).copied().unwrap_or(0) < *size);
        if grows && view.recreates() && !is_paused {
            assert!(!view.old_pods_run && !rolling::any_active(&view.old), "{writes:?}");
        }
    }
}

fn turn(world: &mut World, most: usize) -> bool {
    let known = Known::of(world);
    let view = known.view();
    let mut writes = plan(&view).writes;
    judge(&known, &writes);
    if writes.is_empty() {
        let told = status::status(&view, None, world.time());
        if known.deployment.status.as_ref() != Some(&told) {
            let mut deployment = Deployment::clone(&known.deployment);
            deployment.status = Some(told);
            writes.push(Write::replace_status(DEPLOYMENTS, &deployment));
        }
    }
    for write in writes.iter().take(most) {
        let _ = world.apply(write);
    }
    !writes.is_empty()
}

fn set_turn(world: &mut World, set: &ReplicaSet) -> bool {
    let owned = pods_of(world, set);
    let mut writes = replica_set::plan(&REPLICA_SETS, set, &owned, || owned.clone(), world.time());
    if writes.is_empty() {
        let told = replica_set::status::status(set, &owned, None, world.time());
        if set.status.as_ref() != Some(&told) {
            let mut set = set.clone();
            set.status = Some(told);
            writes.push(Write::replace_status(REPLICA_SETS, &set));
        }
    }
    for write in &writes {
        let _ = world.apply(write);
    }
    !writes.is_empty()
}

/// Whether there was anything to do for its node.
fn node(world: &mut World, pod: &Pod) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        world.remove(&PODS, &Key::of(pod));
        return true;
    }
    let starts = pod::is_active(pod) && !pod::is_ready(pod);
    if starts {
        world.change(&PODS, &Key::of(pod), |pod| pod["status"] = status_of(true));
    }
    starts
}

fn picked<T: Clone>(all: &[T], n: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[n % all.len()].clone())
}

fn act(world: &mut World, event: &Event) {
    let pod = |world: &World, n| picked(&world.all::<Pod>(&PODS), n);
    let key_of_set = |world: &World, n| picked(&world.keys(&REPLICA_SETS), n);
    match event {
        Event::Turn(most) => {
            turn(world, *most);
        }
        Event::SetTurn(n) => {
            if let Some(set) = picked(&world.seen::<ReplicaSet>(&REPLICA_SETS), *n) {
                set_turn(world, &set);
            }
        }
        Event::Look => look(world),
        Event::Node(n) => {
            if let Some(pod) = pod(world, *n) {
                node(world, &pod);
            }
        }
        Event::Unready(n) => {
            if let Some(pod) = pod(world, *n) {
                world.change(&PODS, &Key::of(&*pod), |pod| pod["status"] = status_of(false));
            }
        }
        Event::Fails(n) => {
            if let Some(pod) = pod(world, *n) {
                world.change(&PODS, &Key::of(&*pod), |pod| pod["status"] = json!({"phase": "Failed"}));
            }
        }
        Event::Asked(change) => ask(world, change),
        Event::Scaled(n, size) => {
            if let Some(key) = key_of_set(world, *n) {
                world.change(&REPLICA_SETS, &key, |set| set["spec"]["replicas"] = json!(size));
            }
        }
        Event::Annotated(n, desired, most) => {
            if let Some(key) = key_of_set(world, *n) {
                world.change(&REPLICA_SETS, &key, |set| annotate(set, *desired, *most));
            }
        }
    }
}

/// Everybody does what there is to do until nothing is.
fn settle(world: &mut World) {
    for _ in 0..400 {
        look(world);
        let mut is_busy = turn(world, usize::MAX);
        look(world);
        for set in world.seen::<ReplicaSet>(&REPLICA_SETS) {
            is_busy |= set_turn(world, &set);
        }
        for pod in world.all::<Pod>(&PODS) {
            is_busy |= node(world, &pod);
        }
        if !is_busy {
            return;
        }
    }
    panic!("it never comes to rest: {:?}", plan(&Known::of(world).view()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn from_any_sets_a_deployment_comes_to_what_is_asked_for(
        all in prop::collection::vec(found(), 0..5),
        asked in prop::collection::vec(change(), 0..5),
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut world = start(&all, &asked);
        for event in &events {
            act(&mut world, event);
        }
        settle(&mut world);
        ask(&mut world, &Change::Paused(false));
        settle(&mut world);
        let known = Known::of(&world);
        let view = known.view();
        let new = view.new.as_ref().expect("a set of the template");
        prop_assert_eq!(size(new), view.wanted());
        prop_assert!(view.old.iter().all(|rs| size(rs) == 0), "{:?}", view.old);
        let active = world.all::<Pod>(&PODS).iter().filter(|pod| pod::is_active(pod)).count();
        prop_assert_eq!(i32::try_from(active).unwrap(), view.wanted());
        let told = view.deployment.status.as_ref().unwrap();
        prop_assert!(status::is_complete(&view, told), "{:?}", told);
    }
}
