//! Certificates and keys: what the first start makes under `DATA_DIR/pki`, and what later starts read back.
//!
//! Nothing that exists and is good is made again: a key is made once; a certificate is reissued (over the same key) only when
//! it is missing, about to expire, signed by somebody else, or lacks a name it must have. Files appear whole or not at all.
//! Never decides who may do what; see `apiserver::authn` and `apiserver::authz`.

pub mod authority;
mod der;
pub mod files;
pub mod kubeconfig;
pub mod reload;
pub mod request;
pub mod template;
pub mod tls;
pub mod token_key;

use crate::config::Config;
use authority::{Authority, Purpose, Subject, usable};
use k8s_openapi::jiff::Timestamp;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why certificates or keys could not be made or read; each names the file.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file could not be written (no space, no permission).
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A key could not be generated or a certificate not signed.
    #[error("cannot issue {what}")]
    Issue {
        /// The certificate or key.
        what: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// The CA is too old to sign.
    #[error("cannot issue {what}: refusing to sign a certificate that expired in the past")]
    Expired {
        /// The certificate.
        what: String,
    },
    /// The TLS configuration is refused by the TLS library.
    #[error("cannot serve with the certificate {path}")]
    Tls {
        /// The certificate file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// A certificate chain with its private key, both PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Certificate chain, leaf first.
    pub cert_pem: String,
    /// PKCS#8 private key.
    pub key_pem: String,
}

/// Everything the daemon needs to be known and to know others.
#[derive(Clone)]
pub struct Pki {
    /// Our CA's certificate.
    pub ca_pem: String,
    /// Our CA, which signs what controllers approve.
    pub authority: Arc<Authority>,
    /// The serving certificate of the API server.
    pub serving: Identity,
    /// Client certificate the API server shows to kubelets.
    pub kubelet_client: Identity,
    /// Private key that signs service account tokens.
    pub service_account_key_pem: String,
    /// Public half of [`Pki::service_account_key_pem`].
    pub service_account_public_pem: String,
    /// Where `admin.kubeconfig` stands.
    pub admin_kubeconfig: PathBuf,
}

/// Makes what is missing under the data directory and reads the rest.
///
/// `advertise` is the address others reach us at; `hostname` is this machine's name; both become names of the serving certificate.
///
/// # Errors
/// Names the file that cannot be read, written or understood.
pub fn ensure(config: &Config, advertise: IpAddr, hostname: &str, now: Timestamp) -> Result<Pki, PkiError> {
    let dir = config.data_dir.join("pki");
    files::make_private_dir(&dir)?;
    let authority = Authority::ensure(&dir, now)?;
    let names = serving_names(config, advertise, hostname);
    let serving = match &config.identity.tls_files {
        Some((cert, key)) => read_identity(cert, key)?,
        None => ensure_identity(
            &dir,
            "apiserver",
            &authority,
            &Subject::serving("kube-apiserver", names),
            now,
        )?,
    };
    let kubelet_client = Subject::client("kube-apiserver-kubelet-client", &[]);
    let kubelet_client = ensure_identity(&dir, "apiserver-kubelet-client", &authority, &kubelet_client, now)?;
    let (service_account_key_pem, service_account_public_pem) = ensure_token_keys(&dir)?;
    let admin_kubeconfig = kubeconfig::ensure_admin(&config.data_dir, &authority, &local_url(config), now)?;
    Ok(Pki {
        ca_pem: authority.cert_pem().to_owned(),
        authority: Arc::new(authority),
        serving,
        kubelet_client,
        service_account_key_pem,
        service_account_public_pem,
        admin_kubeconfig,
    })
}

/// A certificate and its key as they stand in files.
///
/// # Errors
/// Names the file that cannot be read.
pub fn read_identity(cert: &Path, key: &Path) -> Result<Identity, PkiError> {
    Ok(Identity {
        cert_pem: files::read(cert)?,
        key_pem: files::read(key)?,
    })
}

/// The URL this machine reaches the API server at.
pub fn local_url(config: &Config) -> String {
    let host = match config.bind_address {
        IpAddr::V4(address) if address.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(address) if address.is_unspecified() => "[::1]".to_owned(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    format!("https://{host}:{}", config.secure_port)
}

/// Every name and address the API server is called by.
fn serving_names(config: &Config, advertise: IpAddr, hostname: &str) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(str::to_owned)
    .into();
    if !config.bind_address.is_unspecified() {
        names.insert(config.bind_address.to_string());
    }
    names.insert(advertise.to_string());
    names.extend(config.service_cidr.nth(1).map(|address| address.to_string()));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    if !hostname.is_empty() && hostname.chars().all(plain) {
        names.insert(hostname.to_ascii_lowercase());
    }
    names
}

/// A leaf certificate `NAME.crt` over the key `NAME.key`, reissued over the same key when it is not good any more.
fn ensure_identity(
    dir: &Path,
    name: &str,
    authority: &Authority,
    subject: &Subject,
    now: Timestamp,
) -> Result<Identity, PkiError> {
    let (key_path, cert_path) = (dir.join(format!("{name}.key")), dir.join(format!("{name}.crt")));
    let key = ensure_key(&key_path)?;
    if let Some(cert_pem) = files::read_if_there(&cert_path)?
        && usable(&cert_pem, authority, &key, subject, now)
    {
        return Ok(Identity {
            cert_pem,
            key_pem: key.serialize_pem(),
        });
    }
    let cert_pem = authority.issue(subject, &key, now)?;
    files::write(&cert_path, cert_pem.as_bytes(), 0o644)?;
    Ok(Identity {
        cert_pem,
        key_pem: key.serialize_pem(),
    })
}

/// Reads the private key at `path`, or makes one (ECDSA P-256) there.
fn ensure_key(path: &Path) -> Result<KeyPair, PkiError> {
    if let Some(pem) = files::read_if_there(path)? {
        return KeyPair::from_pem(&pem).map_err(|error| PkiError::Content {
            path: path.to_owned(),
            why: format!("does not hold a usable private key: {error}"),
        });
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|source| PkiError::Issue {
        what: path.display().to_string(),
        source,
    })?;
    files::write(path, key.serialize_pem().as_bytes(), 0o600)?;
    Ok(key)
}

/// What tells one cluster's certificates and keys from another's: a digest of the CA's certificate and of the key that verifies service
/// account tokens. Empty where there are none yet.
///
/// # Errors
/// A file is there and cannot be read.
pub fn fingerprint(data_dir: &Path) -> Result<String, PkiError> {
    let mut hash = Sha256::new();
    for name in ["ca.crt", "sa.pub"] {
        let Some(text) = files::read_if_there(&data_dir.join("pki").join(name))? else {
            return Ok(String::new());
        };
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    Ok(hex::encode(hash.finalize()))
}

/// `sa.key` and `sa.pub`, which sign and verify service account tokens.
fn ensure_token_keys(dir: &Path) -> Result<(String, String), PkiError> {
    let path = dir.join("sa.key");
    let key = ensure_key(&path)?;
    if key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
        return Err(PkiError::Content {
            path,
            why: "is not an ECDSA P-256 key (tokens are signed with ES256)".to_owned(),
        });
    }
    let (public_path, public) = (dir.join("sa.pub"), key.public_key_pem());
    if files::read_if_there(&public_path)?.as_deref() != Some(&public) {
        files::write(&public_path, public.as_bytes(), 0o644)?;
    }
    Ok((key.serialize_pem(), public))
}

/// Issues a fresh client certificate and returns a kubeconfig that carries it (`controlplane kubeconfig`).
///
/// # Errors
/// The data directory holds no CA, or cannot be read.
pub fn user_kubeconfig(
    data_dir: &Path,
    user: &str,
    groups: &[String],
    server: &str,
    now: Timestamp,
) -> Result<String, PkiError> {
    let authority = Authority::load(&data_dir.join("pki"))?;
    kubeconfig::issue(&authority, user, groups, server, now)
}

/// What a subject's certificate is for; see [`Purpose`].
impl Subject {
    /// A client: `user` becomes the CN, `groups` the Os.
    pub fn client(user: &str, groups: &[String]) -> Self {
        Self {
            common_name: user.to_owned(),
            organizations: groups.to_vec(),
            names: BTreeSet::new(),
            purpose: Purpose::Client,
        }
    }

    /// A server known by `names` (DNS names and addresses).
    pub fn serving(common_name: &str, names: BTreeSet<String>) -> Self {
        Self {
            common_name: common_name.to_owned(),
            organizations: Vec::new(),
            names,
            purpose: Purpose::Serving,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::flags;
    use std::os::unix::fs::PermissionsExt;

    fn config(dir: &Path) -> Config {
        let words = [
            format!("--data-dir={}", dir.display()),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        Config::resolve(&flags::parse(words)).unwrap()
    }

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    fn ensure_at(dir: &Path, day: i64) -> Pki {
        ensure(&config(dir), "192.0.2.7".parse().unwrap(), "Node-A", at(day)).unwrap()
    }

    #[test]
    fn a_second_start_makes_nothing_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure_at(dir.path(), 0);
        let admin = std::fs::read(&first.admin_kubeconfig).unwrap();
        let second = ensure_at(dir.path(), 30);
        assert_eq!(first.ca_pem, second.ca_pem);
        assert_eq!(first.serving.cert_pem, second.serving.cert_pem);
        assert_eq!(first.kubelet_client.cert_pem, second.kubelet_client.cert_pem);
        assert_eq!(first.service_account_key_pem, second.service_account_key_pem);
        assert_eq!(admin, std::fs::read(&second.admin_kubeconfig).unwrap());
    }

    #[test]
    fn certificates_near_their_end_are_renewed_over_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure_at(dir.path(), 0);
        let later = ensure_at(dir.path(), 300);
        assert_eq!(first.ca_pem, later.ca_pem);
        assert_ne!(first.serving.cert_pem, later.serving.cert_pem);
        assert_eq!(first.serving.key_pem, later.serving.key_pem);
        assert_ne!(first.kubelet_client.cert_pem, later.kubelet_client.cert_pem);
    }

    #[test]
    fn a_new_name_or_a_foreign_ca_reissues_the_serving_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure_at(dir.path(), 0);
        let moved = ensure(&config(dir.path()), "192.0.2.8".parse().unwrap(), "node-a", at(1)).unwrap();
        assert_ne!(first.serving.cert_pem, moved.serving.cert_pem);

        let other = tempfile::tempdir().unwrap();
        let foreign = ensure_at(other.path(), 0);
        std::fs::write(dir.path().join("pki/apiserver.crt"), &foreign.serving.cert_pem).unwrap();
        let healed = ensure_at(dir.path(), 1);
        assert_ne!(healed.serving.cert_pem, foreign.serving.cert_pem);
    }

    #[test]
    fn a_lost_ca_key_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        ensure_at(dir.path(), 0);
        std::fs::remove_file(dir.path().join("pki/ca.key")).unwrap();
        let error = ensure(&config(dir.path()), "192.0.2.7".parse().unwrap(), "", at(0))
            .err()
            .unwrap();
        assert!(error.to_string().contains("ca.key"), "{error}");
    }

    #[test]
    fn private_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let pki = ensure_at(dir.path(), 0);
        for path in [
            dir.path().join("pki/ca.key"),
            dir.path().join("pki/sa.key"),
            pki.admin_kubeconfig,
        ] {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", path.display());
        }
    }

    #[test]
    fn the_serving_certificate_has_every_contracted_name() {
        let names = serving_names(&config(Path::new("/x")), "192.0.2.7".parse().unwrap(), "Node-A");
        for name in [
            "localhost",
            "::1",
            "kubernetes.default.svc",
            "10.96.0.1",
            "192.0.2.7",
            "node-a",
            "127.0.0.1",
        ] {
            assert!(names.contains(name), "{name}");
        }
    }
}
