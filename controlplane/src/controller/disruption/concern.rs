//! Which budgets a change concerns: that of a pod, and that of who says how many pods there should be.
//!
//! A budget that is woken counts everything anew; nothing is counted here. Beyond upstream's, which hears of `replicas` only from the
//! pods that come and go by them: where none can (a quota, a paused rollout) its budgets go by the old number for hours.

use super::expected::asks;
use super::{PAIRS, selector};
use crate::controller::harness::Wiring;
use crate::controller::informers::Informers;
use crate::controller::pod;
use crate::held::Pod;
use client::informer::{Change, Object};
use client::{Informer, Key};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All of a pod that budgets go by: who selects it, whose it is, and whether it counts as healthy. (Upstream wakes them for less, too.)
#[derive(PartialEq)]
pub(super) struct Counted<'p> {
    uid: Option<&'p str>,
    labels: Option<&'p BTreeMap<String, String>>,
    owners: Option<&'p [OwnerReference]>,
    is_ready: bool,
    is_terminating: bool,
}

impl<'p> Counted<'p> {
    pub(super) fn of(pod: &'p Pod) -> Self {
        let meta = &pod.metadata;
        Self {
            uid: meta.uid.as_deref(),
            labels: meta.labels.as_ref(),
            owners: meta.owner_references.as_deref(),
            is_ready: pod::is_ready(pod),
            is_terminating: meta.deletion_timestamp.is_some(),
        }
    }
}

/// Budgets of the pod's namespace whose answer a change of it may change.
pub(super) fn of_pod(change: &Change<Pod>, budgets: &Informer<PodDisruptionBudget>) -> Vec<Key> {
    let [old, new] = [change.old.as_deref(), change.new.as_deref()];
    if old.map(Counted::of) == new.map(Counted::of) {
        return Vec::new();
    }
    let labels = [old, new].into_iter().flatten().map(|pod| pod.metadata.labels.as_ref());
    let labels: Vec<_> = labels.collect();
    let all = budgets.list_namespace(&change.key.namespace);
    selecting(all.iter(), &labels)
}

fn selecting<'b>(
    budgets: impl Iterator<Item = &'b Arc<PodDisruptionBudget>>,
    labels: &[Option<&BTreeMap<String, String>>],
) -> Vec<Key> {
    let is_selecting = |budget: &&Arc<PodDisruptionBudget>| {
        selector(budget).is_ok_and(|s| labels.iter().any(|labels| s.matches_optional(*labels)))
    };
    budgets.filter(is_selecting).map(|budget| Key::of(&**budget)).collect()
}

/// Budgets that go by who scales their pods, and select one of these.
fn asking(budgets: &[Arc<PodDisruptionBudget>], pods: &[Arc<Pod>]) -> Vec<Key> {
    let asking: Vec<_> = budgets.iter().filter(|budget| asks(budget)).collect();
    // Of very many nobody is compared: to be woken for nothing does no harm.
    if asking.len().saturating_mul(pods.len()) > PAIRS {
        return asking.into_iter().map(|budget| Key::of(&**budget)).collect();
    }
    let labels: Vec<_> = pods.iter().map(|pod| pod.metadata.labels.as_ref()).collect();
    selecting(asking.into_iter(), &labels)
}

/// All of an owner of pods that budgets go by: which it is, how many it wants, and who decides that for it.
#[derive(PartialEq)]
pub(super) struct Scaling<'o> {
    uid: Option<&'o str>,
    replicas: Option<i32>,
    above: Option<&'o OwnerReference>,
}

/// Who has a number of pods.
pub(super) trait Scaled: Object {
    /// How many it is to have; one where it does not say.
    fn replicas(&self) -> Option<i32>;

    /// What budgets go by. Who belongs to a Deployment has its number from there, and each step of a rollout is another.
    fn scaling(&self) -> Scaling<'_> {
        let meta = self.meta();
        let mut owners = meta.owner_references.iter().flatten();
        let above = owners.find(|owner| owner.controller == Some(true) && owner.kind == "Deployment");
        Scaling {
            uid: meta.uid.as_deref(),
            replicas: self.replicas().filter(|_| above.is_none()),
            above,
        }
    }
}

macro_rules! scaled {
    ($($kind:ty),*) => {$(
        impl Scaled for $kind {
            fn replicas(&self) -> Option<i32> {
                self.spec.as_ref()?.replicas
            }
        }
    )*};
}
scaled!(Deployment, ReplicaSet, StatefulSet, ReplicationController);

/// The pods of an owner: its own, and those of what it owns in turn.
fn pods_of(informers: &Informers, namespace: &str, uid: &str) -> Vec<Arc<Pod>> {
    let sets = informers.replica_sets.controlled_by(namespace, uid);
    let below = sets.iter().filter_map(|set| set.metadata.uid.as_deref());
    let owners = std::iter::once(uid).chain(below);
    owners
        .flat_map(|uid| informers.pods.controlled_by(namespace, uid))
        .collect()
}

/// Wakes the budgets that go by an owner's number of pods when it is another, or the owner is. One that goes takes its pods along, and
/// they tell.
fn on_scale<K: Scaled>(wiring: &mut Wiring, informers: &Informers, owners: &Informer<K>) {
    let informers = informers.clone();
    wiring.on(owners, move |change| {
        let Some(new) = change.new.as_deref() else {
            return Vec::new();
        };
        if change.old.as_deref().map(Scaled::scaling) == Some(new.scaling()) {
            return Vec::new();
        }
        let namespace = &change.key.namespace;
        let budgets = informers.budgets.list_namespace(namespace);
        if budgets.is_empty() {
            return Vec::new();
        }
        let uid = new.meta().uid.as_deref().unwrap_or_default();
        asking(&budgets, &pods_of(&informers, namespace, uid))
    });
}

/// Wakes budgets for changes of pods and of those who say how many there should be.
pub(super) fn wire(wiring: &mut Wiring, informers: &Informers) {
    let budgets = informers.budgets.clone();
    wiring.on(&informers.pods, move |change| of_pod(change, &budgets));
    on_scale(wiring, informers, &informers.deployments);
    on_scale(wiring, informers, &informers.replica_sets);
    on_scale(wiring, informers, &informers.stateful_sets);
    on_scale(wiring, informers, &informers.replication_controllers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(change: &Value) -> ReplicaSet {
        let mut set = json!({"metadata": {"name": "s", "uid": "s", "resourceVersion": "1"}, "spec": {"replicas": 3}});
        json_patch::merge(&mut set, change);
        serde_json::from_value(set).unwrap()
    }

    #[test]
    fn of_an_owner_only_its_number_of_pods_is_news_and_who_decides_it() {
        let above = |uid: &str| json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": uid, "controller": true}]);
        let of_deployment = json!({"metadata": {"ownerReferences": above("d")}});
        let rolled = json!({"metadata": {"ownerReferences": above("d")}, "spec": {"replicas": 4}});
        let other = json!({"metadata": {"ownerReferences": above("e")}});
        for (name, before, after, is_news) in [
            ("status", json!({}), json!({"status": {"replicas": 1}}), false),
            ("labels", json!({}), json!({"metadata": {"labels": {"a": "b"}}}), false),
            ("replicas", json!({}), json!({"spec": {"replicas": 4}}), true),
            (
                "another of the name",
                json!({}),
                json!({"metadata": {"uid": "t"}}),
                true,
            ),
            ("a Deployment adopts it", json!({}), of_deployment.clone(), true),
            ("a Deployment rolls", of_deployment.clone(), rolled, false),
            ("another Deployment", of_deployment, other, true),
        ] {
            assert_eq!(set(&before).scaling() != set(&after).scaling(), is_news, "{name}");
        }
    }

    #[test]
    fn those_that_ask_and_select_one_of_the_pods_are_concerned() {
        let budget = |name: &str, spec: Value| {
            let budget = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
            Arc::new(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap())
        };
        let pod = |app: &str| {
            let pod = json!({"metadata": {"name": app, "namespace": "default", "labels": {"app": app}}});
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        };
        let selecting = |app: &str| json!({"matchLabels": {"app": app}});
        let budgets = [
            budget("max", json!({"selector": selecting("web"), "maxUnavailable": 1})),
            budget("share", json!({"selector": {}, "minAvailable": "50%"})),
            budget("number", json!({"selector": selecting("web"), "minAvailable": 1})),
            budget("other", json!({"selector": selecting("db"), "maxUnavailable": 1})),
            budget("none", json!({"maxUnavailable": 1})),
        ];
        let names = |pods: &[Arc<Pod>]| -> Vec<String> {
            let keys = asking(&budgets, pods).into_iter();
            keys.map(|key| key.name).collect()
        };
        assert_eq!(names(&[pod("web"), pod("web")]), ["max", "share"]);
        assert_eq!(names(&[pod("db"), pod("web")]), ["max", "share", "other"]);
        assert_eq!(names(&[]), [""; 0]);
        // Too many to compare: all that ask.
        let many = vec![pod("web"); PAIRS / 4 + 1];
        assert_eq!(names(&many), ["max", "share", "other", "none"]);
    }
}
