//! `dra_manager_state` in upstream's form (kubelet contract §2), so that a node can be taken over and given back. Pure.

use super::state::{Claims, Device, Prepared};
use client::ordered::CollectOrdered;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

const KIND: &str = "DRACheckpoint";
const VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

/// Why a checkpoint is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// It is no such file.
    #[error("it is not of the form it should have: {0}")]
    Form(String),
    /// It is damaged.
    #[error("checkpoint is corrupted: its checksum is {told}, that of its data is {found}")]
    Checksum {
        /// What it says.
        told: u32,
        /// What is so.
        found: u32,
    },
    /// It is of another kubelet's.
    #[error("it is of kind {kind:?} and version {version:?}, which this kubelet does not know")]
    Other {
        /// Its kind.
        kind: String,
        /// Its version.
        version: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sealed {
    data: String,
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Content {
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "apiVersion")]
    version: String,
    #[serde(default, rename = "Entries")]
    entries: Option<Vec<Entry>>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "ClaimUID")]
    uid: String,
    #[serde(rename = "ClaimName")]
    name: String,
    #[serde(rename = "Namespace")]
    namespace: String,
    /// A set, in Go's manner.
    #[serde(default, rename = "PodUIDs")]
    pods: Option<BTreeMap<String, Present>>,
    #[serde(default, rename = "DriverState")]
    drivers: Option<BTreeMap<String, Driver>>,
}

#[derive(Serialize, Deserialize)]
struct Present {}

#[derive(Serialize, Deserialize)]
struct Driver {
    #[serde(default, rename = "Devices")]
    devices: Option<Vec<Device>>,
}

/// What a file says.
///
/// # Errors
/// It is of no use.
pub(super) fn read(bytes: &[u8]) -> Result<Claims, CheckpointError> {
    let form = |error: serde_json::Error| CheckpointError::Form(error.to_string());
    let sealed: Sealed = serde_json::from_slice(bytes).map_err(form)?;
    let found = crc32fast::hash(sealed.data.as_bytes());
    if found != sealed.checksum {
        let told = sealed.checksum;
        return Err(CheckpointError::Checksum { told, found });
    }
    let content: Content = serde_json::from_str(&sealed.data).map_err(form)?;
    if (content.kind.as_str(), content.version.as_str()) != (KIND, VERSION) {
        return Err(CheckpointError::Other {
            kind: content.kind,
            version: content.version,
        });
    }
    let entries = content.entries.into_iter().flatten().map(|entry| {
        let drivers = entry.drivers.unwrap_or_default().into_iter();
        let prepared = Prepared {
            uid: entry.uid,
            pods: entry.pods.unwrap_or_default().into_keys().collect_ordered(),
            drivers: drivers
                .map(|(name, driver)| (name, driver.devices.unwrap_or_default()))
                .collect_ordered(),
            prepared: false,
        };
        ((entry.namespace, entry.name), Arc::new(prepared))
    });
    Ok(Claims(entries.collect_ordered()))
}

/// The file that says this.
pub(super) fn write(claims: &Claims) -> Vec<u8> {
    let entries = claims.0.iter().map(|((namespace, name), held)| Entry {
        uid: held.uid.clone(),
        name: name.clone(),
        namespace: namespace.clone(),
        pods: Some(held.pods.iter().map(|pod| (pod.clone(), Present {})).collect_ordered()),
        drivers: Some(
            held.drivers
                .iter()
                .map(|(name, devices)| (name.clone(), driver(devices)))
                .collect_ordered(),
        ),
    });
    let content = Content {
        kind: KIND.to_owned(),
        version: VERSION.to_owned(),
        entries: Some(entries.collect()),
    };
    // Texts and lists of them: nothing of it cannot be written.
    let data = serde_json::to_string(&content).unwrap_or_default();
    let checksum = crc32fast::hash(data.as_bytes());
    serde_json::to_vec(&Sealed { data, checksum }).unwrap_or_default()
}

fn driver(devices: &[Device]) -> Driver {
    Driver {
        devices: Some(devices.to_vec()).filter(|devices| !devices.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As upstream writes one: fields in its order, and the checksum an independent implementation of CRC-32/IEEE has of the data.
    const DATA: &str = r#"{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","Entries":[{"ClaimUID":"067798be-454e-4be4-9047-1aa06aea63f7","ClaimName":"example","Namespace":"default","PodUIDs":{"139cdb46-f989-4f17-9561-ca10cfb509a6":{}},"DriverState":{"test-driver.cdi.k8s.io":{"Devices":[{"PoolName":"worker-1","DeviceName":"dev-1","ShareID":null,"RequestNames":["test request"],"CDIDeviceIDs":["example.com/example=cdi-example"]}]}}}]}"#;

    const CHECKSUM: u32 = 3596806797;

    fn sealed(data: &str, checksum: u32) -> Vec<u8> {
        let sealed = serde_json::json!({"Data": data, "Checksum": checksum});
        serde_json::to_vec(&sealed).expect("json")
    }

    #[test]
    fn upstreams_file_is_read_and_written_byte_for_byte() {
        let file = sealed(DATA, CHECKSUM);
        let claims = read(&file).expect("upstream's");
        let held = &claims.0[&("default".to_owned(), "example".to_owned())];
        assert_eq!(held.drivers["test-driver.cdi.k8s.io"][0].device_name, "dev-1");
        assert_eq!(held.pods.len(), 1);
        let written: serde_json::Value = serde_json::from_slice(&write(&claims)).expect("json");
        assert_eq!(written["Data"], DATA);
        assert_eq!(written["Checksum"], CHECKSUM);
        assert_eq!(read(&write(&claims)), Ok(claims));
    }

    #[test]
    fn what_is_damaged_or_anothers_is_told_as_such() {
        let error = |file: &[u8]| read(file).expect_err("of no use");
        assert!(matches!(
            error(&sealed(DATA, 7)),
            CheckpointError::Checksum { told: 7, .. }
        ));
        assert!(matches!(error(b"{"), CheckpointError::Form(_)));
        let other = DATA.replace("k8s.io/v1", "k8s.io/v2");
        let sum = crc32fast::hash(other.as_bytes());
        assert!(matches!(error(&sealed(&other, sum)), CheckpointError::Other { .. }));
    }

    #[test]
    fn an_empty_one_is_empty() {
        let empty = DATA.split_once("[{").expect("entries").0.to_owned() + "null}";
        let sum = crc32fast::hash(empty.as_bytes());
        assert_eq!(read(&sealed(&empty, sum)), Ok(Claims::default()));
        assert_eq!(read(&write(&Claims::default())), Ok(Claims::default()));
    }
}
