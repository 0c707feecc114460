//! The built-in signers: which requests each of them signs. Pure.

use crate::pki::request::Request;
use std::collections::BTreeSet;

/// A built-in signer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// `kubernetes.io/kube-apiserver-client`: clients of the API server.
    ApiClient,
    /// `kubernetes.io/kube-apiserver-client-kubelet`: kubelets as clients of the API server.
    KubeletClient,
    /// `kubernetes.io/kubelet-serving`: kubelets' own servers.
    KubeletServing,
    /// `kubernetes.io/legacy-unknown`: nothing is promised.
    LegacyUnknown,
}

const CLIENT: &str = "client auth";
const SERVER: &str = "server auth";
const SIGNATURE: &str = "digital signature";
const ENCIPHERMENT: &str = "key encipherment";

impl Signer {
    /// The signer of that name, if it is ours.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "kubernetes.io/kube-apiserver-client" => Self::ApiClient,
            "kubernetes.io/kube-apiserver-client-kubelet" => Self::KubeletClient,
            "kubernetes.io/kubelet-serving" => Self::KubeletServing,
            "kubernetes.io/legacy-unknown" => Self::LegacyUnknown,
            _ => return None,
        })
    }

    /// Whether the signer signs this.
    ///
    /// # Errors
    /// What the signer does not sign, in upstream's words.
    pub fn check(self, request: &Request, usages: &[String]) -> Result<(), String> {
        match self {
            Self::ApiClient => api_client(usages),
            Self::KubeletClient => kubelet_client(request, usages),
            Self::KubeletServing => kubelet_serving(request, usages),
            Self::LegacyUnknown => Ok(()),
        }
    }
}

fn api_client(usages: &[String]) -> Result<(), String> {
    let other = usages
        .iter()
        .find(|usage| ![CLIENT, SIGNATURE, ENCIPHERMENT].contains(&usage.as_str()));
    match other {
        Some(other) => Err(format!("invalid usage for client certificate: {other}")),
        None if usages.iter().any(|usage| usage == CLIENT) => Ok(()),
        None => Err(format!("missing required usage for client certificate: {CLIENT}")),
    }
}

fn kubelet_client(request: &Request, usages: &[String]) -> Result<(), String> {
    of_a_node(request)?;
    for (count, what) in [
        (request.dns_names, "DNS"),
        (request.emails, "Email"),
        (request.addresses, "IP"),
        (request.uris, "URI"),
    ] {
        if count > 0 {
            return Err(format!("{what} subjectAltNames are not allowed"));
        }
    }
    exactly(usages, CLIENT)
}

fn kubelet_serving(request: &Request, usages: &[String]) -> Result<(), String> {
    of_a_node(request)?;
    if request.dns_names + request.addresses == 0 {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    if request.emails > 0 {
        return Err("Email subjectAltNames are not allowed".to_owned());
    }
    if request.uris > 0 {
        return Err("URI subjectAltNames are not allowed".to_owned());
    }
    exactly(usages, SERVER)
}

fn of_a_node(request: &Request) -> Result<(), String> {
    if request.organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    let name = request.common_name.strip_prefix("system:node:");
    if name.is_none_or(str::is_empty) {
        return Err("subject common name does not begin with system:node:".to_owned());
    }
    Ok(())
}

/// Digital signature and `main`, with or without key encipherment, and nothing else.
fn exactly(usages: &[String], main: &str) -> Result<(), String> {
    let asked: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let wanted = BTreeSet::from([SIGNATURE, main]);
    let mut with_encipherment = wanted.clone();
    with_encipherment.insert(ENCIPHERMENT);
    if asked == wanted || asked == with_encipherment {
        return Ok(());
    }
    let list: Vec<&str> = with_encipherment.into_iter().collect();
    Err(format!("usages did not match [{}]", list.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Request {
        Request {
            common_name: "system:node:n1".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            ..Request::default()
        }
    }

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn each_signer_signs_its_kind_only() {
        let serving = Request { addresses: 1, ..node() };
        let client = words(&[SIGNATURE, CLIENT]);
        let full = words(&[SIGNATURE, CLIENT, ENCIPHERMENT]);
        let server = words(&[SIGNATURE, SERVER]);
        use Signer::{ApiClient, KubeletClient, KubeletServing, LegacyUnknown};
        let table = [
            (KubeletClient, node(), &client, ""),
            (KubeletClient, node(), &full, ""),
            (KubeletClient, node(), &server, "usages did not match"),
            (
                KubeletClient,
                serving.clone(),
                &client,
                "IP subjectAltNames are not allowed",
            ),
            (KubeletServing, serving.clone(), &server, ""),
            (KubeletServing, node(), &server, "DNS or IP subjectAltName is required"),
            (KubeletServing, Request { uris: 1, ..serving }, &server, "URI"),
            (ApiClient, Request::default(), &client, ""),
            (
                ApiClient,
                Request::default(),
                &server,
                "invalid usage for client certificate: server auth",
            ),
            (LegacyUnknown, Request::default(), &server, ""),
        ];
        for (signer, request, usages, part) in table {
            let found = signer.check(&request, usages).err().unwrap_or_default();
            assert!(
                found.contains(part) && found.is_empty() == part.is_empty(),
                "{signer:?}: {found:?}"
            );
        }
        let masters = Request {
            organizations: words(&["system:nodes", "system:masters"]),
            ..node()
        };
        assert!(KubeletClient.check(&masters, &client).is_err());
        let nobody = Request {
            common_name: "system:node:".to_owned(),
            ..node()
        };
        assert!(KubeletClient.check(&nobody, &client).is_err());
        assert!(
            ApiClient
                .check(&node(), &words(&[SIGNATURE]))
                .unwrap_err()
                .starts_with("missing")
        );
        assert_eq!(Signer::named("example.com/own"), None);
    }
}
