//! Whatever happens to pods, caches and the controller itself: order is kept, and in the end there is what was asked for.

use super::*;
use crate::controller::history::Spelling;
use crate::controller::tests::world::{World, candidates};
use crate::controller::write::{CLAIMS, CONTROLLER_REVISIONS, PODS, STATEFUL_SETS};
use proptest::prelude::*;

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// The controller plans and does what it planned, or is killed before (0).
    Turn(usize),
    /// The same, but it hears of no answer.
    Unheard,
    /// The controller learns of what others did to pods.
    Look,
    /// A pod starts, becomes ready or, on its way out, goes.
    Node(usize),
    Fails(usize),
    Falters(usize),
    Deleted(usize),
    Scaled(i64),
    Template(u8),
    Partition(i64),
    Seconds(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..4_usize).prop_map(Event::Turn),
        1 => Just(Event::Unheard),
        3 => Just(Event::Look),
        6 => (0..8_usize).prop_map(Event::Node),
        1 => (0..8_usize).prop_map(Event::Fails),
        1 => (0..8_usize).prop_map(Event::Falters),
        1 => (0..8_usize).prop_map(Event::Deleted),
        1 => (0..5_i64).prop_map(Event::Scaled),
        1 => (0..3_u8).prop_map(Event::Template),
        1 => (0..3_i64).prop_map(Event::Partition),
        1 => (1..20_i64).prop_map(Event::Seconds),
    ]
}

fn key() -> Key {
    Key::new("default", "s")
}

fn template(image: u8) -> Value {
    json!({"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": format!("i{image}")}]}})
}

fn start(extra: &Value) -> World {
    let mut world = World::default();
    let mut object: Value = serde_json::to_value(&*set(json!({"status": null}))).unwrap();
    object["spec"]["template"] = template(0);
    json_patch::merge(&mut object, extra);
    world.put(&STATEFUL_SETS, object);
    world.look(&STATEFUL_SETS);
    world
}

fn look(world: &World) -> Seen {
    let set: Arc<StatefulSet> = world.seen(&STATEFUL_SETS).remove(0);
    let pods = candidates(world.seen(&PODS), "set");
    Seen::new(set, pods, candidates(world.seen(&CONTROLLER_REVISIONS), "set")).unwrap()
}

fn plan(world: &World) -> (Plan, Seen) {
    let claims: Vec<Arc<PersistentVolumeClaim>> = world.seen(&CLAIMS);
    let find = |name: &str| {
        claims
            .iter()
            .find(|c| c.metadata.name.as_deref() == Some(name))
            .cloned()
    };
    let seen = look(world);
    (seen.plan(&find, world.time()), seen)
}

/// What must be true of a step, given what was known when it was planned.
fn check(plan: &Plan, seen: &Seen, now: Timestamp) {
    let Some(view) = seen.view(&|_| None, now) else { return };
    let pods: Vec<&Write> = plan.writes.iter().filter(|w| w.resource == PODS).collect();
    let deletions = pods.iter().filter(|w| matches!(w.verb, Verb::Delete { .. })).count();
    let below = |ordinal: i64| view.wanted().start..ordinal;
    let serve = |mut range: std::ops::Range<i64>| range.all(|o| view.pods.get(&o).is_some_and(|p| view.serves(p)));
    for write in &pods {
        let Some(ordinal) = identity::ordinal(&write.key.name) else {
            panic!("{write:?}")
        };
        if let Verb::Create(body) = &write.verb {
            assert!(view.wanted().contains(&ordinal), "nobody asked for {}", write.key);
            let claim = format!("data-{}", write.key.name);
            assert_eq!(body["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], claim);
            if view.is_ordered() {
                assert!(serve(below(ordinal)), "{} starts before its turn", write.key);
            }
        } else if view.is_ordered() && matches!(write.verb, Verb::Delete { .. }) {
            let ended = pod::is_terminal(&view.pods[&ordinal]);
            // A condemned pod below may be going already: it was deleted by another, or ended.
            let comes_first = |o: i64| o > ordinal || view.wanted().contains(&o);
            let mut going = view
                .pods
                .iter()
                .filter(|(_, p)| p.metadata.deletion_timestamp.is_some());
            assert!(
                ended || going.all(|(o, _)| !comes_first(*o)),
                "{} stops while another does",
                write.key
            );
            assert!(ended || view.wanted().contains(&ordinal) || serve(view.wanted()));
            let above = view
                .pods
                .range(ordinal + 1..)
                .filter(|(o, _)| !view.wanted().contains(o));
            assert!(ended || above.count() == 0, "{} stops before its turn", write.key);
        }
    }
    if view.is_ordered() {
        assert!(deletions <= 1 && pods.len() <= 1, "{:?}", words(plan));
    }
}

fn act(world: &mut World, event: &Event) {
    let pod = |world: &World, n: usize| {
        let keys = world.keys(&PODS);
        (!keys.is_empty()).then(|| keys[n % keys.len()].clone())
    };
    let edit = |world: &mut World, path: &str, value: Value| {
        world.change(&STATEFUL_SETS, &key(), |set| {
            *set.pointer_mut(path).unwrap() = value;
            let generation = set["metadata"]["generation"].as_i64().unwrap();
            set["metadata"]["generation"] = json!(generation + 1);
        });
        world.look(&STATEFUL_SETS);
    };
    match event {
        Event::Turn(_) | Event::Unheard => {
            let (plan, seen) = plan(world);
            check(&plan, &seen, world.time());
            for write in &plan.writes {
                match event {
                    Event::Turn(0) => return,
                    Event::Turn(_) if world.apply(write).is_err() => return,
                    Event::Turn(_) => {}
                    _ => world.apply_unheard(write),
                }
            }
            if plan.writes.is_empty()
                && let Some(status) = look(world).report(world.time(), None, None)
            {
                let _ = world.apply(&status);
            }
        }
        Event::Look => {
            for resource in [&PODS, &CONTROLLER_REVISIONS, &CLAIMS, &STATEFUL_SETS] {
                world.look(resource);
            }
        }
        Event::Node(n) => {
            let Some(key) = pod(world, *n) else { return };
            node(world, &key);
        }
        Event::Fails(n) => {
            let Some(key) = pod(world, *n) else { return };
            world.change(&PODS, &key, |pod| pod["status"] = json!({"phase": "Failed"}));
        }
        Event::Falters(n) => {
            let Some(key) = pod(world, *n) else { return };
            world.change(&PODS, &key, |pod| pod["status"]["conditions"] = json!([]));
        }
        Event::Deleted(n) => {
            let Some(key) = pod(world, *n) else { return };
            world.remove(&PODS, &key);
        }
        Event::Scaled(n) => edit(world, "/spec/replicas", json!(n)),
        Event::Template(n) => edit(world, "/spec/template", template(*n)),
        Event::Partition(n) => edit(world, "/spec/updateStrategy/rollingUpdate/partition", json!(n)),
        Event::Seconds(n) => world.now += n,
    }
}

/// The pod's kubelet: what is to go goes, what waits runs, what runs is ready.
fn node(world: &mut World, key: &Key) {
    let Some(pod) = world.object(&PODS, key) else { return };
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        world.remove(&PODS, key);
    } else if pod["status"]["phase"] != "Failed" && pod["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
        let since = json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.time()));
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
        world.change(&PODS, key, |pod| {
            pod["status"] = json!({"phase": "Running", "conditions": ready})
        });
    }
}

/// Everybody does what there is to do until nothing is.
fn settle(world: &mut World) {
    for _ in 0..400 {
        act(world, &Event::Look);
        let (plan, seen) = plan(world);
        check(&plan, &seen, world.time());
        let before = world.clone();
        for write in &plan.writes {
            world.apply(write).unwrap();
        }
        if plan.writes.is_empty()
            && let Some(status) = look(world).report(world.time(), None, None)
        {
            world.apply(&status).unwrap();
        }
        for key in world.keys(&PODS) {
            node(world, &key);
        }
        world.now += 20;
        let objects = |w: &World| [&PODS, &STATEFUL_SETS, &CONTROLLER_REVISIONS].map(|r| w.keys(r).len());
        let same = plan.writes.is_empty() && objects(&before) == objects(world);
        let idle = same && {
            act(world, &Event::Look);
            look(world).report(world.time(), None, None).is_none() && self::plan(world).0.writes.is_empty()
        };
        let all_ready = world.all::<Pod>(&PODS).iter().all(|p| status::is_ready(p));
        if idle && all_ready {
            return;
        }
    }
    panic!("it never comes to rest: {:?}", words(&plan(world).0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn order_is_kept_and_what_was_asked_for_comes(
        events in prop::collection::vec(event(), 0..120), parallel: bool, slow in 0..2_i64, first in 0..2_i64,
    ) {
        let policy = if parallel { "Parallel" } else { "OrderedReady" };
        let mut world = start(&json!({"spec": {"podManagementPolicy": policy, "minReadySeconds": slow * 15,
            "ordinals": {"start": first}, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}}));
        for event in &events {
            act(&mut world, event);
        }
        settle(&mut world);
        let set: Arc<StatefulSet> = world.all(&STATEFUL_SETS).remove(0);
        let (spec, status) = (set.spec.as_ref().unwrap(), set.status.as_ref().unwrap());
        let pods: Vec<Arc<Pod>> = world.all(&PODS);
        let names: Vec<String> = pods.iter().map(|p| p.name_any()).collect();
        let wanted: Vec<String> = identity::wanted(spec).map(|o| format!("s-{o}")).collect();
        prop_assert_eq!(&names, &wanted);
        let partition = spec.update_strategy.as_ref().and_then(|s| s.rolling_update.as_ref()?.partition).unwrap();
        let update = status.update_revision.as_deref().unwrap();
        for pod in pods.iter().skip(usize::try_from(partition).unwrap()) {
            prop_assert_eq!(pod::label(pod, REVISION_LABEL), update);
        }
        let replicas = spec.replicas.unwrap();
        prop_assert_eq!((status.replicas, status.ready_replicas, status.available_replicas),
            (replicas, Some(replicas), Some(replicas)));
        prop_assert_eq!(status.observed_generation, set.metadata.generation);
        let mut revisions: Vec<Arc<Revision>> = world.all(&CONTROLLER_REVISIONS);
        prop_assert!(revisions.len() <= 3, "one for each template there was");
        history::sort(&mut revisions);
        let newest = revisions.last().unwrap();
        prop_assert!(newest.is_of(&Spelling::of(&spec.template)) && newest.name() == update);
    }
}
