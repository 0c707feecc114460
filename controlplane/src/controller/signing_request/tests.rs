//! Who is approved, what is signed, when requests go.

use super::*;
use crate::pki::authority::Authority;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use kube::api::ObjectMeta;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use x509_parser::prelude::{FromDer, X509Certificate};

const NODE: &str = "system:node:n1";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn pem(common_name: &str) -> Vec<u8> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate().unwrap();
    params.serialize_request(&key).unwrap().pem().unwrap().into_bytes()
}

fn csr(user: &str) -> CertificateSigningRequest {
    CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some("csr-1".into()),
            creation_timestamp: Some(Time(now())),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem(NODE)),
            signer_name: "kubernetes.io/kube-apiserver-client-kubelet".to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            username: Some(user.to_owned()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

fn approved() -> CertificateSigningRequest {
    let mut csr = csr(NODE);
    add_condition(&mut csr, "Approved", "AutoApproved", String::new(), now());
    csr
}

#[test]
fn only_kubelets_client_certificates_are_approved() {
    let rights = |csr: &CertificateSigningRequest| -> Vec<&str> {
        let rights = approve::rights(csr, &request(csr).unwrap());
        rights.iter().map(|right| right.subresource).collect()
    };
    assert_eq!(rights(&csr(NODE)), ["selfnodeclient", "nodeclient"]);
    assert_eq!(rights(&csr("system:bootstrap:abcdef")), ["nodeclient"]);
    let mut serving = csr(NODE);
    serving.spec.signer_name = "kubernetes.io/kubelet-serving".to_owned();
    assert!(rights(&serving).is_empty());
    let mut wide = csr(NODE);
    wide.spec.usages.as_mut().unwrap().push("server auth".to_owned());
    assert!(rights(&wide).is_empty());
}

#[test]
fn what_is_approved_is_signed_once_and_for_as_long_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), now()).unwrap();
    assert!(sign::settle(&csr(NODE), &authority, now()).is_none());
    let mut csr = approved();
    for (asked, seconds) in [
        (None, 365 * 86_400 - 300),
        (Some(600), 600),
        (Some(86_400), 86_400 - 300),
    ] {
        csr.spec.expiration_seconds = asked;
        let settled = sign::settle(&csr, &authority, now()).unwrap();
        let pem = certificate(&settled).unwrap();
        let der = crate::pki::authority::first_der(std::str::from_utf8(pem).unwrap()).unwrap();
        let (_, found) = X509Certificate::from_der(&der).unwrap();
        let ca = crate::pki::authority::first_der(authority.cert_pem()).unwrap();
        let (_, ca) = X509Certificate::from_der(&ca).unwrap();
        found.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(found.issuer().as_raw(), ca.subject().as_raw());
        assert_eq!(found.subject().to_string(), format!("O=system:nodes, CN={NODE}"));
        assert_eq!(found.validity().not_after.timestamp(), now().as_second() + seconds);
        assert_eq!(found.validity().not_before.timestamp(), now().as_second() - 300);
        let purposes = found.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.client_auth && !purposes.server_auth);
        assert!(found.key_usage().unwrap().unwrap().value.digital_signature());
        assert!(!found.is_ca());
        assert!(sign::settle(&settled, &authority, now()).is_none());
    }
    csr.spec.signer_name = "example.com/own".to_owned();
    assert!(sign::settle(&csr, &authority, now()).is_none());
}

#[test]
fn what_no_signer_signs_fails_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), now()).unwrap();
    let mut csr = approved();
    csr.spec.request = ByteString(pem("somebody"));
    let settled = sign::settle(&csr, &authority, now()).unwrap();
    let failed = condition(&settled, "Failed").unwrap();
    assert_eq!(failed.reason.as_deref(), Some("SignerValidationFailure"));
    assert!(failed.message.as_deref().unwrap().contains("system:node:"));
    assert!(certificate(&settled).is_none() && sign::settle(&settled, &authority, now()).is_none());
}

#[test]
fn requests_go_in_their_time() {
    let after = |csr: &CertificateSigningRequest| clean::due(csr).map(|at| at.as_second() - now().as_second());
    assert_eq!(after(&csr(NODE)), Some(86_400));
    assert_eq!(after(&approved()), None);
    let mut denied = csr(NODE);
    add_condition(&mut denied, "Denied", "No", String::new(), now());
    assert_eq!(after(&denied), Some(3600));
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), now()).unwrap();
    let issued = sign::settle(&approved(), &authority, now()).unwrap();
    assert_eq!(after(&issued), Some(3600));
    let mut short = approved();
    short.spec.expiration_seconds = Some(600);
    let issued = sign::settle(&short, &authority, now()).unwrap();
    assert_eq!(after(&issued), Some(600));
}
