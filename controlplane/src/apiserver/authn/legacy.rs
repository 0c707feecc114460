//! Tokens that lie in Secrets: what they claim, and whether that still holds (control-plane contract §6). Pure.
//!
//! They have no end and no audience; what ends them is that their Secret or account goes, that the Secret says something else, or that it
//! was marked for nobody used it. Texts are upstream's (`pkg/serviceaccount/legacy.go`).

use super::service_account::TokenError;
use crate::apiserver::user::User;
use crate::controller::legacy_token::Subject;
use crate::controller::well_known::account_token::{INVALID_SINCE, LAST_USED};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The issuer of all of them.
pub const ISSUER: &str = "kubernetes/serviceaccount";

/// What such a token claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyClaims {
    /// Always [`ISSUER`].
    pub iss: String,
    /// Namespace of account and Secret.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace", default)]
    pub namespace: String,
    /// The Secret it lies in.
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name", default)]
    pub secret: String,
    /// The account's name.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name", default)]
    pub account: String,
    /// The account's UID.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid", default)]
    pub account_uid: String,
    /// `system:serviceaccount:<namespace>:<name>`.
    #[serde(default)]
    pub sub: String,
}

impl LegacyClaims {
    /// Of a token for that account and Secret.
    pub fn of(subject: &Subject) -> Self {
        Self {
            iss: ISSUER.to_owned(),
            namespace: subject.namespace.clone(),
            secret: subject.secret.clone(),
            account: subject.account.clone(),
            account_uid: subject.account_uid.clone(),
            sub: format!("system:serviceaccount:{}:{}", subject.namespace, subject.account),
        }
    }

    /// Whether everything is claimed that must be, and fits together.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        for (claim, why) in [
            (&self.sub, "sub claim is missing"),
            (&self.namespace, "namespace claim is missing"),
            (&self.secret, "secretName claim is missing"),
            (&self.account, "serviceAccountName claim is missing"),
            (&self.account_uid, "serviceAccountUID claim is missing"),
        ] {
            if claim.is_empty() {
                return Err(why);
            }
        }
        match self.sub == format!("system:serviceaccount:{}:{}", self.namespace, self.account) {
            true => Ok(()),
            false => Err("sub claim is invalid"),
        }
    }
}

/// A token that was presented and is its Secret's: the label with the day of its last use is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// The Secret's UID.
    pub uid: String,
}

/// What came of a token.
pub(super) struct Judged {
    /// Whom it gives, or why nobody.
    pub(super) user: Result<User, TokenError>,
    /// The use, unless it is noted already.
    pub(super) used: Option<Use>,
}

/// Whether a use at `now` is noted by the label: that of the day, or, by another server's clock, of the next.
pub fn is_noted(label: Option<&str>, now: Timestamp) -> bool {
    let today = now.to_zoned(TimeZone::UTC).date();
    let days = [Some(today), today.checked_add(1.day()).ok()];
    let mut days = days.into_iter().flatten();
    label.is_some_and(|label| days.any(|day| day.strftime("%Y-%m-%d").to_string() == label))
}

/// Judges a token whose signature is good. `lookup(resource, namespace, name)` answers from live state.
pub(super) fn judge<T: AsRef<Value>>(
    claims: &LegacyClaims,
    token: &str,
    now: Timestamp,
    lookup: impl Fn(&str, &str, &str) -> Option<T>,
) -> Judged {
    let refused = |why: &str| Judged {
        user: Err(TokenError::Invalidated(why.to_owned())),
        used: None,
    };
    let (namespace, name) = (&claims.namespace, &claims.account);
    let is_deleted = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    let Some(secret) = lookup("secrets", namespace, &claims.secret) else {
        return refused("Token has been invalidated");
    };
    let secret = secret.as_ref();
    if is_deleted(secret) {
        return refused("Token has been invalidated");
    }
    let own = secret["data"]["token"].as_str().unwrap_or_default();
    if !super::same_bytes(&STANDARD.decode(own).unwrap_or_default(), token.as_bytes()) {
        return refused("Token does not match server's copy");
    }
    let Some(account) = lookup("serviceaccounts", namespace, name) else {
        return refused(&format!("serviceaccounts \"{name}\" not found"));
    };
    let account = account.as_ref();
    if is_deleted(account) {
        return refused(&format!("ServiceAccount {namespace}/{name} has been deleted"));
    }
    let uid = account["metadata"]["uid"].as_str().unwrap_or_default();
    if uid != claims.account_uid {
        let claimed = &claims.account_uid;
        return refused(&format!("ServiceAccount UID ({uid}) does not match claim ({claimed})"));
    }
    let label = |key: &str| secret["metadata"]["labels"][key].as_str();
    let used = (!is_noted(label(LAST_USED), now)).then(|| Use {
        namespace: namespace.clone(),
        secret: claims.secret.clone(),
        uid: secret["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
    });
    if label(INVALID_SINCE).is_some_and(|since| !since.is_empty()) {
        let why = format!(
            "the token in secret {namespace}/{} for service account {namespace}/{name} has been marked invalid. Use tokens from the \
             TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to \
             temporarily allow use of this token",
            claims.secret
        );
        let user = Err(TokenError::Invalidated(why));
        return Judged { user, used };
    }
    let mut user = User::service_account(namespace, name);
    user.uid = Some(uid.to_owned());
    Judged { user: Ok(user), used }
}

#[cfg(test)]
mod tests;
