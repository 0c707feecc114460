//! PKCS#10 certificate requests as clients send them: read, their signature checked, taken apart. Pure.

use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::FromDer;

/// What a certificate is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// CN, empty if there is none.
    pub common_name: String,
    /// Os, in order.
    pub organizations: Vec<String>,
    /// How many DNS names are asked for.
    pub dns_names: usize,
    /// How many addresses are asked for.
    pub addresses: usize,
    /// How many email addresses are asked for.
    pub emails: usize,
    /// How many URIs are asked for.
    pub uris: usize,
    /// The subject, DER.
    pub(crate) subject: Vec<u8>,
    /// The public key with its algorithm, DER.
    pub(crate) public_key: Vec<u8>,
    /// The value of the subjectAltName extension, DER.
    pub(crate) alternative_names: Option<Vec<u8>>,
}

/// Why a request cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Upstream's words for what is no PEM request.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotPem,
    /// The block holds something else.
    #[error("the certificate request cannot be read: {0}")]
    Malformed(String),
    /// Whoever asks does not hold the key.
    #[error("the certificate request's signature does not match its public key")]
    Signature,
}

impl Request {
    /// Reads a PEM block of type `CERTIFICATE REQUEST`.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, RequestError> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem).map_err(|_| RequestError::NotPem)?;
        let malformed = |error: &dyn std::fmt::Display| RequestError::Malformed(error.to_string());
        let (rest, parsed) = X509CertificationRequest::from_der(&der).map_err(|error| malformed(&error))?;
        if !rest.is_empty() {
            return Err(malformed(&"trailing data"));
        }
        parsed.verify_signature().map_err(|_| RequestError::Signature)?;
        let info = &parsed.certification_request_info;
        let text = |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().map(str::to_owned);
        let common_name = info.subject.iter_common_name().next().map(text).transpose();
        let organizations: Result<Vec<_>, _> = info.subject.iter_organization().map(text).collect();
        let mut request = Self {
            common_name: common_name.map_err(|error| malformed(&error))?.unwrap_or_default(),
            organizations: organizations.map_err(|error| malformed(&error))?,
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            ..Self::default()
        };
        for attribute in info.iter_attributes() {
            if let ParsedCriAttribute::ExtensionRequest(wanted) = attribute.parsed_attribute() {
                wanted
                    .extensions
                    .iter()
                    .filter(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME)
                    .for_each(|extension| request.add_names(extension));
            }
        }
        Ok(request)
    }

    fn add_names(&mut self, extension: &x509_parser::extensions::X509Extension<'_>) {
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
            return;
        };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(_) => self.dns_names += 1,
                GeneralName::IPAddress(_) => self.addresses += 1,
                GeneralName::RFC822Name(_) => self.emails += 1,
                // Whatever else there is counts as something no kubelet may have.
                _ => self.uris += 1,
            }
        }
        self.alternative_names = Some(extension.value.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    #[test]
    fn what_is_asked_for_is_read() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["n1".to_owned(), "192.0.2.1".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:n1");
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = Request::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(request.common_name, "system:node:n1");
        assert_eq!(request.organizations, ["system:nodes"]);
        assert_eq!((request.dns_names, request.addresses), (1, 1));
        assert!(request.alternative_names.is_some());
    }

    #[test]
    fn what_is_no_request_or_is_not_signed_by_its_key_is_refused() {
        assert_eq!(Request::from_pem(b"x"), Err(RequestError::NotPem));
        let block = |bytes: &[u8]| {
            use base64::Engine;
            let body = base64::engine::general_purpose::STANDARD.encode(bytes);
            format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
        };
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::new(vec![]).unwrap().serialize_request(&key).unwrap();
        let mut der = request.der().to_vec();
        assert!(Request::from_pem(block(&der).as_bytes()).is_ok());
        if let Some(last) = der.last_mut() {
            *last ^= 1;
        }
        assert_eq!(Request::from_pem(block(&der).as_bytes()), Err(RequestError::Signature));
        assert!(matches!(
            Request::from_pem(block(b"nonsense").as_bytes()),
            Err(RequestError::Malformed(_))
        ));
    }
}
