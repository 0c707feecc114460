//! Asks the API server for a certificate: makes a CertificateSigningRequest and waits until it is settled.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::informer::Options;
use client::{AsTree, Informer};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData, SanType};
use sha2::{Digest, Sha512_256};
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::timeout;

/// Deadline of one call.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// The group every kubelet is in.
const NODES: &str = "system:nodes";

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Key or request could not be made.
    #[error("make a certificate request")]
    Make(#[from] rcgen::Error),
    /// The API server refused or did not answer.
    #[error("{what}")]
    Call {
        /// What was asked.
        what: &'static str,
        /// The refusal.
        source: Box<kube::Error>,
    },
    /// No answer within the deadline.
    #[error("{0}: no answer in time")]
    Deadline(&'static str),
    /// The request was denied, has failed, or is gone.
    #[error("certificate signing request {name} {what}")]
    Settled {
        /// Its name.
        name: String,
        /// How it ended, with reason and message.
        what: String,
    },
    /// Nobody approved it in time.
    #[error("certificate signing request {name} was not approved and signed within {waited:?}")]
    Unsettled {
        /// Its name.
        name: String,
        /// How long it was waited for.
        waited: Duration,
    },
}

/// What certificate is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The node.
    pub node: String,
    /// Addresses and names of a serving certificate; `None` asks for a client certificate.
    pub serving: Option<(Vec<IpAddr>, Vec<String>)>,
}

impl Wanted {
    fn signer(&self) -> &'static str {
        match self.serving {
            Some(_) => "kubernetes.io/kubelet-serving",
            None => "kubernetes.io/kube-apiserver-client-kubelet",
        }
    }

    /// For keys that only sign (ECDSA).
    fn usages(&self) -> [&'static str; 2] {
        match self.serving {
            Some(_) => ["digital signature", "server auth"],
            None => ["digital signature", "client auth"],
        }
    }

    fn common_name(&self) -> String {
        format!("system:node:{}", self.node)
    }

    /// The request's PEM, signed by `key`.
    fn pem(&self, key: &KeyPair) -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, NODES);
        params.distinguished_name.push(DnType::CommonName, self.common_name());
        let (ips, names) = self.serving.clone().unwrap_or_default();
        for name in names {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        params.subject_alt_names.extend(ips.into_iter().map(SanType::IpAddress));
        params.serialize_request(key)?.pem()
    }

    /// The name of a request for this key: the same key asks under the same name again.
    pub fn name(&self, key: &KeyPair) -> String {
        let mut hash = Sha512_256::new();
        let common_name = self.common_name();
        let public = key.subject_public_key_info();
        let usages = self.usages().map(str::as_bytes);
        let parts = [public.as_slice(), common_name.as_bytes(), NODES.as_bytes()];
        for part in parts.into_iter().chain(usages) {
            hash.update(URL_SAFE_NO_PAD.encode(part));
            hash.update("|");
        }
        format!("node-csr-{}", URL_SAFE_NO_PAD.encode(hash.finalize()))
    }

    fn object(&self, key: &KeyPair, name: Option<String>) -> Result<CertificateSigningRequest, rcgen::Error> {
        Ok(CertificateSigningRequest {
            metadata: ObjectMeta {
                generate_name: name.is_none().then(|| "csr-".to_owned()),
                name,
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(self.pem(key)?.into_bytes()),
                signer_name: self.signer().to_owned(),
                usages: Some(self.usages().map(str::to_owned).to_vec()),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        })
    }
}

/// Makes the request (under `name`, or a generated one) and waits for its certificate chain, PEM.
///
/// # Errors
/// See [`RequestError`]; all are worth another try later.
pub async fn obtain(
    client: &kube::Client,
    wanted: &Wanted,
    key: &KeyPair,
    name: Option<String>,
    patience: Duration,
) -> Result<String, RequestError> {
    let api: Api<AsTree<CertificateSigningRequest>> = Api::all(client.clone());
    let object = AsTree(wanted.object(key, name)?);
    const WHAT: &str = "create a certificate signing request";
    let made = timeout(CALL_DEADLINE, api.create(&PostParams::default(), &object)).await;
    let name = match made.map_err(|_| RequestError::Deadline(WHAT))? {
        Ok(made) => made.0.metadata.name.unwrap_or_default(),
        // The name holds the key: it is our own request of an earlier try.
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            object.metadata.name.clone().unwrap_or_default()
        }
        Err(source) => {
            return Err(RequestError::Call {
                what: WHAT,
                source: Box::new(source),
            });
        }
    };
    tracing::info!(
        request = name,
        signer = wanted.signer(),
        "certificate asked for, waiting for approval"
    );
    match timeout(patience, settled(&api, &name)).await {
        Ok(settled) => settled,
        Err(_) => Err(RequestError::Unsettled { name, waited: patience }),
    }
}

/// Waits until the request has its certificate, or never will.
async fn settled(api: &Api<AsTree<CertificateSigningRequest>>, name: &str) -> Result<String, RequestError> {
    let options = Options {
        labels: String::new(),
        fields: format!("metadata.name={name}"),
        seed: 0,
    };
    let informer: Informer<CertificateSigningRequest> = Informer::spawn_as_tree(api.clone(), options);
    let mut changes = informer.subscribe();
    loop {
        for change in changes.next().await {
            if let Some(outcome) = outcome(change.new.as_deref()) {
                return outcome.map_err(|what| RequestError::Settled {
                    name: name.to_owned(),
                    what,
                });
            }
        }
    }
}

/// How the request has ended; `None`: not yet.
fn outcome(csr: Option<&CertificateSigningRequest>) -> Option<Result<String, String>> {
    let Some(csr) = csr else {
        return Some(Err("was deleted".to_owned()));
    };
    let status = csr.status.as_ref()?;
    for condition in status.conditions.iter().flatten() {
        let how = match condition.type_.as_str() {
            "Denied" => "is denied",
            "Failed" => "failed",
            _ => continue,
        };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        return Some(Err(format!(
            "{how}, reason: {}, message: {}",
            text(&condition.reason),
            text(&condition.message)
        )));
    }
    let chain = status.certificate.as_ref().filter(|chain| !chain.0.is_empty())?;
    Some(String::from_utf8(chain.0.clone()).map_err(|_| "has a certificate that is not text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wanted() -> Wanted {
        Wanted {
            node: "n1".to_owned(),
            serving: None,
        }
    }

    #[test]
    fn a_key_names_its_request() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let name = wanted().name(&one);
        // 32 bytes of digest are 43 characters.
        assert_eq!(name.len(), "node-csr-".len() + 43);
        assert_eq!(name, wanted().name(&one));
        assert_ne!(name, wanted().name(&other));
        let serving = Wanted {
            serving: Some((vec!["192.0.2.1".parse().unwrap()], vec!["n1".to_owned()])),
            ..wanted()
        };
        assert_ne!(name, serving.name(&one));
        let object = serving.object(&one, None).unwrap();
        assert_eq!(object.metadata.generate_name.as_deref(), Some("csr-"));
        assert_eq!(object.spec.signer_name, "kubernetes.io/kubelet-serving");
        assert_eq!(object.spec.usages.unwrap(), ["digital signature", "server auth"]);
    }

    #[test]
    fn a_request_ends_with_a_certificate_or_a_reason() {
        let csr = |status: serde_json::Value| -> CertificateSigningRequest {
            let mut csr = wanted().object(&KeyPair::generate().unwrap(), None).unwrap();
            csr.status = serde_json::from_value(status).unwrap();
            csr
        };
        let approved = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        assert_eq!(outcome(Some(&csr(approved))), None);
        assert_eq!(
            outcome(Some(&csr(json!({"certificate": "eA=="})))),
            Some(Ok("x".to_owned()))
        );
        let denied = json!({"conditions": [{"type": "Denied", "status": "True", "reason": "R", "message": "M"}]});
        let denied = outcome(Some(&csr(denied))).unwrap().unwrap_err();
        assert_eq!(denied, "is denied, reason: R, message: M");
        assert!(outcome(None).unwrap().is_err());
    }
}
