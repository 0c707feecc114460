//! Certificates of both directions: how this kubelet proves itself to the API server ([`credentials`], kept fresh by [`rotation`])
//! and to those who call it ([`serving`]). Contract: kubelet §1.
//!
//! Owns the files in `--cert-dir`. Never decides who may call the kubelet.

pub mod clients;
pub mod credentials;
mod offer;
pub mod request;
pub mod rotation;
pub mod serving;
pub mod store;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a certificate cannot be read, made or kept.
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

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|e| CertificateError::Content {
        path: path.to_owned(),
        why: format!("holds no PEM private key: {e}"),
    })
}

/// Writes a file that appears whole or not at all.
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
