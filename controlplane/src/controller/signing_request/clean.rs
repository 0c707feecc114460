//! Removes requests nobody needs any more: settled ones after an hour, forgotten ones after a day.

use super::{NAME, certificate, condition, conditions};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::write::{self, Plan, Write};
use client::Key;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::jiff::Timestamp;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long a request stays that has its certificate, is denied, or has failed.
const SETTLED: Duration = Duration::from_secs(3600);
/// How long a request stays that nobody decided.
const PENDING: Duration = Duration::from_secs(86_400);

/// The controller. Its keys are requests.
pub struct Cleaning {
    /// The shared informers.
    pub informers: Informers,
}

impl Controller for Cleaning {
    const NAME: &'static str = NAME;

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.signing_requests);
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(csr) = self.informers.signing_requests.get_key(key) else {
            return Plan::default();
        };
        match due(&csr) {
            None => Plan::default(),
            Some(at) if at <= now => Plan {
                writes: vec![Write::delete(write::SIGNING_REQUESTS, &*csr)],
                ..Plan::default()
            },
            Some(at) => Plan {
                again_in: Duration::try_from(at.duration_since(now)).ok(),
                ..Plan::default()
            },
        }
    }
}

/// When the request goes; `None`: it stays until something happens to it.
pub fn due(csr: &CertificateSigningRequest) -> Option<Timestamp> {
    let since = |kind: &str| {
        let condition = condition(csr, kind)?;
        condition.last_update_time.as_ref().map(|time| time.0)
    };
    let after = |start: Option<Timestamp>, wait: Duration| start.and_then(|start| start.checked_add(wait).ok());
    let issued = certificate(csr);
    let made = csr.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let candidates = [
        after(since("Denied"), SETTLED),
        after(since("Failed"), SETTLED),
        issued.and_then(|_| after(since("Approved"), SETTLED)),
        issued.and_then(expiry),
        conditions(csr).is_empty().then(|| after(made, PENDING)).flatten(),
    ];
    candidates.into_iter().flatten().min()
}

/// Last second of the first certificate.
fn expiry(pem: &[u8]) -> Option<Timestamp> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}
