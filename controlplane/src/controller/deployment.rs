//! Deployment: replica sets, one per template, moved from the old to the new.
//!
//! Source: control-plane contract §12. Each plan is one step: claim replica sets, make the new one, bring annotations up to
//! date, scale. The next plan is made on informers that show the step, so no step needs to know another is under way.

use super::harness::{Controller, Wiring, controller_key};
use super::informers::Informers;
use super::owner;
use super::pod;
use super::write::{self, EventText, Failure, PatchKind, Plan, Write, reference};
use client::Key;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::selector::Selector;
use serde_json::json;
use std::sync::Arc;

pub mod annotation;
pub mod proportion;
pub mod rollback;
pub mod rolling;
pub mod status;
pub mod template;

/// The controller.
pub struct Deployments {
    /// The shared informers.
    pub informers: Informers,
}

/// A deployment with what it owns: everything a decision needs.
pub struct View<'a> {
    /// The deployment.
    pub deployment: &'a Deployment,
    /// Its spec.
    pub spec: &'a DeploymentSpec,
    /// The replica set of the current template, if there is one.
    pub new: Option<Arc<ReplicaSet>>,
    /// The others, oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
    /// Whether pods of old replica sets may still run.
    pub old_pods_run: bool,
}

impl<'a> View<'a> {
    /// Sorts what the deployment owns; `None` without a spec.
    pub fn new(
        deployment: &'a Deployment,
        mut owned: Vec<Arc<ReplicaSet>>,
        pods_run: impl Fn(&ReplicaSet) -> bool,
    ) -> Option<Self> {
        let spec = deployment.spec.as_ref()?;
        owned.sort_by_key(|rs| (rs.metadata.creation_timestamp.as_ref().map(|t| t.0), rs.name_any()));
        let at = owned.iter().position(|rs| template::same(rs, &spec.template));
        let new = at.map(|at| owned.remove(at));
        let old_pods_run = owned.iter().any(|rs| pods_run(rs));
        Some(Self {
            deployment,
            spec,
            new,
            old: owned,
            old_pods_run,
        })
    }

    /// `spec.replicas`.
    pub fn wanted(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Whether old pods must end before new ones start.
    pub fn recreates(&self) -> bool {
        self.spec.strategy.as_ref().and_then(|s| s.type_.as_deref()) == Some("Recreate")
    }

    /// All replica sets.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(self.new.iter())
    }
}

/// `spec.replicas` of a replica set.
pub fn size(rs: &ReplicaSet) -> i32 {
    rs.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

/// `status.availableReplicas` of a replica set.
pub fn available(rs: &ReplicaSet) -> i32 {
    rs.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0)
}

/// An event about the deployment.
pub fn event(deployment: &Deployment, kind: &'static str, reason: &'static str, message: String) -> EventText {
    EventText {
        regarding: reference(&write::DEPLOYMENTS, deployment),
        kind,
        reason,
        message,
    }
}

/// The write that gives a replica set a size and the annotations that go with it; `None` when both are right.
pub fn scale(view: &View<'_>, rs: &ReplicaSet, to: i32) -> Option<Write> {
    let from = size(rs);
    let annotations = annotation::sizes(view);
    let have = rs.annotations();
    let current = annotations.iter().all(|(k, v)| have.get(*k) == Some(v));
    if from == to && current {
        return None;
    }
    let annotations: serde_json::Map<_, _> = annotations.into_iter().map(|(k, v)| (k.to_owned(), json!(v))).collect();
    let body = json!({
        "metadata": {"annotations": annotations, "resourceVersion": rs.metadata.resource_version},
        "spec": {"replicas": to},
    });
    let write = Write::patch(write::REPLICA_SETS, Key::of(rs), PatchKind::Merge, body);
    if from == to {
        return Some(write);
    }
    let direction = if to > from { "up" } else { "down" };
    let message = format!("Scaled {direction} replica set {} from {from} to {to}", rs.name_any());
    Some(write.success(event(view.deployment, "Normal", "ScalingReplicaSet", message)))
}

impl Deployments {
    fn claims(&self, deployment: &Deployment) -> owner::Claims<ReplicaSet> {
        let selector = deployment.spec.as_ref().map(|s| Selector::from_api(&s.selector));
        let selector = selector.and_then(Result::ok).unwrap_or_else(Selector::nothing);
        let (namespace, uid) = (
            deployment.namespace().unwrap_or_default(),
            deployment.uid().unwrap_or_default(),
        );
        let (controlled, orphans) = self.informers.replica_sets.claimable(&namespace, &uid);
        owner::claim(
            (&write::DEPLOYMENTS, deployment),
            &selector,
            &write::REPLICA_SETS,
            controlled,
            orphans,
        )
    }

    fn pods_run(&self, rs: &ReplicaSet) -> bool {
        let reported = rs.status.as_ref().is_some_and(|s| s.replicas > 0);
        let (namespace, uid) = (rs.namespace().unwrap_or_default(), rs.uid().unwrap_or_default());
        let pods = self.informers.pods.controlled_by(&namespace, &uid);
        reported || pods.iter().any(|p| !pod::is_terminal(p))
    }
}

impl Controller for Deployments {
    const NAME: &'static str = "deployment-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.deployments);
        let deployments = self.informers.deployments.clone();
        wiring.on(&self.informers.replica_sets, move |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let mut keys: Vec<Key> = sides
                .into_iter()
                .flatten()
                .filter_map(|rs| controller_key(rs, "Deployment"))
                .collect();
            let orphan = change
                .new
                .as_deref()
                .filter(|rs| !rs.owner_references().iter().any(|o| o.controller == Some(true)));
            if let Some(orphan) = orphan {
                let labels = orphan.metadata.labels.as_ref();
                let all = deployments.list_namespace(&change.key.namespace);
                let selecting = all.iter().filter(|d| {
                    let selector = d.spec.as_ref().and_then(|s| Selector::from_api(&s.selector).ok());
                    selector.is_some_and(|s| s.matches_optional(labels))
                });
                keys.extend(selecting.map(|d| Key::of(&**d)));
            }
            keys
        });
        // A Recreate deployment waits for its last old pod to be gone.
        let sets = self.informers.replica_sets.clone();
        let deployments = self.informers.deployments.clone();
        wiring.on(&self.informers.pods, move |change| {
            let (Some(old), None) = (change.old.as_deref(), &change.new) else {
                return vec![];
            };
            let set = controller_key(old, "ReplicaSet").and_then(|key| sets.get_key(&key));
            let owner = set.and_then(|rs| controller_key(&*rs, "Deployment"));
            let recreates = |key: &Key| {
                let deployment = deployments.get_key(key);
                let strategy = deployment.and_then(|d| d.spec.as_ref()?.strategy.as_ref()?.type_.clone());
                strategy.as_deref() == Some("Recreate")
            };
            owner.filter(recreates).into_iter().collect()
        });
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(deployment) = self.informers.deployments.get_key(key) else {
            return Plan::default();
        };
        let claims = self.claims(&deployment);
        if !claims.writes.is_empty() {
            return Plan {
                writes: claims.writes,
                ..Plan::default()
            };
        }
        let Some(view) = View::new(&deployment, claims.owned, |rs| self.pods_run(rs)) else {
            return Plan::default();
        };
        let mut plan = plan(&view);
        if !self.informers.takes_new(&key.namespace) {
            plan.writes.retain(|w| !matches!(w.verb, write::Verb::Create(_)));
        }
        plan.again_in = status::deadline_in(&view, now);
        plan
    }

    fn status(&self, key: &Key, now: Timestamp, failure: Option<&Failure>) -> Vec<Write> {
        let Some(deployment) = self.informers.deployments.get_key(key) else {
            return vec![];
        };
        let owned = self.claims(&deployment).owned;
        let Some(view) = View::new(&deployment, owned, |rs| self.pods_run(rs)) else {
            return vec![];
        };
        let mut new = status::status(&view, failure, now);
        let is_taken = || {
            let name = Key::new(&key.namespace, template::name(&view));
            let holder = self.informers.replica_sets.get_key(&name);
            template::collides(&view, holder.as_deref())
        };
        if failure.is_some_and(|f| f.creating && f.reason == "AlreadyExists") && is_taken() {
            new.collision_count = Some(new.collision_count.unwrap_or(0) + 1);
        }
        if deployment.status.as_ref() == Some(&new) {
            return vec![];
        }
        let mut deployment = Deployment::clone(&deployment);
        deployment.status = Some(new);
        vec![Write::replace_status(write::DEPLOYMENTS, &deployment)]
    }
}

/// The next step.
pub fn plan(view: &View<'_>) -> Plan {
    let deployment = view.deployment;
    if view.spec.selector.match_labels.is_none() && view.spec.selector.match_expressions.is_none() {
        let message = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
        return Plan {
            events: vec![event(deployment, "Warning", "SelectingAll", message)],
            ..Plan::default()
        };
    }
    if deployment.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let writes = |writes: Vec<Write>| Plan {
        writes,
        ..Plan::default()
    };
    let mut first = annotation::corrections(view);
    let paused = view.spec.paused == Some(true);
    if first.is_empty() && !paused {
        first.extend(rollback::step(view));
    }
    if !first.is_empty() {
        return writes(first);
    }
    // Who replaces all at once keeps no proportions: a new size is that of the next replica set, when the pods of the others are gone.
    // (Upstream's takes it for a resizing, which it leaves alone for ever where two replica sets have pods.)
    let scaling = !view.recreates() && annotation::is_scaling(view);
    let may_create =
        !paused && !scaling && !(view.recreates() && (view.old_pods_run || rolling::any_active(&view.old)));
    match &view.new {
        None if may_create => first.push(template::create(view)),
        _ if paused || scaling => first.extend(proportion::scale(view)),
        _ if view.recreates() => first.extend(rolling::recreate(view)),
        _ => first.extend(rolling::roll(view)),
    }
    if first.is_empty() {
        first.extend(annotation::expired_history(view));
    }
    writes(first)
}

#[cfg(test)]
mod tests;
