//! DefaultPreemption, at PostFilter: which pods of lower priority should go so that the pod finds room, if that helps at all.
//!
//! Says so only; who evicts is [`Binder`](crate::scheduler::bind::Binder). Never names a pod of equal or higher priority.

use super::State;
use crate::scheduler::cluster::{Cluster, NodeInfo};
use crate::scheduler::cycle::{FitError, histogram};
use crate::scheduler::pod::PodInfo;
use client::backoff::Seeded;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use proto::api::condition;
use proto::api::selector::Selector;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A disruption budget, as far as it is asked here. It is kept where that is possible, and no further.
#[derive(Clone, Debug)]
pub struct Budget {
    namespace: String,
    selector: Selector,
    /// Evictions it allows now.
    allowed: i64,
    /// Pods whose eviction it has counted.
    disrupted: BTreeSet<String>,
}

impl Budget {
    /// Reads one; nothing if it selects nobody.
    pub fn new(budget: &PodDisruptionBudget) -> Option<Self> {
        let spec = budget.spec.as_ref()?;
        let selector = Selector::from_api(spec.selector.as_ref()?).ok()?;
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Some(Self {
            namespace: budget.namespace().unwrap_or_default(),
            allowed: status
                .and_then(|status| status.disruptions_allowed)
                .map_or(0, i64::from),
            disrupted: disrupted.into_iter().flat_map(|pods| pods.keys().cloned()).collect(),
            selector,
        })
        .filter(|budget| !budget.selector.is_everything())
    }

    fn covers(&self, pod: &PodInfo) -> bool {
        self.namespace == pod.key.namespace
            && !pod.kin.labels.is_empty()
            && self.selector.matches(&pod.kin.labels)
            && !self.disrupted.contains(&pod.key.name)
    }
}

/// Who should go from which node.
#[derive(Clone, Debug)]
pub struct Preemption {
    /// The node.
    pub node: String,
    /// The most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// Pods of lower priority that wait for room there, and need not any more.
    pub displaced: Vec<Arc<PodInfo>>,
    /// Victims whose budgets do not allow it.
    pub violations: usize,
}

impl Preemption {
    /// The best has the smallest.
    fn rank(&self) -> impl Ord + use<> {
        let top = self.victims.first().map(|pod| pod.priority);
        let tops = self.victims.iter().filter(|pod| Some(pod.priority) == top);
        let earliest = tops.map(|pod| started(pod)).min();
        let sum: i64 = self.victims.iter().map(|pod| i64::from(pod.priority) + (1 << 31)).sum();
        (self.violations, top, sum, self.victims.len(), Reverse(earliest))
    }
}

/// The best first; equal ones as they stood.
pub fn in_order(mut candidates: Vec<Preemption>) -> Vec<Preemption> {
    candidates.sort_by_cached_key(Preemption::rank);
    candidates
}

/// The most important first, and of those the one that is there longest.
pub fn order_victims(victims: &mut [Arc<PodInfo>]) {
    victims.sort_by_key(|pod| (Reverse(pod.priority), started(pod)));
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The pods of one of these should go: the best first, never none.
    Evict(Vec<Preemption>),
    /// Nobody should, and this is what to say.
    Nobody {
        /// Upstream's words.
        message: String,
        /// Whether the pod should wait for its nominated node no longer.
        renounce: bool,
    },
}

/// A pod that no node began with counts as the youngest.
fn started(pod: &PodInfo) -> Timestamp {
    pod.started().unwrap_or(Timestamp::MAX)
}

/// Whether the pod may have others evicted at all.
pub fn may_preempt(pod: &PodInfo) -> bool {
    pod.spec().and_then(|spec| spec.preemption_policy.as_deref()) != Some("Never")
}

/// Whether the pod is on its way out for another.
pub fn is_leaving(pod: &PodInfo, cluster: &Cluster) -> bool {
    let status = pod.pod.status.as_ref();
    let found = condition::find(status.and_then(|s| s.conditions.as_ref()), "DisruptionTarget");
    let preempted = found.is_some_and(|c| c.status == "True" && c.reason.as_deref() == Some("PreemptionByScheduler"));
    (pod.kin.terminating && preempted) || cluster.doomed.contains(&pod.uid)
}

/// Why the pod may not have others evicted now.
fn obstacle(state: &State<'_>, error: &FitError) -> Option<&'static str> {
    let pod = state.pod;
    if !may_preempt(pod) {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = state.cluster.nominated.node_of(&pod.uid)?;
    let node = state.cluster.node(node)?;
    // A node that is no more, or that the pod must not go to, was not even asked.
    let hopeful = error
        .rejections
        .iter()
        .any(|(slot, rejection)| *slot == node.slot && rejection.resolvable);
    let mut lower = node.pods.values().filter(|other| other.priority < pod.priority);
    (hopeful && lower.any(|other| is_leaving(other, state.cluster)))
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

/// PostFilter: what evicting could do for a pod that found no node for the reasons in `error`.
pub fn preempt(
    state: &mut State<'_>,
    error: &FitError,
    budgets: &dyn Fn() -> Vec<Budget>,
    random: &mut Seeded,
) -> Outcome {
    if let Some(why) = obstacle(state, error) {
        return Outcome::Nobody {
            message: why.to_owned(),
            renounce: false,
        };
    }
    let hopeful = error.rejections.iter().filter(|(_, rejection)| rejection.resolvable);
    let hopeful: Vec<usize> = hopeful.map(|(slot, _)| *slot).collect();
    let (percent, least) = state.profile.args.candidates;
    let wanted = (hopeful.len() * percent / 100).max(least).min(hopeful.len());
    let budgets = if hopeful.is_empty() { Vec::new() } else { budgets() };
    let first = usize::try_from(random.below(hopeful.len() as u64)).unwrap_or(0);
    let mut candidates: Vec<Preemption> = Vec::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut judged = 0;
    for slot in hopeful[first..].iter().chain(&hopeful[..first]) {
        let kind = candidates.iter().any(|candidate| candidate.violations == 0);
        if kind && candidates.len() >= wanted {
            break;
        }
        match on_node(state, state.cluster.at(*slot), &budgets) {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => {
                judged += 1;
                for reason in why {
                    *reasons.entry(reason.into_owned()).or_default() += 1;
                }
            }
        }
    }
    if !candidates.is_empty() {
        return Outcome::Evict(in_order(candidates));
    }
    if error.nodes > judged {
        reasons.insert(
            "Preemption is not helpful for scheduling".to_owned(),
            error.nodes - judged,
        );
    }
    Outcome::Nobody {
        message: histogram(error.nodes, &reasons),
        renounce: true,
    }
}

type Reasons = Vec<Cow<'static, str>>;

/// The fewest pods that must leave this node.
fn on_node(state: &mut State<'_>, node: &NodeInfo, budgets: &[Budget]) -> Result<Preemption, Reasons> {
    let priority = state.pod.priority;
    let lower = |pod: &&Arc<PodInfo>| pod.priority < priority;
    let mut gone: Vec<Arc<PodInfo>> = node.pods.values().filter(lower).cloned().collect();
    if gone.is_empty() {
        return Err(vec![Cow::Borrowed("No preemption victims found for incoming pod")]);
    }
    order_victims(&mut gone);
    let mut room = node.room.clone();
    for pod in &gone {
        room.remove(pod);
        state.remove_pod(pod, node);
    }
    if let Err(rejection) = state.fits(node, &room) {
        gone.iter().for_each(|pod| state.add_pod(pod, node));
        return Err(rejection.reasons);
    }
    // Whose budget would be broken may stay first.
    let (protected, others) = by_budget(gone, budgets);
    let mut violations = 0;
    let mut victims = Vec::new();
    for (pod, is_protected) in protected
        .into_iter()
        .map(|pod| (pod, true))
        .chain(others.into_iter().map(|pod| (pod, false)))
    {
        room.add(&pod);
        state.add_pod(&pod, node);
        if state.fits(node, &room).is_err() {
            room.remove(&pod);
            state.remove_pod(&pod, node);
            violations += usize::from(is_protected);
            victims.push(pod);
        }
    }
    victims.iter().for_each(|pod| state.add_pod(pod, node));
    order_victims(&mut victims);
    let waiting = state.cluster.nominated.on(&node.name);
    Ok(Preemption {
        node: node.name.clone(),
        victims,
        displaced: waiting.filter(|pod| pod.priority < priority).cloned().collect(),
        violations,
    })
}

/// Those whose eviction some budget does not allow any more, in this order, and the others.
fn by_budget(pods: Vec<Arc<PodInfo>>, budgets: &[Budget]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.into_iter().partition(|pod| {
        let mut violates = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            if budget.covers(pod) {
                *left -= 1;
                violates |= *left < 0;
            }
        }
        violates
    })
}

#[cfg(test)]
mod tests;
