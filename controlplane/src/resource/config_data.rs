//! Secrets and ConfigMaps: keyed data that can be frozen. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::field::{at, copy, default_text, entries, flag, immutable, invalid_each, object_mut, remove, text};
use super::name::config_key;
use super::{PrepareContext, Strategy};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes of data one object may hold.
const DATA_MAX_BYTES: usize = 1024 * 1024;

/// The Secret kind's strategy.
pub(super) struct Secret;

/// The ConfigMap kind's strategy.
pub(super) struct ConfigMap;

/// Keys a Secret of each type must have.
const REQUIRED_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        default_text(object, "type", "Opaque");
        // stringData is write-only: it becomes data.
        if let Some(Value::Object(plain)) = remove(object, "stringData")
            && let Some(data) = object_mut(object, &["data"])
        {
            for (key, value) in plain {
                data.insert(key, json!(STANDARD.encode(value.as_str().unwrap_or(""))));
            }
        }
    }

    fn prepare_create(&self, _object: &mut Value, _ctx: &PrepareContext<'_>) {}

    fn prepare_update(&self, new: &mut Value, old: &Value, _subresource: &str) {
        if text(new, &["type"]).is_empty() {
            copy(new, old, &["type"]);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let bytes = entries(object, &["data"]).map(|(_, value)| value.as_str().map_or(0, str::len) / 4 * 3);
        let total: usize = bytes.sum();
        keys(&mut errors, object, "data");
        if total > DATA_MAX_BYTES {
            errors.push(too_long("data"));
        }
        let kind = text(object, &["type"]);
        for key in REQUIRED_KEYS
            .iter()
            .filter(|(name, _)| *name == kind)
            .flat_map(|(_, keys)| *keys)
        {
            if at(object, &["data", key]).is_null() {
                errors.push(FieldError::required(format!("data[{key}]"), ""));
            }
        }
        let has = |key: &str| !at(object, &["data", key]).is_null();
        if kind == "kubernetes.io/basic-auth" && !has("username") && !has("password") {
            errors.push(FieldError::required("data[username]", ""));
            errors.push(FieldError::required("data[password]", ""));
        }
        if kind == "kubernetes.io/service-account-token" {
            let annotation = "kubernetes.io/service-account.name";
            if text(object, &["metadata", "annotations", annotation]).is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{annotation}]"), ""));
            }
        }
        if kind == "kubernetes.io/dockerconfigjson" {
            let decoded = STANDARD
                .decode(text(object, &["data", ".dockerconfigjson"]))
                .unwrap_or_default();
            if serde_json::from_slice::<Value>(&decoded).is_err() {
                errors.push(FieldError::invalid(
                    "data[.dockerconfigjson]",
                    "<secret contents redacted>",
                    "is not valid JSON",
                ));
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = self.validate(new);
        immutable(&mut errors, new, old, &["type"]);
        frozen(&mut errors, new, old, &["data"]);
        errors
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("type", text(object, &["type"]).to_owned())])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["type"]
    }
}

impl Strategy for ConfigMap {
    fn prepare_create(&self, _object: &mut Value, _ctx: &PrepareContext<'_>) {}

    fn prepare_update(&self, _new: &mut Value, _old: &Value, _subresource: &str) {}

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let size = |kind: &str, value: &Value| {
            let length = value.as_str().map_or(0, str::len);
            if kind == "binaryData" { length / 4 * 3 } else { length }
        };
        let mut total = 0;
        for kind in ["data", "binaryData"] {
            keys(&mut errors, object, kind);
            total += entries(object, &[kind])
                .map(|(_, value)| size(kind, value))
                .sum::<usize>();
        }
        for (key, _) in entries(object, &["data"]) {
            if !at(object, &["binaryData", key]).is_null() {
                errors.push(FieldError::invalid(
                    format!("data[{key}]"),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
        }
        if total > DATA_MAX_BYTES {
            errors.push(too_long(""));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = self.validate(new);
        frozen(&mut errors, new, old, &["data", "binaryData"]);
        errors
    }
}

fn too_long(path: &str) -> FieldError {
    FieldError::new(
        path,
        FieldErrorKind::TooLong,
        Value::Null,
        format!("may not be more than {DATA_MAX_BYTES} bytes"),
    )
}

fn keys(errors: &mut FieldErrors, object: &Value, kind: &str) {
    for (key, _) in entries(object, &[kind]) {
        invalid_each(errors, &format!("{kind}[{key}]"), &json!(key), config_key(key));
    }
}

/// `immutable: true` holds for ever, and freezes the data.
fn frozen(errors: &mut FieldErrors, new: &Value, old: &Value, parts: &[&str]) {
    if !flag(old, &["immutable"]) {
        return;
    }
    let message = "field is immutable when `immutable` is set";
    if !flag(new, &["immutable"]) {
        errors.push(FieldError::forbidden("immutable", message));
    }
    for part in parts {
        if at(new, &[part]) != at(old, &[part]) {
            errors.push(FieldError::forbidden(*part, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"a": "hello", "b": ""}});
        Secret.default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "aGVsbG8=", "b": ""}}));
    }

    #[test]
    fn frozen_objects_do_not_change() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        let texts = |new: Value| -> Vec<String> {
            ConfigMap
                .validate_update(&new, &old, "")
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert!(texts(old.clone()).is_empty());
        assert_eq!(
            texts(json!({"data": {"a": "2"}})),
            [
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set"
            ]
        );
    }

    #[test]
    fn typed_secrets_need_their_keys() {
        let tls = json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}});
        assert_eq!(Secret.validate(&tls)[0].to_string(), "data[tls.key]: Required value");
        let bad = json!({"type": "Opaque", "data": {"a b": ""}});
        assert!(
            Secret.validate(&bad)[0]
                .to_string()
                .starts_with("data[a b]: Invalid value: \"a b\": a valid config key")
        );
    }
}
