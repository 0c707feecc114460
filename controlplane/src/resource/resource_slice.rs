//! Slices of a pool of devices, as their drivers publish them. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Strategy;
use super::check::{driver_name, invalid, required, too_long, too_many, unique};
use super::device::{check_effect, check_name, check_pool, set_flag};
use super::field::{at, entries, immutable, int, list, text};
use super::name::{dns1123_label, dns1123_subdomain, label_value, qualified_name};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The ResourceSlice kind's strategy.
pub(super) struct ResourceSlice;

const DEVICES_MAX: usize = 128;
/// As many where any of them is tainted or takes of shared counters.
const COMPLEX_DEVICES_MAX: usize = 64;
const ATTRIBUTES_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
const COUNTER_SETS_MAX: usize = 8;
const CONSUMPTIONS_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;
const VALUE_BYTES: usize = 64;

impl Strategy for ResourceSlice {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        driver_name(&mut errors, "spec.driver", text(spec, &["driver"]));
        check_slice_pool(&mut errors, at(spec, &["pool"]));
        let per_device = check_nodes(&mut errors, spec);
        let (devices, counters) = (list(spec, &["devices"]), list(spec, &["sharedCounters"]));
        if !devices.is_empty() && !counters.is_empty() {
            let why = "only one of `sharedCounters` or `devices` is allowed";
            errors.push(FieldError::invalid("spec", "", why));
        }
        let is_complex = |device: &Value| {
            ["taints", "consumesCounters"]
                .iter()
                .any(|key| !list(device, &[key]).is_empty())
        };
        let most = if devices.iter().any(is_complex) {
            COMPLEX_DEVICES_MAX
        } else {
            DEVICES_MAX
        };
        for (i, device) in devices.iter().enumerate() {
            check_device(&mut errors, device, per_device, &format!("spec.devices[{i}]"));
        }
        too_many(&mut errors, "spec.devices", devices.len(), most);
        unique(&mut errors, devices, "spec.devices", ".name", |device| {
            text(device, &["name"])
        });
        let field = "spec.sharedCounters";
        for (i, set) in counters.iter().enumerate() {
            check_counters(&mut errors, set, "name", &format!("{field}[{i}]"));
        }
        too_many(&mut errors, field, counters.len(), COUNTER_SETS_MAX);
        unique(&mut errors, counters, field, ".name", |set| text(set, &["name"]));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["spec", "pool", "name"]);
        for key in ["driver", "nodeName"] {
            immutable(&mut errors, new, old, &["spec", key]);
        }
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let of = |key: &str| text(object, &["spec", key]).to_owned();
        BTreeMap::from([("spec.driver", of("driver")), ("spec.nodeName", of("nodeName"))])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["spec.driver", "spec.nodeName"]
    }
}

fn check_slice_pool(errors: &mut FieldErrors, pool: &Value) {
    check_pool(errors, text(pool, &["name"]), "spec.pool.name");
    for (key, least, why) in [
        ("resourceSliceCount", 1, "must be greater than zero"),
        ("generation", 0, "must be greater than or equal to zero"),
    ] {
        let number = int(pool, &[key]).unwrap_or(0);
        if number < least {
            errors.push(FieldError::invalid(format!("spec.pool.{key}"), number, why));
        }
    }
}

/// Whether each device says where it is; where the slice's devices are is told in one way.
fn check_nodes(errors: &mut FieldErrors, spec: &Value) -> bool {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut given = Vec::new();
    let node = text(spec, &["nodeName"]);
    if !node.is_empty() {
        given.push("`nodeName`");
        invalid(errors, "spec.nodeName", node, dns1123_subdomain(node));
    }
    let selector = at(spec, &["nodeSelector"]);
    if !selector.is_null() {
        given.push("`nodeSelector`");
        let terms = at(selector, &["nodeSelectorTerms"]);
        if list(terms, &[]).len() != 1 {
            let why = "must have exactly one node selector term";
            errors.push(FieldError::invalid_value(
                "spec.nodeSelector.nodeSelectorTerms",
                terms,
                why,
            ));
        }
    }
    if set_flag(errors, spec, "allNodes", "spec") {
        given.push("`allNodes`");
    }
    let per_device = set_flag(errors, spec, "perDeviceNodeSelection", "spec");
    if per_device {
        given.push("`perDeviceNodeSelection`");
    }
    match given.len() {
        0 => errors.push(FieldError::required("spec", ONE)),
        1 => {}
        _ => errors.push(FieldError::invalid(
            "spec",
            format!("{{{}}}", given.join(", ")),
            format!("{ONE}, but multiple fields are set"),
        )),
    }
    per_device
}

fn check_device(errors: &mut FieldErrors, device: &Value, per_device: bool, path: &str) {
    let name = text(device, &["name"]);
    invalid(errors, &format!("{path}.name"), name, dns1123_label(name));
    let count = ["attributes", "capacity"].map(|key| entries(device, &[key]).count());
    let count = count.iter().sum::<usize>();
    if count > ATTRIBUTES_MAX {
        let why = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        errors.push(FieldError::invalid(path, count, why));
    }
    for (name, attribute) in entries(device, &["attributes"]) {
        let field = format!("{path}.attributes[{name}]");
        check_name(errors, name, &field);
        check_attribute(errors, attribute, &field);
    }
    for (name, capacity) in entries(device, &["capacity"]) {
        let field = format!("{path}.capacity[{name}]");
        check_name(errors, name, &field);
        let shared = at(device, &["allowMultipleAllocations"]) == &Value::Bool(true);
        if !shared && !at(capacity, &["requestPolicy"]).is_null() {
            let why = "allowMultipleAllocations must be true";
            errors.push(FieldError::forbidden(format!("{field}.requestPolicy"), why));
        }
    }
    let (taints, field) = (list(device, &["taints"]), format!("{path}.taints"));
    for (i, taint) in taints.iter().enumerate() {
        check_taint(errors, taint, &format!("{field}[{i}]"));
    }
    too_many(errors, &field, taints.len(), TAINTS_MAX);
    let (taken, field) = (list(device, &["consumesCounters"]), format!("{path}.consumesCounters"));
    for (i, taken) in taken.iter().enumerate() {
        check_counters(errors, taken, "counterSet", &format!("{field}[{i}]"));
    }
    too_many(errors, &field, taken.len(), CONSUMPTIONS_MAX);
    unique(errors, taken, &field, ".counterSet", |taken| {
        text(taken, &["counterSet"])
    });
    check_place(errors, device, per_device, path);
}

fn check_place(errors: &mut FieldErrors, device: &Value, per_device: bool, path: &str) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` \
                       is set to true in the ResourceSlice spec";
    let keys = ["nodeName", "nodeSelector", "allNodes"];
    let mut given: Vec<&str> = keys.into_iter().filter(|key| !at(device, &[key]).is_null()).collect();
    if !per_device {
        if !given.is_empty() {
            errors.push(FieldError::invalid(
                path,
                Value::Null,
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the \
                 ResourceSlice spec",
            ));
        }
        return;
    }
    if let Some(node) = at(device, &["nodeName"]).as_str() {
        let field = format!("{path}.nodeName");
        if node.is_empty() {
            given.retain(|key| *key != "nodeName");
            errors.push(FieldError::invalid(field, "", "must not be empty"));
        } else {
            invalid(errors, &field, node, dns1123_subdomain(node));
        }
    }
    if !set_flag(errors, device, "allNodes", path) {
        given.retain(|key| *key != "allNodes");
    }
    match given.as_slice() {
        [] => errors.push(FieldError::required(path, ONE)),
        [_] => {}
        _ => {
            let shown: Vec<String> = given.iter().map(|key| format!("`{key}`")).collect();
            errors.push(FieldError::invalid(path, format!("{{{}}}", shown.join(", ")), ONE));
        }
    }
}

fn check_attribute(errors: &mut FieldErrors, attribute: &Value, path: &str) {
    if let Some(value) = at(attribute, &["string"]).as_str() {
        too_long(errors, &format!("{path}.string"), value.len(), VALUE_BYTES);
    }
    if let Some(version) = at(attribute, &["version"]).as_str() {
        let field = format!("{path}.version");
        if !is_semantic_version(version) {
            let why = "must be a string compatible with semver.org spec 2.0.0";
            errors.push(FieldError::invalid(field.as_str(), version, why));
        }
        too_long(errors, &field, version.len(), VALUE_BYTES);
    }
    let given = ["bool", "int", "string", "version"].iter();
    match given.filter(|key| !at(attribute, &[key]).is_null()).count() {
        0 => errors.push(FieldError::invalid(path, "", "exactly one value must be specified")),
        1 => {}
        _ => errors.push(FieldError::invalid_value(
            path,
            attribute,
            "exactly one value must be specified",
        )),
    }
}

/// Three numbers, perhaps with what comes before the release and how it was built (semver.org 2.0.0).
fn is_semantic_version(text: &str) -> bool {
    let is_number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric());
    let (text, build) = text
        .split_once('+')
        .map_or((text, None), |(text, build)| (text, Some(build)));
    let (numbers, before) = text
        .split_once('-')
        .map_or((text, None), |(text, before)| (text, Some(before)));
    let is_before = |part: &str| is_word(part) && (is_number(part) || !part.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && before.is_none_or(|before| before.split('.').all(is_before))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

fn check_taint(errors: &mut FieldErrors, taint: &Value, path: &str) {
    let value = |key: &str| text(taint, &[key]);
    invalid(
        errors,
        &format!("{path}.key"),
        value("key"),
        qualified_name(value("key")),
    );
    invalid(
        errors,
        &format!("{path}.value"),
        value("value"),
        label_value(value("value")),
    );
    if value("effect").is_empty() {
        errors.push(FieldError::required(format!("{path}.effect"), ""));
    } else {
        check_effect(errors, value("effect"), path);
    }
}

/// What is wrong with counters, and with the name of their set under `key`.
fn check_counters(errors: &mut FieldErrors, set: &Value, key: &str, path: &str) {
    required(errors, &format!("{path}.{key}"), text(set, &[key]), dns1123_label);
    let field = format!("{path}.counters");
    let count = entries(set, &["counters"]).count();
    if count == 0 {
        errors.push(FieldError::required(field.as_str(), ""));
    }
    too_many(errors, &field, count, COUNTERS_MAX);
    for (name, _) in entries(set, &["counters"]) {
        invalid(errors, &format!("{field}[{name}]"), name, dns1123_label(name));
    }
}
