//! Who asks, and whether they may: client certificates, TokenReview, SubjectAccessReview, with bounded caches.
//! How often and how many at a time the API server is asked is the matter of [`super::reviews`].

use super::peer::{Peer, Worth};
use super::reviews::{Desk, Joined, ReviewError, Reviewed};
use super::share::Shares;
use crate::config::{AuthorizationMode, ServerConfig};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use client::tree::{create, status_of};
use futures::FutureExt;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use streaming::websocket;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Requests of one address whose tokens are being asked about: it leaves room for others' tokens.
const OF_ADDRESS_MAX: usize = 32;
/// Answers remembered of each kind.
const CACHE_MAX: usize = 4096;
/// How long a token the API server does not know is remembered as such.
const UNKNOWN_TOKEN_TTL: Duration = Duration::from_secs(10);

/// An identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    tokens: Arc<Cache<[u8; 32], Option<User>>>,
    token_reviews: Joined<[u8; 32], Reviewed<Option<User>>>,
    token_desk: Arc<Desk>,
    of_addresses: Shares<IpAddr>,
    permissions: Arc<Cache<Permission, bool>>,
    access_reviews: Joined<Permission, Reviewed<bool>>,
    access_desk: Arc<Desk>,
}

/// The token a request shows: in its header, or, as browsers have to, among the protocols its WebSocket offers.
fn bearer(headers: &HeaderMap) -> Option<String> {
    in_header(headers).or_else(|| in_protocols(headers))
}

fn in_header(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim().to_owned())
}

/// One of the protocols is a token, and there is another to speak.
fn in_protocols(headers: &HeaderMap) -> Option<String> {
    if !websocket::is_asked_for(headers) {
        return None;
    }
    let (tokens, spoken): (Vec<&str>, Vec<&str>) =
        websocket::protocols(headers).partition(|name| name.starts_with(websocket::BEARER));
    let ([token], false) = (tokens.as_slice(), spoken.is_empty()) else {
        return None;
    };
    let token = BASE64_URL_SAFE_NO_PAD.decode(&token[websocket::BEARER.len()..]).ok()?;
    String::from_utf8(token).ok().filter(|token| !token.is_empty())
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
            tokens: Arc::new(Cache::new()),
            token_reviews: Joined::new(),
            token_desk: Arc::new(Desk::new("TokenReview")),
            of_addresses: Shares::new(OF_ADDRESS_MAX),
            permissions: Arc::new(Cache::new()),
            access_reviews: Joined::new(),
            access_desk: Arc::new(Desk::new("SubjectAccessReview")),
        }
    }

    /// Who asks at that time; `None` when they are nobody we let in. Who shows a certificate that is worth nothing may still show a
    /// token, and is not taken for somebody anonymous (upstream's union of authenticators fails on its error).
    pub(super) async fn authenticate(
        &self,
        peer: &Peer,
        now: Timestamp,
        headers: &HeaderMap,
    ) -> Reviewed<Option<User>> {
        let worth = peer.certificate.as_ref().map(|certificate| certificate.worth(now));
        if let Some(Worth::User(user)) = worth {
            return Ok(Some(user));
        }
        match (bearer(headers), self.token_webhook) {
            (Some(token), Some(ttl)) => self.review_token(peer.address.ip().to_canonical(), token, ttl).await,
            // A token nobody can judge is a bad credential, not an absent one.
            (Some(_), None) => Ok(None),
            (None, _) if self.anonymous && worth != Some(Worth::Nothing) => Ok(Some(User::anonymous())),
            (None, _) => Ok(None),
        }
    }

    /// How many questions about tokens wait or are with the API server.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.token_desk.waiting()
    }

    async fn review_token(&self, of: IpAddr, token: String, ttl: Duration) -> Reviewed<Option<User>> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(known);
        }
        let client = self.client.clone().ok_or(ReviewError::NoServer)?;
        let share = self.of_addresses.take(of);
        let _share = share.ok_or(ReviewError::TooMany("TokenReview"))?;
        let (desk, answers) = (self.token_desk.clone(), self.tokens.clone());
        let begin = move || {
            let review = async move {
                let user = token_review(&desk, client, token).await?;
                let unknown = UNKNOWN_TOKEN_TTL.min(ttl);
                answers.put(key, user.clone(), if user.is_some() { ttl } else { unknown });
                Ok(user)
            };
            review.boxed()
        };
        self.token_reviews.ask(key, begin).await
    }

    /// Whether the user may do this to one of these subresources of the node.
    pub(super) async fn authorize(
        &self,
        user: &User,
        verb: &'static str,
        subresources: &[&'static str],
    ) -> Reviewed<bool> {
        let AuthorizationMode::Webhook { allowed, denied } = self.mode else {
            return Ok(true);
        };
        let mut failure = None;
        for subresource in subresources {
            let key = (user.clone(), verb, *subresource);
            let answer = match self.permissions.get(&key) {
                Some(answer) => Ok(answer),
                None => self.review_access(key, allowed, denied).await,
            };
            match answer {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(false), Err)
    }

    async fn review_access(&self, key: Permission, allowed: Duration, denied: Duration) -> Reviewed<bool> {
        let client = self.client.clone().ok_or(ReviewError::NoServer)?;
        let (desk, answers) = (self.access_desk.clone(), self.permissions.clone());
        let (asked, node) = (key.clone(), self.node_name.clone());
        let begin = move || {
            let review = async move {
                let answer = access_review(&desk, client, &asked, node).await?;
                answers.put(asked, answer, if answer { allowed } else { denied });
                Ok(answer)
            };
            review.boxed()
        };
        self.access_reviews.ask(key, begin).await
    }
}

/// Whose token that is.
async fn token_review(desk: &Desk, client: kube::Client, token: String) -> Result<Option<User>, ReviewError> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token,
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let asked = async { status_of::<TokenReviewStatus>(&create(&client, &review).await?) };
    let status = desk.ask(asked).await?.unwrap_or_default();
    Ok(match (status.authenticated, status.user) {
        (Some(true), Some(user)) => Some(User {
            name: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }),
        _ => None,
    })
}

/// Whether a user may do something with a subresource of the node.
async fn access_review(
    desk: &Desk,
    client: kube::Client,
    (user, verb, subresource): &Permission,
    node: String,
) -> Result<bool, ReviewError> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|e| !e.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some((*verb).to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some((*subresource).to_owned()),
                name: Some(node),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let asked = async { status_of::<SubjectAccessReviewStatus>(&create(&client, &review).await?) };
    Ok(desk.ask(asked).await?.is_some_and(|status| status.allowed))
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
            bearer(&headers)
        };
        assert_eq!(header("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(header("bearer abc").as_deref(), Some("abc"));
        assert_eq!(header("Basic abc"), None);
        assert_eq!(header("Bearer  "), None);
        let offered = |upgrade: &str, protocols: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("upgrade", upgrade.parse().expect("value"));
            headers.insert("sec-websocket-protocol", protocols.parse().expect("value"));
            bearer(&headers)
        };
        let token = "base64url.bearer.authorization.k8s.io.Z29vZA";
        assert_eq!(
            offered("websocket", &format!("{token}, v5.channel.k8s.io")).as_deref(),
            Some("good")
        );
        for (upgrade, protocols) in [
            ("SPDY/3.1", format!("{token}, v5.channel.k8s.io")),
            ("websocket", token.to_owned()),
            ("websocket", format!("{token}, {token}, v5.channel.k8s.io")),
            ("websocket", format!("{token}%, v5.channel.k8s.io")),
        ] {
            assert_eq!(offered(upgrade, &protocols), None, "{protocols}");
        }
    }
}
