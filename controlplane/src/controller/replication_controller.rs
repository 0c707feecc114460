//! ReplicationController: a ReplicaSet in older words. What it wants is decided by [`replica_set`]; here its words are translated.
//!
//! Source: control-plane contract §12.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::owner;
use super::pod::is_active;
use super::replica_set::{self, status};
use super::write::{self, Failure, Plan, Verb, Write};
use crate::held::Pod;
use client::Key;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::selector::Selector;

/// The controller.
pub struct ReplicationControllers {
    /// The shared informers.
    pub informers: Informers,
}

/// What it selects; nothing when it names no labels.
fn selector(rc: &ReplicationController) -> Option<Selector> {
    let pairs = rc.spec.as_ref()?.selector.as_ref()?;
    (!pairs.is_empty()).then(|| Selector::from_pairs(pairs))
}

/// The replica set that wants what this one wants. Its metadata are the original's.
pub fn as_replica_set(rc: &ReplicationController) -> ReplicaSet {
    let spec = rc.spec.as_ref().map(|spec| ReplicaSetSpec {
        min_ready_seconds: spec.min_ready_seconds,
        replicas: spec.replicas,
        selector: LabelSelector {
            match_labels: spec.selector.clone(),
            match_expressions: None,
        },
        template: spec.template.clone(),
    });
    let status = rc.status.clone().map(|status| ReplicaSetStatus {
        replicas: status.replicas,
        available_replicas: status.available_replicas,
        fully_labeled_replicas: status.fully_labeled_replicas,
        ready_replicas: status.ready_replicas,
        terminating_replicas: None,
        observed_generation: status.observed_generation,
        conditions: status.conditions.map(|all| all.into_iter().map(condition_of).collect()),
    });
    ReplicaSet {
        metadata: rc.metadata.clone(),
        spec,
        status,
    }
}

fn condition_of(old: ReplicationControllerCondition) -> ReplicaSetCondition {
    ReplicaSetCondition {
        last_transition_time: old.last_transition_time,
        message: old.message,
        reason: old.reason,
        status: old.status,
        type_: old.type_,
    }
}

fn status_of(status: ReplicaSetStatus) -> ReplicationControllerStatus {
    let condition = |c: ReplicaSetCondition| ReplicationControllerCondition {
        last_transition_time: c.last_transition_time,
        message: c.message,
        reason: c.reason,
        status: c.status,
        type_: c.type_,
    };
    ReplicationControllerStatus {
        replicas: status.replicas,
        available_replicas: status.available_replicas,
        fully_labeled_replicas: status.fully_labeled_replicas,
        ready_replicas: status.ready_replicas,
        observed_generation: status.observed_generation,
        conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
    }
}

impl ReplicationControllers {
    fn claims(&self, rc: &ReplicationController) -> owner::Claims<Pod> {
        let selector = selector(rc).unwrap_or_else(Selector::nothing);
        let (namespace, uid) = (rc.namespace().unwrap_or_default(), rc.uid().unwrap_or_default());
        let (controlled, orphans) = self.informers.pods.claimable(&namespace, &uid);
        let orphans = orphans.into_iter().filter(|p| is_active(p)).collect();
        let owner = (&write::REPLICATION_CONTROLLERS, rc);
        owner::claim(owner, &selector, &write::PODS, controlled, orphans)
    }
}

impl Controller for ReplicationControllers {
    const NAME: &'static str = "replication-controller";

    fn wire(&self, wiring: &mut Wiring) {
        let all = &self.informers.replication_controllers;
        wiring.on_self(all);
        wiring.on_owned(&self.informers.pods, all, "ReplicationController", selector);
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(rc) = self.informers.replication_controllers.get_key(key) else {
            return Plan::default();
        };
        let claims = self.claims(&rc);
        if !claims.writes.is_empty() {
            return Plan::of(claims.writes);
        }
        let (set, owned) = (as_replica_set(&rc), claims.owned);
        let resource = &write::REPLICATION_CONTROLLERS;
        let mut writes = replica_set::plan(resource, &set, &owned, || owned.clone(), now);
        if !self.informers.takes_new(&key.namespace) {
            writes.retain(|w| !matches!(w.verb, Verb::Create(_)));
        }
        Plan {
            writes,
            events: vec![],
            again_in: status::available_in(&set, &owned, now),
        }
    }

    fn status(&self, key: &Key, now: Timestamp, failure: Option<&Failure>) -> Vec<Write> {
        let Some(rc) = self.informers.replication_controllers.get_key(key) else {
            return vec![];
        };
        let owned = self.claims(&rc).owned;
        let mut new = status::status(&as_replica_set(&rc), &owned, failure, now);
        new.terminating_replicas = None;
        let new = Some(status_of(new));
        if rc.status == new {
            return vec![];
        }
        let mut rc = ReplicationController::clone(&rc);
        rc.status = new;
        vec![Write::replace_status(write::REPLICATION_CONTROLLERS, &rc)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn rc() -> ReplicationController {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "rc", "generation": 2},
            "spec": {"replicas": 2, "selector": {"app": "web"},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}},
            "status": {"replicas": 1, "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]},
        }))
        .unwrap()
    }

    #[test]
    fn its_pods_and_events_are_its_own() {
        let rc = rc();
        let writes = replica_set::plan(
            &write::REPLICATION_CONTROLLERS,
            &as_replica_set(&rc),
            &[],
            Vec::new,
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(writes.len(), 2);
        let Verb::Create(body) = &writes[0].verb else { panic!() };
        let owner = &body["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["apiVersion"], &owner["uid"]),
            (&json!("ReplicationController"), &json!("v1"), &json!("rc"))
        );
        assert_eq!(body["metadata"]["generateName"], "web-");
        let told = &writes[0].on_success.as_ref().unwrap().regarding;
        assert_eq!(told.kind.as_deref(), Some("ReplicationController"));
    }

    #[test]
    fn words_are_translated_both_ways() {
        let rc = rc();
        let set = as_replica_set(&rc);
        assert_eq!(status_of(set.status.unwrap()), rc.status.clone().unwrap());
        let pod: Arc<Pod> = Arc::default();
        let now = status_of(status::status(
            &as_replica_set(&rc),
            &[pod],
            None,
            Timestamp::UNIX_EPOCH,
        ));
        assert_eq!(
            (now.replicas, now.observed_generation, now.conditions),
            (1, Some(2), None)
        );
    }

    #[test]
    fn without_labels_it_selects_nothing() {
        let mut rc = rc();
        assert!(selector(&rc).is_some());
        rc.spec.as_mut().unwrap().selector = Some(std::collections::BTreeMap::new());
        assert!(selector(&rc).is_none());
        rc.spec.as_mut().unwrap().selector = None;
        assert!(selector(&rc).is_none());
    }
}
