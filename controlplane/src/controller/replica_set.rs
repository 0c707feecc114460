//! ReplicaSet: as many active pods as asked for.
//!
//! Source: control-plane contract §12. Pods are made in slow-start batches, at most 500 per plan, and deleted in upstream's
//! order ([`order`]).

use super::harness::{Controller, Wiring, controller_key};
use super::informers::Informers;
use super::owner;
use super::pod::{self, is_active};
use super::write::{self, EventText, Failure, Plan, Write, reference};
use client::Key;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::selector::Selector;
use std::sync::Arc;

pub mod order;
pub mod status;

/// Most creations or deletions in one plan.
const BURST: usize = 500;

/// The controller.
pub struct ReplicaSets {
    /// The shared informers.
    pub informers: Informers,
}

impl ReplicaSets {
    /// What belongs to a replica set, and what it would take to make that so.
    fn claims(&self, rs: &ReplicaSet) -> owner::Claims<Pod> {
        let selector = Selector::from_api(&rs.spec_selector()).unwrap_or_else(|_| Selector::nothing());
        let controlled = self.informers.pods.controlled_by(&rs.uid().unwrap_or_default());
        let orphans = self.informers.pods.uncontrolled(&rs.namespace().unwrap_or_default());
        let orphans = orphans.into_iter().filter(|p| is_active(p)).collect();
        owner::claim((&write::REPLICA_SETS, rs), &selector, &write::PODS, controlled, orphans)
    }

    /// Active pods of all replica sets that share this one's owner.
    fn siblings(&self, rs: &ReplicaSet) -> Vec<Arc<Pod>> {
        let owners = rs.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|o| o.controller == Some(true));
        let Some(owner) = owner else {
            return self.informers.pods.controlled_by(&rs.uid().unwrap_or_default());
        };
        let sets = self.informers.replica_sets.controlled_by(&owner.uid);
        let pods = sets
            .iter()
            .flat_map(|s| self.informers.pods.controlled_by(&s.uid().unwrap_or_default()));
        pods.filter(|p| is_active(p)).collect()
    }
}

/// `spec.selector`, whether or not there is a spec.
trait SpecSelector {
    fn spec_selector(&self) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
}

impl SpecSelector for ReplicaSet {
    fn spec_selector(&self) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
        self.spec.as_ref().map(|s| s.selector.clone()).unwrap_or_default()
    }
}

impl Controller for ReplicaSets {
    const NAME: &'static str = "replicaset-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.replica_sets);
        let sets = self.informers.replica_sets.clone();
        wiring.on(&self.informers.pods, move |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let owners = sides
                .into_iter()
                .flatten()
                .filter_map(|p| controller_key(p, "ReplicaSet"));
            let mut keys: Vec<Key> = owners.collect();
            if let Some(orphan) = change.new.as_deref().filter(|p| pod::is_uncontrolled(p)) {
                // Whoever selects it may adopt it.
                let labels = orphan.metadata.labels.as_ref();
                let all = sets.list_namespace(&change.key.namespace);
                let selecting = all
                    .iter()
                    .filter(|s| Selector::from_api(&s.spec_selector()).is_ok_and(|sel| sel.matches_optional(labels)));
                keys.extend(selecting.map(|s| Key::of(&**s)));
            }
            keys
        });
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
        let mut writes = plan(&rs, &claims.owned, || self.siblings(&rs), now);
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

/// Pods to create or delete so that the active ones are as many as asked for.
pub fn plan(
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
        let count = (wanted - active.len()).min(BURST);
        let Some(template) = &spec.template else { return vec![] };
        let pod = pod::from_template(template, &write::REPLICA_SETS, rs);
        let create = Write::create(write::PODS, &pod)
            .success(event(rs, "Normal", "SuccessfulCreate", "Created pod: {}"))
            .failure(event(rs, "Warning", "FailedCreate", "Error creating: {}"));
        return vec![create; count];
    }
    let surplus = (active.len() - wanted).min(BURST);
    let delete = |pod: Arc<Pod>| {
        Write::delete(write::PODS, &*pod)
            .success(event(rs, "Normal", "SuccessfulDelete", "Deleted pod: {}"))
            .failure(event(rs, "Warning", "FailedDelete", "Error deleting: {}"))
    };
    if surplus == 0 {
        return vec![];
    }
    order::deletion_order(active, &siblings(), now)
        .into_iter()
        .take(surplus)
        .map(delete)
        .collect()
}

fn event(rs: &ReplicaSet, kind: &'static str, reason: &'static str, message: &str) -> EventText {
    EventText {
        regarding: reference(&write::REPLICA_SETS, rs),
        kind,
        reason,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
