//! Service account tokens for pods: issued by TokenRequest, kept until 80 % of their life is over.

use super::ObjectError;
use crate::autonomy::KeptToken;
use crate::id::PodUid;
use client::{Clock, tree};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec, TokenRequestStatus};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const AGE_MAX: SignedDuration = SignedDuration::from_hours(24);
const ISSUE_DEADLINE: Duration = Duration::from_secs(30);

/// Which token a pod wants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRequestKey {
    /// The pod it is bound to.
    pub pod_uid: PodUid,
    /// That pod's name.
    pub pod_name: String,
    /// The namespace of pod and service account.
    pub namespace: String,
    /// The service account.
    pub service_account: String,
    /// That service account's UID, if the token is to be that one's and no later one's; else empty.
    pub service_account_uid: String,
    /// Whom it is for; empty means the API server itself.
    pub audience: String,
    /// Wanted life in seconds.
    pub expiration_seconds: i64,
}

/// A token and when to ask for a new one.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The JWT.
    pub value: String,
    /// From when on a new one is wanted.
    pub refresh_at: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("refresh_at", &self.refresh_at)
            .finish_non_exhaustive()
    }
}

type Slot = Arc<tokio::sync::Mutex<Option<(Token, Timestamp)>>>;

/// Tokens by request; requests for one token are joined.
pub(super) struct Tokens {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    slots: Mutex<BTreeMap<TokenRequestKey, Slot>>,
}

/// When a token issued at `issued` is to be replaced: after 80 % of its life, at most after 24 hours.
fn refresh_time(issued: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.duration_since(issued);
    let wait = SignedDuration::from_secs(life.as_secs().saturating_mul(4) / 5).min(AGE_MAX);
    issued.checked_add(wait).unwrap_or(expires)
}

impl Tokens {
    pub(super) fn new(client: kube::Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            clock,
            slots: Mutex::default(),
        }
    }

    pub(super) fn release(&self, pod: &PodUid) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|key, _| key.pod_uid != *pod);
    }

    /// Has a token there to begin with, unless there is one already.
    pub(super) fn start_with(&self, key: &TokenRequestKey, token: Token, expires: Timestamp) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(key.clone()).or_default();
        if let Ok(mut held) = slot.try_lock() {
            held.get_or_insert((token, expires));
        }
    }

    /// The tokens there are; one that is being asked for is told of the next time.
    pub(super) fn held(&self) -> Vec<(TokenRequestKey, KeptToken)> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let held = slots.iter().filter_map(|(key, slot)| {
            let held = slot.try_lock().ok()?;
            let (token, expires) = held.as_ref()?;
            let kept = KeptToken {
                value: token.value.clone(),
                expires: expires.as_second(),
            };
            Some((key.clone(), kept))
        });
        held.collect()
    }

    pub(super) async fn get(&self, key: &TokenRequestKey) -> Result<Token, ObjectError> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.entry(key.clone()).or_default().clone()
        };
        let mut held = slot.lock().await;
        let now = self.clock.now();
        if let Some((token, _)) = held.as_ref().filter(|(token, _)| token.refresh_at > now) {
            return Ok(token.clone());
        }
        match self.issue(key, now).await {
            Ok((token, expires)) => {
                *held = Some((token.clone(), expires));
                Ok(token)
            }
            // The old one still works for a while: a server that is away must not break running pods.
            Err(error) => match held.as_ref().filter(|(_, expires)| *expires > now) {
                Some((token, _)) => {
                    tracing::warn!(pod = %key.pod_name, namespace = %key.namespace, %error, "service account token not renewed, using the old one");
                    Ok(token.clone())
                }
                None => Err(error),
            },
        }
    }

    async fn issue(&self, key: &TokenRequestKey, now: Timestamp) -> Result<(Token, Timestamp), ObjectError> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(key.audience.clone()).filter(|a| !a.is_empty()).map(|a| vec![a]),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(key.pod_name.clone()),
                    uid: Some(key.pod_uid.to_string()),
                }),
                expiration_seconds: Some(key.expiration_seconds),
            }),
            metadata: ObjectMeta {
                uid: Some(key.service_account_uid.clone()).filter(|uid| !uid.is_empty()),
                ..ObjectMeta::default()
            },
            ..TokenRequest::default()
        };
        let account = (key.namespace.as_str(), key.service_account.as_str());
        let call = tree::create_of::<ServiceAccount, _>(&self.client, account, "token", &request);
        let status: Option<TokenRequestStatus> = tokio::time::timeout(ISSUE_DEADLINE, call)
            .await
            .map_err(|_| ObjectError::Token("the API server did not answer in time".into()))?
            .and_then(|answer| tree::status_of(&answer))
            .map_err(|error| ObjectError::Token(error.to_string()))?;
        let status = status.unwrap_or_default();
        let (Some(value), Some(expires)) = (status.token, status.expiration_timestamp) else {
            return Err(ObjectError::Token("the answer has no token".into()));
        };
        let expires = expires.0;
        let token = Token {
            value,
            refresh_at: refresh_time(now, expires),
        };
        Ok((token, expires))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewed_at_four_fifths_or_a_day() {
        let start = Timestamp::UNIX_EPOCH;
        let at = |seconds: i64| Timestamp::from_second(seconds).expect("in range");
        assert_eq!(refresh_time(start, at(3600)), at(2880));
        assert_eq!(refresh_time(start, at(365 * 86400)), at(86400));
    }
}
