//! Persistent volumes, claims, and the storage group's kinds. Pure.

use proto::api::quantity::Quantity;
use serde_json::{Value, json};

use super::field::{at, copy, default_text, default_to, immutable, invalid_each, list, one_of, set, text};
use super::name::dns1123_subdomain;
use super::pod_spec::validate::node_selector;
use super::selector;
use super::{PrepareContext, Strategy};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The PersistentVolumeClaim kind's strategy.
pub(super) struct Claim;

/// The PersistentVolume kind's strategy.
pub(super) struct Volume;

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(errors: &mut FieldErrors, object: &Value) {
    let modes = list(object, &["spec", "accessModes"]);
    if modes.is_empty() {
        errors.push(FieldError::required(
            "spec.accessModes",
            "at least 1 access mode is required",
        ));
    }
    for mode in modes {
        one_of(errors, "spec.accessModes", mode.as_str().unwrap_or(""), ACCESS_MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(
            "spec.accessModes",
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
}

fn volume_mode(errors: &mut FieldErrors, object: &Value) {
    one_of(
        errors,
        "spec.volumeMode",
        text(object, &["spec", "volumeMode"]),
        &["Block", "Filesystem"],
    );
}

/// What a claim is filled from.
fn data_source(errors: &mut FieldErrors, spec: &Value, key: &str) {
    let source = at(spec, &[key]);
    if source.is_null() {
        return;
    }
    let path = format!("spec.{key}");
    for key in ["name", "kind"] {
        if text(source, &[key]).is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}"), ""));
        }
    }
    let (group, kind) = (text(source, &["apiGroup"]), text(source, &["kind"]));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(path, kind, why));
    } else if !group.is_empty() {
        let problems = dns1123_subdomain(group);
        invalid_each(errors, &format!("{path}.apiGroup"), &json!(group), problems);
    }
}

/// The name of a class, where one is given.
fn class_name(errors: &mut FieldErrors, spec: &Value, key: &str) {
    let name = text(spec, &[key]);
    if !name.is_empty() {
        invalid_each(errors, &format!("spec.{key}"), &json!(name), dns1123_subdomain(name));
    }
}

/// A path of the node, and what may be done with it once a volume is free again.
fn node_path(errors: &mut FieldErrors, spec: &Value) {
    for key in ["hostPath", "local"] {
        let source = at(spec, &[key]);
        let (path, place) = (format!("spec.{key}.path"), text(source, &["path"]));
        if source.is_null() {
            continue;
        }
        if place.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if place.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(path, place, "must not contain '..'"));
        }
    }
    let place = text(spec, &["hostPath", "path"]);
    let is_root = place.starts_with('/') && place.split('/').all(|part| part.is_empty() || part == ".");
    if is_root && text(spec, &["persistentVolumeReclaimPolicy"]) == "Recycle" {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden("spec.persistentVolumeReclaimPolicy", why));
    }
    let affinity = at(spec, &["nodeAffinity"]);
    let required = at(affinity, &["required"]);
    if !affinity.is_null() && required.is_null() {
        let why = "must specify required node constraints";
        errors.push(FieldError::required("spec.nodeAffinity.required", why));
    } else if !required.is_null() {
        node_selector(errors, required, "spec.nodeAffinity.required");
    } else if !at(spec, &["local"]).is_null() {
        let why = "Local volume requires node affinity";
        errors.push(FieldError::required("spec.nodeAffinity", why));
    }
}

fn default_mode(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        default_text(spec, "volumeMode", "Filesystem");
    }
}

impl Strategy for Claim {
    fn default(&self, object: &mut Value) {
        default_mode(object);
        default_to(object, "status", json!({}));
        if let Some(status) = object.get_mut("status") {
            default_text(status, "phase", "Pending");
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        set(object, &["status"], json!({"phase": "Pending"}));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        access_modes(&mut errors, object);
        volume_mode(&mut errors, object);
        let storage = text(object, &["spec", "resources", "requests", "storage"]);
        match Quantity::parse(storage) {
            _ if storage.is_empty() => errors.push(FieldError::required("spec.resources[storage]", "")),
            Ok(quantity) if quantity.is_zero() || quantity.is_negative() => errors.push(FieldError::invalid(
                "spec.resources[storage]",
                storage,
                "must be greater than zero",
            )),
            _ => {}
        }
        let spec = at(object, &["spec"]);
        selector::validate(&mut errors, at(spec, &["selector"]), "spec.selector");
        data_source(&mut errors, spec, "dataSource");
        data_source(&mut errors, spec, "dataSourceRef");
        class_name(&mut errors, spec, "storageClassName");
        class_name(&mut errors, spec, "volumeAttributesClassName");
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return FieldErrors::default();
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        let mut neutral = new.clone();
        let bound = text(old, &["status", "phase"]) == "Bound";
        if text(old, &["spec", "volumeName"]).is_empty() {
            copy(&mut neutral, old, &["spec", "volumeName"]);
        }
        if bound {
            copy(&mut neutral, old, &["spec", "resources", "requests", "storage"]);
        }
        copy(&mut neutral, old, &["spec", "volumeAttributesClassName"]);
        if at(old, &["spec", "storageClassName"]).is_null() {
            copy(&mut neutral, old, &["spec", "storageClassName"]);
        }
        if at(&neutral, &["spec"]) != at(old, &["spec"]) {
            errors.push(FieldError::forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            ));
        }
        let storage = &["spec", "resources", "requests", "storage"];
        let amount = |object: &Value, path: &[&str]| Quantity::parse(text(object, path)).ok();
        let floor = amount(old, &["status", "capacity", "storage"]);
        if let (Some(after), Some(before)) = (amount(new, storage), amount(old, storage))
            && after < before
            && floor.is_none_or(|floor| after < floor)
        {
            errors.push(FieldError::forbidden(
                "spec.resources.requests.storage",
                "field can not be less than status.capacity",
            ));
        }
        errors
    }
}

impl Strategy for Volume {
    fn default(&self, object: &mut Value) {
        default_mode(object);
        if let Some(spec) = object.get_mut("spec") {
            default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
            if let Some(source) = spec.get_mut("hostPath") {
                default_to(source, "type", "");
            }
        }
        default_to(object, "status", json!({}));
        if let Some(status) = object.get_mut("status") {
            default_text(status, "phase", "Pending");
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        set(object, &["status"], json!({"phase": "Pending"}));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        access_modes(&mut errors, object);
        volume_mode(&mut errors, object);
        if text(object, &["spec", "capacity", "storage"]).is_empty() {
            errors.push(FieldError::required("spec.capacity", ""));
        }
        one_of(
            &mut errors,
            "spec.persistentVolumeReclaimPolicy",
            text(object, &["spec", "persistentVolumeReclaimPolicy"]),
            &["Delete", "Recycle", "Retain"],
        );
        let sources = source(object).count();
        if sources == 0 {
            errors.push(FieldError::required("spec", "must specify a volume type"));
        } else if sources > 1 {
            errors.push(FieldError::forbidden("spec", "may not specify more than 1 volume type"));
        }
        let spec = at(object, &["spec"]);
        node_path(&mut errors, spec);
        class_name(&mut errors, spec, "storageClassName");
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        if subresource == "status" {
            return FieldErrors::default();
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        if source(new).ne(source(old)) {
            errors.push(FieldError::forbidden(
                "spec.persistentvolumesource",
                "spec.persistentvolumesource is immutable after creation",
            ));
        }
        immutable(&mut errors, new, old, &["spec", "volumeMode"]);
        if !at(old, &["spec", "nodeAffinity"]).is_null() {
            immutable(&mut errors, new, old, &["spec", "nodeAffinity"]);
        }
        errors
    }
}

/// The volume's source: what in its spec is none of the common fields.
fn source(volume: &Value) -> impl Iterator<Item = (&String, &Value)> {
    const COMMON: &[&str] = &[
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ];
    let spec = at(volume, &["spec"]).as_object();
    spec.into_iter()
        .flatten()
        .filter(|(key, _)| !COMMON.contains(&key.as_str()))
}
