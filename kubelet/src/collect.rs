//! What the node holds and nobody needs: dead containers, empty sandboxes, unused images (kubelet contract §10).
//!
//! Decides what that is: [`containers`] and [`images`] are pure functions over a snapshot of the runtime. Containers and sandboxes are
//! only named here ([`Garbage`]); their pods' workers, who own them, remove them with their logs. Images are everybody's, and
//! [`image_pass`] removes them. Never ends anything that runs, and never looks while nothing could have changed: with upstream's limits
//! the workers alone keep containers within them.

pub mod containers;
mod image_pass;
pub mod images;
#[cfg(test)]
mod tests;

pub use containers::Garbage;
pub use image_pass::{Measure, by_statvfs};

use crate::events::Severity;
use crate::id::PodUid;
use crate::image::Images;
use crate::parts::Parts;
use crate::reason::event;
use crate::runtime::RuntimeError;
use crate::runtime::observed::ObservedPod;
use crate::source::Pods;
use client::beat;
use containers::Remains;
use image_pass::{ImageCollector, PassError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often dead containers are counted where limits are set that workers do not keep.
const CONTAINERS_EVERY: Duration = Duration::from_secs(60);
/// How often images are looked at (upstream's `ImageGCPeriod`).
const IMAGES_EVERY: Duration = Duration::from_secs(300);
/// How long after the start images are removed at the earliest: by then the pods that are here have been delivered.
const IMAGES_FIRST: Duration = Duration::from_secs(60);
/// How long is waited for workers to remove what they were asked to.
const REMOVAL_DEADLINE: Duration = Duration::from_secs(30);
/// Ids that a message names.
const NAMED_MAX: usize = 10;

/// What may stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Dead containers.
    pub containers: containers::Limits,
    /// Images.
    pub images: images::Rules,
    /// The image of sandboxes, where the runtime names it: older runtimes do not pin it.
    pub sandbox_image: Option<String>,
}

/// Why not all was removed that was to go.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The runtime does not tell what there is.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Workers did not get that far in time.
    #[error("{0}")]
    Containers(String),
    /// Images could not be removed.
    #[error("{0}")]
    Images(String),
}

impl From<PassError> for CollectError {
    fn from(error: PassError) -> Self {
        match error {
            PassError::Runtime(error) => Self::Runtime(error),
            other => Self::Images(other.to_string()),
        }
    }
}

/// What removing images gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Images that are gone.
    pub images: usize,
    /// By how much more is free on their file system, bytes: what layers really gave back, not the sum of sizes.
    pub bytes: i64,
}

/// Collects for one kubelet. Cheap to clone.
///
/// Eviction holds a clone: when the node runs short of disk it calls [`Collector::delete_all_unused_containers`], then
/// [`Collector::delete_unused_images`], and only then has pods end.
#[derive(Clone)]
pub struct Collector {
    parts: Arc<Parts>,
    limits: containers::Limits,
    images: Arc<ImageCollector>,
    desired: watch::Receiver<Pods>,
    begun: Instant,
}

impl Collector {
    /// A collector that does nothing yet. `measure` tells how full the images' file system is. Must be called inside a tokio runtime.
    pub fn new(
        parts: Arc<Parts>,
        images: Images,
        rules: Rules,
        measure: Measure,
        desired: watch::Receiver<Pods>,
    ) -> Self {
        let limits = rules.containers;
        parts.garbage.send_replace(Arc::new(Garbage::keeping(&limits)));
        let images = ImageCollector::new(parts.clone(), images, rules.images, rules.sandbox_image, measure);
        Self {
            parts,
            limits,
            images: Arc::new(images),
            desired,
            begun: Instant::now(),
        }
    }

    /// Collects now and then until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let work = async { tokio::join!(self.keep_containers(), self.keep_images()) };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = work => {}
        }
    }

    /// Has every dead container and stopped sandbox go that pods which have ended left, their logs with them, and of other pods
    /// what is beyond the limits. Returns how many of them are gone; eviction calls this first when disk runs short.
    ///
    /// # Errors
    /// Some of it is still there after half a minute: its removal goes on.
    pub async fn delete_all_unused_containers(&self) -> Result<usize, CollectError> {
        let garbage = self.decide(true);
        let asked = garbage.by_pod();
        let number = garbage.len();
        self.parts.garbage.send_replace(Arc::new(garbage));
        let all = asked.iter().map(|(uid, garbage)| self.gone(uid, garbage));
        let waited = tokio::time::timeout(REMOVAL_DEADLINE, futures::future::join_all(all)).await;
        let left = self.left(&asked);
        match waited.is_ok() || left.is_empty() {
            true => Ok(number),
            false => Err(CollectError::Containers(remaining(&left))),
        }
    }

    /// Whether the pods of this node are known, and have been for long enough to have what they need: an image that none of them has
    /// is needed by nobody. Eviction asks before it has images removed. Pods that were kept stand in for those of an API server that
    /// does not answer.
    pub fn may_delete_images(&self) -> bool {
        let desired = self.desired.borrow();
        self.begun.elapsed() >= IMAGES_FIRST && (desired.complete || !desired.kept.is_empty())
    }

    /// Removes every image that nothing uses and that is old enough, least lately used first. Eviction calls this once the
    /// containers that nobody needs are gone, and before pods have to go.
    ///
    /// # Errors
    /// The runtime does not tell what there is, or could not remove some; the others are gone.
    pub async fn delete_unused_images(&self) -> Result<Freed, CollectError> {
        Ok(self.images.delete_unused().await?)
    }

    /// What is to go by what workers publish of their pods; with `all` everything of those that have ended.
    fn decide(&self, all: bool) -> Garbage {
        let pods = self.parts.pods.list();
        let remains: Vec<Remains<'_>> = pods
            .iter()
            .map(|pod| Remains {
                ended: pod.ended && !pod.active,
                observed: &pod.observed,
            })
            .collect();
        containers::decide(&remains, &self.limits, all, self.parts.clock.now())
    }

    /// Keeps containers within limits that no worker can keep by itself.
    async fn keep_containers(&self) {
        if !self.limits.are_beyond_workers() {
            return;
        }
        let mut asked: BTreeMap<PodUid, Garbage> = BTreeMap::new();
        loop {
            beat::wait(CONTAINERS_EVERY).await;
            // What was to go a minute ago and is still there could not be removed.
            let left = self.left(&asked);
            if !left.is_empty() {
                let message = remaining(&left);
                tracing::error!(message, "container garbage collection failed");
                self.warn(event::CONTAINER_GC_FAILED, message);
            }
            let garbage = self.decide(false);
            asked = garbage.by_pod();
            self.parts.garbage.send_if_modified(|current| {
                let changed = **current != garbage;
                *current = Arc::new(garbage);
                changed
            });
        }
    }

    /// Notes which images are used, and removes what is too much of them.
    async fn keep_images(&self) {
        let begun = Instant::now();
        if let Err(error) = self.images.detect().await {
            tracing::warn!(%error, "the images that are here are not known yet");
        }
        let mut failed = false;
        tokio::time::sleep(IMAGES_FIRST).await;
        loop {
            match self.images.collect(begun.elapsed()).await {
                Ok(()) => failed = false,
                // At a start things may not be there yet that are a moment later: the first time is no news.
                Err(error) if !failed => {
                    tracing::warn!(%error, "image garbage collection failed once");
                    failed = true;
                }
                Err(error) => {
                    tracing::error!(%error, "image garbage collection failed multiple times in a row");
                    self.warn(event::IMAGE_GC_FAILED, error.to_string());
                }
            }
            tokio::time::sleep(IMAGES_EVERY).await;
        }
    }

    /// Waits until nothing of it is observed any more.
    async fn gone(&self, uid: &PodUid, garbage: &Garbage) {
        let mut observed = self.parts.pleg.watch(uid);
        let is_gone =
            |seen: &Option<Arc<ObservedPod>>| seen.as_deref().is_none_or(|seen| garbage.left_in(seen).is_empty());
        // The sender goes with the pod: then everything of it is gone.
        drop(observed.wait_for(is_gone).await);
    }

    /// The ids of what was asked to go and is still observed.
    fn left(&self, asked: &BTreeMap<PodUid, Garbage>) -> Vec<String> {
        let of = |(uid, garbage): (&PodUid, &Garbage)| {
            let snapshot = self.parts.pods.by_uid(uid);
            snapshot
                .map(|snapshot| garbage.left_in(&snapshot.observed))
                .unwrap_or_default()
        };
        asked.iter().flat_map(of).collect()
    }

    fn warn(&self, reason: &str, message: String) {
        let (recorder, node) = (&self.parts.recorder, &self.parts.context.node_name);
        recorder.node(node, Severity::Warning, reason, message);
    }
}

/// Names what could not be removed, not too much of it.
fn remaining(left: &[String]) -> String {
    let named = &left[..left.len().min(NAMED_MAX)];
    let number = left.len();
    format!(
        "{number} dead containers and sandboxes could not be removed: {}",
        named.join(", ")
    )
}
