//! Turns the node's podCIDR into a network: installs the plugins, writes the CNI configuration, tells the runtime, and has
//! the plugins free what vanished sandboxes left. Never touches a network somebody else configures.

use crate::config::Config;
use crate::network::{self, Outcome, Shape, collect, install};
use crate::runtime::{Runtime, RuntimeStatus};
use crate::wake;
use client::informer::Informer;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::Instant;

/// The wait after a configuration that could not be written.
const RETRY: Duration = Duration::from_secs(5);
/// How often what vanished sandboxes left is collected.
const COLLECT_EVERY: Duration = Duration::from_secs(600);
/// How soon it is tried again after a failure.
const COLLECT_RETRY: Duration = Duration::from_secs(60);

/// When to collect. Pure.
#[derive(Debug, Default)]
struct Timer {
    /// Nothing while the network is not ours.
    due: Option<Instant>,
    away: bool,
}

impl Timer {
    /// A configuration was written or found.
    fn network_is(&mut self, outcome: &Outcome, now: Instant) {
        self.due = (*outcome == Outcome::Ours).then_some(now);
    }

    /// The runtime is there or not. While it was away sandboxes may have vanished, so its return is a reason to collect.
    fn runtime_is(&mut self, ready: bool, now: Instant) {
        if ready && std::mem::take(&mut self.away) {
            self.due = self.due.map(|_| now);
        }
        self.away |= !ready;
    }

    fn collected(&mut self, all: bool, now: Instant) {
        self.due = Some(now + if all { COLLECT_EVERY } else { COLLECT_RETRY });
    }
}

/// The shape of the pods' network: of a node by itself, or of one among others, whose rules for the whole node masquerade. Nothing
/// while the others' MTU is not known. Pure.
fn shape(between_nodes: bool, mtu: Option<u32>) -> Option<Shape> {
    match between_nodes {
        false => Some(Shape::default()),
        true => mtu.map(|mtu| Shape { masquerade: false, mtu }),
    }
}

/// Keeps the node's network.
pub(super) struct PodNetwork {
    pub(super) config: Arc<Config>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) status: watch::Receiver<RuntimeStatus>,
    pub(super) node: Informer<Node>,
    pub(super) name: String,
    /// The MTU the network between nodes leaves to pods, once it is known; only asked where there is such a network.
    pub(super) mtu: watch::Receiver<Option<u32>>,
}

impl PodNetwork {
    /// Follows the node's podCIDR for ever.
    pub(super) async fn keep(self) {
        let mut changes = self.node.subscribe();
        let mut applied: Option<(Vec<String>, Shape)> = None;
        let mut mtu = self.mtu.clone();
        let mut status = self.status.clone();
        let mut timer = Timer::default();
        loop {
            timer.runtime_is(status.borrow_and_update().runtime_ready, Instant::now());
            let cidrs = self
                .node
                .get("", &self.name)
                .map(|node| pod_cidrs(&node))
                .unwrap_or_default();
            let between_nodes = self.config.cluster_network.backend.is_some();
            let wanted = shape(between_nodes, *mtu.borrow_and_update()).map(|shape| (cidrs, shape));
            let wanted = wanted.filter(|(cidrs, _)| !cidrs.is_empty());
            let Some((cidrs, shape)) = wanted.filter(|wanted| applied.as_ref() != Some(wanted)) else {
                tokio::select! {
                    biased;
                    _ = changes.next() => {}
                    Ok(()) = mtu.changed() => {}
                    Ok(()) = status.changed() => {}
                    () = wake::at(timer.due) => timer.collected(self.collect().await, Instant::now()),
                }
                continue;
            };
            match apply(&self.config, &*self.runtime, &cidrs, shape).await {
                Ok(outcome) => {
                    applied = Some((cidrs, shape));
                    timer.network_is(&outcome, Instant::now());
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

    /// Collects once; tells whether everything was collected.
    async fn collect(&self) -> bool {
        let paths = &self.config.paths;
        let sandboxes = match self.runtime.list_sandbox_ids().await {
            Ok(sandboxes) => sandboxes,
            Err(error) => {
                tracing::debug!(%error, "network not collected: the runtime does not answer");
                return false;
            }
        };
        match collect::collect(&paths.cni_conf_dir, &paths.cni_bin_dir, &sandboxes, SystemTime::now()).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "network not collected");
                false
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
    shape: Shape,
) -> Result<Outcome, network::NetworkError> {
    install_plugins(config);
    let paths = &config.paths;
    let outcome = network::ensure(&paths.cni_conf_dir, &paths.cni_bin_dir, cidrs, shape).await?;
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

/// The ranges of a node, by either field.
pub(crate) fn pod_cidrs(node: &Node) -> Vec<String> {
    let Some(spec) = &node.spec else { return Vec::new() };
    match &spec.pod_cidrs {
        Some(cidrs) if !cidrs.is_empty() => cidrs.clone(),
        _ => spec.pod_cidr.iter().filter(|c| !c.is_empty()).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_nodes_a_pods_address_stays_and_the_mtu_is_waited_for() {
        assert_eq!(shape(false, None), Some(Shape::default()));
        assert_eq!(shape(true, None), None);
        let among_others = Shape {
            masquerade: false,
            mtu: 1450,
        };
        assert_eq!(shape(true, Some(1450)), Some(among_others));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_collected_and_when() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut timer = Timer::default();
        timer.runtime_is(false, after(0));
        timer.runtime_is(true, after(1));
        assert_eq!(timer.due, None, "the network is not ours");
        timer.network_is(&Outcome::Ours, after(2));
        assert_eq!(timer.due, Some(after(2)));
        timer.collected(true, after(3));
        assert_eq!(timer.due, Some(after(603)));
        timer.runtime_is(true, after(10));
        assert_eq!(timer.due, Some(after(603)), "it was never away");
        timer.runtime_is(false, after(20));
        timer.collected(false, after(30));
        assert_eq!(timer.due, Some(after(90)), "a failure is tried again soon");
        timer.runtime_is(true, after(40));
        assert_eq!(timer.due, Some(after(40)), "it came back");
        timer.network_is(&Outcome::Foreign("other".into()), after(50));
        assert_eq!(timer.due, None);
    }
}
