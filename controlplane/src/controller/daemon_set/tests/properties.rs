//! Whatever happens to pods, nodes, caches and the controller itself: never two pods on a node where one belongs, never more unavailable
//! than allowed by its own doing, and in the end one pod of the template on every fit node.

use super::*;
use crate::controller::tests::world::{World, candidates};
use crate::controller::write::{CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS};
use proptest::prelude::*;

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// The controller plans and does so many of its writes; then it may be killed and begin anew.
    Turn(usize, bool),
    /// The controller learns of what others did.
    Look,
    /// A pod starts, becomes ready or, on its way out, goes.
    Pod(usize),
    Fails(usize),
    Falters(usize),
    Deleted(usize),
    /// A node gets or loses a taint.
    Taint(usize, Option<&'static str>),
    Gone(usize),
    Template(u8),
    Seconds(i64),
}

fn event() -> impl Strategy<Value = Event> {
    let taint = prop_oneof![Just(None), Just(Some("NoSchedule")), Just(Some("NoExecute"))];
    prop_oneof![
        6 => (0..6_usize, any::<bool>()).prop_map(|(n, dies)| Event::Turn(n, dies)),
        3 => Just(Event::Look),
        6 => (0..12_usize).prop_map(Event::Pod),
        1 => (0..12_usize).prop_map(Event::Fails),
        1 => (0..12_usize).prop_map(Event::Falters),
        1 => (0..12_usize).prop_map(Event::Deleted),
        1 => (0..4_usize, taint).prop_map(|(n, effect)| Event::Taint(n, effect)),
        1 => (0..4_usize).prop_map(Event::Gone),
        1 => (0..3_u8).prop_map(Event::Template),
        1 => (1..20_i64).prop_map(Event::Seconds),
    ]
}

struct Run {
    world: World,
    backoffs: Backoffs,
    surge: bool,
}

fn node_object(n: usize, effect: Option<&str>) -> Value {
    let taints = effect.map(|effect| json!([{"key": "x", "effect": effect}]));
    json!({"metadata": {"name": format!("n{n}")}, "spec": {"taints": taints}})
}

impl Run {
    fn new(extra: &Value, surge: bool) -> Self {
        let mut world = World::default();
        let mut object: Value = serde_json::to_value(&*set(json!({"status": null}))).unwrap();
        json_patch::merge(&mut object, extra);
        world.put(&DAEMON_SETS, object);
        (0..4).for_each(|n| world.put(&NODES, node_object(n, None)));
        world.look(&DAEMON_SETS);
        world.look(&NODES);
        let backoffs = Backoffs::default();
        Self { world, backoffs, surge }
    }

    fn seen(&self) -> Seen {
        let set: Arc<DaemonSet> = self.world.seen(&DAEMON_SETS).remove(0);
        let pods = candidates(self.world.seen(&PODS), "set");
        Seen::new(set, pods, candidates(self.world.seen(&CONTROLLER_REVISIONS), "set"))
    }

    fn plan(&mut self) -> Plan {
        let (seen, nodes): (_, Vec<Arc<Node>>) = (self.seen(), self.world.seen(&NODES));
        let now = self.world.time();
        let plan = seen.plan(&nodes, true, &mut self.backoffs, now);
        if let revision::Step::Settled(hash) = seen.revision() {
            let view = View::new(&seen.set, &hash, &nodes, &seen.pods.owned, now).unwrap();
            self.check(&view, &plan);
        }
        plan
    }

    /// What must be true of a step, given what was known when it was planned.
    fn check(&self, view: &View<'_>, plan: &Plan) {
        let deleted: BTreeSet<&str> = plan
            .writes
            .iter()
            .filter(|w| matches!(w.verb, Verb::Delete { .. }))
            .map(|w| w.key.name.as_str())
            .collect();
        let stays = |p: &&Arc<Pod>| p.metadata.deletion_timestamp.is_none() && !deleted.contains(p.name_any().as_str());
        let wanted: Vec<&String> = view.fits.iter().filter(|(_, f)| f.should_run).map(|(n, _)| n).collect();
        let serves = |n: &str| view.on(n).iter().filter(stays).any(|p| view.is_available(p));
        let served = |n: &str| {
            view.on(n)
                .iter()
                .any(|p| p.metadata.deletion_timestamp.is_none() && view.is_available(p))
        };
        let lost = wanted.iter().filter(|n| served(n) && !serves(n)).count();
        let unavailable = wanted.iter().filter(|n| !serves(n)).count();
        let limit = if self.surge { 0 } else { 1 };
        assert!(
            lost == 0 || unavailable <= limit,
            "{unavailable} unavailable: {:?}",
            words(plan)
        );
    }

    fn act(&mut self, event: &Event) {
        let keys = self.world.keys(&PODS);
        let pick = |n: &usize| (!keys.is_empty()).then(|| keys[n % keys.len()].clone());
        let world = &mut self.world;
        match event {
            Event::Turn(count, dies) => {
                let plan = self.plan();
                for write in plan.writes.iter().take(*count) {
                    if self.world.apply(write).is_err() {
                        break;
                    }
                    self.one_each();
                }
                let _ = self.report(plan.writes.is_empty());
                if *dies {
                    self.backoffs = Backoffs::default();
                    self.look();
                }
            }
            Event::Look => self.look(),
            Event::Pod(n) => pick(n).into_iter().for_each(|key| kubelet(world, &key)),
            Event::Fails(n) => pick(n).into_iter().for_each(|key| {
                world.change(&PODS, &key, |pod| pod["status"] = json!({"phase": "Failed"}));
            }),
            Event::Falters(n) => pick(n).into_iter().for_each(|key| {
                world.change(&PODS, &key, |pod| pod["status"]["conditions"] = json!([]));
            }),
            Event::Deleted(n) => pick(n).into_iter().for_each(|key| world.remove(&PODS, &key)),
            Event::Taint(n, effect) => world.put(&NODES, node_object(*n, *effect)),
            Event::Gone(n) => world.remove(&NODES, &Key::new("", format!("n{n}"))),
            Event::Template(n) => {
                let key = Key::new("default", "d");
                world.change(&DAEMON_SETS, &key, |set| {
                    set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("i{n}"));
                    set["metadata"]["generation"] = json!(set["metadata"]["generation"].as_i64().unwrap() + 1);
                    let annotations = &mut set["metadata"]["annotations"]["deprecated.daemonset.template.generation"];
                    let generation: i64 = annotations.as_str().unwrap().parse().unwrap();
                    *annotations = json!((generation + 1).to_string());
                });
                world.look(&DAEMON_SETS);
            }
            Event::Seconds(n) => world.now += n,
        }
    }

    fn look(&mut self) {
        for resource in [&PODS, &NODES, &CONTROLLER_REVISIONS, &DAEMON_SETS] {
            self.world.look(resource);
        }
    }

    /// Writes the status, if there is nothing else to write; tells whether there was news.
    fn report(&mut self, idle: bool) -> bool {
        let nodes: Vec<Arc<Node>> = self.world.seen(&NODES);
        let status = self.seen().report(&nodes, self.world.time(), None, None);
        let status = status.filter(|_| idle);
        status.is_some_and(|status| self.world.apply(&status).is_ok())
    }

    /// What is on a node, truly: one pod that has not ended, or an old and a new one.
    fn one_each(&self) {
        let mut there: BTreeMap<String, usize> = BTreeMap::new();
        for pod in self.world.all::<Pod>(&PODS) {
            if pod.metadata.deletion_timestamp.is_none() && !pod::is_terminal(&pod) {
                *there.entry(node::target(&pod).unwrap().to_owned()).or_default() += 1;
            }
        }
        let most = if self.surge { 2 } else { 1 };
        assert!(there.values().all(|n| *n <= most), "{there:?}");
    }

    fn settle(&mut self) {
        for _ in 0..400 {
            self.look();
            let plan = self.plan();
            for write in &plan.writes {
                self.world.apply(write).unwrap();
            }
            let mut moved = self.report(plan.writes.is_empty());
            for key in self.world.keys(&PODS) {
                let before = self.world.object(&PODS, &key);
                kubelet(&mut self.world, &key);
                // Pods of nodes that are gone are collected.
                let pod = self.world.all::<Pod>(&PODS).into_iter().find(|p| Key::of(&**p) == key);
                let node = pod.and_then(|p| node::target(&p).map(str::to_owned));
                if node.is_some_and(|node| self.world.object(&NODES, &Key::new("", node)).is_none()) {
                    self.world.remove(&PODS, &key);
                }
                moved |= before != self.world.object(&PODS, &key);
            }
            self.world.now += 1000;
            if plan.writes.is_empty() && plan.again_in.is_none() && !moved {
                return;
            }
        }
        panic!("it never comes to rest");
    }
}

/// The pod's node and scheduler: what is to go goes, what waits is bound and runs, what runs is ready.
fn kubelet(world: &mut World, key: &Key) {
    let Some(pod) = world.object(&PODS, key) else { return };
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        world.remove(&PODS, key);
    } else if pod["status"]["phase"] != "Failed" && pod["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
        let typed: Pod = serde_json::from_value(pod).unwrap();
        let node = node::target(&typed).unwrap().to_owned();
        let since = json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.time()));
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
        world.change(&PODS, key, |pod| {
            pod["spec"]["nodeName"] = json!(node);
            pod["status"] = json!({"phase": "Running", "conditions": ready});
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn each_node_has_one_and_rollouts_keep_their_limits(
        events in prop::collection::vec(event(), 0..120), surge: bool, slow in 0..2_i64,
    ) {
        let rolling = if surge { json!({"maxUnavailable": 0, "maxSurge": 1}) } else { json!({"maxUnavailable": 1, "maxSurge": 0}) };
        let extra = json!({"spec": {"minReadySeconds": slow * 15, "updateStrategy": {"rollingUpdate": rolling}}});
        let mut run = Run::new(&extra, surge);
        for event in &events {
            run.act(event);
        }
        run.settle();
        let set: Arc<DaemonSet> = run.world.all(&DAEMON_SETS).remove(0);
        let nodes: Vec<Arc<Node>> = run.world.all(&NODES);
        let seen = run.seen();
        let revision::Step::Settled(hash) = seen.revision() else { panic!("no revision") };
        let view = View::new(&set, &hash, &nodes, &seen.pods.owned, run.world.time()).unwrap();
        for (node, fit) in &view.fits {
            let there = view.on(node);
            if fit.should_run {
                prop_assert_eq!(there.len(), 1, "{}", node);
                prop_assert!(view.is_updated(&there[0]) && view.is_available(&there[0]));
            } else if !fit.may_stay {
                prop_assert!(there.is_empty(), "{}", node);
            }
        }
        let status = set.status.as_ref().unwrap();
        let wanted = view.wanted();
        prop_assert_eq!((status.desired_number_scheduled, status.number_available, status.updated_number_scheduled),
            (wanted, Some(wanted), Some(wanted)));
        prop_assert_eq!(status.observed_generation, set.metadata.generation);
    }
}
