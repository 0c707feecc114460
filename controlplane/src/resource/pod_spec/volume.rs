//! What is wrong with volumes. Pure.

use std::collections::BTreeMap;

use proto::api::quantity::Quantity;
use serde_json::Value;

use super::environment::{field_path, resource_field};
use super::rule::required_label;
use crate::resource::field::{at, int, list, one_of, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

/// The volumes of a pod by name.
pub(super) type ByName<'v> = BTreeMap<&'v str, &'v Value>;

/// Checks all volumes; returns those there are, of equal names the first.
pub(super) fn validate_all<'v>(errors: &mut FieldErrors, spec: &'v Value, path: &str) -> ByName<'v> {
    let mut volumes = ByName::new();
    for (i, volume) in list(spec, &["volumes"]).iter().enumerate() {
        let base = format!("{path}.volumes[{i}]");
        let name = text(volume, &["name"]);
        required_label(errors, &format!("{base}.name"), name);
        if !name.is_empty() && volumes.contains_key(name) {
            errors.push(FieldError::new(
                format!("{base}.name"),
                FieldErrorKind::Duplicate,
                Value::from(name),
                "",
            ));
        }
        if !name.is_empty() {
            volumes.entry(name).or_insert(volume);
        }
        source(errors, volume, &base);
    }
    volumes
}

fn source(errors: &mut FieldErrors, volume: &Value, base: &str) {
    let sources: Vec<(&String, &Value)> = volume
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != "name")
        .collect();
    let Some(((key, source), more)) = sources.split_first() else {
        errors.push(FieldError::required(base, "must specify a volume type"));
        return;
    };
    for (key, _) in more {
        errors.push(FieldError::forbidden(
            format!("{base}.{key}"),
            "may not specify more than 1 volume type",
        ));
    }
    let path = format!("{base}.{key}");
    match key.as_str() {
        "hostPath" => host_path(errors, source, &path),
        "secret" => {
            required(errors, source, &path, "secretName");
            mode(errors, source, &path, "defaultMode");
            items(errors, source, &path);
        }
        "configMap" => {
            required(errors, source, &path, "name");
            mode(errors, source, &path, "defaultMode");
            items(errors, source, &path);
        }
        "downwardAPI" => {
            mode(errors, source, &path, "defaultMode");
            downward(errors, source, &path);
        }
        "projected" => projected(errors, source, &path),
        "persistentVolumeClaim" => required(errors, source, &path, "claimName"),
        "csi" => required(errors, source, &path, "driver"),
        "nfs" => {
            required(errors, source, &path, "server");
            required(errors, source, &path, "path");
        }
        "emptyDir" => empty_dir(errors, source, &path),
        "image" => image(errors, source, &path),
        _ => {}
    }
}

fn required(errors: &mut FieldErrors, source: &Value, path: &str, key: &str) {
    if text(source, &[key]).is_empty() {
        errors.push(FieldError::required(format!("{path}.{key}"), ""));
    }
}

fn empty_dir(errors: &mut FieldErrors, source: &Value, path: &str) {
    let limit = Quantity::parse(text(source, &["sizeLimit"]));
    if limit.is_ok_and(Quantity::is_negative) {
        let why = "SizeLimit field must be a valid resource quantity";
        errors.push(FieldError::forbidden(format!("{path}.sizeLimit"), why));
    }
}

fn image(errors: &mut FieldErrors, source: &Value, path: &str) {
    // Whoever makes pods of a template may fill it in.
    if path.starts_with("spec.volumes[") {
        required(errors, source, path, "reference");
    }
    one_of(
        errors,
        &format!("{path}.pullPolicy"),
        text(source, &["pullPolicy"]),
        &["Always", "IfNotPresent", "Never"],
    );
}

fn host_path(errors: &mut FieldErrors, source: &Value, path: &str) {
    required(errors, source, path, "path");
    if text(source, &["path"]).split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(
            format!("{path}.path"),
            at(source, &["path"]).clone(),
            "must not contain '..'",
        ));
    }
    let kind = text(source, &["type"]);
    if !kind.is_empty() {
        one_of(
            errors,
            &format!("{path}.type"),
            kind,
            &[
                "",
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ],
        );
    }
}

fn mode(errors: &mut FieldErrors, source: &Value, path: &str, key: &str) {
    if let Some(mode) = int(source, &[key])
        && !(0..=0o777).contains(&mode)
    {
        errors.push(FieldError::invalid(
            format!("{path}.{key}"),
            mode,
            "must be a number between 0 and 0777 (octal), both inclusive",
        ));
    }
}

/// A path inside a volume: relative, and never out of it.
fn inner_path(errors: &mut FieldErrors, item: &Value, path: &str) {
    let value = text(item, &["path"]);
    let field = format!("{path}.path");
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if value.starts_with('/') {
        errors.push(FieldError::invalid(field, value, "must be a relative path"));
    } else if value.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(field, value, "must not contain '..'"));
    } else if value.starts_with("..") {
        errors.push(FieldError::invalid(field, value, "must not start with '..'"));
    }
}

fn items(errors: &mut FieldErrors, source: &Value, path: &str) {
    for (i, item) in list(source, &["items"]).iter().enumerate() {
        let base = format!("{path}.items[{i}]");
        required(errors, item, &base, "key");
        inner_path(errors, item, &base);
        mode(errors, item, &base, "mode");
    }
}

fn downward(errors: &mut FieldErrors, source: &Value, path: &str) {
    const FIELDS: &[&str] = &[
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
    ];
    for (i, item) in list(source, &["items"]).iter().enumerate() {
        let base = format!("{path}.items[{i}]");
        inner_path(errors, item, &base);
        mode(errors, item, &base, "mode");
        let (field, resource) = (at(item, &["fieldRef"]), at(item, &["resourceFieldRef"]));
        match (field.is_null(), resource.is_null()) {
            (true, true) => errors.push(FieldError::required(
                base,
                "one of fieldRef and resourceFieldRef is required",
            )),
            (false, false) => errors.push(FieldError::invalid(
                base,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            )),
            (false, true) => field_path(
                errors,
                at(field, &["fieldPath"]),
                &format!("{base}.fieldRef.fieldPath"),
                FIELDS,
            ),
            (true, false) => {
                required(errors, resource, &format!("{base}.resourceFieldRef"), "containerName");
                resource_field(errors, resource, &format!("{base}.resourceFieldRef"));
            }
        }
    }
}

fn projected(errors: &mut FieldErrors, source: &Value, path: &str) {
    mode(errors, source, path, "defaultMode");
    for (i, part) in list(source, &["sources"]).iter().enumerate() {
        let base = format!("{path}.sources[{i}]");
        let count = part.as_object().map_or(0, serde_json::Map::len);
        if count > 1 {
            errors.push(FieldError::forbidden(base, "may not specify more than 1 volume type"));
            continue;
        }
        for key in ["secret", "configMap"] {
            let inner = at(part, &[key]);
            if !inner.is_null() {
                required(errors, inner, &format!("{base}.{key}"), "name");
                items(errors, inner, &format!("{base}.{key}"));
            }
        }
        let inner = at(part, &["downwardAPI"]);
        if !inner.is_null() {
            downward(errors, inner, &format!("{base}.downwardAPI"));
        }
        let token = at(part, &["serviceAccountToken"]);
        if !token.is_null() {
            let field = format!("{base}.serviceAccountToken");
            inner_path(errors, token, &field);
            let seconds = int(token, &["expirationSeconds"]).unwrap_or(3600);
            if seconds < 600 {
                errors.push(FieldError::invalid(
                    format!("{field}.expirationSeconds"),
                    seconds,
                    "may not specify a duration less than 10 minutes",
                ));
            } else if seconds > 1 << 32 {
                errors.push(FieldError::invalid(
                    format!("{field}.expirationSeconds"),
                    seconds,
                    "may not specify a duration larger than 2^32 seconds",
                ));
            }
        }
    }
}
