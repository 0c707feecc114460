//! What device plugins offer, and who has which of it (kubelet contract §8). Pure: times are the owner's, since it began.
//!
//! A resource is known from its plugin's registration until five minutes after the plugin went; what was given of it stays its
//! container's for as long as the pod may run.

pub mod given;
#[cfg(test)]
mod tests;

use super::answer::ANSWER_BYTES_MAX;
use super::choice::{self, Pool, Question, TooFew, Wanted};
use crate::pinning::hint::NumaMask;
use client::ordered::CollectOrdered;
pub use given::{Given, NO_NODE, Reuse};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long a resource whose plugin went keeps its capacity.
pub const GRACE: Duration = Duration::from_secs(5 * 60);
/// Resources at a time.
pub const RESOURCES_MAX: usize = 512;
/// Devices of one resource.
pub const DEVICES_MAX: usize = 1 << 16;
/// NUMA nodes of one device, as many as are ever aligned: what a container has is noted by them, and told by them.
pub const NODES_MAX: usize = 64;

/// What the devices of all resources may take together, bytes; and what containers have of devices, those of earlier lists too.
pub const TOGETHER_MAX: usize = 16 << 20;
/// What a device takes beside its name and its nodes, bytes.
const DEVICE_BYTES: usize = 96;
/// What one of its nodes takes, bytes: each is told with the device's name.
const NODE_BYTES: usize = size_of::<i64>() + size_of::<String>();

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Whether it can be given.
    pub healthy: bool,
    /// Whether its plugin says where it is.
    pub placed: bool,
    /// Its NUMA nodes, as told.
    pub nodes: Vec<i64>,
}

impl Device {
    /// Those of its nodes that a machine may have.
    pub fn numas(&self) -> NumaMask {
        NumaMask::of(self.nodes.iter().filter_map(|node| u32::try_from(*node).ok()))
    }
}

/// What a plugin wants to be asked (`DevicePluginOptions`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `PreStartContainer` before each start.
    pub pre_start: bool,
    /// `GetPreferredAllocation` before devices are chosen.
    pub preferred: bool,
}

/// A resource and its devices.
#[derive(Clone, Debug, Default)]
struct Resource {
    devices: Arc<BTreeMap<String, Device>>,
    /// Those that are healthy and nobody's: kept along, for each new pod is judged by them.
    free: Arc<BTreeSet<String>>,
    /// What they take, bytes.
    weight: usize,
    /// The connection to its plugin.
    connection: Option<u64>,
    /// Since when there is none.
    lost: Option<Duration>,
    options: Options,
}

/// Why a container gets no devices; in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its plugin is not known any more, or not again yet.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// All are ill, or their plugin went.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    /// One that it has already is ill.
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    NotHealthyAnyMore(String),
    /// There are too few.
    #[error(transparent)]
    TooFew(#[from] TooFew),
    /// What containers have is noted, and may not grow for ever.
    #[error("no room to note devices of {0}: what containers have of all devices may take {max} bytes", max = TOGETHER_MAX)]
    TooMuch(String),
    /// It has another number.
    #[error("pod {pod:?} container {container:?} changed request for resource {resource:?} from {from} to {to}")]
    Changed {
        /// The pod's UID.
        pod: String,
        /// The container.
        container: String,
        /// The resource.
        resource: String,
        /// As many as it has.
        from: usize,
        /// As many as it asks for.
        to: usize,
    },
    /// Nobody is there to be asked.
    #[error("unknown Device Plugin {0}")]
    NoPlugin(String),
    /// The plugin refuses to say what it prefers, or does not answer.
    #[error("device plugin GetPreferredAllocation rpc failed with err: {0}")]
    NotPreferred(String),
    /// The plugin refuses, or does not answer.
    #[error("{0}")]
    Call(String),
}

/// One container's wish, by names.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The pod's UID.
    pub pod: &'a str,
    /// The container.
    pub container: &'a str,
    /// What it wants.
    pub wanted: Wanted<'a>,
}

/// Devices as a node's status counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// All devices by resource; 0 of one whose plugin went for good.
    pub capacity: BTreeMap<String, usize>,
    /// Those that are healthy.
    pub allocatable: BTreeMap<String, usize>,
}

/// What became of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Which devices can be given changed.
    pub capacity: bool,
    /// A device that somebody has changed its health.
    pub health: bool,
}

fn weight(devices: &BTreeMap<String, Device>) -> usize {
    let of = |(id, device): (&String, &Device)| DEVICE_BYTES + id.len() + device.nodes.len() * (NODE_BYTES + id.len());
    devices.iter().map(of).sum()
}

/// Everything the node knows of devices.
#[derive(Clone, Debug, Default)]
pub struct State {
    resources: BTreeMap<String, Resource>,
    /// Those whose plugins went for good, the latest last.
    removed: VecDeque<String>,
    pods: given::ByPod,
}

impl State {
    /// What an earlier kubelet left: resources have no devices until their plugins are there again.
    pub fn restored(registered: impl IntoIterator<Item = String>, pods: given::ByPod) -> Self {
        let lost = |name| {
            let resource = Resource {
                lost: Some(Duration::ZERO),
                ..Resource::default()
            };
            (name, resource)
        };
        Self {
            resources: registered.into_iter().take(RESOURCES_MAX).map(lost).collect_ordered(),
            removed: VecDeque::new(),
            pods,
        }
    }

    /// A plugin answers for a resource from now on; what an earlier one listed stands until the new one lists. `false` where there
    /// is no room for another resource.
    pub fn connect(&mut self, name: &str, connection: u64, options: Options) -> bool {
        if !self.resources.contains_key(name) && self.resources.len() >= RESOURCES_MAX {
            return false;
        }
        let resource = self.resources.entry(name.to_owned()).or_default();
        resource.connection = Some(connection);
        resource.options = options;
        resource.lost = None;
        self.removed.retain(|removed| removed != name);
        true
    }

    /// Whether there is room for a resource's devices beside all others'.
    pub fn has_room(&self, name: &str, devices: &BTreeMap<String, Device>) -> bool {
        let others = self.resources.iter().filter(|(other, _)| *other != name);
        let taken: usize = others.map(|(_, resource)| resource.weight).sum();
        taken + weight(devices) <= TOGETHER_MAX
    }

    /// A plugin lists its devices. Nothing where another answers by now.
    pub fn list(&mut self, name: &str, connection: u64, devices: BTreeMap<String, Device>) -> Option<News> {
        let resource = self.resources.get_mut(name)?;
        if resource.connection != Some(connection) {
            return None;
        }
        resource.weight = weight(&devices);
        let old = std::mem::replace(&mut resource.devices, Arc::new(devices));
        let new = resource.devices.clone();
        let pods = &self.pods;
        let free = new
            .iter()
            .filter(|(id, device)| device.healthy && !pods.is_used(name, id));
        resource.free = Arc::new(free.map(|(id, _)| id.clone()).collect_ordered());
        let mut given = pods.of_resource(name);
        let is_well = |devices: &BTreeMap<String, Device>, id: &str| devices.get(id).map(|device| device.healthy);
        Some(News {
            capacity: old != new,
            health: given.any(|id| is_well(&old, id) != is_well(&new, id)),
        })
    }

    /// A connection ended: what it listed is ill. `false` where another answers by now.
    pub fn disconnect(&mut self, name: &str, connection: u64, now: Duration) -> bool {
        let Some(resource) = self.resources.get_mut(name) else {
            return false;
        };
        if resource.connection != Some(connection) {
            return false;
        }
        resource.connection = None;
        resource.lost = Some(now);
        for device in Arc::make_mut(&mut resource.devices).values_mut() {
            device.healthy = false;
        }
        resource.free = Arc::default();
        true
    }

    /// Forgets resources whose plugins went long ago; tells which.
    pub fn expire(&mut self, now: Duration) -> Vec<String> {
        let is_over = |resource: &Resource| resource.lost.is_some_and(|since| now.saturating_sub(since) > GRACE);
        let over = self.resources.iter().filter(|(_, resource)| is_over(resource));
        let over: Vec<String> = over.map(|(name, _)| name.clone()).collect();
        for name in &over {
            self.resources.remove(name);
        }
        // What comes and goes under ever new names is not remembered for ever. That a resource has nothing any more was told when it went.
        self.removed.extend(over.iter().cloned());
        let many = self.removed.len().saturating_sub(RESOURCES_MAX);
        self.removed.drain(..many);
        over
    }

    /// What the node has of devices.
    pub fn capacity(&self) -> Capacity {
        let mut told = Capacity::default();
        for name in &self.removed {
            told.capacity.insert(name.clone(), 0);
            told.allocatable.insert(name.clone(), 0);
        }
        for (name, resource) in &self.resources {
            let healthy = resource.devices.values().filter(|device| device.healthy).count();
            told.capacity.insert(name.clone(), resource.devices.len());
            told.allocatable.insert(name.clone(), healthy);
        }
        told
    }

    /// Whether a resource is one of devices: a plugin is, or was, there for it.
    pub fn knows(&self, name: &str) -> bool {
        self.resources.contains_key(name) || self.pods.has_resource(name)
    }

    /// What a resource's plugin wants to be asked.
    pub fn options(&self, name: &str) -> Options {
        self.resources.get(name).map_or(Options::default(), |of| of.options)
    }

    /// A resource's devices, and which of them are healthy and nobody's.
    pub fn pool(&self, name: &str) -> (Arc<BTreeMap<String, Device>>, Arc<BTreeSet<String>>) {
        let resource = self.resources.get(name);
        resource.map_or_else(Default::default, |of| (of.devices.clone(), of.free.clone()))
    }

    /// What a trial for one pod needs that asks for these resources; what all others have is not among it.
    pub fn part_of<'a>(&self, pod: &str, names: impl Iterator<Item = &'a String>) -> Self {
        let known = names.filter_map(|name| Some((name.clone(), self.resources.get(name)?.clone())));
        Self {
            resources: known.collect_ordered(),
            removed: VecDeque::new(),
            pods: self.pods.of_pod(pod),
        }
    }

    /// Keeps along which devices are free, of those somebody was given or has left.
    fn touch(&mut self, name: &str, ids: &BTreeSet<String>) {
        let Some(resource) = self.resources.get_mut(name) else {
            return;
        };
        for id in ids {
            let is_well = resource.devices.get(id).is_some_and(|device| device.healthy);
            let is_free = is_well && !self.pods.is_used(name, id);
            if is_free != resource.free.contains(id) {
                let free = Arc::make_mut(&mut resource.free);
                match is_free {
                    true => free.insert(id.clone()),
                    false => free.remove(id),
                };
            }
        }
    }

    /// All resources with a plugin's devices.
    pub fn devices(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, Device>)> {
        let all = self.resources.iter();
        all.map(|(name, resource)| (name.as_str(), &*resource.devices))
    }

    /// Who has what.
    pub fn pods(&self) -> &given::ByPod {
        &self.pods
    }

    /// Whether a claim can be met at all; `true` where it is already.
    ///
    /// # Errors
    /// Why not.
    pub fn is_met(&self, claim: Claim<'_>) -> Result<bool, Refusal> {
        let name = claim.wanted.resource;
        let given = self.pods.get(claim.pod, claim.container, name).map(Given::ids);
        if let Some(given) = &given
            && given.len() != claim.wanted.count
        {
            return Err(Refusal::Changed {
                pod: claim.pod.to_owned(),
                container: claim.container.to_owned(),
                resource: name.to_owned(),
                from: given.len(),
                to: claim.wanted.count,
            });
        }
        let Some(resource) = self.resources.get(name) else {
            return Err(Refusal::Unregistered(name.to_owned()));
        };
        if !resource.devices.values().any(|device| device.healthy) {
            return Err(Refusal::NoneHealthy(name.to_owned()));
        }
        let is_well = |id: &String| resource.devices.get(id).is_some_and(|device| device.healthy);
        match given {
            None => Ok(false),
            Some(given) if given.iter().all(is_well) => Ok(true),
            Some(_) => Err(Refusal::NotHealthyAnyMore(name.to_owned())),
        }
    }

    /// What the plugin is to be asked before a claim is met.
    ///
    /// # Errors
    /// There are too few.
    pub fn question(&self, claim: Claim<'_>) -> Result<Option<Question>, Refusal> {
        let (devices, free) = self.pool_for(claim);
        let pool = Pool {
            devices: &devices,
            free: &free,
        };
        Ok(choice::question(pool, claim.wanted)?)
    }

    /// Chooses devices for a claim; they are nobody else's from now on, and the container's once the plugin has answered.
    ///
    /// # Errors
    /// There are too few.
    pub fn reserve(&mut self, claim: Claim<'_>, preferred: &BTreeSet<String>) -> Result<BTreeSet<String>, Refusal> {
        let (devices, free) = self.pool_for(claim);
        let pool = Pool {
            devices: &devices,
            free: &free,
        };
        let chosen = choice::choose(pool, claim.wanted, preferred)?;
        let given = Given::reserved(&devices, &chosen);
        if self.pods.weight() + given.weight() + ANSWER_BYTES_MAX > TOGETHER_MAX {
            return Err(Refusal::TooMuch(claim.wanted.resource.to_owned()));
        }
        // Changed in place, where no trial looks at it.
        drop(free);
        let name = claim.wanted.resource;
        let touched = self.pods.insert(claim.pod, claim.container, name, given);
        self.touch(name, &touched);
        Ok(chosen)
    }

    /// The pool of a claim; what an earlier try reserved for it is free.
    fn pool_for(&self, claim: Claim<'_>) -> (Arc<BTreeMap<String, Device>>, Arc<BTreeSet<String>>) {
        let name = claim.wanted.resource;
        let (devices, mut free) = self.pool(name);
        let own = self.pods.reserved(claim.pod, claim.container, name);
        if own.is_empty() {
            return (devices, free);
        }
        // What is also another's of the pod, to be used again, is not.
        let others = self.pods.of_others(claim.pod, claim.container, name);
        for id in own.into_iter().filter(|id| !others.contains(id)) {
            if devices.get(&id).is_some_and(|device| device.healthy) {
                Arc::make_mut(&mut free).insert(id);
            }
        }
        (devices, free)
    }

    /// The plugin answered: what was reserved is the container's. `false` where it was taken back meanwhile.
    pub fn answered(&mut self, pod: &str, container: &str, resource: &str, answer: Vec<u8>) -> bool {
        self.pods.answer(pod, container, resource, answer)
    }

    /// Takes back what was reserved and not answered.
    pub fn unreserve(&mut self, pod: &str, container: &str, resource: &str) {
        let left = self.pods.unreserve(pod, container, resource);
        self.touch(resource, &left);
    }

    /// Takes back what pods have that are not `kept`, by UID; tells whether there was anything.
    pub fn retain(&mut self, kept: impl Fn(&str) -> bool) -> bool {
        let Some(left) = self.pods.retain(kept) else {
            return false;
        };
        for (resource, ids) in left {
            self.touch(&resource, &ids);
        }
        true
    }
}
