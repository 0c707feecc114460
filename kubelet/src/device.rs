//! Devices of the node that plugins offer, v1beta1 (kubelet contract §8).
//!
//! [`state`] is what plugins list and who has which, [`choice`] chooses, [`draft`] is a trial for one pod that tells the topology
//! manager where it could be, [`answer`] is what a container starts with, [`checkpoint`] is upstream's file: all of them values.
//! [`Devices`] owns them, and the connections to plugins; [`registration`] is how those come, [`give`] what is asked of them.
//! What is given is on disk before a container is created with it ([`keep`]). Never judges anything but devices.

pub mod answer;
pub mod checkpoint;
pub mod choice;
pub mod draft;
pub mod give;
mod keep;
mod plugin;
pub mod registration;
pub(crate) mod socket;
pub mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use crate::host::FileWork;
use crate::metrics::DeviceMetrics;
use crate::pinning::hint::NumaMask;
use crate::reason::device_health;
use crate::rpc::budget::Budget;
use client::ordered::CollectOrdered;
use draft::Draft;
use k8s_openapi::api::core::v1::{Pod, ResourceHealth, ResourceStatus};
pub use keep::KeepError;
use plugin::{CallError, Plugin};
use proto::api::names::is_extended_resource;
use state::{Capacity, Device, Options, State};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The node's devices. Clones share them.
#[derive(Clone)]
pub struct Devices(Arc<Inner>);

struct Inner {
    directory: PathBuf,
    /// No kubelet left anything of devices.
    is_new: bool,
    /// What the state's times count from.
    began: Instant,
    held: Mutex<Held>,
    /// Counts changes of what the node has, or of how well what somebody has is.
    news: watch::Sender<u64>,
    metrics: DeviceMetrics,
    files: FileWork,
    /// What plugins have sent and nobody has looked at.
    unread: Budget,
}

#[derive(Default)]
struct Held {
    state: State,
    plugins: BTreeMap<String, Link>,
    /// Counts connections.
    connections: u64,
    /// Counts changes.
    changed: u64,
    /// The newest change that is on disk.
    written: u64,
    /// Whether somebody tries again to write what could not be written.
    retries: bool,
}

/// The plugin that answers for a resource.
struct Link {
    plugin: Plugin,
    connection: u64,
    /// Tells the one that listens to it that another does.
    _replaced: DropGuard,
}

/// Whoever listens to a plugin. Once it is dropped, the plugin's devices are ill.
struct Connected {
    devices: Devices,
    resource: String,
    connection: u64,
    /// Another plugin answers for the resource.
    replaced: CancellationToken,
}

impl Connected {
    /// The plugin lists its devices.
    ///
    /// # Errors
    /// There is no room for them.
    async fn list(&self, devices: BTreeMap<String, Device>) -> Result<(), CallError> {
        let inner = &self.devices.0;
        let news = {
            let mut held = inner.held();
            if !held.state.has_room(&self.resource, &devices) {
                return Err(CallError::NoRoom(devices.len()));
            }
            let news = held.state.list(&self.resource, self.connection, devices);
            let news = news.unwrap_or_default();
            held.changed += u64::from(news.capacity);
            news
        };
        if news.capacity || news.health {
            inner.tell();
        }
        if news.capacity
            && let Err(error) = self.devices.kept().await
        {
            tracing::error!(%error, "which devices there are is not kept");
        }
        Ok(())
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let inner = &self.devices.0;
        let mut held = inner.held();
        if held
            .plugins
            .get(&self.resource)
            .is_some_and(|link| link.connection == self.connection)
        {
            held.plugins.remove(&self.resource);
        }
        if held
            .state
            .disconnect(&self.resource, self.connection, inner.began.elapsed())
        {
            held.changed += 1;
            drop(held);
            inner.tell();
        }
    }
}

impl Devices {
    /// Takes over what an earlier kubelet left in a directory, which need not be there. A file that is damaged is told, and nobody
    /// has anything then, as upstream.
    pub fn open(directory: PathBuf, metrics: DeviceMetrics) -> Self {
        let path = directory.join(checkpoint::FILE);
        let read = match crate::host::kept::read(&path) {
            Ok(bytes) => checkpoint::read(&bytes).map(Some).map_err(|why| why.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        let is_new = match std::fs::read_dir(&directory) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let state = read.map(Option::unwrap_or_default).unwrap_or_else(|why| {
            let path = path.display();
            tracing::error!(%path, why, "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date");
            State::default()
        });
        Self(Arc::new(Inner {
            directory,
            is_new,
            began: Instant::now(),
            held: Mutex::new(Held {
                state,
                ..Held::default()
            }),
            news: watch::Sender::default(),
            metrics,
            files: FileWork::new(keep::DEADLINE),
            unread: Budget::new(plugin::UNREAD_BYTES_MAX),
        }))
    }

    /// Whether no kubelet has ever been here: what the node's object says of extended resources is of another machine then, or of
    /// another time. Whoever was here left his socket at least.
    pub fn is_new(&self) -> bool {
        self.0.is_new
    }

    fn directory(&self) -> &Path {
        &self.0.directory
    }

    fn unread(&self) -> &Budget {
        &self.0.unread
    }

    fn metrics(&self) -> &DeviceMetrics {
        &self.0.metrics
    }

    /// Counts changes of what the node has, and of how well what somebody has is.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.0.news.subscribe()
    }

    /// What the node's status says of devices. Resources whose plugins went long ago are forgotten with this.
    pub fn capacity(&self) -> Capacity {
        let mut held = self.0.held();
        let gone = held.state.expire(self.0.began.elapsed());
        held.changed += u64::from(!gone.is_empty());
        let capacity = held.state.capacity();
        drop(held);
        gone.iter().for_each(|resource| self.metrics().forget(resource));
        if !gone.is_empty() {
            self.0.tell();
        }
        capacity
    }

    /// Begins a trial of giving a pod what it asks for, on a machine with these NUMA nodes.
    pub fn draft(&self, pod: &Pod, numas: NumaMask) -> Draft {
        Draft::new(pod, &self.0.held().state, numas)
    }

    /// [`Devices::draft`], as if only the pods that are `kept`, by UID, had anything.
    pub fn draft_beside(&self, pod: &Pod, numas: NumaMask, kept: impl Fn(&str) -> bool) -> Draft {
        let mut state = self.0.held().state.clone();
        state.retain(kept);
        Draft::new(pod, &state, numas)
    }

    /// Takes back what pods have that are not `kept`, by UID.
    pub fn retain(&self, kept: impl Fn(&str) -> bool) {
        let mut held = self.0.held();
        if held.state.retain(kept) {
            held.changed += 1;
        }
    }

    /// Whether one of these pods, by UID, has devices.
    pub fn is_held(&self, mut by: impl FnMut(&str) -> bool) -> bool {
        self.0.held().state.pods().iter().any(|(pod, ..)| by(pod))
    }

    /// How well the devices are that a container has, as its status tells it.
    pub fn health(&self, pod: &str, container: &str) -> Vec<ResourceStatus> {
        health(&self.0.held().state, pod, container)
    }

    /// Has somebody look at the state.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&State) -> T) -> T {
        at(&self.0.held().state)
    }

    /// A plugin answers for a resource from now on.
    fn connect(&self, resource: &str, plugin: Plugin, options: Options) -> Option<Connected> {
        let mut held = self.0.held();
        let connection = held.connections + 1;
        if !held.state.connect(resource, connection, options) {
            return None;
        }
        held.connections = connection;
        held.changed += 1;
        let replaced = CancellationToken::new();
        let link = Link {
            plugin,
            connection,
            _replaced: replaced.clone().drop_guard(),
        };
        let old = held.plugins.insert(resource.to_owned(), link);
        drop(held);
        drop(old);
        self.0.tell();
        Some(Connected {
            devices: self.clone(),
            resource: resource.to_owned(),
            connection,
            replaced,
        })
    }

    /// Ends the connection to a resource's plugin, if that is the one that registered at this socket.
    fn cut(&self, resource: &str, registration: &Path) {
        let mut held = self.0.held();
        let link = held.plugins.get(resource);
        let is_meant = link.is_some_and(|link| link.plugin.registered_at(registration));
        let link = is_meant.then(|| held.plugins.remove(resource));
        // Whoever listens to it takes the lock as it ends.
        drop(held);
        drop(link);
    }

    /// The plugin that answers for a resource.
    fn plugin(&self, resource: &str) -> Option<Plugin> {
        self.0.held().plugins.get(resource).map(|link| link.plugin.clone())
    }
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }
}

/// Whether a pod may have devices: it asks for what plugins could offer. Which they do is not asked, and what it asks for never changes.
pub(crate) fn may_have(pod: &Pod) -> bool {
    crate::pod_object::containers(pod).any(|(_, container)| {
        let asked = container.resources.as_ref().and_then(|of| of.limits.as_ref());
        asked.into_iter().flatten().any(|(name, _)| is_extended_resource(name))
    })
}

/// How well the devices are that a container has: what is no longer listed counts as well, as upstream, and nobody knows of those whose
/// plugin went for good, as the API has it (upstream's goes on to tell what that said last).
fn health(state: &State, pod: &str, container: &str) -> Vec<ResourceStatus> {
    let listed: BTreeMap<&str, &BTreeMap<String, Device>> = state.devices().collect_ordered();
    let of = state.pods().of(pod, container).map(|(resource, given)| {
        let devices = listed.get(resource);
        let told = given.ids().into_iter().map(|id| {
            let health = match devices.map(|devices| devices.get(&id).is_none_or(|device| device.healthy)) {
                None => device_health::UNKNOWN,
                Some(true) => device_health::HEALTHY,
                Some(false) => device_health::UNHEALTHY,
            };
            ResourceHealth {
                resource_id: id,
                health: Some(health.to_owned()),
                ..ResourceHealth::default()
            }
        });
        ResourceStatus {
            name: resource.to_owned(),
            resources: Some(told.collect()),
        }
    });
    of.collect()
}
