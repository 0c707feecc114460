//! The TLS side of identity: the server's configuration, and the check of client certificates.
//!
//! As upstream, the handshake asks for a client certificate without judging it; the authenticator judges, so that a bad one
//! is answered by 401 rather than by a broken connection.

use super::{Identity, PkiError, files};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

/// The server's TLS configuration: HTTP/2 and HTTP/1.1, a client certificate requested but not required.
///
/// # Errors
/// Names the certificate (as `path`) that the key does not fit or that cannot be read.
pub fn server_config(serving: &Identity, path: &Path) -> Result<rustls::ServerConfig, PkiError> {
    let (chain, key) = parse_identity(serving, path)?;
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(RequestWithoutVerifying {
        provider: provider.clone(),
    });
    let refused = |source| PkiError::Tls {
        path: path.to_owned(),
        source,
    };
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(refused)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The TLS configuration for connections to kubelets: our client certificate, and their CA if the user gave one.
///
/// # Errors
/// Names the file that cannot be used.
pub fn kubelet_client_config(
    client: &Identity,
    kubelet_ca: Option<&Path>,
    path: &Path,
) -> Result<rustls::ClientConfig, PkiError> {
    let (chain, key) = parse_identity(client, path)?;
    let provider = Arc::new(ring::default_provider());
    let refused = |source| PkiError::Tls {
        path: path.to_owned(),
        source,
    };
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(refused)?;
    let builder = match kubelet_ca {
        Some(file) => builder.with_root_certificates(roots(&files::read(file)?, file)?),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyKubelet { provider })),
    };
    let mut config = builder.with_client_auth_cert(chain, key).map_err(refused)?;
    // Exec, attach and port-forward upgrade the connection, which only HTTP/1.1 can.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Whose client certificates are good.
#[derive(Clone)]
pub struct ClientTrust {
    /// Judges them.
    pub verifier: Arc<dyn ClientCertVerifier>,
    /// SHA-256 over the CAs: what was judged under one trust says nothing under another.
    pub digest: [u8; 32],
}

/// Trust in client certificates issued by `ca_pem` or by the CAs in `more` (a bundle file).
///
/// # Errors
/// Names the bundle that cannot be used.
pub fn client_trust(ca_pem: &str, more: Option<&Path>) -> Result<ClientTrust, PkiError> {
    let own = Path::new("ca.crt");
    let mut all = roots(ca_pem, own)?;
    if let Some(file) = more {
        all.roots.extend(roots(&files::read(file)?, file)?.roots);
    }
    let mut digest = Sha256::new();
    for root in &all.roots {
        digest.update(root.subject.as_ref());
        digest.update(root.subject_public_key_info.as_ref());
    }
    let provider = Arc::new(ring::default_provider());
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(all), provider).build();
    let verifier = built.map_err(|error| PkiError::Content {
        path: more.unwrap_or(own).to_owned(),
        why: format!("cannot verify client certificates: {error}"),
    })?;
    Ok(ClientTrust {
        verifier,
        digest: digest.finalize().into(),
    })
}

fn roots(pem: &str, path: &Path) -> Result<RootCertStore, PkiError> {
    let wrong = |why: String| PkiError::Content {
        path: path.to_owned(),
        why,
    };
    let mut store = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let der = der.map_err(|error| wrong(format!("does not hold PEM certificates: {error}")))?;
        store
            .add(der)
            .map_err(|error| wrong(format!("holds a certificate that cannot be a CA: {error}")))?;
    }
    if store.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    Ok(store)
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn parse_identity(identity: &Identity, path: &Path) -> Result<ChainAndKey, PkiError> {
    let wrong = |why: String| PkiError::Content {
        path: path.to_owned(),
        why,
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).collect();
    let chain = chain.map_err(|error| wrong(format!("does not hold PEM certificates: {error}")))?;
    if chain.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .map_err(|error| wrong(format!("has a key file that holds no private key: {error}")))?;
    Ok((chain, key))
}

/// Asks for a client certificate and checks only that the client holds its key.
#[derive(Debug)]
struct RequestWithoutVerifying {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for RequestWithoutVerifying {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts whatever certificate a kubelet shows: upstream's default without `--kubelet-certificate-authority`.
#[derive(Debug)]
struct AcceptAnyKubelet {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAnyKubelet {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
