//! Certificates with their keys on disk, as upstream keeps them: `NAME-current.pem` points at the newest `NAME-<time>.pem`
//! (certificate, then key, mode 0600). The pointer is swapped in one step, so a reader sees an old pair or a new one.

use super::{CertificateError, write};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A certificate with its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The chain, then the key, PEM.
    pub pem: String,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
}

impl Pair {
    /// Reads a PEM text.
    ///
    /// # Errors
    /// What is missing in it.
    pub fn parse(pem: String) -> Result<Self, String> {
        let (not_before, not_after) = validity(pem.as_bytes())?;
        PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| format!("holds no PEM private key: {error}"))?;
        Ok(Self {
            pem,
            not_before,
            not_after,
        })
    }
}

impl Pair {
    /// Whether the certificate speaks for all these addresses and names.
    pub fn names(&self, ips: &[IpAddr], names: &[String]) -> bool {
        let Ok(der) = CertificateDer::from_pem_slice(self.pem.as_bytes()) else {
            return false;
        };
        let Ok((_, parsed)) = X509Certificate::from_der(&der) else {
            return false;
        };
        let Ok(Some(extension)) = parsed.subject_alternative_name() else {
            return false;
        };
        let known = &extension.value.general_names;
        let bytes = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        ips.iter()
            .map(bytes)
            .all(|ip| known.contains(&GeneralName::IPAddress(&ip)))
            && names.iter().all(|name| known.contains(&GeneralName::DNSName(name)))
    }
}

/// When the first certificate of a PEM text begins and ends to be valid.
pub(super) fn validity(pem: &[u8]) -> Result<(Timestamp, Timestamp), String> {
    let der = CertificateDer::from_pem_slice(pem).map_err(|error| format!("holds no PEM certificate: {error}"))?;
    let (_, parsed) =
        X509Certificate::from_der(&der).map_err(|error| format!("holds no usable certificate: {error}"))?;
    let at = |time: x509_parser::time::ASN1Time| {
        Timestamp::from_second(time.timestamp()).map_err(|error| format!("has no usable time: {error}"))
    };
    Ok((at(parsed.validity().not_before)?, at(parsed.validity().not_after)?))
}

/// Where one kind of certificate is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    dir: PathBuf,
    name: &'static str,
}

impl Store {
    /// `kubelet-client-*.pem` in `dir`.
    pub fn client(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            name: "kubelet-client",
        }
    }

    /// `kubelet-server-*.pem` in `dir`.
    pub fn server(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            name: "kubelet-server",
        }
    }

    /// The file others are pointed at.
    pub fn current_path(&self) -> PathBuf {
        self.dir.join(format!("{}-current.pem", self.name))
    }

    /// The newest pair; `None` if there is none yet.
    ///
    /// # Errors
    /// The file cannot be read, or holds no pair.
    pub fn current(&self) -> Result<Option<Pair>, CertificateError> {
        let path = self.current_path();
        match fs::read_to_string(&path) {
            Ok(text) => match Pair::parse(text) {
                Ok(pair) => Ok(Some(pair)),
                Err(why) => Err(CertificateError::Content { path, why }),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CertificateError::Read { path, source }),
        }
    }

    /// Keeps a new pair and makes it the current one.
    ///
    /// # Errors
    /// It is no pair, or cannot be written.
    pub fn update(&self, chain_pem: &str, key_pem: &str, now: Timestamp) -> Result<Pair, CertificateError> {
        let file = format!("{}-{}.pem", self.name, now.strftime("%Y-%m-%d-%H-%M-%S"));
        let path = self.dir.join(&file);
        let text = format!("{}\n{}\n", chain_pem.trim_end(), key_pem.trim_end());
        let pair = Pair::parse(text).map_err(|why| CertificateError::Content {
            path: path.clone(),
            why,
        })?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| CertificateError::Write { path, source }
        };
        fs::create_dir_all(&self.dir).map_err(failed(&self.dir))?;
        write(&path, pair.pem.as_bytes(), 0o600)?;
        let updated = self.dir.join(format!("{}-updated.pem", self.name));
        match fs::remove_file(&updated) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&updated)(error)),
            _ => {}
        }
        std::os::unix::fs::symlink(&file, &updated).map_err(failed(&updated))?;
        let current = self.current_path();
        fs::rename(&updated, &current).map_err(failed(&current))?;
        Ok(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn pair() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = rcgen::CertificateParams::new(vec![])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        (cert.pem(), key.serialize_pem())
    }

    #[test]
    fn the_newest_pair_is_current_and_older_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::client(&dir.path().join("pki"));
        assert_eq!(store.current().unwrap(), None);
        for (at, name) in [
            ("2027-01-15T08:00:00Z", "kubelet-client-2027-01-15-08-00-00.pem"),
            ("2027-01-15T09:00:00Z", "kubelet-client-2027-01-15-09-00-00.pem"),
        ] {
            let (cert, key) = pair();
            let kept = store.update(&cert, &key, at.parse().unwrap()).unwrap();
            assert_eq!(store.current().unwrap().unwrap(), kept);
            assert_eq!(fs::read_link(store.current_path()).unwrap(), Path::new(name));
            let mode = fs::metadata(store.current_path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let (cert, _) = pair();
        let error = store
            .update(&cert, "", "2027-01-15T10:00:00Z".parse().unwrap())
            .unwrap_err();
        assert!(error.to_string().contains("private key"), "{error}");
        assert_eq!(fs::read_dir(dir.path().join("pki")).unwrap().count(), 3);
    }

    #[test]
    fn addresses_and_names_are_known() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["n1".to_owned(), "192.0.2.1".to_owned()]).unwrap();
        let pair = Pair::parse(params.self_signed(&key).unwrap().pem() + &key.serialize_pem()).unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(pair.names(&[ip("192.0.2.1")], &["n1".to_owned()]));
        assert!(!pair.names(&[ip("192.0.2.1"), ip("192.0.2.2")], &[]));
        assert!(!pair.names(&[], &["n2".to_owned()]));
    }

    #[test]
    fn a_file_that_is_no_pair_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::server(dir.path());
        fs::write(store.current_path(), "nonsense").unwrap();
        let error = store.current().unwrap_err().to_string();
        assert!(error.contains("kubelet-server-current.pem"), "{error}");
    }
}
