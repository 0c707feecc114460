//! Validation of ObjectMeta, the same for every kind (control-plane contract §4). Pure.

use serde_json::Value;

use super::field::{at, entries, invalid_each, list, text};
use super::name::{NameRule, dns1123_label, label_value, path_segment, qualified_name};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

/// Annotations in total, keys and values, in bytes.
pub(crate) const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// Everything wrong with the metadata of a new object (its name has been generated already).
pub fn validate(object: &Value, namespaced: bool, rule: NameRule) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let meta = at(object, &["metadata"]);
    let name = text(meta, &["name"]);
    let generate_name = text(meta, &["generateName"]);
    if !generate_name.is_empty() {
        invalid_each(
            &mut errors,
            "metadata.generateName",
            &Value::from(generate_name),
            rule.check(generate_name, true),
        );
    }
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        invalid_each(
            &mut errors,
            "metadata.name",
            &Value::from(name),
            rule.check(name, false),
        );
    }
    let namespace = text(meta, &["namespace"]);
    if namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        } else {
            invalid_each(
                &mut errors,
                "metadata.namespace",
                &Value::from(namespace),
                dns1123_label(namespace),
            );
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    validate_rest(meta, &mut errors);
    errors
}

/// Everything wrong with changing the metadata of `old` into that of `new`.
pub fn validate_update(new: &Value, old: &Value, _namespaced: bool) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let (meta, old_meta) = (at(new, &["metadata"]), at(old, &["metadata"]));
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (value, before) = (at(meta, &[key]), at(old_meta, &[key]));
        if value != before {
            errors.push(FieldError::invalid(
                format!("metadata.{key}"),
                value.clone(),
                "field is immutable",
            ));
        }
    }
    if !at(old_meta, &["deletionTimestamp"]).is_null() {
        let before = list(old_meta, &["finalizers"]);
        let added: Vec<String> = list(meta, &["finalizers"])
            .iter()
            .filter(|finalizer| !before.contains(finalizer))
            .map(|finalizer| format!("{finalizer}"))
            .collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.join(", ")
                ),
            ));
        }
    }
    validate_rest(meta, &mut errors);
    errors
}

fn validate_rest(meta: &Value, errors: &mut FieldErrors) {
    validate_labels(at(meta, &["labels"]), "metadata.labels", errors);
    validate_annotations(at(meta, &["annotations"]), "metadata.annotations", errors);
    validate_owners(meta, errors);
    validate_finalizers(meta, errors);
}

/// Label keys are qualified names, values label values.
pub fn validate_labels(labels: &Value, path: &str, errors: &mut FieldErrors) {
    for (key, value) in entries(labels, &[]) {
        invalid_each(errors, path, &Value::from(key.as_str()), qualified_name(key));
        invalid_each(errors, path, value, label_value(value.as_str().unwrap_or("")));
    }
}

/// Annotation keys are qualified names (in any case), their total size is bounded.
pub fn validate_annotations(annotations: &Value, path: &str, errors: &mut FieldErrors) {
    let mut total = 0;
    for (key, value) in entries(annotations, &[]) {
        invalid_each(
            errors,
            path,
            &Value::from(key.as_str()),
            qualified_name(&key.to_lowercase()),
        );
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::new(
            path,
            FieldErrorKind::TooLong,
            Value::Null,
            format!("may not be more than {ANNOTATIONS_MAX_BYTES} bytes"),
        ));
    }
}

fn validate_owners(meta: &Value, errors: &mut FieldErrors) {
    let mut controller: Option<&str> = None;
    for (i, owner) in list(meta, &["ownerReferences"]).iter().enumerate() {
        let path = format!("metadata.ownerReferences[{i}]");
        if text(owner, &["apiVersion"]).is_empty() {
            errors.push(FieldError::invalid(
                format!("{path}.apiVersion"),
                "",
                "version must not be empty",
            ));
        }
        for (key, problem) in [
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(owner, &[key]).is_empty() {
                errors.push(FieldError::invalid(format!("{path}.{key}"), "", problem));
            }
        }
        if text(owner, &["kind"]) == "Event" && ["v1", "events.k8s.io/v1"].contains(&text(owner, &["apiVersion"])) {
            errors.push(FieldError::invalid(
                path.clone(),
                owner.clone(),
                format!(
                    "{}, Kind=Event is disallowed from being an owner",
                    text(owner, &["apiVersion"])
                ),
            ));
        }
        if at(owner, &["controller"]) == &Value::Bool(true) {
            if let Some(first) = controller {
                let found = text(owner, &["name"]);
                errors.push(FieldError::invalid_value(
                    "metadata.ownerReferences",
                    at(meta, &["ownerReferences"]),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {found}"
                    ),
                ));
            } else {
                controller = Some(text(owner, &["name"]));
            }
        }
    }
}

/// The name of a finalizer, of metadata or of a namespace's spec.
pub fn finalizer_name(errors: &mut FieldErrors, path: &str, finalizer: &Value) {
    let name = finalizer.as_str().unwrap_or("");
    let problems = qualified_name(name);
    let bad = !problems.is_empty();
    invalid_each(errors, path, finalizer, problems);
    let standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&name);
    if !bad && !name.contains('/') && !standard {
        errors.push(FieldError::invalid(
            path,
            finalizer.clone(),
            "name is neither a standard finalizer name nor is it fully qualified",
        ));
    }
}

fn validate_finalizers(meta: &Value, errors: &mut FieldErrors) {
    let finalizers = list(meta, &["finalizers"]);
    for finalizer in finalizers {
        finalizer_name(errors, "metadata.finalizers", finalizer);
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.push(FieldError::invalid(
            "metadata.finalizers",
            Value::from(finalizers.to_vec()),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

/// A namespace as it may stand in an object's reference.
pub fn reference_name(errors: &mut FieldErrors, path: &str, name: &str) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        invalid_each(errors, path, &Value::from(name), path_segment(name, false));
    }
}
