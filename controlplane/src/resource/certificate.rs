//! Certificate signing requests: the request is immutable, approval and certificate have endpoints of their own. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::field::{at, copy, int, list, object_mut, text};
use super::{PrepareContext, Strategy, isolate, reset_status};
use crate::apiserver::status::FieldError;

/// The CertificateSigningRequest kind's strategy. The requester's identity is filled in by admission, which knows it.
pub(super) struct SigningRequest;

const DECISIONS: &[&str] = &["Approved", "Denied"];

impl Strategy for SigningRequest {
    fn prepare_create(&self, object: &mut Value, _ctx: &PrepareContext<'_>) {
        reset_status(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        match subresource {
            "approval" => {
                let sent = list(new, &["status", "conditions"]).to_vec();
                copy(new, old, &["spec"]);
                copy(new, old, &["status"]);
                set_conditions(new, sent);
            }
            "status" => isolate(new, old, "status"),
            _ => {
                isolate(new, old, "");
                copy(new, old, &["spec"]);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if text(object, &["spec", "request"]).is_empty() {
            errors.push(FieldError::invalid("spec.request", "", "must be specified"));
        }
        let signer = text(object, &["spec", "signerName"]);
        if signer.is_empty() {
            errors.push(FieldError::required("spec.signerName", ""));
        } else if signer.split('/').count() != 2 || signer.split('/').any(str::is_empty) {
            errors.push(FieldError::invalid(
                "spec.signerName",
                signer,
                "must be a fully qualified domain and path of the form 'example.com/signer-name'",
            ));
        }
        if list(object, &["spec", "usages"]).is_empty() {
            errors.push(FieldError::required("spec.usages", "usages must be specified"));
        }
        if let Some(seconds) = int(object, &["spec", "expirationSeconds"])
            && seconds < 600
        {
            errors.push(FieldError::invalid(
                "spec.expirationSeconds",
                seconds,
                "may not specify a duration less than 600 seconds (10 minutes)",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if subresource.is_empty() {
            return errors;
        }
        let has = |object: &Value, kind: &str| {
            list(object, &["status", "conditions"])
                .iter()
                .any(|condition| text(condition, &["type"]) == kind)
        };
        for kind in ["Approved", "Denied", "Failed"] {
            if has(old, kind) && !has(new, kind) {
                errors.push(FieldError::forbidden(
                    "status.conditions",
                    format!("updates may not remove a condition of type \"{kind}\""),
                ));
            }
        }
        for kind in DECISIONS {
            if subresource == "status" && has(new, kind) && !has(old, kind) {
                errors.push(FieldError::forbidden(
                    "status.conditions",
                    format!("updates may not add a condition of type \"{kind}\""),
                ));
            }
        }
        if has(new, "Approved") && has(new, "Denied") {
            errors.push(FieldError::invalid(
                "status.conditions",
                at(new, &["status", "conditions"]).clone(),
                "Approved and Denied conditions are mutually exclusive",
            ));
        }
        let certificate = &["status", "certificate"];
        let before = text(old, certificate);
        if !before.is_empty() && text(new, certificate) != before {
            errors.push(FieldError::forbidden(
                "status.certificate",
                "updates may not change the certificate once set",
            ));
        }
        errors
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("spec.signerName", text(object, &["spec", "signerName"]).to_owned())])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }
}

fn set_conditions(object: &mut Value, conditions: Vec<Value>) {
    if let Some(status) = object_mut(object, &["status"]) {
        if conditions.is_empty() {
            status.remove("conditions");
        } else {
            status.insert("conditions".to_owned(), Value::from(conditions));
        }
    }
}
