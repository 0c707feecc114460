//! DaemonSet: one pod on every node that is fit for it.
//!
//! Source: control-plane contract §12. A pod is made for a node by an affinity to the node's name, and the scheduler binds it. Each plan
//! is one step: claim pods and revisions, make the template's revision ([`revision`]), see that every fit node has its one pod
//! ([`manage`]), replace pods of old templates ([`rolling`]), forget old revisions. The next plan is made on informers that show the step.

use super::burst::Burst;
use super::harness::{Controller, Wiring};
use super::history::{self, Revision, Spelling};
use super::informers::Informers;
use super::owner::{self, Candidates};
use super::pod;
use super::write::{self, Failure, Plan, Verb, Write, event};
use crate::held::Node;
use crate::held::Pod;
use client::Key;
use client::informer::Change;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::selector::Selector;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

pub mod backoff;
pub mod manage;
pub mod node;
pub mod revision;
pub mod rolling;
pub mod status;

use backoff::Backoffs;
use node::Fit;

/// Most creations and most deletions in one plan.
const BURST: usize = 250;

/// The controller.
pub struct DaemonSets {
    /// The shared informers.
    pub informers: Informers,
    /// How long failed pods of a set stay on a node.
    pub backoffs: Mutex<Backoffs>,
}

/// What a daemon set owns, by who may be where: everything a decision needs once its revision is there.
pub struct View<'a> {
    /// The set.
    pub set: &'a DaemonSet,
    /// Its spec.
    pub spec: &'a DaemonSetSpec,
    /// The hash of its template's revision.
    pub hash: &'a str,
    /// What every node is fit for, by name.
    pub fits: BTreeMap<String, Fit>,
    /// Its pods, by the node they are for; those that ended and only wait to be gone are left out.
    pub pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// The time.
    pub now: Timestamp,
}

impl<'a> View<'a> {
    /// Sorts what there is; `None` without a spec.
    pub fn new(
        set: &'a DaemonSet,
        hash: &'a str,
        nodes: &[Arc<Node>],
        owned: &[Arc<Pod>],
        now: Timestamp,
    ) -> Option<Self> {
        let spec = set.spec.as_ref()?;
        let mut pods: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in owned {
            let is_over = pod::is_terminal(pod) && pod.metadata.deletion_timestamp.is_some();
            if let Some(node) = node::target(pod).filter(|_| !is_over) {
                pods.entry(node.to_owned()).or_default().push(pod.clone());
            }
        }
        pods.values_mut()
            .for_each(|pods| pods.sort_by(|a, b| node::oldest_first(a, b)));
        let fits = node::Fitting::new(spec);
        let fits = nodes.iter().map(|node| (node.name_any(), fits.of(node))).collect();
        Some(Self {
            set,
            spec,
            hash,
            fits,
            pods,
            now,
        })
    }

    /// Its pods on a node, those for whom it was made first.
    pub fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    /// How many nodes should have a pod.
    pub fn wanted(&self) -> i32 {
        let wanted = self.fits.values().filter(|fit| fit.should_run).count();
        i32::try_from(wanted).unwrap_or(i32::MAX)
    }

    /// What a node is fit for; for nothing, if there is none of that name.
    pub fn fit(&self, node: &str) -> Fit {
        self.fits.get(node).copied().unwrap_or_default()
    }

    /// `spec.minReadySeconds`.
    pub fn min_ready(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    /// Whether the pod is of the set's template.
    pub fn is_updated(&self, pod: &Pod) -> bool {
        let generation = node::template_generation(self.set);
        let same_generation = generation.is_some_and(|g| pod::label(pod, node::GENERATION_LABEL) == g.to_string());
        let same_hash = !self.hash.is_empty() && pod::label(pod, history::REVISION_LABEL) == self.hash;
        same_hash || same_generation
    }

    /// Whether the pod serves.
    pub fn is_available(&self, pod: &Pod) -> bool {
        pod::is_available(pod, self.min_ready(), self.now)
    }

    /// Deletions first, so that what cannot be created keeps nothing from going; at most [`BURST`] of each, and fewer
    /// creations if they are large.
    fn writes(&self, delete: &[Arc<Pod>], create_on: &[String]) -> Vec<Write> {
        let resource = &write::DAEMON_SETS;
        let gone = delete
            .iter()
            .take(BURST)
            .map(|pod| pod::delete(pod, resource, self.set));
        let made = create_on
            .iter()
            .map(|node| pod::create(&node::pod(self, node), resource, self.set));
        gone.chain(Burst::new(BURST).fill(made).into_writes()).collect()
    }
}

fn selector(set: &DaemonSet) -> Option<Selector> {
    set.spec.as_ref().and_then(|s| Selector::from_api(&s.selector).ok())
}

fn selects_all(set: &DaemonSet) -> bool {
    let selector = set.spec.as_ref().map(|s| &s.selector);
    selector.is_some_and(|s| s.match_labels.is_none() && s.match_expressions.is_none())
}

/// What of a node decides who belongs on it.
fn node_moved(change: &Change<Node>) -> bool {
    let taints = |node: &Node| node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.metadata.labels != new.metadata.labels || taints(old) != taints(new),
        _ => true,
    }
}

/// What one look at the informers showed: everything there is to plan by, but the nodes.
pub struct Seen {
    set: Arc<DaemonSet>,
    template: Spelling,
    pods: owner::Claims<Pod>,
    revisions: owner::Claims<Revision>,
}

impl Seen {
    /// Sorts out what is the set's.
    pub fn new(set: Arc<DaemonSet>, pods: Candidates<Pod>, revisions: Candidates<Revision>) -> Self {
        let selector = selector(&set).unwrap_or_else(Selector::nothing);
        let owner = (&write::DAEMON_SETS, &*set);
        let pods = owner::claim(owner, &selector, &write::PODS, pods.0, pods.1);
        let (controlled, orphans) = revisions;
        let mut revisions = owner::claim(owner, &selector, &write::CONTROLLER_REVISIONS, controlled, orphans);
        history::sort(&mut revisions.owned);
        let template = revision::spelling(&set);
        Self {
            set,
            template,
            pods,
            revisions,
        }
    }

    fn is_left_alone(&self) -> bool {
        self.set.metadata.deletion_timestamp.is_some() || selects_all(&self.set)
    }

    fn revision(&self) -> revision::Step {
        revision::step(&self.set, &self.template, &self.revisions.owned, &self.pods.owned)
    }

    /// The next step.
    pub fn plan(&self, nodes: &[Arc<Node>], takes_new: bool, backoffs: &mut Backoffs, now: Timestamp) -> Plan {
        let set = &*self.set;
        if self.is_left_alone() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            let told = event(&write::DAEMON_SETS, set, "Warning", "SelectingAll", message);
            return Plan {
                events: selects_all(set).then_some(told).into_iter().collect(),
                ..Plan::default()
            };
        }
        let owning = [self.pods.writes.clone(), self.revisions.writes.clone()].concat();
        if !owning.is_empty() {
            return Plan::of(owning);
        }
        let hash = match self.revision() {
            revision::Step::Write(writes) if takes_new => return Plan::of(writes),
            revision::Step::Write(_) => return Plan::default(),
            revision::Step::Settled(hash) => hash,
        };
        let Some(view) = View::new(set, &hash, nodes, &self.pods.owned, now) else {
            return Plan::default();
        };
        let mut plan = manage::plan(&view, backoffs);
        if !takes_new {
            plan.writes.retain(|w| !matches!(w.verb, Verb::Create(_)));
        }
        if plan.writes.is_empty() && takes_new {
            plan.writes = rolling::plan(&view);
        }
        if plan.writes.is_empty() {
            plan.writes = revision::expired(set, &self.template, &self.revisions.owned, &self.pods.owned);
        }
        let waits = pod::next_available(&self.pods.owned, view.min_ready(), now);
        plan.again_in = plan.again_in.into_iter().chain(waits).min();
        plan
    }

    /// The write of what is to be reported, if that is news. `holder` has the name that the template's revision is given.
    pub fn report(
        &self,
        nodes: &[Arc<Node>],
        now: Timestamp,
        failure: Option<&Failure>,
        holder: Option<&Revision>,
    ) -> Option<Write> {
        if self.is_left_alone() {
            return None;
        }
        let new = match self.revision() {
            revision::Step::Settled(hash) => {
                let view = View::new(&self.set, &hash, nodes, &self.pods.owned, now)?;
                status::status(&view)
            }
            revision::Step::Write(_) => revision::after_collision(&self.set, &self.template, failure?, holder)?,
        };
        if status::same(self.set.status.as_ref(), &new) {
            return None;
        }
        let mut set = DaemonSet::clone(&self.set);
        set.status = Some(new);
        Some(Write::replace_status(write::DAEMON_SETS, &set))
    }
}

impl DaemonSets {
    fn look(&self, key: &Key) -> Option<Seen> {
        let set = self.informers.daemon_sets.get_key(key)?;
        let uid = set.uid().unwrap_or_default();
        let pods = self.informers.pods.claimable(&key.namespace, &uid);
        let revisions = self.informers.revisions.claimable(&key.namespace, &uid);
        Some(Seen::new(set, pods, revisions))
    }
}

impl Controller for DaemonSets {
    const NAME: &'static str = "daemon-set-controller";
    /// A pod that may not go from one node is no reason for another to have none.
    const DELETIONS_ALONE: bool = true;

    fn wire(&self, wiring: &mut Wiring) {
        let sets = &self.informers.daemon_sets;
        wiring.on_self(sets);
        wiring.on_owned(&self.informers.pods, sets, "DaemonSet", selector);
        wiring.on_owned(&self.informers.revisions, sets, "DaemonSet", selector);
        let sets = sets.clone();
        wiring.on(&self.informers.nodes, move |change| match node_moved(change) {
            true => sets.list().iter().map(|set| Key::of(&**set)).collect(),
            false => vec![],
        });
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(seen) = self.look(key) else {
            return Plan::default();
        };
        let (nodes, takes_new) = (self.informers.nodes.list(), self.informers.takes_new(&key.namespace));
        let mut backoffs = self.backoffs.lock().expect("no holder of this lock panics");
        seen.plan(&nodes, takes_new, &mut backoffs, now)
    }

    fn status(&self, key: &Key, now: Timestamp, failure: Option<&Failure>) -> Vec<Write> {
        let Some(seen) = self.look(key) else { return vec![] };
        let holder = failure.and_then(|_| self.informers.revisions.get_key(&revision::key(&seen.set)));
        let nodes = self.informers.nodes.list();
        seen.report(&nodes, now, failure, holder.as_deref())
            .into_iter()
            .collect()
    }
}

/// The labels by which pods say which revision they are of.
fn live_labels(pods: &[Arc<Pod>]) -> BTreeSet<&str> {
    pods.iter()
        .map(|pod| pod::label(pod, history::REVISION_LABEL))
        .collect()
}

#[cfg(test)]
mod tests;
