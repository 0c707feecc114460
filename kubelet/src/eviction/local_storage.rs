//! Watches what pods with limits on local storage use, and ends those that use more: emptyDirs with a `sizeLimit` and containers
//! with a limit on `ephemeral-storage` (kubelet contract §10).
//!
//! Only pods that have such a limit cost anything. They are measured one after another, on the blocking pool, each with a
//! deadline; after a pass that took long there is a longer rest, so that no pod can keep the node busy with its files.

use super::decide::{self, Limits};
use super::measure::Measurer;
use super::{GRACE_SECONDS, Killer};
use crate::parts::Parts;
use crate::pod::state::Cause;
use crate::pod::view::PodSnapshot;
use crate::pod::worker::Kill;
use crate::pod_object;
use crate::runtime::ContainerUsage;
use client::ordered::CollectOrdered;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pause between two passes.
const PERIOD: Duration = Duration::from_secs(10);
/// How many times as long as a pass the pause after it is at least.
const REST: u32 = 4;
/// How long one pod's files may take to be counted: what was counted by then counts.
const COUNT_DEADLINE: Duration = Duration::from_secs(30);

/// Measures pods and ends those that outgrow their limits.
pub struct LocalStorage {
    parts: Arc<Parts>,
    killer: Killer,
    measurer: Measurer,
    images_apart: Option<bool>,
}

impl LocalStorage {
    /// A measurer that tells `killer` whom to end.
    pub fn new(parts: Arc<Parts>, killer: Killer) -> Self {
        Self {
            measurer: Measurer::new(parts.clone(), COUNT_DEADLINE),
            parts,
            killer,
            images_apart: None,
        }
    }

    /// Measures until shut down.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut pause = PERIOD;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let begun = Instant::now();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.pass() => {}
            }
            pause = PERIOD.max(begun.elapsed() * REST);
        }
    }

    /// Measures every pod that has limits, once.
    async fn pass(&mut self) {
        let pods = self.parts.pods.list();
        self.killer.forget_gone(&pods);
        let limited: Vec<(&Arc<PodSnapshot>, Limits)> = pods
            .iter()
            .filter(|snapshot| snapshot.active && !snapshot.ended)
            .map(|snapshot| (snapshot, Limits::of(&snapshot.pod)))
            .filter(|(_, limits)| !limits.is_empty())
            .collect();
        let layers = if limited.iter().any(|(_, limits)| limits.limits_containers()) {
            self.layers().await
        } else {
            Vec::new()
        };
        for (snapshot, limits) in limited {
            self.judge(snapshot, &limits, &layers).await;
        }
    }

    async fn judge(&self, snapshot: &PodSnapshot, limits: &Limits, layers: &[ContainerUsage]) {
        let uid = pod_object::uid(&snapshot.pod);
        if self.killer.has(&uid) {
            return;
        }
        let paths = self.measurer.paths(
            &snapshot.pod,
            |volume| limits.measures(volume),
            limits.limits_containers(),
        );
        let mut used = match self.measurer.count(&uid, paths, COUNT_DEADLINE).await {
            Ok(used) => used,
            Err(error) => {
                tracing::warn!(pod = %uid, %error, "what the pod uses of local storage cannot be counted");
                return;
            }
        };
        if used.is_incomplete() {
            tracing::warn!(pod = %uid, "not all that the pod uses of local storage could be counted");
        }
        let own = layers.iter().filter(|usage| usage.pod.as_ref() == Some(&uid));
        used.layers = own
            .filter_map(|usage| Some((usage.name.clone(), usage.layer?.0)))
            .collect_ordered();
        used.images_apart = self.images_apart;
        if let Some((signal, message)) = decide::exceeded(&snapshot.pod, limits, &used) {
            self.parts.metrics.pods.evicted(signal);
            tracing::info!(pod = %uid, message, "ending a pod that outgrew its limits");
            let kill = Kill {
                cause: Cause::StorageExceeded { message },
                grace_seconds: Some(GRACE_SECONDS),
                annotations: BTreeMap::new(),
            };
            self.killer.kill(uid, kill);
        }
    }

    /// What running containers wrote into their layers, and whether that is on the file system of the kubelet's directory.
    async fn layers(&mut self) -> Vec<ContainerUsage> {
        if self.images_apart.is_none() {
            self.images_apart = self.measurer.places().await.map(|places| places.disks.images_apart);
        }
        self.measurer.containers().await.unwrap_or_default()
    }
}
