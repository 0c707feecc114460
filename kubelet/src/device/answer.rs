//! What device plugins have containers start with: environment, mounts, device nodes, annotations, CDI devices (kubelet contract §6,
//! §8). Pure.

#[cfg(test)]
mod tests;

use client::ordered::CollectOrdered;
use proto::cri;
use proto::device_plugin::ContainerAllocateResponse;
use std::collections::{BTreeMap, BTreeSet};

/// The largest answer for one container that is kept, bytes.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What one container starts with for its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    envs: BTreeMap<String, String>,
    mounts: BTreeMap<String, (String, bool)>,
    devices: BTreeMap<String, (String, String)>,
    annotations: BTreeMap<String, String>,
    cdi: Vec<String>,
}

impl Extras {
    /// All that plugins answered for a container, by resource. Where two say different things the first resource's holds, and it is
    /// told in the log.
    pub fn of<'a>(answers: impl IntoIterator<Item = (&'a str, ContainerAllocateResponse)>) -> Self {
        let (mut extras, mut named) = (Self::default(), BTreeSet::new());
        for (resource, answer) in answers {
            let put = |what, map: &mut BTreeMap<String, String>, key: String, value: String| {
                note(what, resource, &key, map.get(&key), &value);
                map.entry(key).or_insert(value);
            };
            // In order, so that a container starts with the same at each kubelet.
            for (key, value) in answer.envs.into_iter().collect_ordered::<BTreeMap<_, _>>() {
                put("environment variable", &mut extras.envs, key, value);
            }
            for (key, value) in answer.annotations.into_iter().collect_ordered::<BTreeMap<_, _>>() {
                put("annotation", &mut extras.annotations, key, value);
            }
            for mount in answer.mounts {
                let (path, value) = (mount.container_path, (mount.host_path, mount.read_only));
                note("mount", resource, &path, extras.mounts.get(&path), &value);
                extras.mounts.entry(path).or_insert(value);
            }
            for device in answer.devices {
                let (path, value) = (device.container_path, (device.host_path, device.permissions));
                note("device", resource, &path, extras.devices.get(&path), &value);
                extras.devices.entry(path).or_insert(value);
            }
            for device in answer.cdi_devices {
                if named.insert(device.name.clone()) {
                    extras.cdi.push(device.name);
                }
            }
        }
        extras
    }

    /// Whether the runtime has to know CDI devices.
    pub fn needs_cdi(&self) -> bool {
        !self.cdi.is_empty()
    }

    /// Puts it into what the runtime is asked for. What the pod says itself of a variable or an annotation holds.
    pub fn apply(self, config: &mut cri::ContainerConfig) {
        let own: Vec<cri::KeyValue> = std::mem::take(&mut config.envs);
        let is_new = |key: &String| !own.iter().any(|env| env.key == *key);
        let more = self.envs.into_iter().filter(|(key, _)| is_new(key));
        let more: Vec<cri::KeyValue> = more
            .map(|(key, value)| cri::KeyValue {
                key,
                value: value.into_bytes(),
            })
            .collect();
        config.envs = more.into_iter().chain(own).collect();
        let mounts = self
            .mounts
            .into_iter()
            .map(|(container_path, (host_path, readonly))| cri::Mount {
                container_path,
                host_path,
                readonly,
                ..cri::Mount::default()
            });
        let mounts: Vec<cri::Mount> = mounts.collect();
        config.mounts.splice(0..0, mounts);
        let devices = self.devices.into_iter();
        config
            .devices
            .extend(devices.map(|(container_path, (host_path, permissions))| cri::Device {
                container_path,
                host_path,
                permissions,
            }));
        for (key, value) in self.annotations {
            config.annotations.entry(key).or_insert(value);
        }
        let cdi = self.cdi.into_iter().map(|name| cri::CdiDevice { name });
        config.cdi_devices.extend(cdi);
    }
}

fn note<T: PartialEq + std::fmt::Debug>(what: &str, resource: &str, key: &str, had: Option<&T>, gets: &T) {
    if let Some(had) = had.filter(|had| *had != gets) {
        tracing::error!(what, resource, key, ?had, ?gets, "device plugins contradict each other");
    }
}
