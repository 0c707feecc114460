//! Who owns whom, and what follows from it. Pure.

use crate::controller::informers::MetadataChange;
use crate::controller::write::Resource;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};

/// Finalizer of a foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an orphaning deletion.
pub const ORPHAN: &str = "orphan";

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectId {
    /// Its resource.
    pub resource: Resource,
    /// Its namespace and name.
    pub key: Key,
    /// Its UID.
    pub uid: String,
}

#[derive(Clone, Debug)]
struct Node {
    id: ObjectId,
    owners: Vec<OwnerReference>,
    finalizers: Vec<String>,
    deleting: bool,
    revision: String,
}

impl Node {
    fn has(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|f| f == finalizer)
    }

    fn without(&self, finalizer: &str) -> Vec<String> {
        self.finalizers.iter().filter(|f| *f != finalizer).cloned().collect()
    }

    fn blocks(&self, owner: &str) -> bool {
        self.owners
            .iter()
            .any(|o| o.uid == owner && o.block_owner_deletion == Some(true))
    }
}

/// What is known of an owner the graph does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The server has it.
    Present,
    /// The server has no object of that UID.
    Absent,
}

/// What to do about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Look at these objects.
    Wake(Vec<String>),
    /// Delete it.
    Delete {
        /// The object.
        object: ObjectId,
        /// Propagation policy.
        propagation: &'static str,
    },
    /// Keep it, with fewer owners.
    SetOwners {
        /// The object.
        object: ObjectId,
        /// Precondition.
        revision: String,
        /// Owners that stay.
        owners: Vec<OwnerReference>,
    },
    /// Let its deletion proceed.
    SetFinalizers {
        /// The object.
        object: ObjectId,
        /// Precondition.
        revision: String,
        /// Finalizers that stay.
        finalizers: Vec<String>,
    },
    /// Take it out of its dependents' owners, then let its deletion proceed.
    Orphan {
        /// The object.
        object: ObjectId,
        /// Dependents, the precondition of each, and owners that stay.
        dependents: Vec<(ObjectId, String, Vec<OwnerReference>)>,
        /// Precondition.
        revision: String,
        /// Finalizers that stay.
        finalizers: Vec<String>,
    },
}

impl Action {
    /// Whether it would be wrong with a dependent that the graph does not know yet.
    pub fn needs_all_dependents(&self) -> bool {
        matches!(self, Self::SetFinalizers { .. } | Self::Orphan { .. })
    }
}

/// All objects by UID. Owners that were never seen are no nodes.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: BTreeMap<String, Node>,
    /// Dependents by owner.
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn insert(&mut self, resource: &Resource, key: &Key, meta: &ObjectMeta) -> String {
        let uid = meta.uid.clone().unwrap_or_default();
        self.disconnect(&uid);
        let node = Node {
            id: ObjectId {
                resource: resource.clone(),
                key: key.clone(),
                uid: uid.clone(),
            },
            owners: meta.owner_references.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            revision: meta.resource_version.clone().unwrap_or_default(),
        };
        for owner in &node.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        self.nodes.insert(uid.clone(), node);
        uid
    }

    /// Removes a node and its place among its owners' dependents; its own dependents stay.
    fn disconnect(&mut self, uid: &str) -> Option<Node> {
        let node = self.nodes.remove(uid)?;
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

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &Node> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|d| self.nodes.get(d))
    }

    /// Takes in a change; tells which objects to look at.
    pub fn observe(&mut self, resource: &Resource, change: &MetadataChange) -> Vec<String> {
        let mut woken = Vec::new();
        let uid = |meta: &ObjectMeta| meta.uid.clone().unwrap_or_default();
        let new = change.new.as_ref().map(uid);
        if let Some(old) = change.old.as_ref().map(uid).filter(|old| Some(old) != new.as_ref())
            && let Some(gone) = self.disconnect(&old)
        {
            woken.extend(self.dependents.get(&old).into_iter().flatten().cloned());
            // An owner may have been waiting for it.
            woken.extend(
                gone.owners
                    .into_iter()
                    .map(|o| o.uid)
                    .filter(|o| self.nodes.contains_key(o)),
            );
        }
        let Some(meta) = &change.new else { return woken };
        let before = self.nodes.get(&uid(meta)).cloned();
        let uid = self.insert(resource, &change.key, meta);
        let now = &self.nodes[&uid];
        let unchanged = before
            .as_ref()
            .is_some_and(|b| b.owners == now.owners && b.finalizers == now.finalizers && b.deleting == now.deleting);
        if unchanged {
            return woken;
        }
        if !now.owners.is_empty() || now.has(FOREGROUND) || now.has(ORPHAN) {
            woken.push(uid);
        }
        // An owner that stops blocking lets its owner go.
        for owner in before.into_iter().flat_map(|b| b.owners) {
            if self.nodes.get(&owner.uid).is_some_and(|o| o.has(FOREGROUND)) {
                woken.push(owner.uid);
            }
        }
        woken
    }

    /// Owners of an object that only the server can tell about.
    pub fn unknown_owners(&self, uid: &str) -> Vec<(ObjectId, OwnerReference)> {
        let Some(node) = self.nodes.get(uid).filter(|n| !n.deleting) else {
            return vec![];
        };
        let unknown = node.owners.iter().filter(|o| !self.is_known(node, o));
        unknown.map(|o| (node.id.clone(), o.clone())).collect()
    }

    /// Whether the owner is a node that may own the object: in its namespace, or in none.
    fn is_known(&self, node: &Node, owner: &OwnerReference) -> bool {
        self.nodes.get(&owner.uid).is_some_and(|known| {
            let namespace = &known.id.key.namespace;
            namespace.is_empty() || *namespace == node.id.key.namespace
        })
    }

    /// What to do about an object; `judge` speaks for the owners of [`Graph::unknown_owners`].
    pub fn decide(&self, uid: &str, judge: impl Fn(&OwnerReference) -> Owner) -> Action {
        let Some(node) = self.nodes.get(uid) else {
            return Action::Nothing;
        };
        if node.has(ORPHAN) {
            return self.orphan(node);
        }
        if node.has(FOREGROUND) {
            return self.foreground(node);
        }
        if node.deleting || node.owners.is_empty() {
            return Action::Nothing;
        }
        let (mut solid, mut gone, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for owner in &node.owners {
            let known = self.nodes.get(&owner.uid).filter(|_| self.is_known(node, owner));
            match known {
                Some(known) if known.has(FOREGROUND) && owner.block_owner_deletion == Some(true) => waiting.push(owner),
                Some(_) => solid.push(owner.clone()),
                None if judge(owner) == Owner::Absent => gone.push(owner),
                None => solid.push(owner.clone()),
            }
        }
        let object = node.id.clone();
        if !solid.is_empty() {
            if gone.is_empty() && waiting.is_empty() {
                return Action::Nothing;
            }
            return Action::SetOwners {
                object,
                revision: node.revision.clone(),
                owners: solid,
            };
        }
        let has_dependents = self.dependents_of(uid).next().is_some();
        let propagation = if !waiting.is_empty() && has_dependents {
            self.unblocked_cycle(node).map_or("Foreground", |()| "Background")
        } else if node.finalizers.iter().any(|f| f == ORPHAN) {
            "Orphan"
        } else if node.finalizers.iter().any(|f| f == FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        Action::Delete { object, propagation }
    }

    /// Some when the object waits, through its dependents, for itself: then it must not wait.
    fn unblocked_cycle(&self, node: &Node) -> Option<()> {
        let waits_for_us = |d: &Node| d.has(FOREGROUND) && node.owners.iter().any(|o| o.uid == d.id.uid);
        self.dependents_of(&node.id.uid).any(waits_for_us).then_some(())
    }

    fn orphan(&self, node: &Node) -> Action {
        let without = |d: &Node| {
            d.owners
                .iter()
                .filter(|o| o.uid != node.id.uid)
                .cloned()
                .collect::<Vec<_>>()
        };
        Action::Orphan {
            object: node.id.clone(),
            dependents: self
                .dependents_of(&node.id.uid)
                .map(|d| (d.id.clone(), d.revision.clone(), without(d)))
                .collect(),
            revision: node.revision.clone(),
            finalizers: node.without(ORPHAN),
        }
    }

    fn foreground(&self, node: &Node) -> Action {
        let blocking: Vec<&Node> = self
            .dependents_of(&node.id.uid)
            .filter(|d| d.blocks(&node.id.uid))
            .collect();
        if blocking.is_empty() {
            return Action::SetFinalizers {
                object: node.id.clone(),
                revision: node.revision.clone(),
                finalizers: node.without(FOREGROUND),
            };
        }
        let idle = blocking.iter().filter(|d| !d.deleting).map(|d| d.id.uid.clone());
        Action::Wake(idle.collect())
    }
}
