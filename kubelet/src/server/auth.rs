//! Who asks, and whether they may: client certificates, TokenReview, SubjectAccessReview, with bounded caches.

use crate::config::{AuthorizationMode, ServerConfig};
use client::AsTree;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

const REVIEW_DEADLINE: Duration = Duration::from_secs(10);
/// Answers remembered of each kind.
const CACHE_MAX: usize = 4096;
/// How long a token the API server does not know is remembered as such.
const UNKNOWN_TOKEN_TTL: Duration = Duration::from_secs(10);

/// An identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// User name.
    pub name: String,
    /// UID, when known.
    pub uid: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..Self::default()
        }
    }

    /// The identity in a verified client certificate: common name and organisations.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let mut groups: Vec<String> = subject
            .iter_organization()
            .filter_map(|o| o.as_str().ok().map(str::to_owned))
            .collect();
        groups.push("system:authenticated".into());
        Some(Self {
            name,
            groups,
            ..Self::default()
        })
    }
}

/// A review the API server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It refused or failed.
    #[error("{0}")]
    Call(&'static str, #[source] Box<kube::Error>),
    /// It took too long.
    #[error("{0}: context deadline exceeded")]
    Deadline(&'static str),
    /// There is no API server to ask.
    #[error("no API server to ask")]
    NoServer,
}

/// A bounded map whose entries expire. When it is full it starts over: its entries cost one request each to win back.
struct Cache<K, V> {
    entries: Mutex<BTreeMap<K, (V, Instant)>>,
}

impl<K: Ord, V: Clone> Cache<K, V> {
    fn new() -> Self {
        Self {
            entries: Mutex::new(BTreeMap::new()),
        }
    }

    fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, until) = entries.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    fn put(&self, key: K, value: V, ttl: Duration) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if entries.len() >= CACHE_MAX {
            entries.retain(|_, (_, until)| *until > now);
        }
        if entries.len() >= CACHE_MAX {
            entries.clear();
        }
        entries.insert(key, (value, now + ttl));
    }
}

type Permission = (User, &'static str, &'static str);

/// Authentication and authorization of the server.
pub struct Auth {
    client: Option<kube::Client>,
    node_name: String,
    anonymous: bool,
    token_webhook: Option<Duration>,
    mode: AuthorizationMode,
    tokens: Cache<[u8; 32], Option<User>>,
    permissions: Cache<Permission, bool>,
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

impl Auth {
    /// As configured; without an API server tokens are unknown and reviews fail.
    pub fn new(config: &ServerConfig, client: Option<kube::Client>, node_name: &str) -> Self {
        Self {
            client,
            node_name: node_name.to_owned(),
            anonymous: config.anonymous,
            token_webhook: config.token_webhook,
            mode: config.authorization,
            tokens: Cache::new(),
            permissions: Cache::new(),
        }
    }

    /// Who asks; `None` when they are nobody we let in.
    pub async fn authenticate(
        &self,
        certificate: Option<&User>,
        headers: &HeaderMap,
    ) -> Result<Option<User>, ReviewError> {
        if let Some(user) = certificate {
            return Ok(Some(user.clone()));
        }
        match (bearer(headers), self.token_webhook) {
            (Some(token), Some(ttl)) => self.review_token(token, ttl).await,
            // A token nobody can judge is a bad credential, not an absent one.
            (Some(_), None) => Ok(None),
            (None, _) if self.anonymous => Ok(Some(User::anonymous())),
            (None, _) => Ok(None),
        }
    }

    async fn review_token(&self, token: &str, ttl: Duration) -> Result<Option<User>, ReviewError> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(known);
        }
        let client = self.client.clone().ok_or(ReviewError::NoServer)?;
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let api: Api<AsTree<TokenReview>> = Api::all(client);
        let status = reviewed("TokenReview", api.create(&PostParams::default(), &AsTree(review)))
            .await?
            .0
            .status
            .unwrap_or_default();
        let user = match (status.authenticated, status.user) {
            (Some(true), Some(user)) => Some(User {
                name: user.username.unwrap_or_default(),
                uid: user.uid,
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            }),
            _ => None,
        };
        let ttl = if user.is_some() {
            ttl
        } else {
            UNKNOWN_TOKEN_TTL.min(ttl)
        };
        self.tokens.put(key, user.clone(), ttl);
        Ok(user)
    }

    /// Whether the user may do this to one of these subresources of the node.
    pub async fn authorize(
        &self,
        user: &User,
        verb: &'static str,
        subresources: &[&'static str],
    ) -> Result<bool, ReviewError> {
        let AuthorizationMode::Webhook { allowed, denied } = self.mode else {
            return Ok(true);
        };
        let mut failure = None;
        for subresource in subresources {
            let key = (user.clone(), verb, *subresource);
            let known = self.permissions.get(&key);
            let answer = match known {
                Some(answer) => Ok(answer),
                None => self.review_access(user, verb, subresource).await,
            };
            match answer {
                Ok(answer) => {
                    if known.is_none() {
                        self.permissions.put(key, answer, if answer { allowed } else { denied });
                    }
                    if answer {
                        return Ok(true);
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(false), Err)
    }

    async fn review_access(&self, user: &User, verb: &str, subresource: &str) -> Result<bool, ReviewError> {
        let client = self.client.clone().ok_or(ReviewError::NoServer)?;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: user.uid.clone(),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()).filter(|e| !e.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.node_name.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<AsTree<SubjectAccessReview>> = Api::all(client);
        let answer = reviewed(
            "SubjectAccessReview",
            api.create(&PostParams::default(), &AsTree(review)),
        )
        .await?;
        Ok(answer.0.status.is_some_and(|s| s.allowed))
    }
}

async fn reviewed<T>(what: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T, ReviewError> {
    match tokio::time::timeout(REVIEW_DEADLINE, call).await {
        Err(_) => Err(ReviewError::Deadline(what)),
        Ok(Err(source)) => Err(ReviewError::Call(what, Box::new(source))),
        Ok(Ok(answer)) => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_in_certificates() {
        let mut params = rcgen::CertificateParams::new(vec![]).expect("params");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "system:masters");
        params.distinguished_name.push(rcgen::DnType::CommonName, "admin");
        let key = rcgen::KeyPair::generate().expect("key");
        let der = params.self_signed(&key).expect("certificate");
        let user = User::of_certificate(der.der()).expect("a user");
        assert_eq!(user.name, "admin");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        assert_eq!(User::of_certificate(b"junk"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn remembered_answers_expire_and_are_bounded() {
        let cache = Cache::new();
        cache.put(1, "a", Duration::from_secs(5));
        assert_eq!(cache.get(&1), Some("a"));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(cache.get(&1), None);
        for key in 0..(CACHE_MAX * 2) {
            cache.put(key, "x", Duration::from_secs(5));
        }
        assert!(cache.entries.lock().expect("lock").len() <= CACHE_MAX);
    }

    #[test]
    fn bearer_tokens() {
        let header = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, text.parse().expect("value"));
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(header("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(header("bearer abc").as_deref(), Some("abc"));
        assert_eq!(header("Basic abc"), None);
        assert_eq!(header("Bearer  "), None);
    }
}
