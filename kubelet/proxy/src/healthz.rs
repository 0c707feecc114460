//! Whether the proxy keeps up, and whether load balancers should send traffic to this node: `/healthz` and `/livez` (contract cni.md
//! §7.3). Owns what is known of both; never touches the rules.

use crate::http::{Answer, Handler, Request};
use crate::metrics::{Metrics, Probe};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What the cluster autoscaler marks a node with before it deletes it.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// What Go prints of a time that never was.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// What is known.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The last time everything known was in the kernel.
    updated: Option<Timestamp>,
    /// Since when a change waits.
    queued: Option<Instant>,
}

/// The proxy's health. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Health {
    state: Arc<Mutex<State>>,
    /// How long a change may wait.
    patience: Duration,
    families: &'static [&'static str],
}

/// Names of families as the API has them.
pub fn families(ipv4: bool, ipv6: bool) -> &'static [&'static str] {
    match (ipv4, ipv6) {
        (true, true) => &["IPv4", "IPv6"],
        (true, false) => &["IPv4"],
        (false, true) => &["IPv6"],
        (false, false) => &[],
    }
}

impl Health {
    /// Of a proxy of these families; a change may wait for twice the `sync_period`, as upstream has it.
    pub fn new(sync_period: Duration, families: &'static [&'static str]) -> Self {
        Self {
            state: Arc::default(),
            patience: sync_period.saturating_mul(2),
            families,
        }
    }

    /// A change waits since then.
    pub fn queued(&self, since: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.queued.get_or_insert(since);
    }

    /// All that is known is in the kernel.
    pub fn updated(&self, now: Timestamp) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State {
            updated: Some(now),
            queued: None,
        };
    }

    /// Whether changes get to the kernel in time; also while the first one is under way.
    pub fn is_healthy(&self, now: Instant) -> bool {
        is_healthy(&self.read(), self.patience, now)
    }

    fn read(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_healthy(state: &State, patience: Duration, now: Instant) -> bool {
    let is_late = |since: Instant| now.saturating_duration_since(since) >= patience;
    state.updated.is_none() || !state.queued.is_some_and(is_late)
}

/// Whether load balancers should use the node: it is there, and neither deleted nor about to be.
pub fn is_eligible(node: Option<&Node>) -> bool {
    let Some(node) = node else { return false };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let is_marked = taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == TO_BE_DELETED));
    node.metadata.deletion_timestamp.is_none() && !is_marked
}

/// Upstream's answer; `/livez` says nothing of the node.
fn answer(state: &State, healthy: bool, now: Timestamp, eligible: Option<bool>, families: &[&str]) -> Answer {
    let is_well = healthy && eligible != Some(false);
    let updated = state.updated.map_or(NEVER.to_owned(), |at| at.to_string());
    let mut status = Map::new();
    if state.updated.is_some() {
        for family in families {
            status.insert(
                (*family).to_owned(),
                json!({"lastUpdated": updated, "healthy": healthy}),
            );
        }
    }
    // Upstream's order of fields, which a map of ours would not keep.
    let last = if is_well { now.to_string() } else { updated };
    let mut body = format!("{{\"lastUpdated\":\"{last}\",\"currentTime\":\"{now}\"");
    if let Some(eligible) = eligible {
        body.push_str(&format!(",\"nodeEligible\":{eligible}"));
    }
    body.push_str(&format!(",\"healthy\":{healthy}"));
    if !status.is_empty() {
        body.push_str(&format!(",\"status\":{}", serde_json::Value::Object(status)));
    }
    body.push('}');
    Answer::json(if is_well { 200 } else { 503 }, body)
}

/// This node as it is known now.
pub type ThisNode = Arc<dyn Fn() -> Option<Arc<Node>> + Send + Sync>;

/// What answers on `healthzBindAddress`.
pub fn handler(health: Health, node: ThisNode, metrics: Metrics) -> Handler {
    Arc::new(move |request: &Request| {
        let (eligible, probe) = match request.path.as_str() {
            "/healthz" => (Some(is_eligible(node().as_deref())), Probe::Healthz),
            "/livez" => (None, Probe::Livez),
            _ => return Answer::not_found(),
        };
        let (state, healthy) = (health.read(), health.is_healthy(Instant::now()));
        let answer = answer(&state, healthy, Timestamp::now(), eligible, health.families);
        metrics.probed(probe, answer.code);
        answer
    })
}

#[cfg(test)]
mod tests;
