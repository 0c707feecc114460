//! What nodes and pods use: metrics.k8s.io, from the kubelets' `/metrics/resource` (control-plane contract §12, kubelet contract §13).
//!
//! Owns the last two points of everything ([`history`], pure) and who asks for them. Kubelets are asked by [`scraper`], and only while
//! somebody reads: the first read waits a moment for two points, and [`KEPT`] after the last one all of it is forgotten. A node speaks
//! only for itself and for pods bound to it. Nothing is stored.

mod answer;
mod history;
mod page;
pub mod scraper;

use super::ApiServer;
use super::request::RequestInfo;
use crate::resource;
use bytes::Bytes;
use futures::future::BoxFuture;
use history::NodeHistory;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

pub(super) use answer::answer;

/// How long after a read kubelets are still asked.
const KEPT: Duration = Duration::from_secs(120);
/// How often they are asked.
const RESOLUTION: Duration = Duration::from_millis(history::RESOLUTION_MS.unsigned_abs());
/// How long after the first points the second ones are taken, so that the first reader has an answer.
const FIRST_WINDOW: Duration = Duration::from_secs(5);
/// How long a read waits for them.
const FIRST_WAIT: Duration = Duration::from_secs(12);

/// Asks a node's kubelet for its `/metrics/resource`; gets the node's name and its object.
pub type Fetch = Arc<dyn Fn(String, Arc<Value>) -> BoxFuture<'static, Result<Bytes, String>> + Send + Sync>;

/// What is kept of a node.
struct Kept {
    history: Arc<NodeHistory>,
    /// Whether its kubelet answered when it was asked last. If not, the points stay for the next rate, and nothing is shown.
    answers: bool,
}

/// See the module.
pub struct Usage {
    fetch: Fetch,
    /// By name of the node.
    nodes: Mutex<BTreeMap<String, Kept>>,
    /// When somebody read last.
    asked: watch::Sender<Option<Instant>>,
    /// How many times all kubelets were asked since somebody began to read.
    rounds: watch::Sender<u32>,
}

/// Serves the kinds of metrics.k8s.io from now on.
pub fn publish(server: &ApiServer) {
    for kind in resource::usage::kinds() {
        server.serve_resource(&kind.group, &kind.plural, std::slice::from_ref(&kind));
    }
}

/// Whether a request reads what nodes and pods use.
pub(super) fn serves(info: &RequestInfo) -> bool {
    info.group == resource::usage::GROUP && info.subresource.is_empty() && matches!(info.verb.as_str(), "get" | "list")
}

impl Usage {
    /// Of what `fetch` brings.
    pub fn new(fetch: Fetch) -> Self {
        Self {
            fetch,
            nodes: Mutex::default(),
            asked: watch::Sender::new(None),
            rounds: watch::Sender::new(0),
        }
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.nodes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is known of a node whose kubelet answers.
    fn node(&self, name: &str) -> Option<Arc<NodeHistory>> {
        let nodes = self.nodes();
        let kept = nodes.get(name).filter(|kept| kept.answers)?;
        Some(Arc::clone(&kept.history))
    }

    /// Somebody reads: waits until there can be rates, but not long.
    async fn ask(&self) {
        self.asked.send_replace(Some(Instant::now()));
        let mut rounds = self.rounds.subscribe();
        let two = rounds.wait_for(|rounds| *rounds >= 2);
        // Too late is no error: what is known by then is the answer.
        let _ = timeout(FIRST_WAIT, two).await;
    }

    fn is_wanted(&self) -> bool {
        self.asked.borrow().is_some_and(|asked| asked.elapsed() < KEPT)
    }

    /// Nobody reads any more.
    fn forget(&self) {
        self.nodes().clear();
        self.rounds.send_replace(0);
    }
}
