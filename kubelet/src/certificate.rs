//! Serving certificates: the configured one, or one this kubelet signs itself in `--cert-dir`.
//!
//! Owns `kubelet.crt` and `kubelet.key` there. Never asks an API server for a certificate (yet).

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why there is no serving certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds no usable certificate or key.
    #[error("{path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The self-signed certificate could not be made.
    #[error("make a self-signed certificate")]
    Make(#[from] rcgen::Error),
    /// Certificate, key and client authority do not make a TLS configuration.
    #[error("TLS configuration: {0}")]
    Tls(String),
}

/// What a server proves itself with.
pub struct ServingCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|source| CertificateError::Read {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = read(path)?;
    let content = |why: String| CertificateError::Content {
        path: path.to_owned(),
        why,
    };
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let list = list.map_err(|e| content(format!("not a PEM certificate: {e}")))?;
    if list.is_empty() {
        return Err(content("holds no PEM certificate".to_owned()));
    }
    Ok(list)
}

impl ServingCertificate {
    /// Reads `tlsCertFile` and `tlsPrivateKeyFile`.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, CertificateError> {
        let chain = certificates(cert)?;
        let text = read(key)?;
        let private = PrivateKeyDer::from_pem_slice(&text).map_err(|e| CertificateError::Content {
            path: key.to_owned(),
            why: format!("holds no PEM private key: {e}"),
        })?;
        Ok(Self { chain, key: private })
    }

    /// Reads `kubelet.crt` and `kubelet.key` in `dir`, or makes them for this node.
    pub fn self_signed(dir: &Path, node: &str, ips: &[IpAddr]) -> Result<Self, CertificateError> {
        let (cert, key) = (dir.join("kubelet.crt"), dir.join("kubelet.key"));
        if !(cert.exists() && key.exists()) {
            make(dir, &cert, &key, node, ips)?;
        }
        Self::read(&cert, &key)
    }

    /// A TLS configuration that asks clients for a certificate of `client_ca`, without insisting on one.
    pub fn server_config(self, client_ca: Option<&Path>) -> Result<ServerConfig, CertificateError> {
        let tls = |e: &dyn std::fmt::Display| CertificateError::Tls(e.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| tls(&e))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|e| CertificateError::Content {
                        path: path.to_owned(),
                        why: e.to_string(),
                    })?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .allow_unauthenticated()
                    .build();
                builder.with_client_cert_verifier(verifier.map_err(|e| tls(&e))?)
            }
        };
        let mut config = builder.with_single_cert(self.chain, self.key).map_err(|e| tls(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
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

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CertificateError> {
    let fail = |source| CertificateError::Write {
        path: path.to_owned(),
        source,
    };
    let new = path.with_extension("new");
    let opened = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&new);
    let mut file = opened.map_err(fail)?;
    io::Write::write_all(&mut file, bytes).map_err(fail)?;
    file.sync_all().map_err(fail)?;
    fs::rename(&new, path).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn made_once_and_kept() {
        let dir = tempfile::tempdir().expect("temp dir");
        let pki = dir.path().join("pki");
        let ips = ["192.0.2.1".parse().expect("address")];
        let first = ServingCertificate::self_signed(&pki, "node-a", &ips).expect("made");
        let second = ServingCertificate::self_signed(&pki, "node-a", &ips).expect("read");
        assert_eq!(first.chain, second.chain);
        let mode = fs::metadata(pki.join("kubelet.key"))
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        second.server_config(None).expect("usable");
    }

    #[test]
    fn bad_files_are_named() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("x.crt");
        fs::write(&path, "nonsense").expect("file");
        for result in [
            ServingCertificate::read(&path, &path).err(),
            ServingCertificate::read(&dir.path().join("none"), &path).err(),
            ServingCertificate::self_signed(dir.path(), "n", &[])
                .expect("made")
                .server_config(Some(&path))
                .err(),
        ] {
            let text = result.expect("an error").to_string();
            assert!(text.contains(&dir.path().display().to_string()), "{text}");
        }
    }
}
