//! One attempt after the other: a cycle, what extenders say, and what is begun for it; what has landed is taken in.
//!
//! Nothing but an attempt changes queue and cluster while it lasts, also where it waits for an extender.

use super::bind::{Bound, Nomination};
use super::cluster::Cluster;
use super::cycle::{Candidates, Lap, Request, Search, Unplaced};
use super::event::label;
use super::extender::call::{self, Caller};
use super::plugin::Plugin;
use super::plugin::default_preemption::{Budget, Preemption};
use super::plugin::steps::{Step, Told};
use super::pod::PodInfo;
use super::queue::ScheduleFailure;
use super::{CYCLES, IN_FLIGHT, Scheduler, profile_of, workload};
use crate::metrics::Metrics;
use client::backoff::Seeded;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Upstream's words where extenders leave nobody to evict.
const NO_CANDIDATE: &str = "no candidate node for preemption";

/// What came of a cycle that is neither a node nor a refusal.
enum Failed {
    Unplaced(Box<Unplaced>),
    /// An extender.
    Error(String),
}

/// Takes the time of the points that follow a decision. Upstream counts them whether a plugin is there to be asked or not.
struct Points {
    metrics: Arc<Metrics>,
    profile: String,
    began: Instant,
}

impl Points {
    /// What follows begins now.
    fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// All have been asked at the point; the next one begins.
    fn over(&mut self, point: &'static str, said: &'static str) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.began);
        self.metrics.scheduling.asked((point, said), &self.profile, took);
        self.began = now;
    }
}

/// Which cycles' plugins are timed one by one: upstream's share of them, at random.
pub(super) struct Sampler(Seeded);

impl Sampler {
    const PERCENT: u64 = 10;

    pub(super) fn new(seed: u64) -> Self {
        // Another order than that of ties, which go by the same seed.
        Self(Seeded::new(!seed))
    }

    /// Whether this one is.
    pub(super) fn is_one(&mut self) -> bool {
        self.0.below(100) < Self::PERCENT
    }
}

/// What is left after extenders had their say about candidates: some of these, or upstream's words why there are none.
fn with_candidates(mut unplaced: Unplaced, left: Result<Vec<Preemption>, String>) -> Unplaced {
    unplaced.error.stopped_by_extenders = match left {
        Ok(left) if left.is_empty() => Some(NO_CANDIDATE.to_owned()),
        Ok(left) => {
            unplaced.candidates = left;
            None
        }
        Err(why) => Some(why),
    };
    unplaced
}

impl Scheduler {
    /// Runs some cycles, and others on the same thread have theirs whenever `turn` is over; tells whether more are to be run at once.
    pub(super) async fn cycles(&mut self, turn: Duration) -> bool {
        let mut began = Instant::now();
        for _ in 0..CYCLES {
            if self.flights.len() >= IN_FLIGHT {
                return false;
            }
            let Some(pod) = self.queue.pop(Instant::now()) else {
                return false;
            };
            self.cycle(pod).await;
            if began.elapsed() >= turn {
                tokio::task::yield_now().await;
                began = Instant::now();
            }
        }
        true
    }

    async fn cycle(&mut self, pod: Arc<PodInfo>) {
        let Some(profile) = profile_of(&self.profiles, pod.scheduler()) else {
            return;
        };
        let (name, began) = (profile.name.clone(), Instant::now());
        self.is_sampled = self.sampler.is_one();
        let asked = self.extenders.iter().filter(|extender| extender.is_interested(&pod));
        let asked: Vec<Arc<Caller>> = asked.cloned().collect();
        let found = match asked.is_empty() {
            true => self.search(&pod, Search::schedule).map_err(Failed::Unplaced),
            false => match self.search(&pod, Search::candidates) {
                Ok(candidates) => self.ask(&asked, &pod, candidates).await,
                Err(unplaced) => Err(Failed::Unplaced(unplaced)),
            },
        };
        let result = match &found {
            Ok(_) => "scheduled",
            Err(Failed::Unplaced(_)) => "unschedulable",
            Err(Failed::Error(_)) => "error",
        };
        self.metrics.scheduled(&name, result, began.elapsed());
        match found {
            Ok(node) => self.bind(pod, node, asked.into_iter().find(|extender| extender.binds())),
            Err(Failed::Unplaced(unplaced)) => {
                let unplaced = self.ask_about_victims(&asked, &pod, *unplaced).await;
                self.refuse(pod, unplaced);
            }
            Err(Failed::Error(error)) => self.fail(pod, error),
        }
    }

    fn search<T>(
        &mut self,
        pod: &PodInfo,
        look: impl FnOnce(&mut Search, &mut Cluster, Request<'_>) -> Result<T, Box<Unplaced>>,
    ) -> Result<T, Box<Unplaced>> {
        let profile = profile_of(&self.profiles, pod.scheduler()).unwrap_or(&self.profiles[0]);
        let spreads = profile
            .scores
            .iter()
            .any(|(plugin, _)| *plugin == Plugin::PodTopologySpread)
            || profile.filters.contains(&Plugin::PodTopologySpread);
        let owned = match spreads && pod.spread.is_empty() {
            true => workload::selector(&self.informers, pod),
            false => None,
        };
        let (informers, metrics, last) = (&self.informers, &self.metrics, Cell::new(Instant::now()));
        let timed = |lap| {
            let now = Instant::now();
            if let Lap::End(point, said) = lap {
                let took = now.saturating_duration_since(last.get());
                metrics.scheduling.asked((point, said), &profile.name, took);
            }
            last.set(now);
        };
        let begun = RefCell::new(Vec::new());
        let step = |step| {
            let now = Instant::now();
            match step {
                Step::Begin => begun.borrow_mut().push(now),
                Step::End(plugin, point, said) => {
                    let began = begun.borrow_mut().pop().unwrap_or(now);
                    metrics.scheduling.ran((plugin.name(), point, said), now - began);
                }
            }
        };
        let request = Request {
            told: match self.is_sampled {
                true => Told::to(&step),
                false => Told::default(),
            },
            pod,
            profile,
            owned: owned.as_ref(),
            budgets: &|| {
                let budgets = informers.budgets.list();
                budgets.iter().filter_map(|budget| Budget::new(budget)).collect()
            },
            lap: &timed,
        };
        look(&mut self.search, &mut self.cluster, request)
    }

    /// Has extenders judge what the plugins found.
    async fn ask(&mut self, asked: &[Arc<Caller>], pod: &PodInfo, found: Candidates) -> Result<String, Failed> {
        let Candidates { nodes, mut error } = found;
        let names = nodes.iter().map(|(name, _)| name.clone()).collect();
        let known = self.informers.nodes.clone();
        let judged = call::judge(asked, pod, names, &|name| known.get("", name)).await;
        let judged = judged.map_err(Failed::Error)?;
        let own: BTreeMap<String, i64> = nodes.into_iter().collect();
        let totals: Vec<i64> = judged
            .nodes
            .iter()
            .map(|(name, score)| score + own.get(name).copied().unwrap_or(0))
            .collect();
        if totals.is_empty() {
            error.by_extenders = judged.refused;
            // Nodes that plugins refused may take it once others have left them.
            let look = |search: &mut Search, cluster: &mut Cluster, request: Request<'_>| {
                Err::<(), _>(Box::new(search.preempt_instead(cluster, request, error)))
            };
            let unplaced = self.search(pod, look).err();
            return Err(unplaced.map_or_else(|| Failed::Error(String::new()), Failed::Unplaced));
        }
        let chosen = self.search.pick(&totals);
        Ok(judged.nodes[chosen].0.clone())
    }

    /// Has extenders judge who should go for the pod.
    async fn ask_about_victims(&mut self, asked: &[Arc<Caller>], pod: &PodInfo, mut unplaced: Unplaced) -> Unplaced {
        let candidates = std::mem::take(&mut unplaced.candidates);
        if candidates.is_empty() {
            return unplaced;
        }
        let cluster = &self.cluster;
        let on = |node: &str, uid: &str| cluster.node(node)?.pods.get(uid).cloned();
        let left = call::preempt(asked, pod, candidates, &on).await;
        if let Err(why) = &left {
            tracing::warn!(pod = %pod.key, error = why, "nobody is evicted");
        }
        with_candidates(unplaced, left)
    }

    fn points(&self, pod: &PodInfo) -> Points {
        Points {
            metrics: Arc::clone(&self.metrics),
            profile: pod.scheduler().to_owned(),
            began: Instant::now(),
        }
    }

    fn bind(&mut self, pod: Arc<PodInfo>, node: String, by: Option<Arc<Caller>>) {
        let tried = self.queue.tried(&pod.uid);
        let mut points = self.points(&pod);
        self.place(pod.clone(), &node);
        points.over("Reserve", "Success");
        points.over("Permit", "Success");
        let (binder, metrics) = (self.binder.clone(), Arc::clone(&self.metrics));
        let is_sampled = self.is_sampled;
        self.flights.spawn(async move {
            let _binding = metrics.scheduling.binding();
            points.begin();
            points.over("PreBind", "Success");
            let bound = match by {
                // Where an extender binds, no plugin is asked.
                Some(extender) => binder.bind_by(&extender, pod, node).await,
                None => {
                    let began = Instant::now();
                    let bound = binder.bind(pod, node).await;
                    let said = match &bound {
                        Bound::Done => "Success",
                        _ => "Error",
                    };
                    points.over("Bind", said);
                    if is_sampled {
                        let ran = (Plugin::DefaultBinder.name(), "Bind", said);
                        metrics.scheduling.ran(ran, began.elapsed());
                    }
                    bound
                }
            };
            if matches!(bound, Bound::Done) {
                points.begin();
                points.over("PostBind", "Success");
                if let Some(tried) = tried {
                    metrics.placed(tried.attempts, tried.since.elapsed());
                    if tried.waited_long {
                        metrics.scheduling.placed_after_long();
                    }
                }
            }
            bound
        });
    }

    /// The pod is tried again later: something went wrong that is no matter of nodes.
    fn fail(&mut self, pod: Arc<PodInfo>, error: String) {
        tracing::warn!(pod = %pod.key, error, "not scheduled");
        self.queue.fail(&pod.uid, ScheduleFailure::Error, Instant::now());
        let binder = self.binder.clone();
        self.flights
            .spawn(async move { binder.refuse(pod, "SchedulerError", error, Nomination::Keep).await });
    }

    fn refuse(&mut self, pod: Arc<PodInfo>, unplaced: Unplaced) {
        let Unplaced {
            error,
            candidates,
            renounce,
        } = unplaced;
        tracing::debug!(pod = %pod.key, nodes = error.nodes, "no node fits");
        let (binder, refused, message) = (self.binder.clone(), error.plugins(), error.message());
        if let Some(preemption) = candidates.into_iter().next() {
            self.metrics.preempted(Some(preemption.victims.len()));
            self.queue.hold(&pod.uid, refused);
            self.nominate(Arc::clone(&pod), &preemption.node);
            for victim in &preemption.victims {
                self.cluster.doomed.insert(victim.uid.clone());
            }
            for other in &preemption.displaced {
                self.cluster.nominated.remove(&other.uid);
            }
            let (metrics, began) = (Arc::clone(&self.metrics), Instant::now());
            self.flights.spawn(async move {
                let evicted = binder.evict(pod, message, preemption).await;
                let is_done = matches!(&evicted, Bound::Evicted { is_nominated: true, kept, .. } if kept.is_empty());
                metrics.scheduling.evicted(is_done, began.elapsed());
                evicted
            });
            return;
        }
        if error.post_filter.is_some() || error.stopped_by_extenders.is_some() {
            self.metrics.preempted(None);
        }
        let waits = self.cluster.nominated.node_of(&pod.uid).is_some() || !pod.nominated().is_empty();
        let nomination = match renounce && waits {
            true => Nomination::Clear,
            false => Nomination::Keep,
        };
        // What an extender goes by nobody here hears of: its pods are tried again after a while.
        let failure = match error.by_extenders.is_empty() && error.stopped_by_extenders.is_none() {
            true => ScheduleFailure::Unschedulable(refused),
            false => ScheduleFailure::Error,
        };
        self.queue.fail(&pod.uid, failure, Instant::now());
        if nomination == Nomination::Clear {
            self.renounce(&pod.uid);
        }
        self.flights
            .spawn(async move { binder.refuse(pod, "Unschedulable", message, nomination).await });
    }

    pub(super) fn landed(&mut self, bound: Option<Bound>) {
        match bound {
            // The informer removes the pod from the queue when it shows the assignment.
            None | Some(Bound::Done) => {}
            Some(Bound::Failed { pod, error }) => {
                tracing::warn!(pod = %pod.key, error, "binding failed");
                // A pod that left the queue meanwhile is gone, or has a node by somebody else's hand.
                if self.queue.contains(&pod.uid) {
                    let mut points = self.points(&pod);
                    self.free(&pod.uid);
                    points.over("Unreserve", "Success");
                    if !pod.nominated().is_empty() {
                        self.nominate(Arc::clone(&pod), pod.nominated());
                    }
                    self.queue.fail(&pod.uid, ScheduleFailure::Error, Instant::now());
                    let binder = self.binder.clone();
                    self.flights
                        .spawn(async move { binder.refuse(pod, "SchedulerError", error, Nomination::Keep).await });
                }
            }
            Some(Bound::Evicted {
                pod,
                node,
                is_nominated,
                kept,
                displaced,
            }) => {
                for (victim, error) in &kept {
                    tracing::warn!(pod = %pod.key, victim, error, "not evicted");
                    self.cluster.doomed.remove(victim);
                }
                if !is_nominated {
                    // What the API does not know nobody would end: the pod waits for what it waited for before.
                    self.renounce(&pod.uid);
                    if self.queue.contains(&pod.uid) && !pod.nominated().is_empty() {
                        self.nominate(Arc::clone(&pod), pod.nominated());
                    }
                }
                // Not before the API has it: what they are nominated for next would be taken from them again.
                for other in displaced {
                    self.left(&other, &node);
                    self.queue.retry(&other.uid, Instant::now(), label::LEFT);
                }
                match kept.is_empty() {
                    true => self.queue.release(&pod.uid, Instant::now()),
                    false => self.queue.fail(&pod.uid, ScheduleFailure::Error, Instant::now()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
