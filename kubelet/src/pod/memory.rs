//! What a worker remembers between turns and nobody else knows: failures, back-offs, what it has prepared. Pure data.
//!
//! Losing it (a restart) loses only waiting times and the last error texts: everything else is observed again.

use super::backoff::{Bounds, Crash, later};
use super::operation::{Key, StopReason};
use crate::id::{ContainerId, SandboxId};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Why a container is not running, in the words of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The waiting reason, such as `CreateContainerConfigError`.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// An image's way to being there for the next start of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageState {
    /// It is there; `id` is what to create from.
    Ready {
        /// The image as the runtime knows it.
        image: crate::runtime::ImageInfo,
    },
    /// It could not be had.
    Failed {
        /// The waiting reason of the failure, such as `ErrImagePull`.
        reason: &'static str,
        /// Its message.
        message: String,
        /// When it failed.
        at: Timestamp,
        /// When it is tried again.
        again: Timestamp,
    },
}

/// An operation that failed and waits to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Failures in a row.
    pub failures: u32,
    /// Not before this.
    pub again: Timestamp,
}

/// A container's postStart hook that has not worked (yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostStart {
    /// It is to run, or runs.
    Due,
    /// It failed: the container is to be stopped.
    Failed,
}

/// A stop of a container that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// When: its grace counts from here, hook included.
    pub since: Timestamp,
    /// Why.
    pub reason: StopReason,
    /// Whether its preStop hook was begun: it is not run a second time.
    pub hook: bool,
}

/// The worker's memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The cgroup and directories are there.
    pub prepared: bool,
    /// The volumes are mounted.
    pub volumes_ready: bool,
    /// Something was done whose effect has not been observed.
    pub stale: bool,
    /// The volumes are released.
    pub volumes_released: bool,
    /// The cgroup is removed.
    pub cgroup_released: bool,
    /// Directories and logs are removed.
    pub purged: bool,
    /// Sandboxes that were stopped: a sandbox that is not ready may still hold its address.
    pub stopped_sandboxes: BTreeSet<SandboxId>,
    /// The least attempt number of the next sandbox, above names that are still reserved.
    pub sandbox_attempt_min: u32,
    /// The least restart count of a container's next start, likewise.
    pub restart_count_min: BTreeMap<String, u32>,
    /// Images, by container.
    pub images: BTreeMap<String, ImageState>,
    /// Image failures in a row, by image.
    pub image_failures: BTreeMap<String, u32>,
    /// Crash back-offs, by container.
    pub crashes: BTreeMap<String, Crash>,
    /// Last start errors, by container.
    pub waiting: BTreeMap<String, Waiting>,
    /// Operations that failed.
    pub retries: BTreeMap<Key, Retry>,
    /// postStart hooks that have not worked yet, by container. A restart of the kubelet forgets them, as upstream's does.
    pub post_starts: BTreeMap<String, (ContainerId, PostStart)>,
    /// Stops that began.
    pub stops: BTreeMap<ContainerId, Stop>,
    /// Containers stopped in order to be started again, whatever their policy.
    pub restart_wanted: BTreeSet<String>,
}

impl Memory {
    /// Notes a failure of an operation of the kubelet's own, to be tried again after a growing wait.
    pub fn failed(&mut self, key: &Key, now: Timestamp) {
        let failures = self.retries.get(key).map_or(0, |retry| retry.failures) + 1;
        let again = later(now, Bounds::RETRY.after(failures));
        self.retries.insert(key.clone(), Retry { failures, again });
    }

    /// Notes that an operation succeeded.
    pub fn succeeded(&mut self, key: &Key) {
        self.retries.remove(key);
    }

    /// When a failed operation may run again, if that is not yet.
    pub fn not_before(&self, key: &Key, now: Timestamp) -> Option<Timestamp> {
        self.retries
            .get(key)
            .map(|retry| retry.again)
            .filter(|again| *again > now)
    }

    /// How far an instance's postStart hook is, if it has one that has not worked.
    pub fn post_start(&self, container: &str, id: &ContainerId) -> Option<PostStart> {
        let (of, hook) = self.post_starts.get(container)?;
        (of == id).then_some(*hook)
    }

    /// Notes that a container's image could not be had.
    pub fn image_failed(
        &mut self,
        container: &str,
        image: &str,
        reason: &'static str,
        message: String,
        now: Timestamp,
    ) {
        let failures = self.image_failures.entry(image.to_owned()).or_default();
        *failures += 1;
        let again = later(now, Bounds::IMAGE_PULL.after(*failures));
        self.images.insert(
            container.to_owned(),
            ImageState::Failed {
                reason,
                message,
                at: now,
                again,
            },
        );
    }
}
