//! What is to be done about an object, by who owns it. Pure.
//!
//! Source: control-plane contract §12; Kubernetes' page "Garbage Collection" of the concepts. An object goes when all its owners are gone, or are
//! being deleted in the foreground; if some stay, the references to the others go. A circle of owners therefore keeps itself, as upstream's, until one of
//! it is deleted. Under foreground deletions a circle would wait for itself: who takes part in one stops blocking it.

use super::{FOREGROUND, Graph, Node, ORPHAN, ObjectId};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeSet;

/// What is known of an owner the graph does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The server has it.
    Present,
    /// The server has it, and it waits for its dependents to be deleted.
    Waiting,
    /// The server has no object of that UID.
    Absent,
    /// It lives in namespaces, and the object does not: nothing can be said, now or ever.
    Impossible,
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
        /// Precondition, unless its owners are the same in a later revision.
        revision: String,
        /// The owners it has, all of them gone or going.
        owners: Vec<OwnerReference>,
        /// Propagation policy.
        propagation: &'static str,
    },
    /// Keep it, with fewer owners, or with owners it blocks no longer.
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

/// An object's owners.
#[derive(Default)]
struct Owners {
    /// They are there, and do not wait for their dependents.
    solid: Vec<OwnerReference>,
    is_any_gone: bool,
    is_any_waiting: bool,
    /// Some are gone and orphaned the object.
    is_any_released: bool,
}

impl Graph {
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
        let Some(owners) = self.classify(node, judge) else {
            return Action::Nothing;
        };
        let (object, revision) = (node.id.clone(), node.revision.clone());
        if owners.solid.is_empty() && owners.is_any_released {
            // Without them it is judged anew.
            let others = node.owners.iter().filter(|o| !self.is_released(node, o));
            return Action::SetOwners {
                object,
                revision,
                owners: others.cloned().collect(),
            };
        }
        if owners.solid.is_empty() {
            return Action::Delete {
                object,
                revision,
                owners: node.owners.clone(),
                propagation: self.propagation(node, owners.is_any_waiting),
            };
        }
        if !owners.is_any_gone && !owners.is_any_waiting {
            return Action::Nothing;
        }
        Action::SetOwners {
            object,
            revision,
            owners: owners.solid,
        }
    }

    /// `None` if one of them can never be judged: the object is left alone then.
    fn classify(&self, node: &Node, judge: impl Fn(&OwnerReference) -> Owner) -> Option<Owners> {
        let mut owners = Owners::default();
        for owner in &node.owners {
            let known = self.get(&owner.uid).filter(|_| self.is_known(node, owner));
            let is = match known {
                Some(known) if known.has(FOREGROUND) => Owner::Waiting,
                Some(_) => Owner::Present,
                None => judge(owner),
            };
            match is {
                Owner::Present => owners.solid.push(owner.clone()),
                Owner::Waiting => owners.is_any_waiting = true,
                Owner::Absent => {
                    owners.is_any_gone = true;
                    owners.is_any_released |= self.is_released(node, owner);
                }
                Owner::Impossible => return None,
            }
        }
        Some(owners)
    }

    /// A foreground deletion goes down the tree; otherwise the object's own finalizers say how it goes.
    fn propagation(&self, node: &Node, is_any_waiting: bool) -> &'static str {
        let has = |finalizer: &str| node.finalizers.iter().any(|f| f == finalizer);
        if is_any_waiting && self.dependents_of(node).next().is_some() {
            "Foreground"
        } else if has(ORPHAN) {
            "Orphan"
        } else if has(FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        }
    }

    fn orphan(&self, node: &Node) -> Action {
        let others = |d: &Node| d.owners.iter().filter(|o| o.uid != node.id.uid).cloned().collect();
        let dependents = self.dependents_of(node);
        Action::Orphan {
            object: node.id.clone(),
            dependents: dependents
                .map(|d| (d.id.clone(), d.revision.clone(), others(d)))
                .collect(),
            revision: node.revision.clone(),
            finalizers: node.without(ORPHAN),
        }
    }

    fn foreground(&self, node: &Node) -> Action {
        let (object, revision) = (node.id.clone(), node.revision.clone());
        let uid = &node.id.uid;
        if !self.dependents_of(node).any(|d| d.blocks(uid)) {
            return Action::SetFinalizers {
                object,
                revision,
                finalizers: node.without(FOREGROUND),
            };
        }
        if let Some(owners) = self.disentangled(node) {
            return Action::SetOwners {
                object,
                revision,
                owners,
            };
        }
        let idle = self.dependents_of(node).filter(|d| !d.deleting);
        let idle: Vec<String> = idle.map(|d| d.id.uid.clone()).collect();
        match idle.is_empty() {
            true => Action::Nothing,
            false => Action::Wake(idle),
        }
    }

    /// The object's owners, no longer blocked where they, too, wait for the object and it for them; `None` if there are none such.
    fn disentangled(&self, node: &Node) -> Option<Vec<OwnerReference>> {
        let blocks = |o: &OwnerReference| {
            let owner = self.get(&o.uid);
            o.block_owner_deletion == Some(true) && owner.is_some_and(|owner| owner.has(FOREGROUND))
        };
        if !node.owners.iter().any(blocks) {
            return None;
        }
        let awaited = self.awaited_by(node);
        let is_entangled = |o: &OwnerReference| blocks(o) && awaited.contains(o.uid.as_str());
        if !node.owners.iter().any(is_entangled) {
            return None;
        }
        let mut owners = node.owners.clone();
        let entangled = owners.iter_mut().filter(|o| is_entangled(o));
        entangled.for_each(|o| o.block_owner_deletion = Some(false));
        Some(owners)
    }

    /// The objects under foreground deletion that the object waits for, through however many others.
    fn awaited_by<'a>(&'a self, node: &'a Node) -> BTreeSet<&'a str> {
        let mut awaited = BTreeSet::new();
        let mut open = vec![node];
        while let Some(waiting) = open.pop() {
            let uid = &waiting.id.uid;
            for next in self.dependents_of(waiting) {
                if next.has(FOREGROUND) && next.blocks(uid) && awaited.insert(next.id.uid.as_str()) {
                    open.push(next);
                }
            }
        }
        awaited
    }
}
