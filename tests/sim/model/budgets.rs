//! Disruption budgets: an eviction spends a disruption that was allowed, and leaves as many healthy pods as have to be.

use super::pods::Pods;
use super::{World, ends, is_deleting, name, uid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const PODS: &str = "/registry/pods/";

#[derive(Default)]
pub struct Budgets {
    /// UIDs of pods that are told to be evicted.
    evicted: BTreeSet<String>,
    /// Evictions that budgets allowed.
    pub granted: u64,
}

fn disrupted(budget: &Value) -> BTreeMap<&String, &Value> {
    let pods = budget["status"]["disruptedPods"].as_object();
    pods.into_iter().flatten().collect()
}

fn matches(budget: &Value, pod: &Value) -> bool {
    let wanted = budget["spec"]["selector"]["matchLabels"].as_object();
    let same_space = budget["metadata"]["namespace"] == pod["metadata"]["namespace"];
    let labels = &pod["metadata"]["labels"];
    same_space && wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
}

impl Budgets {
    /// Notes pods whose eviction was granted, as they go.
    pub fn on_pod(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let Some(pod) = before.filter(|before| ends(before, after)) else {
            return;
        };
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut reasons = conditions.filter(|c| c["type"] == "DisruptionTarget" && c["status"] == "True");
        if reasons.any(|c| c["reason"] == "EvictionByEvictionAPI") {
            self.evicted.insert(uid(pod).to_owned());
        }
    }

    /// Judges a budget that has just been spent from.
    pub fn on_budget(
        &mut self,
        world: &World<'_>,
        pods: &Pods,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Vec<String> {
        let (Some(before), Some(budget)) = (before, after) else {
            return Vec::new();
        };
        let known = disrupted(before);
        let spent: Vec<&String> = disrupted(budget)
            .into_keys()
            .filter(|pod| !known.contains_key(pod))
            .collect();
        if spent.is_empty() {
            return Vec::new();
        }
        self.granted += 1;
        let mut told = Vec::new();
        let allowed = |budget: &Value| budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
        let count = i64::try_from(spent.len()).unwrap_or(i64::MAX);
        let (had, has) = (allowed(before), allowed(budget));
        if had < count || has != had - count {
            let name = name(budget);
            told.push(format!(
                "{name} allowed {had} disruptions and was spent from {count} times, {has} are left"
            ));
        }
        if before["status"]["observedGeneration"] != before["metadata"]["generation"] {
            told.push(format!("{} was spent from before it was known", name(budget)));
        }
        let leaving = disrupted(budget);
        let all = world.under(PODS).filter(|pod| matches(budget, pod));
        let healthy = all.filter(|pod| {
            let is_evicted = self.evicted.contains(uid(pod)) && is_deleting(pod);
            !is_evicted && !leaving.contains_key(&name(pod).to_owned()) && pods.was_ready(world.revision, uid(pod))
        });
        let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
        let least = budget["spec"]["minAvailable"].as_i64().unwrap_or(0);
        if healthy < least {
            told.push(format!(
                "an eviction leaves {healthy} healthy pods of {}, {least} must be",
                name(budget)
            ));
        }
        told
    }
}
