//! Storage drivers: what they are, where they run, and what they have. Pure.

use std::collections::BTreeMap;

use proto::api::quantity::Quantity;
use serde_json::{Value, json};

use super::Strategy;
use super::check::{driver_name, duplicate, invalid, itself, supported, unique};
use super::field::{at, default_text, default_to, immutable, int, list, non_negative, text};
use super::name::{dns1123_subdomain, qualified_name};
use super::selector;
use crate::resource::field_error::{FieldError, FieldErrors};

/// The CSIDriver kind's strategy.
pub(super) struct CsiDriver;

/// The CSINode kind's strategy.
pub(super) struct CsiNode;

/// The CSIStorageCapacity kind's strategy.
pub(super) struct StorageCapacity;

/// Longest name a driver may know a node by, in bytes.
const NODE_ID_BYTES: usize = 256;
/// Shortest and longest life of a token that a driver asks for, in seconds.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);
/// Shortest time between two looks at what a node can take, in seconds.
const ALLOCATABLE_SECONDS: i64 = 10;

impl Strategy for CsiDriver {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_to(spec, "attachRequired", true);
        for key in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            default_to(spec, key, false);
        }
        default_text(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        default_to(spec, "volumeLifecycleModes", json!(["Persistent"]));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        if let Some(policy) = at(spec, &["fsGroupPolicy"]).as_str() {
            let policies = &["File", "None", "ReadWriteOnceWithFSType"];
            supported(&mut errors, "spec.fsGroupPolicy", policy, policies);
        }
        check_tokens(&mut errors, list(spec, &["tokenRequests"]));
        for mode in list(spec, &["volumeLifecycleModes"]) {
            let modes = &["Persistent", "Ephemeral"];
            supported(&mut errors, "spec.volumeLifecycleModes", itself(mode), modes);
        }
        let period = int(spec, &["nodeAllocatableUpdatePeriodSeconds"]);
        if let Some(seconds) = period.filter(|seconds| *seconds < ALLOCATABLE_SECONDS) {
            errors.push(FieldError::invalid(
                "spec.nodeAllocatableUpdatePeriodSeconds",
                seconds,
                "must be greater than or equal to 10 seconds",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        let required = at(new, &["spec", "attachRequired"]);
        if required != at(old, &["spec", "attachRequired"]) {
            // Upstream calls the field so.
            let why = "field is immutable";
            errors.push(FieldError::invalid("spec.attachedRequired", required.clone(), why));
        }
        immutable(&mut errors, new, old, &["spec", "volumeLifecycleModes"]);
        errors
    }
}

fn check_tokens(errors: &mut FieldErrors, tokens: &[Value]) {
    const FIELD: &str = "spec.tokenRequests";
    unique(errors, tokens, FIELD, ".audience", |token| text(token, &["audience"]));
    for (i, token) in tokens.iter().enumerate() {
        let Some(seconds) = int(token, &["expirationSeconds"]) else {
            continue;
        };
        let why = if seconds < TOKEN_SECONDS.0 {
            "may not specify a duration less than 10 minutes"
        } else if seconds > TOKEN_SECONDS.1 {
            "may not specify a duration larger than 2^32 seconds"
        } else {
            continue;
        };
        let field = format!("{FIELD}[{i}].expirationSeconds");
        errors.push(FieldError::invalid(field, seconds, why));
    }
}

impl Strategy for CsiNode {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let drivers = list(object, &["spec", "drivers"]);
        for (i, driver) in drivers.iter().enumerate() {
            check_node_driver(&mut errors, driver, &format!("spec.drivers[{i}]"));
        }
        unique(&mut errors, drivers, "spec.drivers", ".name", |driver| {
            text(driver, &["name"])
        });
        errors
    }

    /// What a driver said of the node stays, but for how much the node can take.
    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        let known: BTreeMap<&str, &Value> = list(old, &["spec", "drivers"])
            .iter()
            .map(|driver| (text(driver, &["name"]), driver))
            .collect();
        for driver in list(new, &["spec", "drivers"]) {
            let same = |key: &str, before: &Value| at(driver, &[key]) == at(before, &[key]);
            if let Some(before) = known.get(text(driver, &["name"]))
                && !(same("nodeID", before) && same("topologyKeys", before))
            {
                let mut shown = driver.clone();
                super::field::remove(&mut shown, "allocatable");
                errors.push(FieldError::invalid("spec.drivers", shown, "field is immutable"));
            }
        }
        errors
    }
}

fn check_node_driver(errors: &mut FieldErrors, driver: &Value, path: &str) {
    driver_name(errors, &format!("{path}.name"), text(driver, &["name"]));
    let node = text(driver, &["nodeID"]);
    let field = format!("{path}.nodeID");
    if node.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if node.len() > NODE_ID_BYTES {
        let why = format!("must be {NODE_ID_BYTES} characters or less");
        errors.push(FieldError::invalid(field, node, why));
    }
    let allocatable = at(driver, &["allocatable"]);
    non_negative(errors, allocatable, &format!("{path}.allocatable"), "count");
    let mut seen = std::collections::BTreeSet::new();
    for key in list(driver, &["topologyKeys"]).iter().map(itself) {
        if key.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if !seen.insert(key) {
            duplicate(errors, path, key);
        }
        invalid(errors, path, key, qualified_name(key));
    }
}

impl Strategy for StorageCapacity {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        selector::validate(&mut errors, at(object, &["nodeTopology"]), "nodeTopology");
        let class = text(object, &["storageClassName"]);
        invalid(&mut errors, "storageClassName", class, dns1123_subdomain(class));
        let capacity = text(object, &["capacity"]);
        if Quantity::parse(capacity).is_ok_and(|quantity| quantity.is_negative()) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid("capacity", capacity, why));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::default();
        for key in ["nodeTopology", "storageClassName"] {
            immutable(&mut errors, new, old, &[key]);
        }
        errors
    }
}
