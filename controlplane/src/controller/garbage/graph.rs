//! Who owns whom. Pure; what follows from it is decided in [`decide`].

use crate::controller::informers::MetadataChange;
use crate::controller::write::Resource;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

pub mod decide;
mod plain;

pub use decide::{Action, Owner};
use plain::{Known, Plains, Uuid, compact};

/// Finalizer of a foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an orphaning deletion.
pub const ORPHAN: &str = "orphan";

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectId {
    /// Its resource: one for all its objects.
    pub resource: Arc<Resource>,
    /// Its namespace and name.
    pub key: Key,
    /// Its UID.
    pub uid: String,
}

impl ObjectId {
    /// Whether it is where it can own the object: in its namespace, or in none.
    fn can_own(&self, object: &ObjectId) -> bool {
        let namespace = &self.key.namespace;
        namespace.is_empty() || *namespace == object.key.namespace
    }

    /// Whether the reference calls it by its kind and name.
    fn is_named_by(&self, owner: &OwnerReference) -> bool {
        let resource = &self.resource;
        resource.kind == owner.kind && resource.group == group_of(&owner.api_version) && self.key.name == owner.name
    }
}

/// What tells one reference of an object from another: UID, API version, kind and name.
pub(super) type Identity<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The identity of a reference.
pub(super) fn identity(owner: &OwnerReference) -> Identity<'_> {
    (&owner.uid, &owner.api_version, &owner.kind, &owner.name)
}

#[derive(Clone, Debug)]
struct Node {
    id: ObjectId,
    owners: Vec<OwnerReference>,
    /// Places in `owners`, by UID: an object may have tens of thousands of them.
    by_uid: Vec<usize>,
    finalizers: Vec<String>,
    deleting: bool,
    revision: String,
}

impl Node {
    fn new(resource: Arc<Resource>, key: &Key, meta: &ObjectMeta) -> Self {
        let owners = meta.owner_references.clone().unwrap_or_default();
        let mut by_uid: Vec<usize> = (0..owners.len()).collect();
        by_uid.sort_by_key(|at| &owners[*at].uid);
        Self {
            id: ObjectId {
                resource,
                key: key.clone(),
                uid: meta.uid.clone().unwrap_or_default(),
            },
            owners,
            by_uid,
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            revision: meta.resource_version.clone().unwrap_or_default(),
        }
    }

    /// Whether nothing is ever to be done about it, as it is.
    fn is_plain(&self) -> bool {
        self.owners.is_empty() && self.finalizers.is_empty() && !self.deleting
    }

    fn has(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|f| f == finalizer)
    }

    fn without(&self, finalizer: &str) -> Vec<String> {
        self.finalizers.iter().filter(|f| *f != finalizer).cloned().collect()
    }

    /// Its references to an owner.
    fn references_to(&self, owner: &str) -> impl Iterator<Item = &OwnerReference> {
        let uid = |at: &usize| self.owners[*at].uid.as_str();
        let first = self.by_uid.partition_point(|at| uid(at) < owner);
        let count = self.by_uid[first..].partition_point(|at| uid(at) == owner);
        self.by_uid[first..first + count].iter().map(|at| &self.owners[*at])
    }

    fn blocks(&self, owner: &str) -> bool {
        self.references_to(owner).any(|o| o.block_owner_deletion == Some(true))
    }
}

/// The group of an API version.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// What follows from a change, beside what is decided about each object.
#[derive(Debug, Default, PartialEq)]
pub struct Observed {
    /// UIDs of the objects to look at.
    pub wake: Vec<String>,
    /// Objects with references to an owner that is in another namespace.
    pub misplaced: Vec<(ObjectId, OwnerReference)>,
    /// An object that is gone and that others refer to.
    pub gone: Option<ObjectId>,
}

/// The UIDs of a list.
#[derive(Debug, Default)]
pub struct Listed {
    uuids: BTreeSet<Uuid>,
    /// Those that are no UUIDs.
    named: BTreeSet<String>,
}

impl Listed {
    /// One more.
    pub fn add(&mut self, uid: &str) {
        match compact(uid) {
            Some(uid) => self.uuids.insert(uid),
            None => self.named.insert(uid.to_owned()),
        };
    }

    fn has(&self, uid: &str) -> bool {
        match compact(uid) {
            Some(uid) => self.uuids.contains(&uid),
            None => self.named.contains(uid),
        }
    }

    fn len(&self) -> usize {
        self.uuids.len() + self.named.len()
    }
}

/// Owners remembered that let their dependents go.
const RELEASED: usize = 4096;

/// Owners that were deleted with their dependents orphaned, the latest ones: a dependent whose event comes only afterwards is not to go
/// with its owner.
#[derive(Debug, Default)]
struct Released {
    known: BTreeMap<String, ObjectId>,
    order: VecDeque<String>,
}

impl Released {
    fn add(&mut self, owner: &ObjectId) {
        if self.known.insert(owner.uid.clone(), owner.clone()).is_none() {
            self.order.push_back(owner.uid.clone());
        }
        while self.order.len() > RELEASED {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

/// All objects by UID. Owners that were never seen are no nodes.
#[derive(Debug, Default)]
pub struct Graph {
    /// Apart from the map, whose places for more of them would be as large.
    nodes: BTreeMap<String, Box<Node>>,
    /// Those that nothing is to be done about, as long as their UIDs are UUIDs.
    plain: Plains,
    /// How many objects there are of each resource.
    resources: BTreeMap<Arc<Resource>, usize>,
    /// Dependents by owner.
    dependents: BTreeMap<String, BTreeSet<String>>,
    released: Released,
}

/// An object that the graph has.
#[derive(Clone, Copy)]
enum Present<'a> {
    Node(&'a Node),
    Plain(Known<'a>),
}

impl Present<'_> {
    fn can_own(self, object: &ObjectId) -> bool {
        match self {
            Self::Node(node) => node.id.can_own(object),
            Self::Plain(plain) => plain.can_own(&object.key),
        }
    }

    fn is_named_by(self, owner: &OwnerReference) -> bool {
        match self {
            Self::Node(node) => node.id.is_named_by(owner),
            Self::Plain(plain) => plain.is_named_by(owner),
        }
    }

    fn has(self, finalizer: &str) -> bool {
        matches!(self, Self::Node(node) if node.has(finalizer))
    }
}

/// What was there before of an object that is there now.
enum Before {
    Nothing,
    Plain,
    Node(Box<Node>),
}

impl Before {
    fn owners(&self) -> &[OwnerReference] {
        match self {
            Self::Node(node) => &node.owners,
            _ => &[],
        }
    }
}

impl Graph {
    fn resource(&mut self, resource: &Resource) -> Arc<Resource> {
        if let Some((known, _)) = self.resources.get_key_value(resource) {
            return known.clone();
        }
        let new = Arc::new(resource.clone());
        self.resources.insert(new.clone(), 0);
        new
    }

    /// One object more of a resource, or one less.
    fn count(&mut self, resource: &Resource, by: isize) {
        if let Some(count) = self.resources.get_mut(resource) {
            *count = count.saturating_add_signed(by);
        }
    }

    fn get(&self, uid: &str) -> Option<Present<'_>> {
        let node = self.nodes.get(uid).map(|node| Present::Node(node));
        node.or_else(|| self.plain.get(uid).map(Present::Plain))
    }

    /// Takes the node in; what was in its place.
    fn insert(&mut self, node: &Node) -> Before {
        let uid = &node.id.uid;
        let before = match self.disconnect(uid) {
            Some(node) => Before::Node(node),
            None if self.take_plain(uid) => Before::Plain,
            None => Before::Nothing,
        };
        self.count(&node.id.resource, 1);
        if self.plain.insert(node) {
            return before;
        }
        for owner in &node.owners {
            let of_owner = self.dependents.entry(owner.uid.clone()).or_default();
            of_owner.insert(uid.clone());
        }
        self.nodes.insert(uid.clone(), Box::new(node.clone()));
        before
    }

    /// Removes a node and its place among its owners' dependents; its own dependents stay.
    fn disconnect(&mut self, uid: &str) -> Option<Box<Node>> {
        let node = self.nodes.remove(uid)?;
        self.count(&node.id.resource, -1);
        for owner in &node.owners {
            if let Some(siblings) = self.dependents.get_mut(&owner.uid) {
                siblings.remove(uid);
                if siblings.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        Some(node)
    }

    /// Removes an object that is no node; whether it was there.
    fn take_plain(&mut self, uid: &str) -> bool {
        let Some(resource) = self.plain.remove(uid) else {
            return false;
        };
        self.count(&resource, -1);
        true
    }

    /// The objects that refer to a UID, from wherever.
    fn referring_to(&self, uid: &str) -> impl Iterator<Item = &Node> {
        let referring = self.dependents.get(uid).into_iter().flatten();
        referring.filter_map(|d| self.nodes.get(d).map(Box::as_ref))
    }

    /// The objects that a node owns: what refers to it from another namespace is none of them.
    fn dependents_of<'a>(&'a self, owner: &'a Node) -> impl Iterator<Item = &'a Node> {
        self.referring_to(&owner.id.uid).filter(|d| owner.id.can_own(&d.id))
    }

    /// Takes in a change.
    pub fn observe(&mut self, resource: &Resource, change: &MetadataChange) -> Observed {
        let uid = |meta: &ObjectMeta| meta.uid.clone().unwrap_or_default();
        let new = change.new.as_ref().map(uid);
        let old = change.old.as_ref().map(uid).filter(|old| Some(old) != new.as_ref());
        let (resource, key) = (self.resource(resource), &change.key);
        let mut observed = Observed::default();
        if let Some(uid) = old {
            observed = self.remove(ObjectId {
                resource: resource.clone(),
                key: key.clone(),
                uid,
            });
        }
        match &change.new {
            Some(meta) if !self.renew(&resource, key, meta) => {
                self.put(&Node::new(resource, key, meta), &mut observed);
            }
            _ => {}
        }
        observed
    }

    /// Takes in a node of which nothing but its revision is another; whether it is one. Nearly all changes are: nothing follows from them,
    /// and nothing is to be made anew for them.
    fn renew(&mut self, resource: &Arc<Resource>, key: &Key, meta: &ObjectMeta) -> bool {
        let known = meta.uid.as_ref().and_then(|uid| self.nodes.get_mut(uid));
        let is_same = |node: &&mut Box<Node>| {
            node.id.resource == *resource
                && node.id.key == *key
                && node.owners == meta.owner_references.as_deref().unwrap_or_default()
                && node.finalizers == meta.finalizers.as_deref().unwrap_or_default()
                && node.deleting == meta.deletion_timestamp.is_some()
        };
        let Some(node) = known.filter(is_same) else {
            return false;
        };
        node.revision = meta.resource_version.clone().unwrap_or_default();
        true
    }

    fn put(&mut self, now: &Node, observed: &mut Observed) {
        let before = self.insert(now);
        let is_same = match &before {
            Before::Nothing => false,
            Before::Plain => now.is_plain(),
            Before::Node(before) => {
                before.owners == now.owners && before.finalizers == now.finalizers && before.deleting == now.deleting
            }
        };
        if is_same {
            return;
        }
        self.note_references(&before, now, observed);
        if !now.owners.is_empty() || now.has(FOREGROUND) || now.has(ORPHAN) {
            observed.wake.push(now.id.uid.clone());
        }
        // An owner that stops blocking lets its owner go.
        for owner in before.owners() {
            if self.get(&owner.uid).is_some_and(|o| o.has(FOREGROUND)) {
                observed.wake.push(owner.uid.clone());
            }
        }
    }

    /// Notes references that are wrong: new ones of the object, and those to it, if it is new.
    fn note_references(&self, before: &Before, now: &Node, observed: &mut Observed) {
        let known: HashSet<Identity<'_>> = before.owners().iter().map(identity).collect();
        for owner in now.owners.iter().filter(|o| !known.contains(&identity(o))) {
            if self.get(&owner.uid).is_some_and(|known| !known.can_own(&now.id)) {
                observed.misplaced.push((now.id.clone(), owner.clone()));
            }
        }
        if !matches!(before, Before::Nothing) {
            return;
        }
        for dependent in self.referring_to(&now.id.uid).filter(|d| d.id.uid != now.id.uid) {
            for owner in dependent
                .references_to(&now.id.uid)
                .filter(|owner| !self.is_known(dependent, owner))
            {
                observed.wake.push(dependent.id.uid.clone());
                if !now.id.can_own(&dependent.id) {
                    observed.misplaced.push((dependent.id.clone(), owner.clone()));
                }
            }
        }
    }

    fn remove(&mut self, gone: ObjectId) -> Observed {
        let mut observed = self.remove_unnamed(&gone.uid);
        if observed.gone.is_none() && self.dependents.contains_key(&gone.uid) {
            observed.gone = Some(gone);
        }
        observed
    }

    /// Removes an object of which nothing is known but what the graph has: an object that nothing was to be done about has no name.
    pub fn remove_unnamed(&mut self, uid: &str) -> Observed {
        let mut observed = Observed::default();
        let gone = self.disconnect(uid);
        if gone.is_none() && !self.take_plain(uid) {
            return observed;
        }
        observed
            .wake
            .extend(self.dependents.get(uid).into_iter().flatten().cloned());
        let Some(gone) = gone else { return observed };
        // An owner may have been waiting for it.
        let owners = gone.owners.iter().map(|o| &o.uid);
        let owners: Vec<String> = owners.filter(|o| self.contains(o)).cloned().collect();
        if !observed.wake.is_empty() {
            observed.gone = Some(gone.id);
        }
        observed.wake.extend(owners);
        observed
    }

    /// The UIDs of a resource's objects that are not listed, all of which are here. Goes through all objects only if there are any.
    pub fn unlisted(&self, resource: &Resource, listed: &Listed) -> Vec<String> {
        if self.resources.get(resource).is_none_or(|count| *count == listed.len()) {
            return Vec::new();
        }
        let of_resource = self.nodes.values().filter(|n| *n.id.resource == *resource);
        let uids = of_resource.map(|n| &n.id.uid).filter(|uid| !listed.has(uid));
        let mut unlisted: Vec<String> = uids.cloned().collect();
        unlisted.extend(self.plain.of(resource, &listed.uuids));
        unlisted
    }

    /// Forgets the objects of a resource that nobody reads any more; whether they are gone, only the server can tell. Gives the objects to
    /// look at.
    pub fn forget(&mut self, resource: &Resource) -> Vec<String> {
        let gone = self.unlisted(resource, &Listed::default());
        let woken = gone.iter().flat_map(|uid| self.remove_unnamed(uid).wake).collect();
        self.resources.remove(resource);
        self.plain.forget(resource);
        woken
    }

    /// Remembers that an owner orphans its dependents. To be called before the owner can go.
    pub fn release(&mut self, owner: &ObjectId) {
        self.released.add(owner);
    }

    /// Whether the reference is to an owner that orphaned its dependents, this object among them.
    fn is_released(&self, node: &Node, owner: &OwnerReference) -> bool {
        let released = self.released.known.get(&owner.uid);
        released.is_some_and(|released| released.can_own(&node.id) && released.is_named_by(owner))
    }

    /// Whether the object of that UID has been seen.
    pub fn contains(&self, uid: &str) -> bool {
        self.get(uid).is_some()
    }

    /// An object with those of its owners that only the server can tell about.
    pub fn unknown_owners(&self, uid: &str) -> Option<(ObjectId, Vec<OwnerReference>)> {
        let node = self.nodes.get(uid).filter(|n| !n.deleting)?;
        let unknown = node.owners.iter().filter(|o| !self.is_known(node, o));
        Some((node.id.clone(), unknown.cloned().collect()))
    }

    /// Whether the owner is a node that may own the object and that the reference names rightly.
    fn is_known(&self, node: &Node, owner: &OwnerReference) -> bool {
        let known = self.get(&owner.uid);
        known.is_some_and(|known| known.can_own(&node.id) && known.is_named_by(owner))
    }
}
