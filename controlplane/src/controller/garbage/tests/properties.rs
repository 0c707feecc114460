//! Whatever graph of owners there is, whatever is deleted how, and however late and in whatever order the collector learns and does things: in the end
//! exactly that is gone which was deleted or whose owners all are, and who stays has no reference to what is gone.

use super::*;
use crate::controller::garbage::graph::Listed;
use crate::controller::informers::MetadataChange;
use crate::controller::write::{CONFIG_MAPS, NODES, Resource, SECRETS};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const COUNT: usize = 7;
/// What objects in namespaces are: the collector may hear of the one kind long before it hears of the other.
const KINDS: [Resource; 2] = [CONFIG_MAPS, SECRETS];
const HELD: &str = "example.com/held";
const POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];

/// An object to be: where it is, whether somebody holds it by a finalizer, and its owners, each with whether it blocks them. An owner that is
/// no object never was one.
#[derive(Clone, Debug)]
struct Plan {
    /// 0 is no namespace.
    place: u8,
    held: bool,
    /// Whether it is made only right before the first deletion, if that leaves the others as they are.
    late: bool,
    owners: BTreeMap<usize, bool>,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let owners = proptest::collection::btree_map(0..COUNT + 1, any::<bool>(), 0..4);
    let place = prop_oneof![1 => Just(0_u8), 6 => Just(1), 1 => Just(2)];
    let plan = (place, proptest::bool::weighted(0.2), any::<bool>(), owners);
    let plan = plan.prop_map(|(place, held, late, owners)| Plan {
        place,
        held,
        late,
        owners,
    });
    proptest::collection::vec(plan, COUNT)
}

#[derive(Clone, Debug)]
struct Object {
    resource: Resource,
    meta: ObjectMeta,
}

/// The server and the collector.
struct World {
    plans: Vec<Plan>,
    objects: BTreeMap<String, Object>,
    revision: u64,
    /// What the collector has not heard yet: of each resource in order, but of one before or after the other as it comes.
    unheard: BTreeMap<Resource, VecDeque<MetadataChange>>,
    /// Every resource's first list has been heard.
    is_listed: bool,
    graph: Graph,
    queue: BTreeSet<String>,
}

/// Half of them as servers make them, of which the graph keeps less.
fn uid(n: usize) -> String {
    match n % 4 {
        0 | 1 => format!("abcdef01-2345-4789-8000-00000000000{n}"),
        _ => format!("u{n}"),
    }
}

fn number(uid: &str) -> usize {
    uid[uid.len() - 1..].parse().unwrap()
}

fn namespace(place: u8) -> &'static str {
    ["", "a", "b"][usize::from(place)]
}

impl World {
    fn new(plans: Vec<Plan>) -> Self {
        let mut world = Self {
            plans,
            objects: BTreeMap::new(),
            revision: 0,
            unheard: BTreeMap::new(),
            is_listed: false,
            graph: Graph::default(),
            queue: BTreeSet::new(),
        };
        world.make_all(false);
        world
    }

    /// Makes what is late, or what is not.
    fn make_all(&mut self, late: bool) {
        for n in 0..COUNT {
            if is_late(&self.plans, n) == late {
                self.make(n);
            }
        }
    }

    fn make(&mut self, n: usize) {
        let plan = self.plans[n].clone();
        // What is never collected would hold up for ever what it blocks, as upstream.
        let is_stuck = plan.place == 0 && plan.owners.keys().any(|o| !self.is_node(*o));
        let reference = |(o, blocking): (&usize, &bool)| self.reference(*o, *blocking && !is_stuck);
        let owners = plan.owners.iter().map(reference);
        let mut meta = meta(&uid(n), owners.collect(), false, if plan.held { &[HELD] } else { &[] });
        meta.namespace = Some(namespace(plan.place).to_owned());
        let resource = if plan.place == 0 { NODES } else { KINDS[n % 2].clone() };
        self.put(Object { resource, meta });
    }

    fn is_node(&self, n: usize) -> bool {
        self.plans.get(n).is_some_and(|plan| plan.place == 0)
    }

    fn reference(&self, owner: usize, blocking: bool) -> OwnerReference {
        let is_node = self.is_node(owner);
        OwnerReference {
            api_version: "v1".into(),
            kind: if is_node { NODES } else { KINDS[owner % 2].clone() }.kind.into_owned(),
            ..super::owner(&uid(owner), blocking)
        }
    }

    fn key(object: &Object) -> Key {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Key::new(text(&object.meta.namespace), text(&object.meta.name))
    }

    fn hear_later(&mut self, old: Option<Object>, new: Option<Object>) {
        let any = new.as_ref().or(old.as_ref()).unwrap();
        let change = MetadataChange {
            key: Self::key(any),
            old: old.as_ref().map(|o| o.meta.clone()),
            new: new.as_ref().map(|o| o.meta.clone()),
        };
        self.unheard.entry(any.resource.clone()).or_default().push_back(change);
    }

    fn put(&mut self, mut object: Object) {
        self.revision += 1;
        object.meta.resource_version = Some(self.revision.to_string());
        let uid = object.meta.uid.clone().unwrap();
        let finalizers = object.meta.finalizers.clone().unwrap_or_default();
        if object.meta.deletion_timestamp.is_some() && finalizers.is_empty() {
            let old = self.objects.remove(&uid);
            return self.hear_later(old, None);
        }
        let old = self.objects.insert(uid, object.clone());
        self.hear_later(old, Some(object));
    }

    /// As the server deletes.
    fn delete(&mut self, uid: &str, propagation: &str) {
        let Some(mut object) = self.objects.get(uid).cloned() else {
            return;
        };
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH);
        let finalizers = object.meta.finalizers.get_or_insert_default();
        if object.meta.deletion_timestamp.is_none() {
            match propagation {
                "Foreground" => finalizers.push(FOREGROUND.to_owned()),
                "Orphan" => finalizers.push(ORPHAN.to_owned()),
                _ => {}
            }
        }
        object.meta.deletion_timestamp = Some(now);
        self.put(object);
    }

    fn release(&mut self) {
        let held = |o: &&Object| o.meta.finalizers.iter().flatten().any(|f| f == HELD);
        let all: Vec<Object> = self.objects.values().filter(held).cloned().collect();
        for mut object in all.into_iter().filter(|o| o.meta.deletion_timestamp.is_some()) {
            object.meta.finalizers.iter_mut().for_each(|f| f.retain(|f| f != HELD));
            self.put(object);
        }
    }

    /// Writes the metadata if the object is at the revision; false if it is not.
    fn change(&mut self, id: &str, revision: &str, change: impl FnOnce(&mut ObjectMeta)) -> bool {
        let Some(mut object) = self.objects.get(id).cloned() else {
            return true;
        };
        if object.meta.resource_version.as_deref() != Some(revision) {
            return false;
        }
        change(&mut object.meta);
        self.put(object);
        true
    }

    /// What a live look-up says.
    fn look_up(&self, dependent: &str, owner: &OwnerReference) -> Owner {
        let namespaced = owner.kind != "Node";
        if namespaced && dependent.is_empty() {
            return Owner::Impossible;
        }
        let place = if namespaced { dependent } else { "" };
        let there = self
            .objects
            .get(&owner.uid)
            .filter(|o| o.meta.namespace.as_deref() == Some(place));
        match there {
            None => Owner::Absent,
            Some(o)
                if o.meta.deletion_timestamp.is_some()
                    && o.meta.finalizers.iter().flatten().any(|f| f == FOREGROUND) =>
            {
                Owner::Waiting
            }
            Some(_) => Owner::Present,
        }
    }

    /// The collector hears the next change of one of the resources.
    fn hear(&mut self, which: usize) {
        let heard: Option<Resource> = self.unheard.keys().nth(which % self.unheard.len().max(1)).cloned();
        let Some(resource) = heard else { return };
        let news = self.unheard.get_mut(&resource).unwrap();
        let change = news.pop_front().unwrap();
        if news.is_empty() {
            self.unheard.remove(&resource);
        }
        self.is_listed |= self.unheard.is_empty();
        self.queue.extend(self.graph.observe(&resource, &change).wake);
    }

    /// The collector's watch of one of the resources is too late: it lists what there is.
    fn list(&mut self, which: usize) {
        let [one, other] = KINDS;
        let resource = [one, other, NODES][which % 3].clone();
        self.unheard.remove(&resource);
        self.is_listed |= self.unheard.is_empty();
        let mut listed = Listed::default();
        for object in self.objects.values().filter(|object| object.resource == resource) {
            listed.add(object.meta.uid.as_deref().unwrap());
            let change = MetadataChange {
                key: Self::key(object),
                old: None,
                new: Some(object.meta.clone()),
            };
            self.queue.extend(self.graph.observe(&resource, &change).wake);
        }
        for gone in self.graph.unlisted(&resource, &listed) {
            self.queue.extend(self.graph.remove_unnamed(&gone).wake);
        }
    }

    /// The collector looks at one object of its queue.
    fn work(&mut self, which: usize) {
        let Some(uid) = self.queue.iter().nth(which % self.queue.len().max(1)).cloned() else {
            return;
        };
        self.queue.remove(&uid);
        let answers: Vec<(OwnerReference, Owner)> = match self.graph.unknown_owners(&uid) {
            Some((id, owners)) => owners
                .into_iter()
                .map(|o| (o.clone(), self.look_up(&id.key.namespace, &o)))
                .collect(),
            None => Vec::new(),
        };
        let judge = |owner: &OwnerReference| {
            answers
                .iter()
                .find(|(o, _)| o == owner)
                .map_or(Owner::Present, |(_, a)| *a)
        };
        let action = self.graph.decide(&uid, judge);
        let is_late = action.needs_all_dependents() && !self.is_listed;
        let unseen = answers
            .iter()
            .any(|(o, a)| *a != Owner::Absent && *a != Owner::Impossible && !self.graph.contains(&o.uid));
        if is_late || !self.act(action) || unseen {
            self.queue.insert(uid);
        }
    }

    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Nothing => true,
            Action::Wake(uids) => {
                self.queue.extend(uids);
                true
            }
            Action::Delete {
                object,
                owners,
                propagation,
                ..
            } => {
                let live = self.objects.get(&object.uid);
                if live.is_some_and(|o| o.meta.owner_references.as_ref() != Some(&owners)) {
                    return false;
                }
                self.delete(&object.uid, propagation);
                true
            }
            Action::SetOwners {
                object,
                revision,
                owners,
            } => self.change(&object.uid, &revision, |meta| meta.owner_references = Some(owners)),
            Action::SetFinalizers {
                object,
                revision,
                finalizers,
            } => self.change(&object.uid, &revision, |meta| meta.finalizers = Some(finalizers)),
            Action::Orphan {
                object,
                dependents,
                revision,
                finalizers,
            } => {
                let mut freed = dependents.into_iter().map(|(d, revision, owners)| {
                    self.change(&d.uid, &revision, |meta| meta.owner_references = Some(owners))
                });
                let is_done = freed.all(|freed| freed);
                self.graph.release(&object);
                is_done && self.change(&object.uid, &revision, |meta| meta.finalizers = Some(finalizers))
            }
        }
    }

    /// A few turns, of either kind as the numbers say.
    fn turns(&mut self, turns: &[usize]) {
        for turn in turns {
            match turn % 2 {
                0 if turn % 16 == 0 => self.list(turn / 16),
                0 => self.hear(turn / 2),
                _ => self.work(turn / 2),
            }
        }
    }

    /// Everything is heard and done, and every finalizer of others goes.
    fn settle(&mut self, order: usize) {
        for round in 0..10_000 {
            if self.queue.is_empty() && self.unheard.is_empty() {
                let before = self.revision;
                self.release();
                if self.revision == before {
                    return;
                }
            }
            let which = order.wrapping_mul(round + 1);
            self.hear(which >> 8);
            self.work(which);
        }
        panic!("it never ends: {:?} of {:?}", self.queue, self.objects);
    }

    /// What is there, each with its owners.
    fn there(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let owners = |o: &Object| {
            o.meta
                .owner_references
                .iter()
                .flatten()
                .map(|o| number(&o.uid))
                .collect()
        };
        self.objects.iter().map(|(uid, o)| (number(uid), owners(o))).collect()
    }
}

/// The rule itself, on sets.
struct Rule {
    places: Vec<u8>,
    owners: BTreeMap<usize, BTreeSet<usize>>,
}

impl Rule {
    fn new(plans: &[Plan]) -> Self {
        let owners = plans
            .iter()
            .enumerate()
            .map(|(n, p)| (n, p.owners.keys().copied().collect()));
        let mut rule = Self {
            places: plans.iter().map(|p| p.place).collect(),
            owners: owners.collect(),
        };
        rule.collect();
        rule
    }

    fn place(&self, n: usize) -> Option<u8> {
        self.places.get(n).copied()
    }

    /// Whether an object can own another: from its namespace, or from none.
    fn owns(&self, owner: usize, object: usize) -> bool {
        let place = self.place(owner);
        self.owners.contains_key(&owner) && (place == Some(0) || place == self.place(object))
    }

    /// An object in no namespace with an owner in one is left alone.
    fn is_left_alone(&self, object: usize) -> bool {
        self.place(object) == Some(0) && self.owners[&object].iter().any(|o| self.place(*o) != Some(0))
    }

    /// Takes away what has lost all its owners, until nothing has; then the references to what is gone.
    fn collect(&mut self) {
        loop {
            let is_garbage = |n: usize, owners: &BTreeSet<usize>| {
                !owners.is_empty() && !self.is_left_alone(n) && !owners.iter().any(|o| self.owns(*o, n))
            };
            let garbage = self.owners.iter().find(|(n, owners)| is_garbage(**n, owners));
            let Some(garbage) = garbage.map(|(n, _)| *n) else { break };
            self.owners.remove(&garbage);
        }
        let kept = self.owners.keys().filter(|n| !self.is_left_alone(**n)).copied();
        for n in kept.collect::<Vec<_>>() {
            let stay = self.owners[&n].iter().filter(|o| self.owns(**o, n)).copied().collect();
            self.owners.insert(n, stay);
        }
    }

    fn delete(&mut self, n: usize, policy: &str) {
        if !self.owners.contains_key(&n) {
            return;
        }
        if policy == "Orphan" {
            let owned: Vec<usize> = self.owners.keys().copied().filter(|d| self.owns(n, *d)).collect();
            for d in owned {
                self.owners.entry(d).and_modify(|owners| {
                    owners.remove(&n);
                });
            }
        }
        self.owners.remove(&n);
        self.collect();
    }
}

/// Whether an object is made late: nothing depends on it, and all its owners are such that it stays as it is.
fn is_late(plans: &[Plan], n: usize) -> bool {
    let is_owner = plans.iter().any(|plan| plan.owners.contains_key(&n));
    let owners: BTreeSet<usize> = plans[n].owners.keys().copied().collect();
    plans[n].late && !is_owner && Rule::new(plans).owners.get(&n) == Some(&owners)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_lost_all_its_owners_goes_and_nothing_else(
        plans in plans(),
        deletions in proptest::collection::vec((0..COUNT, 0..3_usize), 1..5),
        turns in proptest::collection::vec(any::<usize>(), 0..60),
        order in any::<usize>(),
    ) {
        let mut rule = Rule::new(&plans);
        let mut world = World::new(plans);
        world.turns(&turns);
        world.settle(order);
        world.make_all(true);
        prop_assert_eq!(world.there(), rule.owners.clone());
        for (n, policy) in deletions {
            world.delete(&uid(n), POLICIES[policy]);
            rule.delete(n, POLICIES[policy]);
            world.turns(&turns);
            world.settle(order);
            prop_assert_eq!(world.there(), rule.owners.clone());
            prop_assert!(world.objects.values().all(|o| o.meta.deletion_timestamp.is_none()));
        }
    }

    /// Where nothing is orphaned, it does not matter what else is under way.
    #[test]
    fn deletions_at_the_same_time_take_what_they_would_one_after_another(
        plans in plans(),
        deletions in proptest::collection::vec((0..COUNT, 0..2_usize, proptest::collection::vec(any::<usize>(), 0..12)), 1..5),
        order in any::<usize>(),
    ) {
        let mut rule = Rule::new(&plans);
        let mut world = World::new(plans);
        world.make_all(true);
        for (n, policy, turns) in deletions {
            world.turns(&turns);
            world.delete(&uid(n), POLICIES[policy]);
            rule.delete(n, POLICIES[policy]);
        }
        world.settle(order);
        prop_assert_eq!(world.there(), rule.owners);
    }
}
