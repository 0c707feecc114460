//! Service account tokens: ES256 JWTs, signed and read back (control-plane contract §6). Pure: whether what a token is bound
//! to still exists is asked of a lookup the caller gives.

use super::legacy::{self, LegacyClaims};
use crate::apiserver::user::User;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Deleted objects invalidate a token only after this many seconds.
const LEEWAY_SECONDS: i64 = 60;

/// An object a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Name.
    pub name: String,
    /// UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The private claim `kubernetes.io`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Private {
    /// Namespace of the account.
    pub namespace: String,
    /// Node the token's pod runs on, or the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Bound>,
    /// Pod the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Bound>,
    /// Secret the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Bound>,
    /// The account.
    pub serviceaccount: Bound,
    /// After this second the use of the token is reported as stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// The claims of a service account token; times are seconds of the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Audiences.
    pub aud: Vec<String>,
    /// Expiry.
    pub exp: i64,
    /// Time of issue.
    pub iat: i64,
    /// Issuer.
    pub iss: String,
    /// Unique identifier.
    pub jti: String,
    /// Kubernetes' own claims.
    #[serde(rename = "kubernetes.io")]
    pub private: Private,
    /// Start of validity.
    pub nbf: i64,
    /// `system:serviceaccount:<namespace>:<name>`.
    pub sub: String,
}

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not one of ours (another issuer, not a JWT): other authenticators may know it.
    #[error("the token is not a service account token")]
    NotOurs,
    /// Ours in form, but the signature does not match.
    #[error("the token's signature is invalid")]
    Signature,
    /// Outside its time.
    #[error("service account token has expired or is not valid yet")]
    Time,
    /// For another audience.
    #[error("token audiences {0:?} is invalid for the target audiences {1:?}")]
    Audience(Vec<String>, Vec<String>),
    /// The account, or an object the token is bound to, is gone.
    #[error("service account token has been invalidated: {0}")]
    Invalidated(String),
}

/// Signs and reads tokens.
pub struct Tokens {
    signing: EncodingKey,
    verifying: DecodingKey,
    jwk: Value,
    key_id: String,
    issuers: Vec<String>,
    audiences: Vec<String>,
}

impl Tokens {
    /// A signer with the given ES256 key pair; the first issuer signs, all are accepted.
    ///
    /// # Errors
    /// The keys are not PEM of an ECDSA P-256 pair.
    pub fn new(key_pem: &str, public_pem: &str, issuers: Vec<String>, audiences: Vec<String>) -> Result<Self, String> {
        let bad = |error| format!("the service account keys cannot be used: {error}");
        let signing = EncodingKey::from_ec_pem(key_pem.as_bytes()).map_err(bad)?;
        let verifying = DecodingKey::from_ec_pem(public_pem.as_bytes()).map_err(bad)?;
        let der = pem_body(public_pem).ok_or_else(|| "the service account public key is not PEM".to_owned())?;
        // Upstream: the unpadded base64url SHA-256 of the public key's DER.
        let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(&der));
        let point = der.len().checked_sub(65).map(|start| &der[start..]);
        let Some([4, point @ ..]) = point else {
            return Err("the service account public key is not an uncompressed P-256 point".to_owned());
        };
        let (x, y) = point.split_at(32);
        let jwk = json!({
            "use": "sig", "kty": "EC", "kid": key_id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        });
        Ok(Self {
            signing,
            verifying,
            jwk,
            key_id,
            issuers,
            audiences,
        })
    }

    /// The API server's own audiences.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The issuer new tokens carry.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map(String::as_str).unwrap_or_default()
    }

    /// The public keys, as `/openid/v1/jwks` shows them.
    pub fn jwks(&self) -> Value {
        json!({"keys": [self.jwk]})
    }

    /// Signs a token.
    ///
    /// # Errors
    /// The signature could not be made.
    pub fn sign(&self, claims: &Claims) -> Result<String, String> {
        self.signed(claims)
    }

    /// Signs a token for a Secret.
    ///
    /// # Errors
    /// As [`Tokens::sign`].
    pub fn sign_legacy(&self, claims: &LegacyClaims) -> Result<String, String> {
        self.signed(claims)
    }

    fn signed(&self, claims: &impl Serialize) -> Result<String, String> {
        let mut header = Header::new(Algorithm::ES256);
        header.typ = None;
        header.kid = Some(self.key_id.clone());
        jsonwebtoken::encode(&header, claims, &self.signing).map_err(|error| format!("cannot sign a token: {error}"))
    }

    /// Checks form, issuer, signature, time and audience; what the token is bound to is [`check_bound`]'s part.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn verify(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Claims, TokenError> {
        let claims: Claims = claims_in(token)?;
        if !self.issuers.contains(&claims.iss) {
            return Err(TokenError::NotOurs);
        }
        self.check_signature(token)?;
        let second = now.as_second();
        if second >= claims.exp || second < claims.nbf {
            return Err(TokenError::Time);
        }
        if !claims.aud.iter().any(|audience| audiences.contains(audience)) {
            return Err(TokenError::Audience(claims.aud, audiences.to_vec()));
        }
        Ok(claims)
    }
}

impl Tokens {
    /// Checks form, issuer and signature of a token from a Secret; whether it still holds is judged by live state.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn verify_legacy(&self, token: &str) -> Result<LegacyClaims, TokenError> {
        let claims: LegacyClaims = claims_in(token)?;
        if claims.iss != legacy::ISSUER {
            return Err(TokenError::NotOurs);
        }
        self.check_signature(token)?;
        let checked = claims.check();
        checked.map_err(|why| TokenError::Invalidated(why.to_owned()))?;
        Ok(claims)
    }

    /// The clock is injected, so the library checks the signature alone.
    fn check_signature(&self, token: &str) -> Result<(), TokenError> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let read = jsonwebtoken::decode::<Value>(token, &self.verifying, &validation);
        read.map(drop).map_err(|_| TokenError::Signature)
    }
}

/// What a token claims, unverified.
fn claims_in<T: DeserializeOwned>(token: &str) -> Result<T, TokenError> {
    let body = token.split('.').nth(1).ok_or(TokenError::NotOurs)?;
    let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError::NotOurs)?;
    serde_json::from_slice(&body).map_err(|_| TokenError::NotOurs)
}

/// The bytes of the first PEM block.
fn pem_body(pem: &str) -> Option<Vec<u8>> {
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    base64::engine::general_purpose::STANDARD.decode(body.trim()).ok()
}

/// Whether the account and everything the token is bound to still exist. `lookup(resource, namespace, name)` answers from live state.
///
/// # Errors
/// [`TokenError::Invalidated`] naming what is gone.
pub fn check_bound<T: AsRef<Value>>(
    claims: &Claims,
    now: Timestamp,
    lookup: impl Fn(&str, &str, &str) -> Option<T>,
) -> Result<(), TokenError> {
    let private = &claims.private;
    let home = private.namespace.as_str();
    let bound = [
        ("serviceaccounts", home, Some(&private.serviceaccount)),
        ("pods", home, private.pod.as_ref()),
        ("secrets", home, private.secret.as_ref()),
        // With a pod the node is only information, as upstream.
        ("nodes", "", private.node.as_ref().filter(|_| private.pod.is_none())),
    ];
    for (resource, namespace, bound) in bound {
        let Some(bound) = bound else { continue };
        let gone = |why: &str| Err(TokenError::Invalidated(format!("{resource} \"{}\" {why}", bound.name)));
        let Some(object) = lookup(resource, namespace, &bound.name) else {
            return gone("does not exist");
        };
        let metadata = &object.as_ref()["metadata"];
        if metadata["uid"] != bound.uid.as_str() {
            return gone("has another uid");
        }
        let deleted = metadata["deletionTimestamp"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok());
        if deleted.is_some_and(|at| at.as_second() + LEEWAY_SECONDS < now.as_second()) {
            return gone("has been deleted");
        }
    }
    Ok(())
}

/// The identity a token gives.
pub fn user_of(claims: &Claims) -> User {
    let private = &claims.private;
    let mut user = User::service_account(&private.namespace, &private.serviceaccount.name);
    user.uid = Some(private.serviceaccount.uid.clone());
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra
                .insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        }
    };
    if let Some(pod) = &private.pod {
        extra("pod-name", &pod.name);
        extra("pod-uid", &pod.uid);
    }
    if let Some(node) = &private.node {
        extra("node-name", &node.name);
        extra("node-uid", &node.uid);
    }
    extra("credential-id", &format!("JTI={}", claims.jti));
    user
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn tokens(issuer: &str) -> Tokens {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let issuers = vec![issuer.to_owned()];
        Tokens::new(
            &key.serialize_pem(),
            &key.public_key_pem(),
            issuers,
            vec!["api".to_owned()],
        )
        .unwrap()
    }

    fn claims() -> Claims {
        Claims {
            aud: vec!["api".to_owned()],
            exp: 2_000,
            iat: 1_000,
            iss: "https://a".to_owned(),
            jti: "id".to_owned(),
            private: Private {
                namespace: "ns".to_owned(),
                node: None,
                pod: Some(Bound {
                    name: "p".to_owned(),
                    uid: "pu".to_owned(),
                }),
                secret: None,
                serviceaccount: Bound {
                    name: "sa".to_owned(),
                    uid: "su".to_owned(),
                },
                warnafter: None,
            },
            nbf: 1_000,
            sub: "system:serviceaccount:ns:sa".to_owned(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_reads_back_as_it_was_signed() {
        let tokens = tokens("https://a");
        let token = tokens.sign(&claims()).unwrap();
        let read = tokens.verify(&token, tokens.audiences(), at(1_500)).unwrap();
        assert_eq!(read, claims());
        let user = user_of(&read);
        assert_eq!(user.name, "system:serviceaccount:ns:sa");
        assert_eq!(user.extra["authentication.kubernetes.io/pod-uid"], ["pu"]);
        assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=id"]);
    }

    #[test]
    fn wrong_time_audience_issuer_and_key_are_refused() {
        let ours = tokens("https://a");
        let token = ours.sign(&claims()).unwrap();
        let api = ["api".to_owned()];
        assert_eq!(ours.verify(&token, &api, at(2_000)), Err(TokenError::Time));
        assert_eq!(ours.verify(&token, &api, at(999)), Err(TokenError::Time));
        let other = ["vault".to_owned()];
        assert!(matches!(
            ours.verify(&token, &other, at(1_500)),
            Err(TokenError::Audience(..))
        ));
        assert_eq!(
            tokens("https://a").verify(&token, &api, at(1_500)),
            Err(TokenError::Signature)
        );
        assert_eq!(
            tokens("https://b").verify(&token, &api, at(1_500)),
            Err(TokenError::NotOurs)
        );
        assert_eq!(ours.verify("opaque", &api, at(1_500)), Err(TokenError::NotOurs));
    }

    #[test]
    fn an_unsigned_or_altered_token_is_refused() {
        let ours = tokens("https://a");
        let token = ours.sign(&claims()).unwrap();
        let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
        let mut forged = claims();
        forged.private.serviceaccount.name = "admin".to_owned();
        parts[1] = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&forged).unwrap());
        assert_eq!(
            ours.verify(&parts.join("."), ours.audiences(), at(1_500)),
            Err(TokenError::Signature)
        );
        parts[0] = URL_SAFE_NO_PAD.encode(br#"{"alg":"none"}"#);
        parts[2].clear();
        assert_eq!(
            ours.verify(&parts.join("."), ours.audiences(), at(1_500)),
            Err(TokenError::Signature)
        );
    }

    #[test]
    fn bound_objects_must_live() {
        let live = |pod_uid: &'static str, deleted: Option<&'static str>| {
            move |resource: &str, namespace: &str, _: &str| {
                assert_eq!(namespace, "ns");
                let mut metadata = json!({"uid": if resource == "pods" { pod_uid } else { "su" }});
                if let (Some(at), "pods") = (deleted, resource) {
                    metadata["deletionTimestamp"] = json!(at);
                }
                Some(Arc::new(json!({"metadata": metadata})))
            }
        };
        assert!(check_bound(&claims(), at(1_500), live("pu", None)).is_ok());
        assert!(check_bound(&claims(), at(1_500), live("other", None)).is_err());
        assert!(check_bound(&claims(), at(100), live("pu", Some("1970-01-01T00:01:00Z"))).is_ok());
        assert!(check_bound(&claims(), at(121), live("pu", Some("1970-01-01T00:01:00Z"))).is_err());
        assert!(check_bound(&claims(), at(1_500), |_: &str, _: &str, _: &str| None::<Arc<Value>>).is_err());
    }

    #[test]
    fn the_public_key_is_a_jwk() {
        let jwks = tokens("https://a").jwks();
        assert_eq!(jwks["keys"][0]["crv"], "P-256");
        assert_eq!(jwks["keys"][0]["x"].as_str().unwrap().len(), 43);
    }
}
