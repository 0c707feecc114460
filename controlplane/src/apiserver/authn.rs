//! Who is asking? Client certificate, then bearer token, then anonymous (control-plane contract §6).
//!
//! The first success wins; a credential that is presented and bad gives 401, never anonymous. What a token is bound to is checked
//! against live state at every request; only the costly signature checks are remembered.

mod impersonate;
pub mod legacy;
pub mod service_account;
pub mod token_file;

pub use impersonate::impersonate;

use super::reader::Reader;
use super::status::ApiError;
use super::user::User;
use crate::pki::tls::ClientTrust;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::Clock;
use http::header::{AUTHORIZATION, HeaderMap};
use http::request::Parts;
use k8s_openapi::jiff::Timestamp;
use legacy::{LegacyClaims, Use};
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::Value;
use service_account::{Claims, TokenError, Tokens, check_bound, user_of};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use streaming::websocket;
use token_file::TokenFile;
use tokio::sync::mpsc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Most credentials remembered at a time, of each kind.
const REMEMBERED: usize = 4096;
/// Seconds the signature of a token without an end is remembered for.
const LEGACY_SECONDS: i64 = 600;
/// Uses of tokens in Secrets that wait to be noted.
const LEGACY_USES: usize = 64;
/// Seconds a verified certificate is remembered for.
const CERTIFICATE_SECONDS: i64 = 60;

/// What the authenticator knows.
pub struct AuthnParts {
    /// Judges client certificates; `None`: they are ignored.
    pub client_certificates: Option<ClientTrust>,
    /// Static tokens.
    pub token_file: TokenFile,
    /// Service account tokens.
    pub tokens: Arc<Tokens>,
    /// Whether a request without credentials is `system:anonymous`.
    pub anonymous: bool,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// Authenticates requests.
pub struct Authn {
    parts: AuthnParts,
    trust: RwLock<Option<ClientTrust>>,
    certificates: Mutex<Verified<User>>,
    signatures: Mutex<Verified<Claims>>,
    legacy_signatures: Mutex<Verified<LegacyClaims>>,
    /// Uses of tokens that lie in Secrets. What does not fit is noted when the token is used again.
    legacy_uses: mpsc::Sender<Use>,
    legacy_used: Mutex<Option<mpsc::Receiver<Use>>>,
}

/// What has been verified, by SHA-256 of the credential, with the second it is to be verified again.
type Verified<T> = BTreeMap<[u8; 32], (T, i64)>;

fn recall<T: Clone>(memory: &Mutex<Verified<T>>, key: &[u8; 32], now: Timestamp) -> Option<T> {
    let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    let (value, until) = memory.get(key)?;
    (now.as_second() < *until).then(|| value.clone())
}

fn remember<T>(memory: &Mutex<Verified<T>>, key: [u8; 32], value: T, until: i64) {
    let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    if memory.len() >= REMEMBERED {
        memory.clear();
    }
    memory.insert(key, (value, until));
}

/// A token's user, and the audiences it was accepted for (empty: the token knows no audiences).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAnswer {
    /// The identity.
    pub user: User,
    /// The audiences both the token and the question name.
    pub audiences: Vec<String>,
}

impl Authn {
    /// An authenticator.
    pub fn new(mut parts: AuthnParts) -> Self {
        let (legacy_uses, used) = mpsc::channel(LEGACY_USES);
        Self {
            legacy_signatures: Mutex::default(),
            legacy_uses,
            legacy_used: Mutex::new(Some(used)),
            trust: RwLock::new(parts.client_certificates.take()),
            parts,
            certificates: Mutex::default(),
            signatures: Mutex::default(),
        }
    }

    /// Where it is told which tokens that lie in Secrets are used: for one who notes it, once.
    pub fn take_legacy_uses(&self) -> mpsc::Receiver<Use> {
        let taken = self.legacy_used.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Judges client certificates by `trust` from now on, also those that were judged before.
    pub fn trust(&self, trust: ClientTrust) {
        *self.trust.write().unwrap_or_else(PoisonError::into_inner) = Some(trust);
    }

    /// Finds out who sends the request. `peer_certs` is the client's chain, leaf first, whose key the handshake has proved.
    ///
    /// # Errors
    /// 401 if a credential is bad, or none is given and anonymous requests are not let in.
    pub async fn authenticate(
        &self,
        parts: &Parts,
        peer_certs: Option<&[CertificateDer<'static>]>,
        reader: &Reader,
    ) -> Result<User, ApiError> {
        let now = self.parts.clock.now();
        let mut presented = false;
        if let Some([leaf, rest @ ..]) = peer_certs
            && let Some(trust) = self.trust.read().unwrap_or_else(PoisonError::into_inner).clone()
        {
            presented = true;
            match self.certificate(&trust, leaf, rest, now) {
                Ok(Some(user)) => return Ok(user),
                // A certificate without a name says nothing.
                Ok(None) => presented = false,
                Err(error) => tracing::debug!(%error, "client certificate refused"),
            }
        }
        if let Some(token) = bearer_token(parts) {
            let answer = self.token(&token, self.parts.tokens.audiences(), reader);
            return answer.map(|answer| answer.user).map_err(|why| {
                tracing::debug!(%why, "bearer token refused");
                ApiError::unauthorized()
            });
        }
        if presented || !self.parts.anonymous {
            return Err(ApiError::unauthorized());
        }
        Ok(User {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..User::default()
        })
    }

    fn certificate(
        &self,
        trust: &ClientTrust,
        leaf: &CertificateDer<'static>,
        rest: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Result<Option<User>, rustls::Error> {
        let digest: [u8; 32] = Sha256::digest(leaf).into();
        let mut key = Sha256::new();
        key.update(trust.digest);
        key.update(digest);
        let key: [u8; 32] = key.finalize().into();
        if let Some(user) = recall(&self.certificates, &key, now) {
            return Ok(Some(user));
        }
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        trust
            .verifier
            .verify_client_cert(leaf, rest, UnixTime::since_unix_epoch(Duration::from_secs(seconds)))?;
        let Some((user, expires)) = certificate_user(leaf, &digest) else {
            return Ok(None);
        };
        let until = expires.min(now.as_second() + CERTIFICATE_SECONDS);
        remember(&self.certificates, key, user.clone(), until);
        Ok(Some(user))
    }

    /// Finds the user of a bearer token that is good for one of `audiences` (also what TokenReview asks).
    ///
    /// # Errors
    /// Why no authenticator accepts the token.
    pub fn token(&self, token: &str, audiences: &[String], reader: &Reader) -> Result<TokenAnswer, String> {
        let own = |user: User| {
            // Tokens without audiences are good for the API server alone.
            let mut accepted = audiences
                .iter()
                .filter(|audience| self.parts.tokens.audiences().contains(audience));
            let audiences: Vec<String> = accepted.by_ref().cloned().collect();
            if audiences.is_empty() {
                return Err("the token is not good for the audiences asked for".to_owned());
            }
            Ok(TokenAnswer { user, audiences })
        };
        if let Some(user) = self.parts.token_file.user(token) {
            return own(user.clone());
        }
        match self.service_account(token, audiences, reader) {
            Ok(claims) => {
                let accepted = claims.aud.iter().filter(|audience| audiences.contains(audience));
                let audiences = accepted.cloned().collect();
                let user = user_of(&claims);
                return Ok(TokenAnswer { user, audiences });
            }
            Err(TokenError::NotOurs) => {}
            Err(error) => return Err(error.to_string()),
        }
        match self.legacy(token, reader) {
            Ok(user) => return own(user),
            Err(TokenError::NotOurs) => {}
            Err(error) => return Err(error.to_string()),
        }
        match bootstrap_user(token, self.parts.clock.now(), reader) {
            Some(user) => own(user),
            None => Err("no authenticator knows the token".to_owned()),
        }
    }

    /// The user of a token that lies in a Secret. The signature alone is remembered.
    fn legacy(&self, token: &str, reader: &Reader) -> Result<User, TokenError> {
        let now = self.parts.clock.now();
        let digest: [u8; 32] = Sha256::digest(token).into();
        let claims = match recall(&self.legacy_signatures, &digest, now) {
            Some(claims) => claims,
            None => {
                let claims = self.parts.tokens.verify_legacy(token)?;
                let until = now.as_second() + LEGACY_SECONDS;
                remember(&self.legacy_signatures, digest, claims.clone(), until);
                claims
            }
        };
        let judged = legacy::judge(&claims, token, now, |resource, namespace, name| {
            reader.get("", resource, namespace, name)
        });
        if let Some(used) = judged.used {
            let _ = self.legacy_uses.try_send(used);
        }
        judged.user
    }

    fn service_account(&self, token: &str, audiences: &[String], reader: &Reader) -> Result<Claims, TokenError> {
        let now = self.parts.clock.now();
        let mut digest = Sha256::new();
        digest.update(token);
        for audience in audiences {
            digest.update([0]);
            digest.update(audience);
        }
        let digest: [u8; 32] = digest.finalize().into();
        let claims = match recall(&self.signatures, &digest, now) {
            Some(claims) => claims,
            None => {
                let claims = self.parts.tokens.verify(token, audiences, now)?;
                remember(&self.signatures, digest, claims.clone(), claims.exp);
                claims
            }
        };
        check_bound(&claims, now, |resource, namespace, name| {
            reader.get("", resource, namespace, name)
        })?;
        Ok(claims)
    }
}

/// The user a verified certificate names, and the second it expires; `None` without a CN.
fn certificate_user(der: &[u8], digest: &[u8; 32]) -> Option<(User, i64)> {
    let (_, cert) = X509Certificate::from_der(der).ok()?;
    let name = cert.subject().iter_common_name().next()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let groups: Vec<&str> = cert
        .subject()
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .collect();
    let mut user = User::named(name, &groups);
    user.extra.insert(
        "authentication.kubernetes.io/credential-id".to_owned(),
        vec![format!("X509SHA256={}", hex::encode(digest))],
    );
    Some((user, cert.validity().not_after.timestamp()))
}

fn bearer_token(parts: &Parts) -> Option<String> {
    if let Some(value) = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok())
        && let Some((scheme, token)) = value.trim().split_once(' ')
        && scheme.eq_ignore_ascii_case("bearer")
        && !token.trim().is_empty()
    {
        return Some(token.trim().to_owned());
    }
    socket_token(&parts.headers)
}

/// The token among the protocols that a WebSocket offers. What is no sound offer (another token, or nothing to speak beside
/// it) gives a token that is nobody's, so that it is refused rather than taken for anonymous.
fn socket_token(headers: &HeaderMap) -> Option<String> {
    if !websocket::is_asked_for(headers) {
        return None;
    }
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        websocket::protocols(headers).partition(|protocol| protocol.starts_with(websocket::BEARER));
    let token = match (&tokens[..], others.is_empty()) {
        ([], _) => return None,
        ([token], false) => URL_SAFE_NO_PAD.decode(&token[websocket::BEARER.len()..]).ok(),
        _ => None,
    };
    Some(
        token
            .and_then(|token| String::from_utf8(token).ok())
            .unwrap_or_default(),
    )
}

/// The user of a bootstrap token (`[a-z0-9]{6}.[a-z0-9]{16}`), whose Secret lies in kube-system.
fn bootstrap_user(token: &str, now: Timestamp, reader: &Reader) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if id.len() != 6 || secret.len() != 16 || !plain(id) || !plain(secret) {
        return None;
    }
    let object = reader.get("", "secrets", "kube-system", &format!("bootstrap-token-{id}"))?;
    bootstrap_secret_user(&object, id, secret, now)
}

fn bootstrap_secret_user(object: &Value, id: &str, secret: &str, now: Timestamp) -> Option<User> {
    let data = |key: &str| {
        let encoded = object.pointer("/data")?.get(key)?.as_str()?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
        String::from_utf8(bytes).ok()
    };
    let deleted = object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|at| !at.is_null());
    if object["type"] != "bootstrap.kubernetes.io/token"
        || deleted
        || data("token-id").as_deref() != Some(id)
        || !same_bytes(data("token-secret")?.as_bytes(), secret.as_bytes())
        || data("usage-bootstrap-authentication").as_deref() != Some("true")
    {
        return None;
    }
    if let Some(expiration) = data("expiration") {
        let expires: Timestamp = expiration.parse().ok()?;
        if expires <= now {
            return None;
        }
    }
    let mut groups = vec!["system:bootstrappers".to_owned()];
    for group in data("auth-extra-groups").unwrap_or_default().split(',') {
        if group.starts_with("system:bootstrappers:") {
            groups.push(group.to_owned());
        }
    }
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    Some(User::named(format!("system:bootstrap:{id}"), &groups))
}

/// Equality in a time that does not depend on where the difference is.
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

#[cfg(test)]
mod tests;
