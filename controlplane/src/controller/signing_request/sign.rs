//! Signs approved requests of the built-in signers with the cluster's CA.

use super::signer::Signer;
use super::{NAME, add_condition, certificate, condition, request, usages};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::write::{self, Plan, Write};
use crate::pki::authority::Authority;
use crate::pki::template::Usages;
use client::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// Longest life of a certificate, and the life of those that ask for none.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);
const SHORTEST: Duration = Duration::from_secs(600);

/// The controller. Its keys are requests.
pub struct Signing {
    /// The shared informers.
    pub informers: Informers,
    /// What signs.
    pub authority: Arc<Authority>,
}

impl Controller for Signing {
    const NAME: &'static str = NAME;

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.signing_requests);
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let csr = self.informers.signing_requests.get_key(key);
        let signed = csr.and_then(|csr| settle(&csr, &self.authority, now));
        let write = signed.map(|csr| Write::replace_status(write::SIGNING_REQUESTS, &csr));
        Plan {
            writes: write.into_iter().collect(),
            ..Plan::default()
        }
    }
}

/// The request with its certificate, or with the reason why there is none; `None` if it is not ours to sign.
pub fn settle(
    csr: &CertificateSigningRequest,
    authority: &Authority,
    now: Timestamp,
) -> Option<CertificateSigningRequest> {
    let has = |kind: &str| condition(csr, kind).is_some();
    if !has("Approved") || has("Denied") || has("Failed") || certificate(csr).is_some() {
        return None;
    }
    let signer = Signer::named(&csr.spec.signer_name)?;
    let mut settled = csr.clone();
    match issue(csr, signer, authority, now) {
        Ok(pem) => settled.status.get_or_insert_default().certificate = Some(ByteString(pem.into_bytes())),
        Err(Refused::Request(why)) => add_condition(&mut settled, "Failed", "SignerValidationFailure", why, now),
        Err(Refused::Authority(error)) => {
            tracing::error!(%error, request = csr.metadata.name, "certificate not signed");
            return None;
        }
    }
    Some(settled)
}

enum Refused {
    /// The request is not what the signer signs.
    Request(String),
    /// The CA cannot sign.
    Authority(crate::pki::PkiError),
}

fn issue(
    csr: &CertificateSigningRequest,
    signer: Signer,
    authority: &Authority,
    now: Timestamp,
) -> Result<String, Refused> {
    let request = request(csr).map_err(Refused::Request)?;
    signer.check(&request, usages(csr)).map_err(Refused::Request)?;
    let words = Usages::named(usages(csr).iter().map(String::as_str));
    let words = words.map_err(|word| Refused::Request(format!("unrecognized usage: {word}")))?;
    let validity = validity(csr.spec.expiration_seconds);
    let signed = authority.sign_request(&request, words, validity, now);
    signed.map_err(Refused::Authority)
}

fn validity(asked_seconds: Option<i32>) -> Duration {
    match asked_seconds {
        None => LONGEST,
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).clamp(SHORTEST, LONGEST),
    }
}
