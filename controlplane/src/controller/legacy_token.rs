//! Tokens of service accounts that lie in Secrets (control-plane contract §6, §12): upstream's way before tokens were asked for.
//!
//! Nobody makes such Secrets any more, but whoever makes one gets it filled ([`fill`]), and those that were made for accounts and that
//! nobody used for a year go ([`clean`]). Who may use a token is the API server's (`apiserver::authn::legacy`).

use super::well_known::account_token;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use std::sync::Arc;

pub mod clean;
pub mod fill;

/// Whom a token speaks for, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Namespace of account and Secret.
    pub namespace: String,
    /// The account's name.
    pub account: String,
    /// The account's UID.
    pub account_uid: String,
    /// The Secret's name.
    pub secret: String,
}

/// Makes a token, or says why it cannot.
pub type Sign = Arc<dyn Fn(&Subject) -> Result<String, String> + Send + Sync>;

/// The name and, where it is said, the UID of the account that a token is of.
fn account_of(secret: &Secret) -> (&str, &str) {
    let annotations = secret.annotations();
    let text = |key| annotations.get(key).map(String::as_str).unwrap_or_default();
    (text(account_token::ACCOUNT_NAME), text(account_token::ACCOUNT_UID))
}

/// Whether the account is the one of that UID; any is, if none is said.
fn is_of(account: &ServiceAccount, uid: &str) -> bool {
    uid.is_empty() || account.metadata.uid.as_deref() == Some(uid)
}

/// Whether the account names the Secret: it was made for it, and not by a user.
fn refers_to(account: &ServiceAccount, secret: &str) -> bool {
    let mut references = account.secrets.iter().flatten();
    references.any(|reference| reference.name.as_deref() == Some(secret))
}
