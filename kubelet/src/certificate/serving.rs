//! Serving certificates: the configured one, one the API server's signer issues (`serverTLSBootstrap`), or one this kubelet signs
//! itself in `--cert-dir`. Files are read again when they change; a broken change leaves what was there in use.
//!
//! Owns `kubelet.crt` and `kubelet.key` there.

use super::clients::ClientAuthority;
use super::offer::offer;
use super::store::Pair;
use super::{CertificateError, certificates, private_key, write};
use crate::config::ServingTls;
use client::beat;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Where the certificate comes from.
#[derive(Debug)]
enum Source {
    /// Certificate and key files.
    Files(PathBuf, PathBuf),
    /// Issued by the cluster; none until it is.
    Issued(watch::Receiver<Option<Arc<Pair>>>),
}

/// What the server proves itself with, and whose client certificates it takes.
#[derive(Debug)]
pub struct Serving {
    source: Source,
    client_ca: Option<PathBuf>,
    offered: ServingTls,
    /// What the last configuration was made from.
    seen: Seen,
}

/// What connections are served with from a moment on.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The certificate and what is spoken.
    pub tls: Arc<ServerConfig>,
    /// Whose client certificates are identities; nobody's without a `clientCAFile`.
    pub clients: Option<ClientAuthority>,
}

/// The state of all files, and the issued pair.
type Seen = (Vec<Option<Mark>>, Option<Arc<Pair>>);

/// What a file was when it was last read: device, inode, length, time of the last change.
type Mark = (u64, u64, u64, i64, i64);

fn mark(path: &Path) -> Option<Mark> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl Serving {
    /// With `tlsCertFile` and `tlsPrivateKeyFile`.
    pub fn files(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Self {
        Self {
            source: Source::Files(cert.to_owned(), key.to_owned()),
            client_ca: client_ca.map(Path::to_owned),
            offered: ServingTls::default(),
            seen: Seen::default(),
        }
    }

    /// With `kubelet.crt` and `kubelet.key` in `dir`, made for this node if they are not there.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn self_signed(
        dir: &Path,
        node: &str,
        ips: &[IpAddr],
        client_ca: Option<&Path>,
    ) -> Result<Self, CertificateError> {
        let (cert, key) = (dir.join("kubelet.crt"), dir.join("kubelet.key"));
        if !(cert.exists() && key.exists()) {
            make(dir, &cert, &key, node, ips)?;
        }
        Ok(Self::files(&cert, &key, client_ca))
    }

    /// With what the cluster issues; handshakes fail until there is something.
    pub fn issued(current: watch::Receiver<Option<Arc<Pair>>>, client_ca: Option<&Path>) -> Self {
        Self {
            source: Source::Issued(current),
            client_ca: client_ca.map(Path::to_owned),
            offered: ServingTls::default(),
            seen: Seen::default(),
        }
    }

    /// Offers no more than this of TLS.
    #[must_use]
    pub fn offering(mut self, offered: ServingTls) -> Self {
        self.offered = offered;
        self
    }

    /// What is there now; with a client CA, clients are asked for a certificate of it, without insisting on one.
    ///
    /// # Errors
    /// Names the file that cannot be read or used.
    pub fn config(&mut self) -> Result<Offered, CertificateError> {
        // Before anything is read: a change in between is noticed by the next look.
        self.seen = self.state();
        let tls = |e: &dyn std::fmt::Display| CertificateError::Tls(e.to_string());
        let (provider, versions) = offer(&self.offered);
        let provider = Arc::new(provider);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|e| tls(&e))?;
        let clients = match &self.client_ca {
            None => None,
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|e| CertificateError::Content {
                        path: path.to_owned(),
                        why: e.to_string(),
                    })?;
                }
                Some(ClientAuthority::new(roots, provider.clone())?)
            }
        };
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(authority) => builder.with_client_cert_verifier(authority.at_handshakes()),
        };
        let mut config = match &self.source {
            Source::Files(cert, key) => builder
                .with_single_cert(certificates(cert)?, private_key(key)?)
                .map_err(|e| tls(&e))?,
            Source::Issued(current) => {
                let pair = current.borrow().clone();
                let certified = pair.map(|pair| certified(&pair, &provider)).transpose()?;
                builder.with_cert_resolver(Arc::new(Issued(certified)))
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = Arc::new(config);
        Ok(Offered { tls, clients })
    }

    fn marks(&self) -> Vec<Option<Mark>> {
        let mut paths: Vec<&Path> = self.client_ca.iter().map(PathBuf::as_path).collect();
        if let Source::Files(cert, key) = &self.source {
            paths.extend([cert.as_path(), key.as_path()]);
        }
        paths.into_iter().map(mark).collect()
    }

    /// Waits until something may have changed.
    async fn changed(&mut self) {
        let look = beat::wait(LOOK_EVERY);
        match &mut self.source {
            Source::Files(..) => look.await,
            Source::Issued(current) => tokio::select! {
                biased;
                () = look => {}
                Ok(()) = current.changed() => {}
            },
        }
    }

    /// Keeps `offered` true to the files and to what is issued, until told to stop.
    pub async fn follow(mut self, offered: watch::Sender<Offered>, stop: CancellationToken) {
        loop {
            if self.state() == self.seen {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = self.changed() => {}
                }
                continue;
            }
            match self.config() {
                Ok(config) => {
                    offered.send_replace(config);
                    tracing::info!("serving certificate or client CA read again");
                }
                Err(error) => {
                    let error = format!("{:#}", anyhow::Error::new(error));
                    tracing::error!(
                        error,
                        "serving certificate or client CA not read again, the old one stays in use"
                    );
                }
            }
        }
    }

    fn state(&self) -> Seen {
        let issued = match &self.source {
            Source::Files(..) => None,
            Source::Issued(current) => current.borrow().clone(),
        };
        (self.marks(), issued)
    }
}

/// The issued certificate, or none yet.
#[derive(Debug)]
struct Issued(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for Issued {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}

fn certified(pair: &Pair, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, CertificateError> {
    let tls = |e: &dyn std::fmt::Display| CertificateError::Tls(e.to_string());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(pair.pem.as_bytes()).map_err(|e| tls(&e))?;
    let made = CertifiedKey::from_der(chain.map_err(|e| tls(&e))?, key, provider);
    made.map(Arc::new).map_err(|e| tls(&e))
}

fn make(dir: &Path, cert: &Path, key: &Path, node: &str, ips: &[IpAddr]) -> Result<(), CertificateError> {
    let mut params = CertificateParams::new(vec![node.to_owned()])?;
    params
        .subject_alt_names
        .extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{node}@kubelet"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let pair = KeyPair::generate()?;
    let signed = params.self_signed(&pair)?;
    fs::create_dir_all(dir).map_err(|source| CertificateError::Write {
        path: dir.to_owned(),
        source,
    })?;
    // The certificate goes last: both are there or the pair is made again.
    write(key, pair.serialize_pem().as_bytes(), 0o600)?;
    write(cert, signed.pem().as_bytes(), 0o644)
}

#[cfg(test)]
mod tests;
