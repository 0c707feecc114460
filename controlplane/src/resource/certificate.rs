//! Certificate signing requests: the request is immutable, approval and certificate have endpoints of their own. Pure.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::field::{at, copy, int, list, list_mut, object_mut, text};
use super::name::dns1123_subdomain;
use super::{NameRule, PrepareContext, Strategy, isolate, reset_status};
use crate::pki::request::Request;
use crate::pki::template::Usages;
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

/// The CertificateSigningRequest kind's strategy. The requester's identity is filled in by admission, which knows it.
pub(super) struct SigningRequest;

const DECISIONS: &[&str] = &["Approved", "Denied"];
/// The signer that no request of this version may name.
const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";
/// Shortest life a certificate may be asked for with.
const MIN_SECONDS: i64 = 600;
/// Longest domain and path of a signer's name.
const SIGNER_PART_MAX: usize = 253;

/// The request's PEM, out of the base64 that JSON carries it in.
pub(crate) fn request_pem(object: &Value) -> Option<Vec<u8>> {
    let text = text(object, &["spec", "request"]);
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

fn check_request(object: &Value) -> Result<(), String> {
    let pem = request_pem(object).ok_or("must be base64")?;
    Request::from_pem(&pem).map(|_| ()).map_err(|error| error.to_string())
}

fn check_signer(signer: &str) -> FieldErrors {
    const FIELD: &str = "spec.signerName";
    let invalid = |why: &str| FieldError::invalid(FIELD, signer, why);
    if signer.is_empty() {
        return FieldErrors::from(vec![FieldError::required(FIELD, "")]);
    }
    if signer == LEGACY_UNKNOWN {
        return FieldErrors::from(vec![invalid(
            "the legacy signerName is not allowed via this API version",
        )]);
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, path] = parts.as_slice() else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return FieldErrors::from(vec![invalid(why)]);
    };
    let mut problems = dns1123_subdomain(domain);
    if !domain.contains('.') {
        problems.push("should be a domain with at least two segments separated by dots".to_owned());
    }
    problems.extend(dns1123_subdomain(path));
    if path.len() > SIGNER_PART_MAX {
        problems.push(format!("must be no more than {SIGNER_PART_MAX} characters"));
    }
    problems.iter().map(|why| invalid(why)).collect()
}

fn check_usages(usages: &[Value]) -> FieldErrors {
    if usages.is_empty() {
        return FieldErrors::from(vec![FieldError::required("spec.usages", "")]);
    }
    let mut seen = BTreeSet::new();
    let mut errors = FieldErrors::default();
    for (index, usage) in usages.iter().enumerate() {
        let (field, word) = (format!("spec.usages[{index}]"), usage.as_str().unwrap_or_default());
        if Usages::named([word]).is_err() {
            errors.push(FieldError::not_supported(&field, usage.clone(), &Usages::words()));
        }
        if !seen.insert(word) {
            errors.push(FieldError::new(field, FieldErrorKind::Duplicate, usage.clone(), ""));
        }
    }
    errors
}

fn check_conditions(conditions: &[Value]) -> FieldErrors {
    let mut seen = BTreeSet::new();
    let mut errors = FieldErrors::default();
    for (index, condition) in conditions.iter().enumerate() {
        let field = |name: &str| format!("status.conditions[{index}].{name}");
        let (kind, status) = (text(condition, &["type"]), text(condition, &["status"]));
        if kind.is_empty() {
            errors.push(FieldError::required(field("type"), ""));
        } else if !seen.insert(kind) {
            errors.push(FieldError::new(
                field("type"),
                FieldErrorKind::Duplicate,
                json!(kind),
                "",
            ));
        }
        let settled = matches!(kind, "Approved" | "Denied" | "Failed");
        let allowed: &[&str] = if settled {
            &["True"]
        } else {
            &["True", "False", "Unknown"]
        };
        if status.is_empty() {
            errors.push(FieldError::required(field("status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::not_supported(field("status"), status, allowed));
        }
    }
    errors
}

fn check_certificate(encoded: &str) -> Option<FieldError> {
    use rustls_pki_types::{CertificateDer, pem::PemObject};
    let pem = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .unwrap_or_default();
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let why = match read {
        Ok(chain) if !chain.is_empty() => return None,
        Ok(_) => "must contain at least one CERTIFICATE PEM block".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(FieldError::invalid("status.certificate", "<certificate data>", why))
}

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

    fn stamp(&self, new: &mut Value, old: &Value, now: Timestamp) {
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let before = list(old, &["status", "conditions"]);
        for condition in list_mut(new, &["status", "conditions"]).into_iter().flatten() {
            if text(condition, &["lastUpdateTime"]).is_empty() {
                condition["lastUpdateTime"] = json!(now);
            }
            if text(condition, &["lastTransitionTime"]).is_empty() {
                let same = before
                    .iter()
                    .find(|c| c["type"] == condition["type"] && c["status"] == condition["status"]);
                let since = same.map_or("", |c| text(c, &["lastTransitionTime"]));
                condition["lastTransitionTime"] = json!(if since.is_empty() { &now } else { since });
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        if let Err(why) = check_request(object) {
            errors.push(FieldError::invalid(
                "spec.request",
                at(object, &["spec", "request"]).clone(),
                why,
            ));
        }
        errors.append(check_usages(list(object, &["spec", "usages"])));
        errors.append(check_signer(text(object, &["spec", "signerName"])));
        if let Some(seconds) = int(object, &["spec", "expirationSeconds"])
            && seconds < MIN_SECONDS
        {
            errors.push(FieldError::invalid(
                "spec.expirationSeconds",
                seconds,
                "may not specify a duration less than 600 seconds (10 minutes)",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::default();
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
        let after = text(new, certificate);
        if before.is_empty() && !after.is_empty() {
            errors.extend(check_certificate(after));
        }
        errors.append(check_conditions(list(new, &["status", "conditions"])));
        if !before.is_empty() && after != before {
            errors.push(FieldError::forbidden(
                "status.certificate",
                "updates may not change the certificate once set",
            ));
        }
        errors
    }

    /// Kubelets name their requests by a digest in base64, which no stricter rule would take.
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
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

#[cfg(test)]
mod tests;
