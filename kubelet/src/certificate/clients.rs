//! Whom the client authority vouches for. A handshake takes every certificate whose key the client has (`RequestClientCert`, kubelet
//! contract §1): one of a stranger names nobody, and its sender may still show a token. What a certificate is worth is judged at each
//! request, against the authority and the time of that moment, so one that expires or whose authority goes is worth nothing on
//! connections that live.
//!
//! Knows certificates, and nothing of users.

use super::CertificateError;
use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;

/// The authority whose client certificates are identities.
#[derive(Clone, Debug)]
pub struct ClientAuthority(Arc<dyn ClientCertVerifier>);

impl ClientAuthority {
    /// Of these certificates.
    ///
    /// # Errors
    /// There are none.
    pub(super) fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Self, CertificateError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build();
        verifier.map(Self).map_err(|e| CertificateError::Tls(e.to_string()))
    }

    /// Whether a client's certificate (first, then what leads to the authority) is one of its own and valid at that time.
    pub fn vouches_for(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
        let Some((certificate, between)) = chain.split_first() else {
            return false;
        };
        let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        let now = UnixTime::since_unix_epoch(since);
        self.0.verify_client_cert(certificate, between, now).is_ok()
    }

    /// Whether both were read in the same moment.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What handshakes go by.
    pub(super) fn at_handshakes(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Taken(self.0.clone()))
    }
}

/// Takes every certificate, from whoever has its key.
#[derive(Debug)]
struct Taken(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Taken {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
