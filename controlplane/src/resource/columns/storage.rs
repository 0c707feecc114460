//! Rows of the storage kinds. Pure.

use serde_json::Value;

use super::format::{age, name, or};
use super::{AGE, Column, NAME, Printer, column, integer, wide};
use crate::resource::field::{at, flag, list, text};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "PersistentVolumeClaim" => CLAIM,
        "PersistentVolume" => VOLUME,
        "StorageClass" => STORAGE_CLASS,
        "VolumeAttributesClass" => ATTRIBUTES_CLASS,
        "VolumeAttachment" => ATTACHMENT,
        "CSIDriver" => CSI_DRIVER,
        "CSINode" => CSI_NODE,
        "CSIStorageCapacity" => CAPACITY,
        _ => return None,
    })
}

fn access_modes(object: &Value, path: &[&str]) -> String {
    let modes = list(object, path);
    let has = |mode: &str| modes.iter().any(|value| value == mode);
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> = short
        .iter()
        .filter(|(mode, _)| has(mode))
        .map(|(_, short)| *short)
        .collect();
    shown.join(",")
}

fn phase(object: &Value) -> Value {
    if at(object, &["metadata", "deletionTimestamp"]).is_null() {
        Value::from(text(object, &["status", "phase"]))
    } else {
        Value::from("Terminating")
    }
}

const CLAIM: Printer = Printer {
    columns: &[
        NAME,
        column("Status"),
        column("Volume"),
        column("Capacity"),
        column("Access Modes"),
        column("StorageClass"),
        column("VolumeAttributesClass"),
        AGE,
        wide("VolumeMode"),
    ],
    cells: |claim, now| {
        let volume = text(claim, &["spec", "volumeName"]);
        let bound = !volume.is_empty();
        let capacity = text(claim, &["status", "capacity", "storage"]);
        let class = match text(
            claim,
            &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"],
        ) {
            "" => text(claim, &["spec", "storageClassName"]),
            class => class,
        };
        vec![
            name(claim),
            phase(claim),
            Value::from(volume),
            Value::from(if bound { capacity } else { "" }),
            Value::from(if bound {
                access_modes(claim, &["status", "accessModes"])
            } else {
                String::new()
            }),
            Value::from(class),
            or(text(claim, &["spec", "volumeAttributesClassName"]), "<unset>"),
            age(claim, now),
            or(text(claim, &["spec", "volumeMode"]), "<unset>"),
        ]
    },
};

const VOLUME: Printer = Printer {
    columns: &[
        NAME,
        column("Capacity"),
        column("Access Modes"),
        column("Reclaim Policy"),
        column("Status"),
        column("Claim"),
        column("StorageClass"),
        column("VolumeAttributesClass"),
        column("Reason"),
        AGE,
        wide("VolumeMode"),
    ],
    cells: |volume, now| {
        let claim = at(volume, &["spec", "claimRef"]);
        let claim = if claim.is_null() {
            String::new()
        } else {
            format!("{}/{}", text(claim, &["namespace"]), text(claim, &["name"]))
        };
        vec![
            name(volume),
            Value::from(text(volume, &["spec", "capacity", "storage"])),
            Value::from(access_modes(volume, &["spec", "accessModes"])),
            Value::from(text(volume, &["spec", "persistentVolumeReclaimPolicy"])),
            phase(volume),
            Value::from(claim),
            Value::from(text(volume, &["spec", "storageClassName"])),
            or(text(volume, &["spec", "volumeAttributesClassName"]), "<unset>"),
            Value::from(text(volume, &["status", "reason"])),
            age(volume, now),
            or(text(volume, &["spec", "volumeMode"]), "<unset>"),
        ]
    },
};

const STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        column("Provisioner"),
        column("ReclaimPolicy"),
        column("VolumeBindingMode"),
        Column {
            kind: "boolean",
            ..column("AllowVolumeExpansion")
        },
        AGE,
    ],
    cells: |class, now| {
        let is_default = text(
            class,
            &["metadata", "annotations", "storageclass.kubernetes.io/is-default-class"],
        ) == "true";
        let suffix = if is_default { " (default)" } else { "" };
        vec![
            Value::from(format!("{}{suffix}", text(class, &["metadata", "name"]))),
            Value::from(text(class, &["provisioner"])),
            or(text(class, &["reclaimPolicy"]), "Delete"),
            or(text(class, &["volumeBindingMode"]), "Immediate"),
            Value::from(flag(class, &["allowVolumeExpansion"])),
            age(class, now),
        ]
    },
};

const ATTRIBUTES_CLASS: Printer = Printer {
    columns: &[NAME, column("DriverName"), AGE],
    cells: |class, now| vec![name(class), Value::from(text(class, &["driverName"])), age(class, now)],
};

const ATTACHMENT: Printer = Printer {
    columns: &[
        NAME,
        column("Attacher"),
        column("PV"),
        column("Node"),
        Column {
            kind: "boolean",
            ..column("Attached")
        },
        AGE,
    ],
    cells: |attachment, now| {
        vec![
            name(attachment),
            Value::from(text(attachment, &["spec", "attacher"])),
            Value::from(text(attachment, &["spec", "source", "persistentVolumeName"])),
            Value::from(text(attachment, &["spec", "nodeName"])),
            Value::from(flag(attachment, &["status", "attached"])),
            age(attachment, now),
        ]
    },
};

const CSI_DRIVER: Printer = Printer {
    columns: &[
        NAME,
        Column {
            kind: "boolean",
            ..column("AttachRequired")
        },
        Column {
            kind: "boolean",
            ..column("PodInfoOnMount")
        },
        Column {
            kind: "boolean",
            ..column("StorageCapacity")
        },
        column("TokenRequests"),
        Column {
            kind: "boolean",
            ..column("RequiresRepublish")
        },
        column("Modes"),
        AGE,
    ],
    cells: |driver, now| {
        let spec = |key: &str| flag(driver, &["spec", key]);
        let joined = |items: Vec<&str>, none: &str| or(&items.join(","), none);
        let tokens = list(driver, &["spec", "tokenRequests"]).iter();
        let modes = list(driver, &["spec", "volumeLifecycleModes"]).iter();
        vec![
            name(driver),
            Value::from(at(driver, &["spec", "attachRequired"]).as_bool().unwrap_or(true)),
            Value::from(spec("podInfoOnMount")),
            Value::from(spec("storageCapacity")),
            joined(tokens.map(|token| text(token, &["audience"])).collect(), "<unset>"),
            Value::from(spec("requiresRepublish")),
            joined(modes.filter_map(Value::as_str).collect(), "<none>"),
            age(driver, now),
        ]
    },
};

const CAPACITY: Printer = Printer {
    columns: &[NAME, column("StorageClassName"), column("Capacity")],
    cells: |capacity, _| {
        vec![
            name(capacity),
            Value::from(text(capacity, &["storageClassName"])),
            or(text(capacity, &["capacity"]), "<unset>"),
        ]
    },
};

const CSI_NODE: Printer = Printer {
    columns: &[NAME, integer("Drivers"), AGE],
    cells: |node, now| {
        vec![
            name(node),
            Value::from(list(node, &["spec", "drivers"]).len()),
            age(node, now),
        ]
    },
};
