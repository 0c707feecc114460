//! StatefulSet: pods with names and claims of their own, started and stopped in the order of their ordinals.
//!
//! Source: control-plane contract §12. Each plan is one step: claim pods and revisions, make the template's revision ([`revision`]),
//! have it on record which one pods are moved from, then [`step`]. A pod's name is its identity: the API server has no two of one name, so
//! none is ever doubled, whatever is lost or repeated.

use super::harness::{Controller, Wiring};
use super::history::{self, Revision, Spelling};
use super::informers::Informers;
use super::owner::{self, Candidates};
use super::pod;
use super::write::{self, Failure, Plan, Verb, Write};
use crate::held::Pod;
use client::Key;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::selector::Selector;
use std::collections::BTreeMap;
use std::sync::Arc;

pub mod claim;
pub mod identity;
pub mod revision;
pub mod status;
pub mod step;

use identity::Ordinal;

/// Most writes in one plan.
const BURST: usize = 500;

/// The controller.
pub struct StatefulSets {
    /// The shared informers.
    pub informers: Informers,
}

/// Finds a claim by its name.
pub type Claims<'a> = dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>> + 'a;

/// A stateful set with what it owns: everything a decision needs once its revisions are there.
pub struct View<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// Its spec.
    pub spec: &'a StatefulSetSpec,
    /// The revision that pods are moved from.
    pub current: Arc<Revision>,
    /// The revision of its template.
    pub update: Arc<Revision>,
    /// Its pods.
    pub pods: BTreeMap<Ordinal, Arc<Pod>>,
    /// The claims that there are in its namespace.
    pub claims: &'a Claims<'a>,
    /// The time.
    pub now: Timestamp,
}

impl View<'_> {
    /// The first ordinal.
    pub fn start(&self) -> Ordinal {
        identity::start(self.spec)
    }

    /// The ordinals there should be.
    pub fn wanted(&self) -> std::ops::Range<Ordinal> {
        identity::wanted(self.spec)
    }

    /// `spec.minReadySeconds`.
    pub fn min_ready(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    /// Whether pods start and stop one after another.
    pub fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    /// Whether the pod serves, and is not about to end.
    pub fn serves(&self, pod: &Pod) -> bool {
        pod.metadata.deletion_timestamp.is_none() && pod::is_available(pod, self.min_ready(), self.now)
    }
}

fn selector(set: &StatefulSet) -> Option<Selector> {
    set.spec.as_ref().and_then(|s| Selector::from_api(&s.selector).ok())
}

/// What one look at the informers showed: everything there is to plan by, but the claims.
pub struct Seen {
    set: Arc<StatefulSet>,
    template: Spelling,
    pods: owner::Claims<Pod>,
    revisions: owner::Claims<Revision>,
}

impl Seen {
    /// Sorts out what is the set's; `None` when its selector cannot be read.
    pub fn new(set: Arc<StatefulSet>, pods: Candidates<Pod>, revisions: Candidates<Revision>) -> Option<Self> {
        let selector = selector(&set)?;
        let name = set.name_any();
        let owner = (&write::STATEFUL_SETS, &*set);
        let is_member = |pod: &Pod| identity::is_member(&name, &pod.name_any());
        let pods = owner::claim_where(owner, &selector, is_member, &write::PODS, pods.0, pods.1);
        let (controlled, orphans) = revisions;
        let mut revisions = owner::claim(owner, &selector, &write::CONTROLLER_REVISIONS, controlled, orphans);
        history::sort(&mut revisions.owned);
        let template = Spelling::of(&set.spec.as_ref()?.template);
        Some(Self {
            set,
            template,
            pods,
            revisions,
        })
    }

    /// The view, once there are revisions to have one by.
    pub fn view<'a>(&'a self, claims: &'a Claims<'a>, now: Timestamp) -> Option<View<'a>> {
        let set = &*self.set;
        let spec = set.spec.as_ref()?;
        let (current, update) = revision::pair(set, &self.template, &self.revisions.owned)?;
        let pods = self.pods.owned.iter();
        let pods = pods.filter_map(|pod| Some((identity::ordinal(&pod.name_any())?, pod.clone())));
        Some(View {
            set,
            spec,
            current,
            update,
            pods: pods.collect(),
            claims,
            now,
        })
    }

    /// The next step.
    pub fn plan(&self, claims: &Claims<'_>, now: Timestamp) -> Plan {
        let set = &*self.set;
        if set.metadata.deletion_timestamp.is_some() {
            return Plan::default();
        }
        let owning = [self.pods.writes.clone(), self.revisions.writes.clone()].concat();
        if !owning.is_empty() {
            return Plan::of(owning);
        }
        if let Some(write) = revision::step(set, &self.template, &self.revisions.owned) {
            return Plan::of(vec![write]);
        }
        let Some(view) = self.view(claims, now) else {
            return Plan::default();
        };
        // Which revision pods are moved from is on record before there is any pod that could tell.
        let recorded = set.status.as_ref().and_then(|s| s.current_revision.as_deref());
        if recorded.unwrap_or_default().is_empty() {
            return Plan::of(vec![with_status(set, status::status(&view))]);
        }
        let mut plan = step::plan(&view);
        if plan.writes.is_empty() {
            plan.writes = revision::expired(&view, &self.revisions.owned);
        }
        let waits = pod::next_available(view.pods.values(), view.min_ready(), now);
        plan.again_in = plan.again_in.into_iter().chain(waits).min();
        plan
    }

    /// The write of what is to be reported, if that is news. `holder` has the name that the template's revision is given.
    pub fn report(&self, now: Timestamp, failure: Option<&Failure>, holder: Option<&Revision>) -> Option<Write> {
        let set = &*self.set;
        let collided = failure.and_then(|failure| revision::after_collision(set, &self.template, failure, holder));
        let new = collided.or_else(|| self.view(&|_| None, now).map(|view| status::status(&view)))?;
        (!status::same(set.status.as_ref(), &new)).then(|| with_status(set, new))
    }
}

impl StatefulSets {
    fn look(&self, key: &Key) -> Option<Seen> {
        let set = self.informers.stateful_sets.get_key(key)?;
        let uid = set.uid().unwrap_or_default();
        let pods = self.informers.pods.claimable(&key.namespace, &uid);
        let revisions = self.informers.revisions.claimable(&key.namespace, &uid);
        Seen::new(set, pods, revisions)
    }
}

fn with_status(set: &StatefulSet, status: StatefulSetStatus) -> Write {
    let mut set = StatefulSet::clone(set);
    set.status = Some(status);
    Write::replace_status(write::STATEFUL_SETS, &set)
}

impl Controller for StatefulSets {
    const NAME: &'static str = "statefulset-controller";

    fn wire(&self, wiring: &mut Wiring) {
        let sets = &self.informers.stateful_sets;
        wiring.on_self(sets);
        wiring.on_owned(&self.informers.pods, sets, "StatefulSet", selector);
        wiring.on_owned(&self.informers.revisions, sets, "StatefulSet", selector);
        // A claim may be gone at last, or have another owner: who selects it may have pods that wait for that.
        let sets = sets.clone();
        wiring.on(&self.informers.claims, move |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let labels: Vec<_> = sides
                .into_iter()
                .flatten()
                .map(|c| c.metadata.labels.as_ref())
                .collect();
            let all = sets.list_namespace(&change.key.namespace);
            let selecting = all.iter().filter(|set| {
                let has_claims = set.spec.as_ref().is_some_and(|s| s.volume_claim_templates.is_some());
                let selector = selector(set).filter(|_| has_claims);
                selector.is_some_and(|selector| labels.iter().any(|labels| selector.matches_optional(*labels)))
            });
            selecting.map(|set| Key::of(&**set)).collect()
        });
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(seen) = self.look(key) else {
            return Plan::default();
        };
        let mut plan = seen.plan(&|name| self.informers.claims.get(&key.namespace, name), now);
        if !self.informers.takes_new(&key.namespace) {
            plan.writes.retain(|w| !matches!(w.verb, Verb::Create(_)));
        }
        plan
    }

    fn status(&self, key: &Key, now: Timestamp, failure: Option<&Failure>) -> Vec<Write> {
        let Some(seen) = self.look(key) else { return vec![] };
        let holder = failure.and_then(|_| self.informers.revisions.get_key(&revision::key(&seen.set)));
        seen.report(now, failure, holder.as_deref()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
