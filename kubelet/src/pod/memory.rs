//! What a worker remembers between turns and nobody else knows: failures, back-offs, what it has prepared. Pure data.
//!
//! What begins with an operation changes as the plan says ([`Change`]); what comes of one, as its reply says.
//! Losing it (a restart) loses only waiting times and the last error texts: everything else is observed again.

mod change;

pub use change::Change;

use super::backoff::{Bounds, Crash, later};
use super::operation::{Key, StopReason};
use super::resize::Applied;
use crate::allocation::PodResources;
use crate::id::{ContainerId, SandboxId};
use crate::image;
use crate::pod_object;
use crate::runtime::ImageInfo;
use client::ordered::CollectOrdered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::{BTreeMap, BTreeSet};

/// Why a container is not running, in the words of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The waiting reason, such as `CreateContainerConfigError`.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// An image that is there for the next start of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyImage {
    /// The reference that was asked for: a container that names another has no image yet.
    pub reference: String,
    /// The image as the runtime knows it.
    pub image: ImageInfo,
}

/// What a failure to have an image belongs to: the reference as written, and the policy by which it was to be had.
pub type ImageKey = (String, image::Policy);

/// An image that could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFailure {
    /// The waiting reason of the failure, such as `ErrImagePull`.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
    /// Failures in a row.
    pub failures: u32,
    /// When it failed.
    pub at: Timestamp,
    /// When it is tried again.
    pub again: Timestamp,
}

/// How far the image a container names now is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageState<'a> {
    /// Nobody looked yet, or it may be tried again.
    Unknown,
    /// It is there.
    Ready(&'a ImageInfo),
    /// It could not be had, and is not tried again yet.
    Failed(&'a ImageFailure),
}

/// How many images' failures are remembered of one pod: a user who edits the image again and again fills no memory.
const IMAGE_FAILURES_MAX: usize = 32;

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
    /// Which they are: an ephemeral container may want one that nobody mounted before.
    pub mounted: BTreeSet<String>,
    /// Something was done whose effect has not been observed.
    pub stale: bool,
    /// What its claims stand for is prepared for the next sandbox.
    pub claims_ready: bool,
    /// Its claims are let go of.
    pub claims_released: bool,
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
    /// Images that are there, by container.
    pub images: BTreeMap<String, ReadyImage>,
    /// Images that could not be had; at most 32 of them.
    pub image_failures: BTreeMap<ImageKey, ImageFailure>,
    /// Crash back-offs, by container.
    pub crashes: BTreeMap<String, Crash>,
    /// Of containers whose removal for a restart of all was begun: the name, and the back-off that holds once they are gone.
    pub uncounted_crashes: BTreeMap<ContainerId, (String, Crash)>,
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
    /// What the pod runs with.
    pub applied: Applied,
    /// What an earlier kubelet's containers ran with when this one found them.
    pub ran_with: Option<PodResources>,
    /// What it will run with once these operations have worked.
    pub applying: BTreeMap<Key, PodResources>,
    /// Why a resize does not get further.
    pub resize_error: Option<String>,
    /// Containers that never ran, because an earlier kubelet died over their start: it was no end of theirs.
    pub interrupted: BTreeSet<ContainerId>,
    /// Regular containers that ended for good before a reboot, by exit code: a runtime that lost them does not run them again.
    pub ended: BTreeMap<String, i32>,
}

impl Memory {
    /// The memory of a pod that was kept, whose containers ended like this.
    pub fn of_kept(ended: BTreeMap<String, i32>) -> Self {
        Self {
            ended,
            ..Self::default()
        }
    }

    /// Lets go of the room of maps that nothing is left in: a pod is mostly at rest.
    pub fn shed(&mut self) {
        shed(&mut self.restart_count_min);
        shed(&mut self.images);
        shed(&mut self.image_failures);
        shed(&mut self.crashes);
        shed(&mut self.uncounted_crashes);
        shed(&mut self.waiting);
        shed(&mut self.retries);
        shed(&mut self.post_starts);
        shed(&mut self.stops);
        shed(&mut self.applying);
    }

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

    /// How far the image is that the container names now, whatever it named before.
    pub fn image(&self, container: &Container, now: Timestamp) -> ImageState<'_> {
        let reference = container.image.as_deref().unwrap_or_default();
        if let Some(ready) = self
            .images
            .get(&container.name)
            .filter(|ready| ready.reference == reference)
        {
            return ImageState::Ready(&ready.image);
        }
        let failure = self.image_failures.get(&image_key(container));
        match failure.filter(|failure| failure.again > now) {
            Some(failure) => ImageState::Failed(failure),
            None => ImageState::Unknown,
        }
    }

    /// The images of the volumes a container mounts that are images, by volume.
    pub fn volume_images(&self, pod: &Pod, container: &str, now: Timestamp) -> BTreeMap<String, ImageInfo> {
        let mounting = pod_object::find(pod, container).map(|(_, spec)| pod_object::image_volumes(pod, &spec));
        let users = mounting.into_iter().flatten();
        let ready = users.filter_map(|user| match self.image(&user, now) {
            ImageState::Ready(image) => Some((user.name.strip_prefix("volume/")?.to_owned(), image.clone())),
            _ => None,
        });
        ready.collect_ordered()
    }

    /// Notes that a container's image is there.
    pub fn image_ready(&mut self, container: &Container, image: ImageInfo) {
        self.image_failures.remove(&image_key(container));
        let reference = container.image.clone().unwrap_or_default();
        let ready = ReadyImage { reference, image };
        self.images.insert(container.name.clone(), ready);
    }

    /// Notes that a container's image could not be had. Containers that waited for one pull have failed once together.
    pub fn image_failed(&mut self, container: &Container, reason: &'static str, message: String, now: Timestamp) {
        let key = image_key(container);
        let (failures, again) = match self.image_failures.get(&key) {
            Some(earlier) if earlier.again > now => (earlier.failures, earlier.again),
            earlier => {
                let failures = earlier.map_or(0, |earlier| earlier.failures).saturating_add(1);
                (failures, later(now, Bounds::IMAGE_PULL.after(failures)))
            }
        };
        let failure = ImageFailure {
            reason,
            message,
            failures,
            at: now,
            again,
        };
        self.image_failures.insert(key, failure);
        while self.image_failures.len() > IMAGE_FAILURES_MAX {
            let oldest = self.image_failures.iter().min_by_key(|(_, failure)| failure.at);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            self.image_failures.remove(&oldest);
        }
    }
}

/// Lets go of an empty map's room: it would keep that of eleven entries.
pub(in crate::pod) fn shed<K, V>(map: &mut BTreeMap<K, V>) {
    if map.is_empty() {
        *map = BTreeMap::new();
    }
}

fn image_key(container: &Container) -> ImageKey {
    let reference = container.image.clone().unwrap_or_default();
    (reference, image::Policy::of(container))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{at, container};

    fn naming(image: &str) -> Container {
        Container {
            image: Some(image.to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            ..container("c")
        }
    }

    #[test]
    fn an_image_is_that_of_the_name_it_was_asked_for() {
        let (old, new) = (naming("a:1"), naming("a:2"));
        let mut memory = Memory::default();
        memory.image_ready(&old, ImageInfo::default());
        assert!(matches!(memory.image(&old, at(0)), ImageState::Ready(_)));
        assert_eq!(memory.image(&new, at(0)), ImageState::Unknown);
    }

    #[test]
    fn a_back_off_is_the_images_and_outlives_a_change_away_and_back() {
        let (typo, right) = (naming("busybux"), naming("busybox"));
        let failing = |memory: &Memory, now| match memory.image(&typo, at(now)) {
            ImageState::Failed(failure) => Some((failure.failures, failure.again)),
            _ => None,
        };
        let mut memory = Memory::default();
        memory.image_failed(&typo, "ErrImagePull", "no".into(), at(0));
        let beside = Container {
            name: "d".into(),
            ..typo.clone()
        };
        memory.image_failed(&beside, "ErrImagePull", "no".into(), at(1));
        assert_eq!(failing(&memory, 5), Some((1, at(10))), "one pull, one failure");
        assert_eq!(
            memory.image(&right, at(5)),
            ImageState::Unknown,
            "the right name waits for nothing"
        );
        memory.image_ready(&right, ImageInfo::default());
        assert_eq!(failing(&memory, 6), Some((1, at(10))), "the wrong one still does");
        assert_eq!(memory.image(&typo, at(10)), ImageState::Unknown);
        memory.image_failed(&typo, "ErrImagePull", "no".into(), at(10));
        assert_eq!(failing(&memory, 11), Some((2, at(30))));
    }

    #[test]
    fn failures_of_many_names_fill_no_memory() {
        let mut memory = Memory::default();
        for number in 0..1000 {
            memory.image_failed(&naming(&format!("a:{number}")), "ErrImagePull", "no".into(), at(number));
        }
        assert_eq!(memory.image_failures.len(), IMAGE_FAILURES_MAX);
        assert!(matches!(
            memory.image(&naming("a:999"), at(1000)),
            ImageState::Failed(_)
        ));
    }
}
