//! What a worker remembers of its operations' replies.

use super::Worker;
use crate::id::ContainerId;
use crate::pod::execute::{Effect, Reply};
use crate::pod::failure::{Failure, Retry, chain};
use crate::pod::hook::declared;
use crate::pod::memory::{PostStart, Waiting, shed};
use crate::pod::operation::Key;
use crate::pod_object;
use crate::reason;
use client::ordered::CollectOrdered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::{Id, JoinError};

/// What runtimes begin their error with when they cannot mount an image.
const IMAGE_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

impl Worker {
    /// Takes a finished operation.
    pub(super) fn take(&mut self, joined: Result<(Id, Reply), JoinError>) {
        let now = self.shared.parts.clock.now();
        match joined {
            Ok((id, reply)) => {
                // A stop that was called again with less grace leaves the newer call in the books.
                if self
                    .running
                    .get(&reply.key)
                    .is_some_and(|running| running.task.id() == id)
                {
                    self.running.remove(&reply.key);
                    shed(&mut self.running);
                }
                self.take_reply(reply, now);
            }
            Err(error) => {
                let key = self.running.iter().find(|(_, running)| running.task.id() == error.id());
                let key = key.map(|(key, _)| key.clone());
                if let Some(key) = key {
                    self.running.remove(&key);
                    if error.is_panic() {
                        tracing::error!(pod = %self.uid, ?key, %error, "an operation panicked");
                        self.memory.failed(&key, now);
                        self.memory.stale = true;
                    }
                }
            }
        }
    }

    fn take_reply(&mut self, reply: Reply, now: Timestamp) {
        let Reply { key, effect, observed } = reply;
        if key == Key::Observe {
            self.memory.stale &= !observed;
        } else {
            self.memory.stale |= !observed;
        }
        let worked = match effect {
            Effect::Done(result) => self.done(&key, result),
            Effect::Volumes(result) => match result {
                Ok(volumes) => {
                    self.memory.mounted = volumes.keys().cloned().collect_ordered();
                    self.volumes = Arc::new(volumes);
                    self.memory.volumes_ready = true;
                    true
                }
                Err(error) => self.complain(&key, &error),
            },
            Effect::Sandbox(attempt, result) => match result {
                Ok(_) => {
                    // Another sandbox is another start: whether the pod may use its claims is looked at again then.
                    self.memory.claims_ready = false;
                    true
                }
                Err(error) => {
                    if error.is_sandbox_reserved() {
                        self.memory.sandbox_attempt_min = attempt + 1;
                    }
                    self.complain(&key, &error)
                }
            },
            Effect::Image(container, result) => {
                match result {
                    Ok(image) => self.memory.image_ready(&container, image),
                    Err(error) => {
                        self.count_container(&container.name, Some(error.reason));
                        self.memory.image_failed(&container, error.reason, error.message, now);
                    }
                }
                true
            }
            Effect::Started(container, result) => self.take_start(&key, container, result),
            Effect::PostStart(container, result) => self.take_post_start(&key, container, result),
            Effect::Resized(result) => self.take_resize(&key, result),
        };
        if worked {
            self.memory.succeeded(&key);
        } else {
            self.memory.failed(&key, now);
        }
    }

    fn done(&mut self, key: &Key, result: Result<(), Failure>) -> bool {
        if let Err(error) = result {
            return self.complain(key, &error);
        }
        match key {
            Key::Prepare => {
                self.memory.prepared = true;
                self.memory.applied.cgroup = self.memory.applying.remove(key);
            }
            Key::StopSandbox(id) => {
                self.memory.stopped_sandboxes.insert(id.clone());
            }
            Key::Claims => self.memory.claims_ready = true,
            Key::ReleaseClaims => self.memory.claims_released = true,
            Key::ReleaseVolumes => self.memory.volumes_released = true,
            Key::ReleaseCgroup => self.memory.cgroup_released = true,
            Key::Purge => self.memory.purged = true,
            _ => {}
        }
        true
    }

    /// Notes a failure in our own log; tells whether it is not tried again by a clock of its own.
    pub(super) fn complain(&self, key: &Key, failure: &Failure) -> bool {
        let error = chain(failure);
        tracing::warn!(pod = %self.uid, ?key, error, "an operation failed and is tried again");
        failure.consequence().retry != Retry::Operation
    }

    /// Notes a container's failure: it waits with the reason that follows.
    fn take_failure(&mut self, key: &Key, container: String, failure: &Failure) -> bool {
        if let Some(reason) = failure.consequence().waiting {
            let waiting = Waiting {
                reason: reason.to_owned(),
                message: failure.to_string(),
            };
            self.memory.waiting.insert(container, waiting);
        }
        self.complain(key, failure)
    }

    fn take_start(&mut self, key: &Key, container: String, result: Result<ContainerId, Failure>) -> bool {
        // The next start looks at the image again, as its pull policy may want.
        self.memory.images.remove(&container);
        let pod = self.desired.borrow().pod.clone();
        let mounting = pod_object::find(&pod, &container).map(|(_, spec)| pod_object::image_volumes(&pod, &spec));
        for volume in mounting.into_iter().flatten() {
            self.memory.images.remove(&volume.name);
        }
        let resources = self.memory.applying.remove(key);
        if let Some((_, spec)) = pod_object::find(&pod, &container) {
            self.count_image_volumes(&pod, &spec, &result);
        }
        let failed = result.as_ref().err().map(|failure| failure.consequence().waiting);
        self.count_container(
            &container,
            failed.map(|waiting| waiting.unwrap_or(reason::event::FAILED)),
        );
        match result {
            Ok(id) => {
                self.memory
                    .applied
                    .containers
                    .extend(resources.into_iter().flat_map(|r| r.containers));
                self.memory.restart_wanted.remove(&container);
                let desired = self.desired.borrow().clone();
                let hooked = pod_object::find(&desired.pod, &container)
                    .is_some_and(|(_, spec)| declared::post_start(&spec).is_some());
                if hooked {
                    self.memory.post_starts.insert(container, (id, PostStart::Due));
                } else {
                    self.memory.waiting.remove(&container);
                }
                true
            }
            Err(failure) => {
                if let Some(reserved) = failure.reserved_restart_count() {
                    self.memory
                        .restart_count_min
                        .insert(container.clone(), reserved.saturating_add(1));
                }
                self.take_failure(key, container, &failure)
            }
        }
    }

    /// Counts the images a container mounts, and whether the runtime mounted them where its creation was tried.
    fn count_image_volumes(&self, pod: &Pod, container: &Container, result: &Result<ContainerId, Failure>) {
        let names: BTreeSet<String> = pod_object::image_volumes(pod, container)
            .into_iter()
            .map(|volume| volume.name.clone())
            .collect_ordered();
        if names.is_empty() {
            return;
        }
        let mounts = container.volume_mounts.iter().flatten();
        let mounts = mounts.filter(|mount| names.contains(&mount.name)).count();
        let mounted = match result {
            Ok(_) => Some(true),
            Err(failure) => chain(failure).contains(IMAGE_MOUNT_FAILED).then_some(false),
        };
        self.shared.parts.metrics.volumes.images(names.len(), mounts, mounted);
    }

    /// Counts a container that was begun, or why it was not.
    fn count_container(&self, name: &str, code: Option<&'static str>) {
        let pod = self.desired.borrow().pod.clone();
        if let Some((kind, _)) = pod_object::find(&pod, name) {
            self.shared.parts.metrics.pods.container_started(kind, code);
        }
    }

    /// A hook that failed ends its container; it is the next instance's hook that is tried next.
    fn take_post_start(&mut self, key: &Key, container: String, result: Result<(), Failure>) -> bool {
        match result {
            Ok(()) => {
                self.memory.post_starts.remove(&container);
                self.memory.waiting.remove(&container);
                true
            }
            Err(failure) => {
                if let Some((_, hook)) = self.memory.post_starts.get_mut(&container) {
                    *hook = PostStart::Failed;
                }
                self.take_failure(key, container, &failure)
            }
        }
    }
}
