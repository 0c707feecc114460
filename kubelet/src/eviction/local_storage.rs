//! Watches what pods with limits on local storage use, and ends those that use more: emptyDirs with a `sizeLimit` and containers
//! with a limit on `ephemeral-storage` (kubelet contract §10).
//!
//! Only pods that have such a limit cost anything. They are measured one after another, on the blocking pool, each with a deadline; whose
//! turn it is, and for how long, is [`super::turns`]' to say, so that no pod can keep the node busy with its files, or keep others from being
//! looked at.

use super::decide::{self, Limits};
use super::hung::Hung;
use super::measure::Measurer;
use super::turns::{self, GLANCE, Turns};
use super::{GRACE_SECONDS, Killer};
use crate::host::WorkError;
use crate::id::PodUid;
use crate::parts::Parts;
use crate::pod::state::Cause;
use crate::pod::view::PodSnapshot;
use crate::pod::worker::Kill;
use crate::pod_object;
use crate::runtime::ContainerUsage;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::Volume;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long one pod's files may take to be counted in a turn of its own: what was counted by then counts.
const COUNT_DEADLINE: Duration = Duration::from_secs(30);

/// Measures pods and ends those that outgrow their limits.
pub struct LocalStorage {
    parts: Arc<Parts>,
    killer: Killer,
    measurer: Measurer,
    images_apart: Option<bool>,
    begun: Instant,
    turns: Turns,
    hung: Hung,
    /// What running containers had in their layers at the last round.
    layers: Vec<ContainerUsage>,
}

/// A pod that has limits.
struct Limited {
    uid: PodUid,
    snapshot: Arc<PodSnapshot>,
    limits: Limits,
}

impl LocalStorage {
    /// A measurer that tells `killer` whom to end. Must be made inside a tokio runtime.
    pub fn new(parts: Arc<Parts>, killer: Killer) -> Self {
        Self {
            measurer: Measurer::new(parts.clone(), COUNT_DEADLINE),
            parts,
            killer,
            images_apart: None,
            begun: Instant::now(),
            turns: Turns::new(),
            hung: Hung::default(),
            layers: Vec::new(),
        }
    }

    /// Measures until shut down.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let measuring = async {
            loop {
                tokio::time::sleep_until(self.begun + self.turns.wake_at()).await;
                self.pass().await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = measuring => {}
        }
    }

    /// Measures those whose turn it is.
    async fn pass(&mut self) {
        let pods = self.parts.pods.list();
        self.killer.forget_gone(&pods);
        let limited = pods.into_iter().filter(|snapshot| snapshot.active && !snapshot.ended);
        let limited = limited.map(|snapshot| Limited {
            uid: pod_object::uid(&snapshot.pod),
            limits: Limits::of(&snapshot.pod),
            snapshot,
        });
        let limited: Vec<Limited> = limited.filter(|of| !of.limits.is_empty()).collect();
        let uids = turns::uids(limited.iter().map(|of| &of.uid));
        self.turns.keep(&uids);
        self.hung.keep(&uids);
        if self.turns.is_round_due(self.begun.elapsed()) {
            self.round(&limited).await;
        }
        if let Some(uid) = self.turns.turn(self.begun.elapsed()) {
            let begun = self.begun.elapsed();
            let finished = match limited.iter().find(|of| of.uid == uid) {
                Some(of) => self.judge(of, COUNT_DEADLINE).await,
                None => true,
            };
            if !finished {
                tracing::warn!(pod = %uid, "not all that the pod uses of local storage could be counted");
            }
            self.turns.had_turn(uid, begun, self.begun.elapsed(), finished);
        }
    }

    /// Measures all for a moment that are not known to take longer.
    async fn round(&mut self, limited: &[Limited]) {
        let begun = self.begun.elapsed();
        self.layers = match limited.iter().any(|of| of.limits.limits_containers()) {
            true => self.layers().await,
            false => Vec::new(),
        };
        let mut unfinished = Vec::new();
        for of in limited {
            if !self.turns.is_heavy(&of.uid) && !self.judge(of, GLANCE).await {
                unfinished.push(of.uid.clone());
            }
        }
        self.turns.had_round(begun, self.begun.elapsed(), unfinished);
    }

    /// Counts one pod's files until the deadline, and has it end if these are more than it may have; whether they were counted to the end.
    async fn judge(&mut self, of: &Limited, deadline: Duration) -> bool {
        let (uid, snapshot, limits) = (&of.uid, &of.snapshot, &of.limits);
        // One that ends slowly may go on writing.
        if self.killer.is_hurried(uid) {
            return true;
        }
        let counted = match self.measurer.hangs(uid) {
            true => Err(WorkError::Overdue),
            false => {
                let measured = |volume: &Volume| limits.measures(volume);
                let paths = self.measurer.paths(&snapshot.pod, measured, limits.limits_containers());
                self.measurer.count(uid, paths, deadline).await
            }
        };
        let mut used = match counted {
            Ok(used) => used,
            Err(error) => {
                tracing::debug!(pod = %uid, %error, "what the pod uses of local storage cannot be counted");
                if self.hung.hangs(uid, Instant::now()) {
                    self.measurer.tell_hang(&snapshot.pod);
                }
                return false;
            }
        };
        if self.hung.ended(uid, Instant::now()) {
            tracing::info!(pod = %uid, "what the pod uses of local storage can be counted again");
        }
        let own = self.layers.iter().filter(|usage| usage.pod.as_ref() == Some(uid));
        used.layers = own
            .filter_map(|usage| Some((usage.name.clone(), usage.layer?.0)))
            .collect_ordered();
        used.images_apart = self.images_apart;
        if let Some((signal, message)) = decide::exceeded(&snapshot.pod, limits, &used) {
            if !self.killer.has(uid) {
                self.parts.metrics.pods.evicted(signal);
            }
            tracing::info!(pod = %uid, message, "ending a pod that outgrew its limits");
            let kill = Kill {
                cause: Cause::StorageExceeded { message },
                grace_seconds: Some(GRACE_SECONDS),
                annotations: BTreeMap::new(),
            };
            self.killer.kill(uid.clone(), kill);
        }
        !used.is_incomplete()
    }

    /// What running containers wrote into their layers, and whether that is on the file system of the kubelet's directory.
    async fn layers(&mut self) -> Vec<ContainerUsage> {
        if self.images_apart.is_none() {
            self.images_apart = self.measurer.places().await.map(|places| places.disks.images_apart);
        }
        self.measurer.containers().await.unwrap_or_default()
    }
}
