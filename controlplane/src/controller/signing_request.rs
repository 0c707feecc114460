//! CertificateSigningRequests: kubelets' client certificates are approved, what is approved is signed, what is old is removed
//! (control-plane contract §12). Each of the three is a controller of its own below; the signers' rules are in [`signer`].

pub mod approve;
pub mod clean;
pub mod sign;
pub mod signer;

use crate::pki::request::Request;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// Upstream's service account name.
pub const NAME: &str = "certificate-controller";

fn conditions(csr: &CertificateSigningRequest) -> &[CertificateSigningRequestCondition] {
    let status = csr.status.as_ref();
    status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

fn condition<'a>(csr: &'a CertificateSigningRequest, kind: &str) -> Option<&'a CertificateSigningRequestCondition> {
    conditions(csr).iter().find(|condition| condition.type_ == kind)
}

/// The issued certificate chain, PEM.
fn certificate(csr: &CertificateSigningRequest) -> Option<&[u8]> {
    let certificate = csr.status.as_ref()?.certificate.as_ref()?;
    Some(certificate.0.as_slice()).filter(|pem| !pem.is_empty())
}

fn add_condition(csr: &mut CertificateSigningRequest, kind: &str, reason: &str, message: String, now: Timestamp) {
    let condition = CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    let status = csr.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(condition);
}

/// What is asked for, or why that cannot be read.
fn request(csr: &CertificateSigningRequest) -> Result<Request, String> {
    Request::from_pem(&csr.spec.request.0).map_err(|error| error.to_string())
}

fn usages(csr: &CertificateSigningRequest) -> &[String] {
    csr.spec.usages.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
