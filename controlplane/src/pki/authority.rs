//! The certificate authority: issues certificates, signs requests, and judges whether one of its own is still good.

use super::request::Request;
use super::template::{Subject as Name, Template, Usages, alternative_names, name};
use super::{PkiError, ensure_key, files};
use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose, PublicKeyData,
    SerialNumber,
};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

const DAY: u64 = 86_400;
/// Life of the CA, in days.
const CA_DAYS: u64 = 3650;
/// Life of the certificates it issues, in days.
const LEAF_DAYS: u64 = 365;
/// Slack for clocks that differ.
const SLACK_SECONDS: i64 = 3600;
/// The same, of certificates clients ask for.
const BACKDATE_SECONDS: i64 = 300;
/// Certificates shorter than this are not shortened by the backdating.
const SHORT: Duration = Duration::from_secs(8 * 3600);
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
    /// The CA's subject, DER: the issuer of what it signs.
    name: Vec<u8>,
    /// The CA's subject key identifier, if its certificate names one.
    key_id: Option<Vec<u8>>,
    /// Last second of the CA.
    until: Timestamp,
    key: KeyPair,
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
        let mut params = params("kubernetes", now, CA_DAYS);
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
        Self::load_files(&dir.join("ca.crt"), &dir.join("ca.key"))
    }

    /// Reads a CA's certificate and its key.
    ///
    /// # Errors
    /// Names the file that is missing or not understood.
    pub fn load_files(cert_path: &Path, key_path: &Path) -> Result<Self, PkiError> {
        let cert_pem = files::read(cert_path)?;
        let key = KeyPair::from_pem(&files::read(key_path)?).map_err(|error| PkiError::Content {
            path: key_path.to_owned(),
            why: format!("does not hold a usable private key: {error}"),
        })?;
        let not_a_certificate = |why: String| PkiError::Content {
            path: cert_path.to_owned(),
            why,
        };
        let cert_der =
            first_der(&cert_pem).ok_or_else(|| not_a_certificate("does not hold a PEM certificate".to_owned()))?;
        let (_, parsed) = X509Certificate::from_der(&cert_der)
            .map_err(|error| not_a_certificate(format!("does not hold a usable certificate: {error}")))?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(PkiError::Content {
                path: key_path.to_owned(),
                why: format!(
                    "is not the key of {}",
                    cert_path.file_name().unwrap_or_default().to_string_lossy()
                ),
            });
        }
        let until = parsed.validity().not_after.timestamp();
        let key_id = parsed
            .iter_extensions()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            });
        let name = parsed.subject().as_raw().to_vec();
        Ok(Self {
            cert_pem,
            name,
            key_id,
            until: Timestamp::from_second(until).map_err(|error| not_a_certificate(error.to_string()))?,
            cert_der,
            key,
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
        let start = at(now.as_second().saturating_sub(SLACK_SECONDS));
        let template = Template {
            subject: name(&subject.organizations, &subject.common_name),
            public_key: key.subject_public_key_info(),
            alternative_names: alternative_names(&subject.names).map_err(failed)?,
            usages: Usages {
                key: Usages::DIGITAL_SIGNATURE,
                extended: vec![match subject.purpose {
                    Purpose::Client => Usages::CLIENT_AUTH,
                    Purpose::Serving => Usages::SERVER_AUTH,
                }],
            },
            not_before: start,
            not_after: at(start.as_second().saturating_add(seconds(LEAF_DAYS))).min(self.until),
        };
        self.sign(&template).map_err(failed)
    }

    /// Signs a client's request as it is (subject, key and names are the request's), valid for `validity` from now and never
    /// longer than the CA. The start is five minutes early for clocks that differ.
    ///
    /// # Errors
    /// The CA has expired, or its key cannot sign.
    pub fn sign_request(
        &self,
        request: &Request,
        usages: Usages,
        validity: Duration,
        now: Timestamp,
    ) -> Result<String, PkiError> {
        let what = || format!("a certificate for {}", request.common_name);
        if now >= self.until {
            return Err(PkiError::Expired { what: what() });
        }
        let validity_seconds = i64::try_from(validity.as_secs()).unwrap_or(i64::MAX);
        // Short certificates get their whole life from now on, as upstream's.
        let back = if validity < SHORT { 0 } else { BACKDATE_SECONDS };
        let end = now.as_second().saturating_add(validity_seconds).saturating_sub(back);
        let template = Template {
            subject: request.subject.clone(),
            public_key: request.public_key.clone(),
            alternative_names: request.alternative_names.clone(),
            usages,
            not_before: at(now.as_second().saturating_sub(BACKDATE_SECONDS)),
            not_after: at(end).min(self.until),
        };
        let signed = self.sign(&template);
        signed.map_err(|source| PkiError::Issue { what: what(), source })
    }

    fn sign(&self, template: &Template) -> Result<String, rcgen::Error> {
        let issuer = Name {
            name: &self.name,
            key_id: self.key_id.as_deref(),
        };
        template.sign(&issuer, &self.key, &serial())
    }
}

/// A moment, clamped to what can be expressed.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

fn seconds(days: u64) -> i64 {
    i64::try_from(days * DAY).unwrap_or(i64::MAX)
}

fn serial() -> [u8; 16] {
    let mut serial: [u8; 16] = rand::random();
    serial[0] = (serial[0] & 0x7f) | 0x40;
    serial
}

fn params(common_name: &str, now: Timestamp, days: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
    let start = u64::try_from(now.as_second().saturating_sub(SLACK_SECONDS)).unwrap_or(0);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(start);
    params.not_after = epoch + Duration::from_secs(start + days * DAY);
    params.serial_number = Some(SerialNumber::from_slice(&serial()));
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
