//! What is wrong with containers' environment, and with references to a pod's own fields. Pure.

use serde_json::Value;

use super::rule::required_label;
use super::volume::ByName;
use crate::resource::field::{at, invalid_each, list, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::resource::name::{config_key, env_var_name, qualified_name};

/// Fields `valueFrom.fieldRef` may name.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn validate(errors: &mut FieldErrors, container: &Value, base: &str, volumes: &ByName<'_>) {
    for (i, variable) in list(container, &["env"]).iter().enumerate() {
        let path = format!("{base}.env[{i}]");
        let name = text(variable, &["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            invalid_each(
                errors,
                &format!("{path}.name"),
                at(variable, &["name"]),
                env_var_name(name),
            );
        }
        let source = at(variable, &["valueFrom"]);
        if !source.is_null() {
            value_from(errors, variable, source, &format!("{path}.valueFrom"), volumes);
        }
    }
    for (i, from) in list(container, &["envFrom"]).iter().enumerate() {
        let path = format!("{base}.envFrom[{i}]");
        let prefix = text(from, &["prefix"]);
        if !prefix.is_empty() {
            let problems = env_var_name(prefix);
            invalid_each(errors, &format!("{path}.prefix"), &Value::from(prefix), problems);
        }
        let sources: Vec<&str> = ["configMapRef", "secretRef"]
            .into_iter()
            .filter(|key| !at(from, &[key]).is_null())
            .collect();
        match sources.as_slice() {
            [] => errors.push(FieldError::invalid(
                path,
                Value::from(""),
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            [key] => {
                if text(from, &[key, "name"]).is_empty() {
                    errors.push(FieldError::required(format!("{path}.{key}.name"), ""));
                }
            }
            _ => errors.push(FieldError::invalid(
                path,
                Value::from(""),
                "may not have more than one field specified at a time",
            )),
        }
    }
}

fn value_from(errors: &mut FieldErrors, variable: &Value, source: &Value, path: &str, volumes: &ByName<'_>) {
    let count = source.as_object().map_or(0, serde_json::Map::len);
    if count == 0 {
        errors.push(FieldError::invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ));
    } else if !text(variable, &["value"]).is_empty() {
        errors.push(FieldError::invalid(
            path,
            "",
            "may not be specified when `value` is not empty",
        ));
    } else if count > 1 {
        errors.push(FieldError::invalid(
            path,
            "",
            "may not have more than one field specified at a time",
        ));
    }
    let field = at(source, &["fieldRef", "fieldPath"]);
    if !at(source, &["fieldRef"]).is_null() {
        field_path(errors, field, &format!("{path}.fieldRef.fieldPath"), ENV_FIELDS);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        let reference = at(source, &[key]);
        if reference.is_null() {
            continue;
        }
        if text(reference, &["name"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}.name"), ""));
        }
        let name = text(reference, &["key"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}.key"), ""));
        } else {
            invalid_each(
                errors,
                &format!("{path}.{key}.key"),
                &Value::from(name),
                config_key(name),
            );
        }
    }
    let resource = at(source, &["resourceFieldRef"]);
    if !resource.is_null() {
        resource_field(errors, resource, &format!("{path}.resourceFieldRef"));
    }
    let file = at(source, &["fileKeyRef"]);
    if !file.is_null() {
        file_key(errors, file, &format!("{path}.fileKeyRef"), volumes);
    }
}

/// A variable of a file in an emptyDir (KEP-3721).
fn file_key(errors: &mut FieldErrors, reference: &Value, path: &str, volumes: &ByName<'_>) {
    let key = text(reference, &["key"]);
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), ""));
    } else {
        let field = format!("{path}.key");
        invalid_each(errors, &field, at(reference, &["key"]), env_var_name(key));
    }
    let name = text(reference, &["volumeName"]);
    let field = format!("{path}.volumeName");
    required_label(errors, &field, name);
    match volumes.get(name) {
        _ if name.is_empty() => {}
        None => errors.push(FieldError::new(field, FieldErrorKind::NotFound, Value::from(name), "")),
        Some(volume) if at(volume, &["emptyDir"]).is_null() => {
            let why = "referenced volume must be of type emptyDir";
            errors.push(FieldError::invalid(field, name, why));
        }
        Some(_) => {}
    }
    let file = text(reference, &["path"]);
    let field = format!("{path}.path");
    if file.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if file.starts_with('/') {
        errors.push(FieldError::invalid(field, file, "must be a relative path"));
    } else if file.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(field, file, "must not contain '..'"));
    } else if file.starts_with("..") {
        errors.push(FieldError::invalid(field, file, "must not start with '..'"));
    }
}

/// A `fieldPath` of the supported ones, or a subscripted label or annotation.
pub(super) fn field_path(errors: &mut FieldErrors, field: &Value, path: &str, supported: &[&str]) {
    let name = field.as_str().unwrap_or("");
    let subscript = ["metadata.annotations['", "metadata.labels['"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .and_then(|rest| rest.strip_suffix("']"));
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if let Some(key) = subscript {
        invalid_each(errors, path, &Value::from(key), qualified_name(&key.to_lowercase()));
    } else if !supported.contains(&name) {
        errors.push(FieldError::not_supported(path, name, supported));
    }
}

/// A `resourceFieldRef`.
pub(super) fn resource_field(errors: &mut FieldErrors, reference: &Value, path: &str) {
    const SUPPORTED: &[&str] = &[
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let name = text(reference, &["resource"]);
    let huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.resource"), ""));
    } else if !SUPPORTED.contains(&name) && !huge {
        errors.push(FieldError::not_supported(format!("{path}.resource"), name, SUPPORTED));
    }
}
