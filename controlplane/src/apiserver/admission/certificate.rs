//! Who asks for a certificate, and who may approve and sign: CertificateApproval, CertificateSigning and
//! CertificateSubjectRestriction, and the requester's identity in the request. Pure but for the authorizer's index.

use super::{Attributes, Operation, object_at};
use crate::apiserver::authz::Authz;
use crate::apiserver::reader::Reader;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::pki::request::Request;
use crate::resource::certificate::request_pem;
use crate::resource::field::{at, text};
use serde_json::{Value, json};

/// The API group.
pub(super) const GROUP: &str = "certificates.k8s.io";
const RESOURCE: &str = "certificatesigningrequests";
/// The signer of ordinary API clients.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// Whether the plugins have anything to say.
pub(super) fn applies(attributes: &Attributes<'_>) -> bool {
    attributes.kind.group == GROUP && attributes.kind.plural == RESOURCE
}

/// Writes who asks into a new request, whatever it said.
pub(super) fn identify(attributes: &Attributes<'_>, object: &mut Value) {
    let user = attributes.user;
    let spec = object_at(object, "spec");
    spec.insert("username".to_owned(), json!(user.name));
    spec.insert("groups".to_owned(), json!(user.groups));
    for (field, value) in [
        ("uid", user.uid.as_ref().map(|uid| json!(uid))),
        ("extra", (!user.extra.is_empty()).then(|| json!(user.extra))),
    ] {
        match value {
            Some(value) => spec.insert(field.to_owned(), value),
            None => spec.remove(field),
        };
    }
}

/// Refuses what the requester may not approve, sign, or ask for.
pub(super) fn check(
    attributes: &Attributes<'_>,
    object: &Value,
    old: Option<&Value>,
    authz: &Authz,
    reader: &Reader,
) -> Result<(), ApiError> {
    match (attributes.operation, attributes.info.subresource.as_str(), old) {
        (Operation::Create, "", _) => check_subject(attributes, object),
        (Operation::Update, "approval", Some(old)) => {
            let signer = text(old, &["spec", "signerName"]);
            if may(attributes, "approve", signer, authz, reader) {
                return Ok(());
            }
            let why = format!("user not permitted to approve requests with signerName \"{signer}\"");
            Err(attributes.forbid(&why))
        }
        (Operation::Update, "status", Some(old)) => {
            let same = |field: &str| at(old, &["status", field]) == at(object, &["status", field]);
            let signer = text(old, &["spec", "signerName"]);
            if (same("certificate") && same("conditions")) || may(attributes, "sign", signer, authz, reader) {
                return Ok(());
            }
            let why = format!("user not permitted to sign requests with signerName \"{signer}\"");
            Err(attributes.forbid(&why))
        }
        _ => Ok(()),
    }
}

/// A certificate of the cluster's administrators is not to be had this way.
fn check_subject(attributes: &Attributes<'_>, object: &Value) -> Result<(), ApiError> {
    if text(object, &["spec", "signerName"]) != CLIENT_SIGNER {
        return Ok(());
    }
    let request = request_pem(object).and_then(|pem| Request::from_pem(&pem).ok());
    if request.is_some_and(|request| request.organizations.iter().any(|group| group == MASTERS)) {
        let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        return Err(attributes.forbid(&why));
    }
    Ok(())
}

/// Whether the user has the verb on this signer, or on all of its domain.
fn may(attributes: &Attributes<'_>, verb: &str, signer: &str, authz: &Authz, reader: &Reader) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    [signer.to_owned(), format!("{domain}/*")].into_iter().any(|name| {
        let info = RequestInfo {
            is_resource: true,
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name,
            ..RequestInfo::default()
        };
        authz.authorize(attributes.user, &info, reader).allowed
    })
}
