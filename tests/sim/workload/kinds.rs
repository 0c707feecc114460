//! What users do with the kinds beside deployments: stateful and daemon sets, Jobs and CronJobs, budgets and evictions, quotas, and owners
//! of all shapes. Each seed has some of them, so that none costs every seed its time.

pub mod ask;
pub mod batch;
pub mod owners;
pub mod sets;
pub mod spaces;

use super::{Step, ask as request, create};
use owners::Owners;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use spaces::Spaces;
use std::collections::{BTreeMap, BTreeSet};

/// One kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Stateful,
    Daemon,
    Job,
    CronJob,
    Budget,
    Quota,
    Owner,
    /// Owners are taken away from what controllers made.
    Strip,
}

const KINDS: [Kind; 8] = [
    Kind::Stateful,
    Kind::Daemon,
    Kind::Job,
    Kind::CronJob,
    Kind::Budget,
    Kind::Quota,
    Kind::Owner,
    Kind::Strip,
];
/// Kinds of one seed.
const KINDS_PER_SEED: usize = 3;
/// How often a step is about one of them.
const SHARE: f64 = 0.45;
/// Objects of one kind that a seed makes at most.
const OBJECTS_MAX: usize = 3;
pub const DEFAULT: &str = "/apis/apps/v1/namespaces/default";
pub const BATCH: &str = "/apis/batch/v1/namespaces/default";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// How a Job is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Complete,
    Failed,
    /// It may be gone, too: it does not stay once it has ended.
    Either,
}

/// What of these kinds should stand at the end.
pub struct Kinds {
    rng: StdRng,
    chosen: Vec<Kind>,
    made: u32,
    /// Stateful sets, with their replicas.
    pub stateful: BTreeMap<String, i64>,
    pub daemons: BTreeSet<String>,
    pub jobs: BTreeMap<String, End>,
    pub cron_jobs: BTreeSet<String>,
    budgets: BTreeSet<String>,
    pub spaces: Spaces,
    pub owners: Owners,
}

impl Kinds {
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x0b1e_c75e);
        let chosen = KINDS.sample(&mut rng, KINDS_PER_SEED).copied().collect();
        Self {
            rng,
            chosen,
            made: 0,
            stateful: BTreeMap::new(),
            daemons: BTreeSet::new(),
            jobs: BTreeMap::new(),
            cron_jobs: BTreeSet::new(),
            budgets: BTreeSet::new(),
            spaces: Spaces::default(),
            owners: Owners::default(),
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}{}", self.made)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.choose(&mut self.rng).cloned()
    }

    /// The next step, if it is about one of these kinds. `apps`: the deployments there are.
    pub fn step(&mut self, apps: &[String]) -> Option<Step> {
        if !self.rng.random_bool(SHARE) {
            return None;
        }
        let chosen = self.chosen.clone();
        match self.pick(&chosen)? {
            Kind::Stateful => Some(self.change_stateful()),
            Kind::Daemon => Some(self.change_daemon()),
            Kind::Job => Some(self.change_job()),
            Kind::CronJob => Some(self.change_cron_job()),
            Kind::Budget => self.change_budget(apps),
            Kind::Quota => Some(self.spaces.step(&mut self.rng)),
            Kind::Owner => Some(self.owners.step(&mut self.rng)),
            Kind::Strip => Some(Step::Strip {
                path: [
                    "/apis/apps/v1/namespaces/default/replicasets",
                    "/api/v1/namespaces/default/pods",
                ][self.rng.random_range(0..2)],
                place: self.rng.random_range(0..64),
            }),
        }
    }

    /// What brings to an end what would go on for ever, and what only a cluster without faults shows.
    pub fn last_steps(&mut self) -> Vec<Step> {
        let suspend = |name: &String| {
            let path = format!("{BATCH}/cronjobs/{name}");
            request("MERGE", &path, json!({"spec": {"suspend": true}}))
        };
        let mut steps: Vec<Step> = self.cron_jobs.iter().map(suspend).collect();
        steps.extend(self.resume_jobs());
        steps.extend(self.owners.last_steps());
        steps
    }

    /// A budget for a deployment or a stateful set, or an eviction of one of its pods.
    fn change_budget(&mut self, apps: &[String]) -> Option<Step> {
        let apps: Vec<String> = apps.iter().chain(self.stateful.keys()).cloned().collect();
        let guarded: Vec<String> = self.budgets.iter().cloned().collect();
        if self.rng.random_bool(0.7) && !guarded.is_empty() {
            let app = self.pick(&guarded)?;
            let place = self.rng.random_range(0..64);
            return Some(Step::Evict { app, place });
        }
        let app = self.pick(&apps)?;
        if self.budgets.remove(&app) {
            return Some(request("DELETE", &format!("{BUDGETS}/{app}"), json!({})));
        }
        self.budgets.insert(app.clone());
        let least: i32 = self.rng.random_range(1..3);
        Some(create(BUDGETS, budget(&app, least)))
    }
}

fn budget(app: &str, least: i32) -> Value {
    json!({"metadata": {"name": app},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}}})
}
