//! Approves kubelets' client certificates if whoever asks has the right to be approved without a human: the answer is the API
//! server's, to a SubjectAccessReview. Serving certificates are never approved here.

use super::{NAME, add_condition, certificate, condition, request, signer::Signer, usages};
use crate::controller::execute::execute;
use crate::controller::harness::Environment;
use crate::controller::queue::Queue;
use crate::controller::write::{SIGNING_REQUESTS, Write};
use crate::pki::request::Request;
use client::{Backoff, Key};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(300);

/// A right that stands for a human's approval: the subresource it is asked about, and what the approval then says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// `create` on this subresource of certificatesigningrequests.
    pub subresource: &'static str,
    /// The condition's message.
    pub message: &'static str,
}

const SELF: Right = Right {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const NODE: Right = Right {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

/// The rights any of which suffices, in the order they are asked about; none for what is not a kubelet's client certificate.
pub fn rights(csr: &CertificateSigningRequest, request: &Request) -> Vec<Right> {
    if Signer::named(&csr.spec.signer_name) != Some(Signer::KubeletClient)
        || Signer::KubeletClient.check(request, usages(csr)).is_err()
    {
        return Vec::new();
    }
    let renews = csr.spec.username.as_deref() == Some(request.common_name.as_str());
    if renews { vec![SELF, NODE] } else { vec![NODE] }
}

/// Whether nobody has decided yet.
fn is_open(csr: &CertificateSigningRequest) -> bool {
    certificate(csr).is_none() && condition(csr, "Approved").is_none() && condition(csr, "Denied").is_none()
}

/// Approves requests until shutdown.
pub async fn run(environment: Environment) {
    let queue = Arc::new(Queue::default());
    let mut changes = environment.informers.signing_requests.subscribe();
    let mut delays: BTreeMap<Key, Backoff> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = environment.shutdown.cancelled() => return,
            changes = changes.next() => for change in changes {
                match change.new {
                    Some(csr) if is_open(&csr) => queue.add(change.key),
                    _ => {
                        delays.remove(&change.key);
                    }
                }
            },
            key = queue.next() => {
                if let Err(error) = reconcile(&environment, &key).await {
                    let new = || Backoff::new(FIRST_RETRY, LAST_RETRY, 0);
                    let delay = delays.entry(key.clone()).or_insert_with(new).fail();
                    tracing::debug!(controller = NAME, request = key.name, error, ?delay, "not approved");
                    queue.add_after(key.clone(), delay);
                }
                queue.done(&key);
                // Most requests are settled without a question.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// One look at a request. An error is worth another look later: rights may be given after the request was made.
async fn reconcile(environment: &Environment, key: &Key) -> Result<(), String> {
    let Some(csr) = environment
        .informers
        .signing_requests
        .get_key(key)
        .filter(|csr| is_open(csr))
    else {
        return Ok(());
    };
    // What cannot be read never changes.
    let Ok(asked) = request(&csr) else { return Ok(()) };
    let rights = rights(&csr, &asked);
    for right in &rights {
        if is_allowed(&environment.client, &csr, *right).await? {
            return approve(environment, &csr, *right).await;
        }
    }
    match rights.is_empty() {
        true => Ok(()),
        false => Err("recognized csr but subject access review was not approved".to_owned()),
    }
}

async fn is_allowed(client: &kube::Client, csr: &CertificateSigningRequest, right: Right) -> Result<bool, String> {
    let spec = &csr.spec;
    let body = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {
        "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
        "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
            "subresource": right.subresource}}});
    let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes());
    let request = request.map_err(|error| error.to_string())?;
    match timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(Ok(review)) => Ok(review["status"]["allowed"] == true),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("deadline exceeded".to_owned()),
    }
}

async fn approve(environment: &Environment, csr: &CertificateSigningRequest, right: Right) -> Result<(), String> {
    let mut approved = csr.clone();
    add_condition(
        &mut approved,
        "Approved",
        "AutoApproved",
        right.message.to_owned(),
        environment.clock.now(),
    );
    let write = Write::replace_part(SIGNING_REQUESTS, "approval", &approved);
    let done = execute(&environment.client, &write).await;
    done.map(|_| ()).map_err(|failure| failure.message)
}
