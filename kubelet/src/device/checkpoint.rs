//! `kubelet_internal_checkpoint`: who has which devices, and which there were, as upstream's kubelets keep it (kubelet contract §2),
//! so that a node can be switched over either way with its pods running. Pure.

#[cfg(test)]
mod tests;

use super::state::{Given, State, given::ByPod};
use crate::checksum::Fnv32a;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::ordered::CollectOrdered;
use prost::Message;
use proto::api::names::is_extended_resource;
use proto::device_plugin::ContainerAllocateResponse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{Display, Result, Write};

/// The file's name.
pub const FILE: &str = "kubelet_internal_checkpoint";

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// It is no JSON, or not of the form.
    #[error(transparent)]
    Form(serde_json::Error),
    /// Somebody else wrote in it, or it is damaged.
    #[error("checkpoint is corrupted")]
    Checksum,
}

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(rename = "Data")]
    data: Data,
    #[serde(rename = "Checksum", default)]
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Data {
    #[serde(rename = "PodDeviceEntries", default)]
    entries: Option<Vec<Entry>>,
    #[serde(rename = "RegisteredDevices", default)]
    registered: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "PodUID", default)]
    pod: String,
    #[serde(rename = "ContainerName", default)]
    container: String,
    #[serde(rename = "ResourceName", default)]
    resource: String,
    #[serde(rename = "DeviceIDs", default)]
    devices: Option<BTreeMap<i64, Option<Vec<String>>>>,
    /// Base64.
    #[serde(rename = "AllocResp", default)]
    answer: Option<String>,
}

const NIL: &str = "<nil>";

/// Puts things, each as it says itself, with a space between them.
fn dump_all<T>(
    sum: &mut Fnv32a,
    all: impl IntoIterator<Item = T>,
    mut dump: impl FnMut(&mut Fnv32a, T) -> Result,
) -> Result {
    for (place, one) in all.into_iter().enumerate() {
        if place > 0 {
            sum.write_str(" ")?;
        }
        dump(sum, one)?;
    }
    Ok(())
}

fn dump_list(sum: &mut Fnv32a, list: Option<&Vec<String>>) -> Result {
    let Some(list) = list else { return sum.write_str(NIL) };
    sum.write_str("[")?;
    dump_all(sum, list, |sum, one| sum.write_str(one))?;
    sum.write_str("]")
}

fn dump_map<K: Display>(sum: &mut Fnv32a, map: Option<&BTreeMap<K, Option<Vec<String>>>>) -> Result {
    let Some(map) = map else { return sum.write_str(NIL) };
    sum.write_str("map[")?;
    dump_all(sum, map, |sum, (key, list)| {
        write!(sum, "{key}:")?;
        dump_list(sum, list.as_ref())
    })?;
    sum.write_str("]")
}

impl Entry {
    /// The plugin's answer; nothing if it is none.
    fn answer(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.answer.as_deref()?).ok()
    }

    /// As Go dumps it.
    fn dump(&self, sum: &mut Fnv32a) -> Result {
        let (pod, container, resource) = (&self.pod, &self.container, &self.resource);
        write!(
            sum,
            "{{PodUID:(string){pod} ContainerName:(string){container} ResourceName:(string){resource} \
             DeviceIDs:(checkpoint.DevicesPerNUMA)"
        )?;
        dump_map(sum, self.devices.as_ref())?;
        sum.write_str(" AllocResp:([]uint8)")?;
        match self.answer() {
            None => sum.write_str(NIL)?,
            Some(bytes) => {
                sum.write_str("[")?;
                dump_all(sum, &bytes, |sum, byte| write!(sum, "{byte}"))?;
                sum.write_str("]")?;
            }
        }
        sum.write_str("}")
    }
}

impl Data {
    /// Upstream's checksum: of what Go's dump makes of the whole, which is many times as long as the whole and never there at once.
    fn sum(&self) -> u32 {
        let mut sum = Fnv32a::default();
        // A hash takes everything.
        let _ = self.dump(&mut sum);
        sum.0
    }

    fn dump(&self, sum: &mut Fnv32a) -> Result {
        sum.write_str("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")?;
        match &self.entries {
            None => sum.write_str(NIL)?,
            Some(entries) => {
                sum.write_str("[")?;
                dump_all(sum, entries, |sum, entry| entry.dump(sum))?;
                sum.write_str("]")?;
            }
        }
        sum.write_str(" RegisteredDevices:(map[string][]string)")?;
        dump_map(sum, self.registered.as_ref())?;
        sum.write_str("}")
    }
}

/// What a file tells: who has what, and which resources there were. An entry whose answer cannot be read is left out, as upstream's, and so
/// is a resource that no plugin can have: the node would have none of what it names.
///
/// # Errors
/// It is damaged.
pub fn read(bytes: &[u8]) -> std::result::Result<State, CheckpointError> {
    let file: File = serde_json::from_slice(bytes).map_err(CheckpointError::Form)?;
    if file.checksum != file.data.sum() {
        return Err(CheckpointError::Checksum);
    }
    let mut pods = ByPod::default();
    for entry in file.data.entries.into_iter().flatten() {
        let answer = entry
            .answer()
            .filter(|bytes| ContainerAllocateResponse::decode(&bytes[..]).is_ok());
        let Some(answer) = answer else {
            tracing::error!(
                pod = entry.pod,
                container = entry.container,
                resource = entry.resource,
                "what a device plugin said of a container's devices cannot be read: it is left out"
            );
            continue;
        };
        let by_node = entry.devices.unwrap_or_default().into_iter();
        let given = Given {
            by_node: by_node
                .map(|(node, ids)| (node, ids.unwrap_or_default()))
                .collect_ordered(),
            answer: Some(answer.into()),
        };
        pods.insert(&entry.pod, &entry.container, &entry.resource, given);
    }
    let registered = file.data.registered.unwrap_or_default().into_keys();
    Ok(State::restored(
        registered.filter(|name| is_extended_resource(name)),
        pods,
    ))
}

/// What the next kubelet is told.
pub fn write(state: &State) -> Vec<u8> {
    let entries = state.pods().iter().filter_map(|(pod, container, resource, given)| {
        let answer = given.answer.as_ref()?;
        let by_node = given.by_node.iter();
        Some(Entry {
            pod: pod.to_owned(),
            container: container.to_owned(),
            resource: resource.to_owned(),
            devices: Some(by_node.map(|(node, ids)| (*node, Some(ids.clone()))).collect_ordered()),
            answer: Some(STANDARD.encode(answer)),
        })
    });
    let entries: Vec<Entry> = entries.collect();
    let registered = state.devices().map(|(name, devices)| {
        let healthy = devices.iter().filter(|(_, device)| device.healthy);
        (name.to_owned(), Some(healthy.map(|(id, _)| id.clone()).collect()))
    });
    let data = Data {
        entries: (!entries.is_empty()).then_some(entries),
        registered: Some(registered.collect_ordered()),
    };
    let file = File {
        checksum: data.sum(),
        data,
    };
    // Strings and numbers always become JSON.
    serde_json::to_vec(&file).unwrap_or_default()
}
