//! ReplicaSet: as many active pods as asked for.
//!
//! Source: control-plane contract §12. Pods are made in slow-start batches, at most 500 per plan and fewer if they are large ([`Burst`]), and deleted in upstream's
//! order ([`order`]).

use super::burst::Burst;
use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::owner;
use super::pod::{self, is_active};
use super::write::{self, Failure, Plan, Resource, Write};
use crate::held::Pod;
use client::Key;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::selector::Selector;
use std::sync::Arc;

pub mod order;
pub mod status;

/// Most creations or deletions in one plan.
pub const BURST: usize = 500;

/// The controller.
pub struct ReplicaSets {
    /// The shared informers.
    pub informers: Informers,
}

impl ReplicaSets {
    /// The pods that name a replica set their controller.
    fn controlled(&self, rs: &ReplicaSet) -> Vec<Arc<Pod>> {
        let (namespace, uid) = (rs.namespace().unwrap_or_default(), rs.uid().unwrap_or_default());
        self.informers.pods.controlled_by(&namespace, &uid)
    }

    /// What belongs to a replica set, and what it would take to make that so.
    fn claims(&self, rs: &ReplicaSet) -> owner::Claims<Pod> {
        let selector = selector(rs).unwrap_or_else(Selector::nothing);
        let (namespace, uid) = (rs.namespace().unwrap_or_default(), rs.uid().unwrap_or_default());
        let (controlled, orphans) = self.informers.pods.claimable(&namespace, &uid);
        let orphans = orphans.into_iter().filter(|p| is_active(p)).collect();
        owner::claim((&write::REPLICA_SETS, rs), &selector, &write::PODS, controlled, orphans)
    }

    /// Active pods of all replica sets that share this one's owner.
    fn siblings(&self, rs: &ReplicaSet) -> Vec<Arc<Pod>> {
        let owners = rs.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|o| o.controller == Some(true));
        let Some(owner) = owner else {
            return self.controlled(rs);
        };
        let namespace = rs.namespace().unwrap_or_default();
        let sets = self.informers.replica_sets.controlled_by(&namespace, &owner.uid);
        let pods = sets.iter().flat_map(|set| self.controlled(set));
        pods.filter(|p| is_active(p)).collect()
    }
}

/// What the set selects; nothing without a spec.
fn selector(rs: &ReplicaSet) -> Option<Selector> {
    rs.spec.as_ref().and_then(|s| Selector::from_api(&s.selector).ok())
}

impl Controller for ReplicaSets {
    const NAME: &'static str = "replicaset-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.replica_sets);
        wiring.on_owned(
            &self.informers.pods,
            &self.informers.replica_sets,
            "ReplicaSet",
            selector,
        );
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(rs) = self.informers.replica_sets.get_key(key) else {
            return Plan::default();
        };
        let claims = self.claims(&rs);
        if !claims.writes.is_empty() {
            return Plan {
                writes: claims.writes,
                ..Plan::default()
            };
        }
        let mut writes = plan(&write::REPLICA_SETS, &rs, &claims.owned, || self.siblings(&rs), now);
        if !self.informers.takes_new(&key.namespace) {
            writes.retain(|w| !matches!(w.verb, write::Verb::Create(_)));
        }
        Plan {
            writes,
            events: vec![],
            again_in: status::available_in(&rs, &claims.owned, now),
        }
    }

    fn status(&self, key: &Key, now: Timestamp, failure: Option<&Failure>) -> Vec<Write> {
        let Some(rs) = self.informers.replica_sets.get_key(key) else {
            return vec![];
        };
        let claims = self.claims(&rs);
        let new = status::status(&rs, &claims.owned, failure, now);
        if rs.status.as_ref() == Some(&new) {
            return vec![];
        }
        let mut rs = ReplicaSet::clone(&rs);
        rs.status = Some(new);
        vec![Write::replace_status(write::REPLICA_SETS, &rs)]
    }
}

/// Pods to create or delete so that the active ones are as many as asked for. A set of another resource (a
/// ReplicationController is one with other words) is the owner that its pods and events name.
pub fn plan(
    resource: &Resource,
    rs: &ReplicaSet,
    owned: &[Arc<Pod>],
    siblings: impl FnOnce() -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> Vec<Write> {
    let Some(spec) = &rs.spec else { return vec![] };
    if rs.metadata.deletion_timestamp.is_some() {
        return vec![];
    }
    let active: Vec<Arc<Pod>> = owned.iter().filter(|p| is_active(p)).cloned().collect();
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    if active.len() < wanted {
        let count = wanted - active.len();
        let Some(template) = &spec.template else { return vec![] };
        let pod = pod::from_template(template, resource, rs);
        let creations = std::iter::repeat_n(pod::create(&pod, resource, rs), count);
        return Burst::new(BURST).fill(creations).into_writes();
    }
    let surplus = (active.len() - wanted).min(BURST);
    if surplus == 0 {
        return vec![];
    }
    order::deletion_order(active, &siblings(), now)
        .into_iter()
        .take(surplus)
        .map(|surplus| pod::delete(&surplus, resource, rs))
        .collect()
}

#[cfg(test)]
mod tests;
