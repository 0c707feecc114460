//! Admission to the node.
//!
//! Owns the node's ledger: what admitted pods hold of its CPU, memory, pod slots and host ports. [`decide`] is pure. One task
//! (the owner of the workers) holds the ledger; a pod's grant returns when nothing of it can run any more, however long its
//! object stays. Pods the runtime already has are granted again after a restart, never judged twice.

pub mod decide;
pub mod description;
pub mod placement;
pub mod preemption;
pub mod sysctl;

use crate::id::PodUid;
use crate::pod_object;
use decide::{Holding, Node, Rejection};
use k8s_openapi::api::core::v1::Pod;
use placement::NodeView;
use preemption::Missing;
use std::collections::BTreeMap;

/// What the node's admitted pods hold.
#[derive(Debug)]
pub struct Ledger {
    node: Node,
    grants: BTreeMap<PodUid, Holding>,
}

impl Ledger {
    /// An empty ledger of a node.
    pub fn new(node: Node) -> Self {
        Self {
            node,
            grants: BTreeMap::new(),
        }
    }

    /// Admits a pod to the node as it is described now, or tells why not. A pod that holds a grant keeps it.
    pub fn admit(&mut self, view: &NodeView, pod: &Pod) -> Result<(), Rejection> {
        let uid = pod_object::uid(pod);
        if self.grants.contains_key(&uid) {
            return Ok(());
        }
        decide::decide(&self.node, view, self.grants.values(), pod)?;
        self.grants.insert(uid, Holding::of(pod));
        Ok(())
    }

    /// Judges a pod by the rules that come before what it is to have alone.
    ///
    /// # Errors
    /// The first of them that refuses it.
    pub fn judge_first(&self, view: &NodeView, pod: &Pod) -> Result<(), Rejection> {
        decide::judge_first(&self.node, view, pod)
    }

    /// Grants a pod that holds a grant what it wants now instead, or tells why not. Without room it keeps what it has.
    ///
    /// # Errors
    /// The first rule that refuses it beside all others.
    pub fn resize(&mut self, view: &NodeView, pod: &Pod) -> Result<(), Rejection> {
        let uid = pod_object::uid(pod);
        let others = self.grants.iter().filter(|(of, _)| **of != uid);
        decide::decide(&self.node, view, others.map(|(_, holding)| holding), pod)?;
        self.grants.insert(uid, Holding::of(pod));
        Ok(())
    }

    /// What is missing for a pod that is refused, if that is resources alone.
    ///
    /// # Errors
    /// It would be refused for another reason, this one.
    pub fn missing(&self, view: &NodeView, pod: &Pod) -> Result<Vec<Missing>, Rejection> {
        decide::missing(&self.node, view, self.grants.values(), pod)
    }

    /// Judges a pod that is refused as if some of those who hold grants were gone; tells who these are.
    ///
    /// # Errors
    /// It is refused all the same.
    pub fn judge_without(
        &self,
        view: &NodeView,
        pod: &Pod,
        gone: impl Fn(&PodUid) -> bool,
    ) -> Result<Vec<PodUid>, Rejection> {
        let others = self.grants.iter().filter(|(of, _)| !gone(of));
        decide::decide(&self.node, view, others.map(|(_, holding)| holding), pod)?;
        let gone = self.grants.keys().filter(|of| gone(of));
        Ok(gone.cloned().collect())
    }

    /// Whether a pod fits beside all others who hold grants, whether it holds one itself or not.
    pub fn has_room(&self, view: &NodeView, pod: &Pod) -> bool {
        let uid = pod_object::uid(pod);
        let others = self.grants.iter().filter(|(of, _)| **of != uid);
        decide::decide(&self.node, view, others.map(|(_, holding)| holding), pod).is_ok()
    }

    /// Grants without judging: what runs already, runs.
    pub fn grant(&mut self, pod: &Pod) {
        self.grants.insert(pod_object::uid(pod), Holding::of(pod));
    }

    /// Takes back the grants of pods that have ended; tells whether there were any.
    pub fn release_ended(&mut self, ended: impl Fn(&PodUid) -> bool) -> bool {
        let before = self.grants.len();
        self.grants.retain(|uid, _| !ended(uid));
        self.grants.len() < before
    }

    /// Takes a grant back.
    pub fn release(&mut self, uid: &PodUid) {
        self.grants.remove(uid);
    }
}
