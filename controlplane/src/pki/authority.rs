//! The certificate authority: issues certificates, and judges whether one of its own is still good.

use super::{PkiError, ensure_key, files};
use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

const DAY: u64 = 86_400;
/// Life of the CA, in days.
const CA_DAYS: u64 = 3650;
/// Life of the certificates it issues, in days.
const LEAF_DAYS: u64 = 365;
/// A certificate with fewer days left than this is reissued at start.
const RENEW_DAYS: u64 = 90;

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// TLS client authentication.
    Client,
    /// TLS server authentication.
    Serving,
}

/// Whom a certificate speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// CN; of a client, the user name.
    pub common_name: String,
    /// O; of a client, the groups.
    pub organizations: Vec<String>,
    /// DNS names and addresses of a server.
    pub names: BTreeSet<String>,
    /// What the certificate is for.
    pub purpose: Purpose,
}

/// Our CA: certificate and key.
pub struct Authority {
    cert_pem: String,
    cert_der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads `ca.crt` and `ca.key` in `dir`, or makes them.
    ///
    /// # Errors
    /// Names the file; a certificate without its key is refused, since a new CA would lock every client out.
    pub fn ensure(dir: &Path, now: Timestamp) -> Result<Self, PkiError> {
        let (cert_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
        if files::read_if_there(&cert_path)?.is_some() {
            return Self::load(dir);
        }
        let key = ensure_key(&key_path)?;
        let mut params = params("kubernetes", &[], now, CA_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let issued = params.self_signed(&key).map_err(|source| PkiError::Issue {
            what: "the CA certificate".to_owned(),
            source,
        })?;
        files::write(&cert_path, issued.pem().as_bytes(), 0o644)?;
        Self::load(dir)
    }

    /// Reads `ca.crt` and `ca.key` in `dir`.
    ///
    /// # Errors
    /// Names the file that is missing or not understood.
    pub fn load(dir: &Path) -> Result<Self, PkiError> {
        let (cert_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
        let cert_pem = files::read(&cert_path)?;
        let key = KeyPair::from_pem(&files::read(&key_path)?).map_err(|error| PkiError::Content {
            path: key_path.clone(),
            why: format!("does not hold a usable private key: {error}"),
        })?;
        let not_a_certificate = |why: String| PkiError::Content {
            path: cert_path.clone(),
            why,
        };
        let cert_der =
            first_der(&cert_pem).ok_or_else(|| not_a_certificate("does not hold a PEM certificate".to_owned()))?;
        let (_, parsed) = X509Certificate::from_der(&cert_der)
            .map_err(|error| not_a_certificate(format!("does not hold a usable certificate: {error}")))?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(PkiError::Content {
                path: key_path,
                why: "is not the key of ca.crt".to_owned(),
            });
        }
        let issuer = Issuer::from_ca_cert_pem(&cert_pem, key).map_err(|error| not_a_certificate(error.to_string()))?;
        Ok(Self {
            cert_pem,
            cert_der,
            issuer,
        })
    }

    /// The CA certificate.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// Issues a certificate for `subject` over `key`, valid for a year.
    ///
    /// # Errors
    /// The subject cannot be expressed in a certificate.
    pub fn issue(&self, subject: &Subject, key: &KeyPair, now: Timestamp) -> Result<String, PkiError> {
        let failed = |source| PkiError::Issue {
            what: format!("a certificate for {}", subject.common_name),
            source,
        };
        let mut params = params(&subject.common_name, &subject.organizations, now, LEAF_DAYS);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match subject.purpose {
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Purpose::Serving => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        for name in &subject.names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into().map_err(failed)?),
            });
        }
        Ok(params.signed_by(key, &self.issuer).map_err(failed)?.pem())
    }
}

fn params(common_name: &str, organizations: &[String], now: Timestamp, days: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    for organization in organizations {
        name.push(DnType::OrganizationName, organization.as_str());
    }
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
    // An hour of slack for clocks that differ.
    let start = u64::try_from(now.as_second()).unwrap_or(0).saturating_sub(3600);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(start);
    params.not_after = epoch + Duration::from_secs(start + days * DAY);
    let mut serial: [u8; 16] = rand::random();
    serial[0] = (serial[0] & 0x7f) | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params
}

/// The first certificate of a PEM text.
pub(crate) fn first_der(pem: &str) -> Option<Vec<u8>> {
    use rustls_pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::from_pem_slice(pem.as_bytes())
        .ok()
        .map(|der| der.to_vec())
}

/// Whether a certificate of ours still serves: signed by `authority`, over `key`, for `subject`, and not about to expire.
pub fn usable(cert_pem: &str, authority: &Authority, key: &KeyPair, subject: &Subject, now: Timestamp) -> bool {
    let Some(der) = first_der(cert_pem) else { return false };
    let (Ok((_, cert)), Ok((_, ca))) = (
        X509Certificate::from_der(&der),
        X509Certificate::from_der(&authority.cert_der),
    ) else {
        return false;
    };
    let common_name = cert.subject().iter_common_name().next().and_then(|cn| cn.as_str().ok());
    let organizations: Vec<&str> = cert
        .subject()
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .collect();
    let left = cert.validity().not_after.timestamp() - now.as_second();
    cert.verify_signature(Some(ca.public_key())).is_ok()
        && cert.public_key().subject_public_key.data.as_ref() == key.public_key_raw()
        && common_name == Some(&subject.common_name)
        && organizations == subject.organizations
        && subject.names.is_subset(&names(&cert))
        && left > i64::try_from(RENEW_DAYS * DAY).unwrap_or(i64::MAX)
}

fn names(cert: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(extension)) = cert.subject_alternative_name() else {
        return BTreeSet::new();
    };
    let names = extension.value.general_names.iter();
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
            _ => None,
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}
