//! Classes of storage and of its attributes, and the attachments of volumes. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Strategy;
use super::check::{driver_name, duplicate, invalid, itself, required, too_long};
use super::field::{at, default_text, entries, immutable, list, one_of, text};
use super::name::{dns1123_subdomain, label_value, qualified_name};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The StorageClass kind's strategy.
pub(super) struct StorageClass;

/// The VolumeAttributesClass kind's strategy.
pub(super) struct AttributesClass;

/// The VolumeAttachment kind's strategy.
pub(super) struct Attachment;

const PARAMETERS_MAX: usize = 512;
/// Most bytes of a class's parameters, and of what a driver says of an attachment.
const DATA_BYTES: usize = 256 << 10;
const MESSAGE_BYTES: usize = 1024;

impl Strategy for StorageClass {
    fn default(&self, object: &mut Value) {
        default_text(object, "reclaimPolicy", "Delete");
        default_text(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        check_provisioner(&mut errors, object, "provisioner");
        check_parameters(&mut errors, object);
        one_of(
            &mut errors,
            "reclaimPolicy",
            text(object, &["reclaimPolicy"]),
            &["Delete", "Retain"],
        );
        one_of(
            &mut errors,
            "volumeBindingMode",
            text(object, &["volumeBindingMode"]),
            &["Immediate", "WaitForFirstConsumer"],
        );
        check_topologies(&mut errors, list(object, &["allowedTopologies"]));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::default();
        for key in ["parameters", "provisioner", "reclaimPolicy"] {
            check_unchanged(&mut errors, new, old, key);
        }
        immutable(&mut errors, new, old, &["volumeBindingMode"]);
        errors
    }
}

fn check_unchanged(errors: &mut FieldErrors, new: &Value, old: &Value, key: &str) {
    if at(new, &[key]) != at(old, &[key]) {
        errors.push(FieldError::forbidden(key, format!("updates to {key} are forbidden.")));
    }
}

fn check_provisioner(errors: &mut FieldErrors, object: &Value, key: &str) {
    let lower = text(object, &[key]).to_lowercase();
    required(errors, key, &lower, qualified_name);
}

fn check_parameters(errors: &mut FieldErrors, object: &Value) {
    let count = entries(object, &["parameters"]).count();
    if too_long(errors, "parameters", count, PARAMETERS_MAX) {
        return;
    }
    let mut bytes = 0;
    for (key, value) in entries(object, &["parameters"]) {
        if key.is_empty() {
            errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
        }
        bytes += key.len() + itself(value).len();
    }
    too_long(errors, "parameters", bytes, DATA_BYTES);
}

fn check_topologies(errors: &mut FieldErrors, terms: &[Value]) {
    let mut seen = BTreeSet::new();
    for (i, term) in terms.iter().enumerate() {
        let field = format!("allowedTopologies[{i}].matchLabelExpressions");
        let rules = list(term, &["matchLabelExpressions"]);
        let mut meant = std::collections::BTreeMap::new();
        if rules.is_empty() {
            errors.push(FieldError::required(field.as_str(), ""));
        }
        for (j, rule) in rules.iter().enumerate() {
            let values = check_topology(errors, rule, &format!("{field}[{j}]"));
            let key = text(rule, &["key"]);
            if meant.insert(key, values).is_some() {
                duplicate(errors, format!("{field}[{j}].key"), key);
            }
        }
        if !seen.insert(meant) {
            duplicate(errors, field, "");
        }
    }
}

/// The values of a rule of a term, which are what makes it the same as another.
fn check_topology<'v>(errors: &mut FieldErrors, rule: &'v Value, path: &str) -> BTreeSet<&'v str> {
    let mut seen = BTreeSet::new();
    let values = list(rule, &["values"]);
    if values.is_empty() {
        errors.push(FieldError::required(format!("{path}.values"), ""));
    }
    for (i, value) in values.iter().map(itself).enumerate() {
        let field = format!("{path}.values[{i}]");
        if !seen.insert(value) {
            duplicate(errors, field.as_str(), value);
        }
        invalid(errors, &field, value, label_value(value));
    }
    let key = text(rule, &["key"]);
    invalid(errors, &format!("{path}.key"), key, qualified_name(key));
    seen
}

impl Strategy for AttributesClass {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        check_provisioner(&mut errors, object, "driverName");
        check_parameters(&mut errors, object);
        if entries(object, &["parameters"]).next().is_none() {
            let why = "must contain at least one key/value pair";
            errors.push(FieldError::required("parameters", why));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        for key in ["driverName", "parameters"] {
            check_unchanged(&mut errors, new, old, key);
        }
        errors
    }
}

impl Strategy for Attachment {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        driver_name(&mut errors, "spec.attacher", text(spec, &["attacher"]));
        let source = at(spec, &["source"]);
        let (inline, name) = (at(source, &["inlineVolumeSpec"]), at(source, &["persistentVolumeName"]));
        let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (inline.is_null(), name.as_str()) {
            (true, None) => errors.push(FieldError::required("spec.source", one)),
            (false, Some(_)) => errors.push(FieldError::forbidden("spec.source", one)),
            (true, Some("")) => errors.push(FieldError::required(
                "spec.source.persistentVolumeName",
                "must specify non empty persistentVolumeName",
            )),
            (true, Some(name)) => {
                let problems = dns1123_subdomain(name);
                invalid(&mut errors, "spec.source.persistentVolumeName", name, problems);
            }
            (false, None) => {}
        }
        let node = text(spec, &["nodeName"]);
        invalid(&mut errors, "spec.nodeName", node, dns1123_subdomain(node));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if !subresource.is_empty() {
            return FieldErrors::of_update(new, old, check_attachment_status);
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["spec"]);
        errors
    }
}

fn check_attachment_status(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let status = at(object, &["status"]);
    let metadata = entries(status, &["attachmentMetadata"]);
    let bytes = metadata.map(|(key, value)| key.len() + itself(value).len()).sum();
    too_long(&mut errors, "status.attachmentMetadata", bytes, DATA_BYTES);
    for key in ["attachError", "detachError"] {
        let problem = at(status, &[key]);
        if text(problem, &["message"]).len() > MESSAGE_BYTES {
            // The number that upstream tells is not the one it allows.
            too_long(&mut errors, &format!("status.{key}.message"), usize::MAX, DATA_BYTES);
        }
        if let Some(code) = super::field::int(problem, &["errorCode"]).filter(|code| *code < 0) {
            errors.push(FieldError::invalid(
                format!("status.{key}.errorCode"),
                code,
                "must be between 0 and 2147483647, inclusive",
            ));
        }
    }
    errors
}
