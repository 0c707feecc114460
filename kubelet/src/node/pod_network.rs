//! Turns the node's podCIDR into a network: installs the plugins, writes the CNI configuration, tells the runtime, and has
//! the plugins free what vanished sandboxes left. Never touches a network somebody else configures.

use crate::config::Config;
use crate::network::{self, Outcome, collect, install};
use crate::runtime::Runtime;
use client::informer::Informer;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The wait after a configuration that could not be written.
const RETRY: Duration = Duration::from_secs(5);
/// How often what vanished sandboxes left is collected.
const COLLECT_EVERY: Duration = Duration::from_secs(600);
/// How soon it is tried again after a failure.
const COLLECT_RETRY: Duration = Duration::from_secs(60);

/// Keeps the node's network.
pub(super) struct Keeper {
    pub(super) config: Arc<Config>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) node: Informer<Node>,
    pub(super) name: String,
}

impl Keeper {
    /// Follows the node's podCIDR for ever.
    pub(super) async fn keep(self) {
        let mut changes = self.node.subscribe();
        let mut applied: Vec<String> = Vec::new();
        // When to collect; never while the network is not ours.
        let mut collect_at: Option<Instant> = None;
        loop {
            let cidrs = self
                .node
                .get("", &self.name)
                .map(|node| pod_cidrs(&node))
                .unwrap_or_default();
            if cidrs.is_empty() || cidrs == applied {
                tokio::select! {
                    _ = changes.next() => {}
                    () = at(collect_at) => collect_at = Some(Instant::now() + self.collect().await),
                }
                continue;
            }
            match apply(&self.config, &*self.runtime, &cidrs).await {
                Ok(outcome) => {
                    applied = cidrs;
                    collect_at = (outcome == Outcome::Ours).then(Instant::now);
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "network configuration not written, retrying"
                    );
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Collects once; returns the wait before the next time.
    async fn collect(&self) -> Duration {
        let paths = &self.config.paths;
        let sandboxes = match self.runtime.list_sandbox_ids().await {
            Ok(sandboxes) => sandboxes,
            Err(error) => {
                tracing::debug!(%error, "network not collected: the runtime does not answer");
                return COLLECT_RETRY;
            }
        };
        match collect::collect(&paths.cni_conf_dir, &paths.cni_bin_dir, &sandboxes, SystemTime::now()).await {
            Ok(()) => COLLECT_EVERY,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "network not collected");
                COLLECT_RETRY
            }
        }
    }
}

/// Puts the plugins in place. Without them the runtime says what is missing, and pods wait.
fn install_plugins(config: &Config) {
    let paths = &config.paths;
    let binary = paths.cni_plugins.as_ref().filter(|path| !path.as_os_str().is_empty());
    let Some(binary) = binary else { return };
    match install::install(binary, &paths.cni_bin_dir) {
        Ok(installed) if installed.foreign.is_empty() => {}
        Ok(installed) => {
            let foreign = installed.foreign.join(",");
            tracing::info!(foreign, "CNI plugins of others stay in place");
        }
        Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "CNI plugins not installed"),
    }
}

/// Installs the plugins, writes the CNI configuration of these ranges and tells the runtime of them.
pub(crate) async fn apply(
    config: &Config,
    runtime: &dyn Runtime,
    cidrs: &[String],
) -> Result<Outcome, network::NetworkError> {
    install_plugins(config);
    let paths = &config.paths;
    let outcome = network::ensure(&paths.cni_conf_dir, &paths.cni_bin_dir, cidrs).await?;
    match &outcome {
        Outcome::Ours => tracing::info!(pod_cidr = cidrs.join(","), "network configured"),
        Outcome::Foreign(path) => {
            tracing::info!(file = %path.display(), "network is configured by another file")
        }
    }
    if let Some(path) = network::missing_plugin(&paths.cni_conf_dir, &paths.cni_bin_dir) {
        tracing::error!(path = %path.display(), "CNI plugin is missing: pods with a network of their own cannot start until it is there");
    }
    if let Err(error) = runtime.update_runtime_config(&cidrs.join(",")).await
        && !error.is_unimplemented()
    {
        tracing::warn!(%error, "runtime did not take the pod CIDR");
    }
    Ok(outcome)
}

/// Waits until then, for ever if there is no then.
async fn at(then: Option<Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}

/// The ranges of a node, by either field.
pub(super) fn pod_cidrs(node: &Node) -> Vec<String> {
    let Some(spec) = &node.spec else { return Vec::new() };
    match &spec.pod_cidrs {
        Some(cidrs) if !cidrs.is_empty() => cidrs.clone(),
        _ => spec.pod_cidr.iter().filter(|c| !c.is_empty()).cloned().collect(),
    }
}
